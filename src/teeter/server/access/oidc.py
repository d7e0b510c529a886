"""Log in through an OpenID Connect provider: what is asked of it, and checks of what it says."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any
from urllib.parse import quote_plus, urlencode, urlsplit

import httpx2
from itsdangerous import BadData, URLSafeTimedSerializer
from joserfc import jwt
from joserfc.errors import BadSignatureError, InvalidKeyIdError, JoseError
from joserfc.jwk import JWKRegistry, KeySet
from pydantic import AfterValidator, BaseModel, ValidationError

from teeter.errors import TeeterError
from teeter.server.access.login_config import OidcConfig, require_tls

_MAX_ATTEMPT_AGE = 600
"""Seconds in which a person must log in at the provider."""

_MAX_USED = 10_000
"""Attempts that are remembered as used, so that memory stays bounded. Whoever completes more in ten
minutes can use an attempt twice, but not its code, which the provider accepts once."""


@dataclass(frozen=True)
class LoginAttempt:
    """The secrets of one login."""

    state: str
    """Comes back from the provider: shows that the login began in the same browser."""
    nonce: str
    """Comes back in the ID token: shows that the token was issued for this login."""
    code_verifier: str
    """Proves to the provider that the code is used by whom it was meant for (PKCE)."""
    next: str
    """The page to show after the login."""


class LoginAttempts:
    """Begins logins, and accepts each of them back once.

    An attempt travels in a signed cookie of the browser that began it, so that the server keeps
    nothing for logins that are never completed.

    Stops login forgery: an attacker can make a browser open the address that completes the
    attacker's own login, but the browser has no cookie with that state.
    """

    def __init__(self, secret: bytes) -> None:
        self._serializer = URLSafeTimedSerializer(
            secret, salt="teeter login", signer_kwargs={"digest_method": hashlib.sha256}
        )
        self._used_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def begin(self, next_page: str) -> LoginAttempt:
        """Return a new attempt."""
        return LoginAttempt(
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            code_verifier=secrets.token_urlsafe(48),
            next=next_page,
        )

    def encode(self, attempt: LoginAttempt) -> str:
        """Return the signed value of the cookie."""
        return str(self._serializer.dumps(asdict(attempt)))

    def take(self, cookie: str, state: str) -> LoginAttempt | None:
        """Return the attempt of a browser that comes back, and mark it as used.

        Args:
            state: the state in the address that the provider sent the browser to.

        Returns:
            None if the cookie is forged, too old or used, or of another attempt.
        """
        try:
            attempt = LoginAttempt(**self._serializer.loads(cookie, max_age=_MAX_ATTEMPT_AGE))
        except (BadData, TypeError):
            return None

        # In constant time, and for any text: the state is what a stranger wrote into an address.
        given = state.encode("utf-8", "replace")
        if not hmac.compare_digest(attempt.state.encode(), given):
            return None
        if not self._mark_used(attempt.state):
            return None
        return attempt

    def _mark_used(self, state: str) -> bool:
        """Mark an attempt as used, and return whether it was not used before."""
        now = time.monotonic()
        with self._lock:
            # Insertion order is the order of time: the outdated ones come first.
            while self._used_at:
                oldest = next(iter(self._used_at))
                is_outdated = self._used_at[oldest] < now - _MAX_ATTEMPT_AGE
                if not is_outdated and len(self._used_at) < _MAX_USED:
                    break
                del self._used_at[oldest]

            if state in self._used_at:
                return False
            self._used_at[state] = now
            return True


_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]
"""Signatures by a private key that only the provider has."""

_LEEWAY = 60
"""Seconds by which the clocks of the provider and of this server may differ."""

_MAX_DISCOVERY_AGE = 3600.0
"""Seconds for which the provider's description and keys are used. A key that the provider no longer
publishes, because someone else has it, is refused after that time."""

_TIMEOUT = 10.0
"""Seconds in which the provider must send an answer."""

_MAX_BYTES = 1_000_000
"""Largest answer of the provider. Usual ones have some kilobytes."""

_ADDRESS = re.compile(r"[^@\s,;<>\"]+@[^@\s,;<>\"]+")

Endpoint = Annotated[str, AfterValidator(require_tls)]
"""An address as the provider publishes it: with a slash at its end, if it has one there."""


class LoginRefusedError(TeeterError):
    """The provider's answer is no proof of who the person is, or they are not let in."""


class ProviderUnavailableError(TeeterError):
    """The provider cannot be reached, or does not answer as the standard says."""


class _Discovery(BaseModel):
    """What the provider says about itself, as far as it is used."""

    issuer: str
    authorization_endpoint: Endpoint
    token_endpoint: Endpoint
    jwks_uri: Endpoint
    authorization_response_iss_parameter_supported: bool = False


class OidcProvider:
    """A provider of accounts.

    Args:
        config: the provider, and who we are there.
        redirect_url: where it sends browsers back to.
    """

    def __init__(self, config: OidcConfig, redirect_url: str) -> None:
        self.config = config
        self._redirect_url = redirect_url

        # Without a lock: two threads that both ask the provider do no harm, but all would wait for
        # one of them if it is slow.
        self._discovery: _Discovery | None = None
        self._discovered_at = 0.0
        self._keys: KeySet | None = None
        self._keys_fetched_at = 0.0

    def authorization_url(self, attempt: LoginAttempt) -> str:
        """Return the address of the provider's login page for an attempt.

        Raises:
            ProviderUnavailableError: the provider does not say where that is.
        """
        # The hash by which the provider recognises the verifier (PKCE, S256).
        digest = hashlib.sha256(attempt.code_verifier.encode()).digest()
        code_challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        query = {
            "response_type": "code",
            "client_id": self.config.client_id,
            "redirect_uri": self._redirect_url,
            "scope": " ".join(self.config.scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": code_challenge,
            "code_challenge_method": "S256",
        }
        endpoint = self._discover().authorization_endpoint
        # Some providers select a tenant or a policy by a query of their own.
        separator = "&" if urlsplit(endpoint).query else "?"
        return f"{endpoint}{separator}{urlencode(query)}"

    def require_issuer(self, issuer: str) -> None:
        """Refuse a browser that another provider has sent (RFC 9207).

        A code of another provider would otherwise be sent to this one.

        Args:
            issuer: who sent the browser, as the address says; empty if it does not say so.

        Raises:
            LoginRefusedError: it was another provider, or one that should say who it is.
            ProviderUnavailableError: the provider does not answer.
        """
        discovery = self._discover()
        is_missing = not issuer and discovery.authorization_response_iss_parameter_supported
        if is_missing or (issuer and issuer != discovery.issuer):
            raise LoginRefusedError("Another provider answered this login: log in again.")

    def fetch_email(self, code: str, attempt: LoginAttempt) -> str:
        """Exchange the code that a browser brought for an ID token, and return its e-mail address.

        Raises:
            LoginRefusedError: the code or the token is not valid for this login.
            ProviderUnavailableError: the provider does not answer.
        """
        id_token = self._exchange(code, attempt)
        claims = self._verify(id_token, attempt.nonce)
        email = claims.get("email")
        # One address, or its end could let someone in whose own is another. And printable: a person
        # may have chosen the text, and it goes to the log.
        if not isinstance(email, str) or not _ADDRESS.fullmatch(email) or not email.isprintable():
            raise LoginRefusedError(
                "Your account has no e-mail address, but this server needs one."
            )

        # Some providers let people enter any address. Only the verified one is theirs. The setting
        # is for providers that do not say; one that says "no" is believed.
        is_verified = claims.get("email_verified")
        may_be_missing = not self.config.require_verified_email
        if is_verified is not True and not (is_verified is None and may_be_missing):
            raise LoginRefusedError(f"The provider has not verified the address {email[:80]}.")
        return email

    def _exchange(self, code: str, attempt: LoginAttempt) -> str:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_url,
            "client_id": self.config.client_id,
            "code_verifier": attempt.code_verifier,
        }
        authorization = None
        secret = self.config.client_secret
        if secret is not None and self.config.client_auth == "client_secret_post":
            form["client_secret"] = secret.get_secret_value()
        elif secret is not None:
            # RFC 6749 encodes both before HTTP does: they may have a colon.
            user = quote_plus(self.config.client_id)
            authorization = httpx2.BasicAuth(user, quote_plus(secret.get_secret_value()))

        status, tokens = self._request(
            "POST", self._discover().token_endpoint, data=form, auth=authorization
        )
        if not isinstance(tokens, dict):
            raise self._unavailable("its answer is not an object")
        if status != httpx2.codes.OK or "error" in tokens:
            # The code of an error is one of a short list. Its description may say anything.
            reason = str(tokens.get("error", status))[:60]
            raise LoginRefusedError(f"The provider refused the login ({reason!r}): log in again.")

        id_token = tokens.get("id_token")
        if not isinstance(id_token, str):
            raise self._unavailable("its answer has no ID token")
        return id_token

    def _verify(self, id_token: str, nonce: str) -> Mapping[str, Any]:
        """Return what an ID token says, if it is genuine and for this login."""
        try:
            token = self._decode(id_token)
            required = jwt.JWTClaimsRegistry(
                leeway=_LEEWAY,
                iss={"essential": True, "value": self._discover().issuer},
                aud={"essential": True, "value": self.config.client_id},
                sub={"essential": True},
                exp={"essential": True},
                iat={"essential": True},
                nonce={"essential": True, "value": nonce},
            )
            required.validate(token.claims)
        except (JoseError, ValueError, TypeError, RecursionError) as error:
            # The class says enough. The message may quote the token.
            raise LoginRefusedError(
                f"The provider's ID token is not valid ({type(error).__name__}): log in again."
            ) from error

        # A token for several clients says for which of them it was issued.
        claims: dict[str, Any] = token.claims
        audience = claims["aud"]
        party = claims.get("azp", self.config.client_id)
        is_shared = isinstance(audience, list) and len(audience) > 1
        names_other = is_shared and "azp" not in claims
        if names_other or party != self.config.client_id:
            raise LoginRefusedError("The provider's ID token was issued for another application.")
        return claims

    def _decode(self, id_token: str) -> jwt.Token:
        try:
            return jwt.decode(id_token, self._signing_keys(), algorithms=_ALGORITHMS)
        except (InvalidKeyIdError, BadSignatureError):
            # Providers change their keys now and then, and not all of them name their keys.
            return jwt.decode(id_token, self._fetch_keys(), algorithms=_ALGORITHMS)

    def _discover(self) -> _Discovery:
        """Return what the provider says about itself; it is asked once an hour."""
        now = time.monotonic()
        if self._discovery is not None and now < self._discovered_at + _MAX_DISCOVERY_AGE:
            return self._discovery

        document = self._get(f"{self.config.issuer}/.well-known/openid-configuration")
        try:
            discovery = _Discovery.model_validate(document)
        except ValidationError as error:
            names = [".".join(map(str, problem["loc"])) for problem in error.errors()]
            fields = ", ".join(names) or "everything"
            raise self._unavailable(f"wrong or missing: {fields}") from None

        # Another issuer could otherwise answer instead of the one that is trusted.
        if discovery.issuer.removesuffix("/") != self.config.issuer:
            raise self._unavailable(f"it calls itself {discovery.issuer[:200]!r}")

        self._discovery = discovery
        self._discovered_at = now
        return discovery

    def _signing_keys(self) -> KeySet:
        is_fresh = time.monotonic() < self._keys_fetched_at + _MAX_DISCOVERY_AGE
        if self._keys is not None and is_fresh:
            return self._keys
        return self._fetch_keys()

    def _fetch_keys(self) -> KeySet:
        document = self._get(self._discover().jwks_uri)
        descriptions = None
        if isinstance(document, dict):
            descriptions = document.get("keys")
        if not isinstance(descriptions, list):
            raise self._unavailable("its keys cannot be read")

        keys = []
        for description in descriptions:
            if not isinstance(description, dict):
                continue
            # Keys for encryption sign nothing.
            if description.get("use", "sig") != "sig":
                continue
            try:
                keys.append(JWKRegistry.import_key(description))
            except (JoseError, KeyError, TypeError, ValueError):
                # A key of a kind that is not known here must not make the others useless.
                continue

        if not keys:
            raise self._unavailable("it has no key that can be read")
        self._keys = KeySet(keys)
        self._keys_fetched_at = time.monotonic()
        return self._keys

    def _get(self, url: str) -> Any:
        """Return the JSON document at an address of the provider."""
        status, document = self._request("GET", url)
        if status != httpx2.codes.OK:
            raise self._unavailable(f"status {status}")
        return document

    def _request(self, method: str, url: str, **options: Any) -> tuple[int, Any]:
        """Return the status and the JSON document that the provider answers a request with.

        Raises:
            ProviderUnavailableError: the answer is no JSON, too long or too late, or none.
        """
        deadline = time.monotonic() + _TIMEOUT
        body = bytearray()
        # Compressed, a short answer could fill the memory.
        headers = {"accept": "application/json", "accept-encoding": "identity"}

        try:
            # Redirects are not followed: they could lead away from TLS.
            with httpx2.stream(
                method, url, headers=headers, timeout=_TIMEOUT, follow_redirects=False, **options
            ) as response:
                # The timeout of httpx2 is that of each read, and there may be many.
                for chunk in response.iter_raw():
                    body += chunk
                    if len(body) > _MAX_BYTES:
                        raise self._unavailable("its answer is too long")
                    if time.monotonic() > deadline:
                        raise self._unavailable("its answer takes too long")
            # Only an error of the client has a document beside that of a success.
            status = response.status_code
            if not httpx2.codes.is_success(status) and not httpx2.codes.is_client_error(status):
                raise self._unavailable(f"status {status}")
            return status, json.loads(body)
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, RecursionError) as error:
            raise self._unavailable(type(error).__name__) from error

    def _unavailable(self, reason: str) -> ProviderUnavailableError:
        return ProviderUnavailableError(
            f"The login provider {self.config.issuer} did not respond as expected ({reason}): "
            "try again, or log in with a token."
        )
