"""An OpenID Connect provider on loopback: real redirects, real RSA keys, and lies on request."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

CLIENT_ID = "teeter"
CLIENT_SECRET = "a secret with : and %"


@cache
def rsa_key(kid: str) -> RSAKey:
    """Return a key of this name, made once per process."""
    return RSAKey.generate_key(2048, {"kid": kid, "use": "sig"}, private=True)


def sign(claims: dict[str, Any], key: Any = None, algorithm: str = "RS256") -> str:
    """Return a signed ID token, as the provider makes it."""
    key = key or rsa_key("first")
    return jwt.encode({"alg": algorithm, "kid": key.kid}, claims, key, algorithms=[algorithm])


class MockProvider:
    """What the provider knows, and how it deviates from the standard.

    Everybody who comes to its login page is logged in as ``email``.
    """

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.issuer = f"http://{host}:{port}"
        self.email = "ann@example.org"
        self.keys = KeySet([rsa_key("first")])

        self.changed_claims: dict[str, Any] = {}
        """Claims that replace or, if None, remove those of a correct token."""
        self.changed_discovery: dict[str, Any] = {}
        self.make_token: Callable[[dict[str, Any]], str] = sign

        self.is_down = False
        self.shows_page = False
        """Whether people see a page and must press a button, instead of being sent back at once."""
        self.answer_issuer: str | None = self.issuer
        """What it calls itself when it sends a browser back; None if it does not say."""

        self.moved_paths: dict[str, str] = {}
        """Paths of requests, and the usual ones that they stand for."""
        self.changed_responses: dict[str, bytes] = {}
        """Bodies of responses by path, instead of the right ones."""

        self.token_requests: list[dict[str, str]] = []
        self._requests_by_code: dict[str, dict[str, str]] = {}

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            **self.changed_discovery,
        }

    def authorize(self, query: dict[str, str]) -> str:
        """Return where the browser is sent back to."""
        assert query["response_type"] == "code"
        assert query["client_id"] == CLIENT_ID
        assert query["code_challenge_method"] == "S256"
        assert {"openid", "email"} <= set(query["scope"].split())

        code = secrets.token_urlsafe(16)
        self._requests_by_code[code] = query
        answer = {"code": code, "state": query["state"]}
        if self.answer_issuer is not None:
            answer["iss"] = self.answer_issuer
        return f"{query['redirect_uri']}?{urlencode(answer)}"

    def exchange(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """Return the status and the content of the answer of the token endpoint."""
        self.token_requests.append(form)
        scheme, _, credentials = authorization.partition(" ")
        sent = base64.b64decode(credentials).decode() if scheme == "Basic" else ""
        if [unquote_plus(part) for part in sent.split(":")] != [CLIENT_ID, CLIENT_SECRET]:
            return 401, {"error": "invalid_client"}

        # A code is valid once.
        request = self._requests_by_code.pop(form.get("code", ""), None)
        if request is None or form["redirect_uri"] != request["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != request["code_challenge"]:
            return 400, {"error": "invalid_grant", "error_description": "PKCE"}

        id_token = self.make_token(self.claims(request["nonce"]))
        return 200, {"access_token": "unused", "token_type": "Bearer", "id_token": id_token}

    def claims(self, nonce: str) -> dict[str, Any]:
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "sub": "1234",
            "iat": now,
            "exp": now + 300,
            "nonce": nonce,
            "email": self.email,
            "email_verified": True,
            **self.changed_claims,
        }

        return {name: value for name, value in claims.items() if value is not None}


@contextmanager
def running_provider(host: str = "127.0.0.1") -> Iterator[MockProvider]:
    """Yield a provider that answers on a free port of this machine.

    Args:
        host: what it calls itself. For a browser, ``localhost`` is another site than 127.0.0.1.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.provider = MockProvider(server.server_port, host)  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.provider  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    @property
    def provider(self) -> MockProvider:
        return self.server.provider  # type: ignore[attr-defined, no-any-return]

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}

        match self.provider.moved_paths.get(address.path, address.path):
            case _ if self.provider.is_down:
                self._send(503, {})
            case path if path in self.provider.changed_responses:
                self._send_body(200, self.provider.changed_responses[path])
            case "/.well-known/openid-configuration":
                self._send(200, self.provider.discovery())
            case "/keys":
                self._send(200, self.provider.keys.as_dict(private=False))
            case "/authorize" if self.provider.shows_page:
                address = html.escape(self.provider.authorize(query))
                page = f"<title>Provider</title><a href='{address}'>It is me</a>"
                self._send_body(200, page.encode(), "text/html")
            case "/authorize":
                self.send_response(302)
                self.send_header("location", self.provider.authorize(query))
                self.end_headers()
            case _:
                self._send(404, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        path = urlsplit(self.path).path
        if self.provider.moved_paths.get(path, path) != "/token":
            self._send(404, {})
            return

        form = {name: values[0] for name, values in parse_qs(body).items()}
        self._send(*self.provider.exchange(form, self.headers.get("authorization", "")))

    def _send(self, status: int, content: dict[str, Any]) -> None:
        self._send_body(status, json.dumps(content).encode())

    def _send_body(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""
