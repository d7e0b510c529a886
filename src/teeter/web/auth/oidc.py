"""OpenID Connect: who a person is, by their account at a provider.

The authorization code flow with PKCE: two requests, which httpx sends. joserfc checks signatures;
this file decides what is accepted:

- the provider's own description must name the issuer that was configured, and only addresses with
  TLS (or on this machine);
- an ID token must be signed by a key that the provider publishes now, with a public-key algorithm:
  ``none`` is no signature, and with HS256 the public key itself would be the secret;
- it must name this issuer, this client and the nonce of this login, and be valid now;
- the person is the e-mail address in it, if the provider has verified it.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote_plus, urlencode

import httpx
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from pydantic import BaseModel, TypeAdapter, ValidationError

from teeter.errors import TeeterError
from teeter.web.auth.login_attempts import LoginAttempt
from teeter.web.auth.login_config import HttpsUrl, OidcConfig

__all__ = ["LoginRefusedError", "OidcProvider", "ProviderUnavailableError"]

_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"]
"""Signatures by a private key that only the provider has."""

_LEEWAY = 60
"""Seconds by which the clocks of the provider and of this server may differ."""

_TIMEOUT = httpx.Timeout(10.0)


class LoginRefusedError(TeeterError):
    """The provider's answer is no proof of who the person is, or they are not let in."""


class ProviderUnavailableError(TeeterError):
    """The provider cannot be reached, or does not answer as the standard says."""


class _Discovery(BaseModel):
    """What the provider says about itself, as far as it is used."""

    issuer: str
    authorization_endpoint: HttpsUrl
    token_endpoint: HttpsUrl
    jwks_uri: HttpsUrl


class OidcProvider:
    """A provider of accounts.

    Args:
        config: the provider, and who we are there.
        redirect_url: where it sends browsers back to.
    """

    def __init__(self, config: OidcConfig, redirect_url: str) -> None:
        self.config = config
        self._redirect_url = redirect_url
        self._lock = threading.Lock()
        self._discovery: _Discovery | None = None
        self._keys: KeySet | None = None

    def authorization_url(self, attempt: LoginAttempt) -> str:
        """Return the address of the provider's login page for an attempt.

        Raises:
            ProviderUnavailableError: the provider does not say where that is.
        """
        query = {
            "response_type": "code",
            "client_id": self.config.client_id,
            "redirect_uri": self._redirect_url,
            "scope": " ".join(self.config.scopes),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": _code_challenge(attempt.code_verifier),
            "code_challenge_method": "S256",
        }
        return f"{self._discover().authorization_endpoint}?{urlencode(query)}"

    def fetch_email(self, code: str, attempt: LoginAttempt) -> str:
        """Exchange the code that a browser brought for an ID token, and return its e-mail address.

        Raises:
            LoginRefusedError: the code or the token is not valid for this login.
            ProviderUnavailableError: the provider does not answer.
        """
        id_token = self._exchange(code, attempt)
        claims = self._verify(id_token, attempt.nonce)
        return self._email(claims)

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
            authorization = httpx.BasicAuth(user, quote_plus(secret.get_secret_value()))

        try:
            response = httpx.post(
                self._discover().token_endpoint, data=form, auth=authorization, timeout=_TIMEOUT
            )
            tokens = response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise self._unavailable(type(error).__name__) from error

        if not isinstance(tokens, dict):
            raise self._unavailable("its answer is not an object")
        if response.is_error or "error" in tokens:
            # The code of an error is one of a short list. Its description may say anything.
            reason = str(tokens.get("error", response.status_code))[:60]
            raise LoginRefusedError(f"The provider refused the login ({reason}): log in again.")

        id_token = tokens.get("id_token")
        if not isinstance(id_token, str):
            raise self._unavailable("its answer has no ID token")
        return id_token

    def _verify(self, id_token: str, nonce: str) -> Mapping[str, Any]:
        """Return what an ID token says, if it is genuine and for this login."""
        try:
            token = self._decode(id_token)
            self._required_claims(nonce).validate(token.claims)
        except (JoseError, ValueError) as error:
            # The class says enough. The message may quote the token.
            raise LoginRefusedError(
                f"The provider's ID token is not valid ({type(error).__name__}): log in again."
            ) from error

        # A token for several clients says for which of them it was issued.
        claims: dict[str, Any] = token.claims
        audience = claims["aud"]
        party = claims.get("azp", self.config.client_id)
        is_shared = isinstance(audience, list) and len(audience) > 1 and "azp" not in claims
        if is_shared or party != self.config.client_id:
            raise LoginRefusedError("The provider's ID token is for another program.")
        return claims

    def _decode(self, id_token: str) -> jwt.Token:
        try:
            return jwt.decode(id_token, self._signing_keys(), algorithms=_ALGORITHMS)
        except InvalidKeyIdError:
            # Providers change their keys now and then.
            return jwt.decode(id_token, self._fetch_keys(), algorithms=_ALGORITHMS)

    def _required_claims(self, nonce: str) -> jwt.JWTClaimsRegistry:
        return jwt.JWTClaimsRegistry(
            leeway=_LEEWAY,
            iss={"essential": True, "value": self._discover().issuer},
            aud={"essential": True, "value": self.config.client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True, "value": nonce},
        )

    def _email(self, claims: Mapping[str, Any]) -> str:
        email = claims.get("email")
        if not isinstance(email, str) or "@" not in email:
            raise LoginRefusedError(
                "Your account has no e-mail address, by which this server knows people."
            )

        # Some providers let people enter any address. Only the verified one is theirs.
        if self.config.require_verified_email and claims.get("email_verified") is not True:
            raise LoginRefusedError(f"The provider has not verified the address {email[:80]}.")
        return email

    def _discover(self) -> _Discovery:
        """Return what the provider says about itself; it is asked once."""
        with self._lock:
            if self._discovery is None:
                url = f"{self.config.issuer}/.well-known/openid-configuration"
                try:
                    discovery = TypeAdapter(_Discovery).validate_python(self._get_json(url))
                except ValidationError as error:
                    fields = ", ".join(str(problem["loc"][0]) for problem in error.errors())
                    raise self._unavailable(f"wrong or missing: {fields}") from None

                # Another issuer could otherwise answer instead of the one that is trusted.
                if discovery.issuer.removesuffix("/") != self.config.issuer:
                    raise self._unavailable(f"it calls itself {discovery.issuer[:200]!r}")
                self._discovery = discovery
            return self._discovery

    def _signing_keys(self) -> KeySet:
        if self._keys is None:
            return self._fetch_keys()
        return self._keys

    def _fetch_keys(self) -> KeySet:
        document = self._get_json(self._discover().jwks_uri)
        try:
            self._keys = KeySet.import_key_set(document)
        except (JoseError, KeyError, TypeError, ValueError) as error:
            raise self._unavailable("its keys cannot be read") from error
        return self._keys

    def _get_json(self, url: str) -> Any:
        try:
            # Redirects are not followed: they could lead away from TLS.
            response = httpx.get(url, timeout=_TIMEOUT, follow_redirects=False)
            response.raise_for_status()
            return response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise self._unavailable(type(error).__name__) from error

    def _unavailable(self, reason: str) -> ProviderUnavailableError:
        return ProviderUnavailableError(
            f"The login provider {self.config.issuer} does not answer as it should ({reason}): "
            "try again, or log in with a token."
        )


def _code_challenge(code_verifier: str) -> str:
    """Return the hash by which the provider recognises the verifier (PKCE, S256)."""
    digest = hashlib.sha256(code_verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
