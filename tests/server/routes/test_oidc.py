"""Logins by an OpenID Connect provider, and attacks on them."""

from __future__ import annotations

import base64
import hmac
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx2
import pytest
from fastapi.testclient import TestClient

pytest.importorskip("joserfc")

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from server.access.mock_oidc_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    MockProvider,
    rsa_key,
    running_provider,
    sign,
)
from server.access.requests import TOKEN
from server.labelled_campaigns import AT
from server.servers import BASE, PATIENCE, find_csrf_token, make_text_campaign, serve_campaigns
from teeter.server.access import LoginConfig, SecurityConfig
from teeter.server.access.tokens import Tokens
from teeter.server.routes import oidc as oidc_pages

COOKIE = SecurityConfig(b"").cookie_name


@pytest.fixture(scope="module")
def _shared_provider() -> Iterator[MockProvider]:
    with running_provider() as provider:
        yield provider


@pytest.fixture(autouse=True)
def _patience_with_the_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the server wait for the provider, which is slow on a busy machine."""
    monkeypatch.setattr("teeter.server.access.oidc._TIMEOUT", PATIENCE)


@pytest.fixture
def provider(_shared_provider: MockProvider) -> MockProvider:
    """A provider that behaves as it should."""
    fresh = MockProvider(urlsplit(_shared_provider.issuer).port or 0)
    _shared_provider.__dict__.update(fresh.__dict__)
    return _shared_provider


def security_config(provider: MockProvider, **settings: Any) -> SecurityConfig:
    """Return the settings of a server that lets in everyone of example.org."""
    oidc = {
        "issuer": provider.issuer,
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "name": "the lab's account",
    }

    domains = ["example.org", "staff.example", "keys.example", "strasse.example"]
    content = {"url": BASE, "oidc": oidc, "access": {"domains": domains}, **settings}

    tokens = Tokens()
    tokens.add("tom", TOKEN)

    login = LoginConfig.model_validate(content)
    return SecurityConfig(b"secret", tokens, allowed_hosts=None, login=login)


@pytest.fixture(scope="module")
def _shared_client(
    _shared_provider: MockProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TestClient]:
    file = make_text_campaign(tmp_path_factory.mktemp("served") / "texts.teeter", 30)
    with serve_campaigns(file, security=security_config(_shared_provider)) as client:
        yield client


@pytest.fixture
def client(provider: MockProvider, _shared_client: TestClient) -> TestClient:
    """A browser that is not logged in, of a server that has not asked the provider anything."""
    assert provider.email == "ann@example.org"
    _shared_client.cookies.clear()
    oidc = _shared_client.app.state.oidc_login.provider  # type: ignore[attr-defined]
    oidc._discovery = oidc._keys = None
    return _shared_client


def start_login(client: TestClient, next_page: str = "/") -> str:
    """Begin a login, and return the address that the provider sends the browser back to."""
    sent_to = client.get("/login/oidc", params={"next": next_page}, follow_redirects=False)
    assert sent_to.status_code == 303
    return visit_provider(sent_to.headers["location"])


def visit_provider(address: str) -> str:
    """Open the provider's login page, and return the address that it sends the browser back to."""
    return httpx2.get(address, timeout=PATIENCE).headers["location"]


def log_in(client: TestClient, next_page: str = "/") -> httpx2.Response:
    """Log in, and return the answer to the browser that comes back."""
    return client.get(start_login(client, next_page))  # type: ignore[return-value]


def is_logged_in(client: TestClient) -> bool:
    return client.get(AT).status_code == 200


def landing_page(client: TestClient, next_page: str) -> str:
    """Log in, and return the address that the browser is sent to then."""
    return client.get(start_login(client, next_page), follow_redirects=False).headers["location"]


# ---- logins


def test_another_login_ends_the_session_before_it(client: TestClient) -> None:
    log_in(client)
    before = {"cookie": f"{COOKIE}={client.cookies[COOKIE]}"}
    log_in(client)
    assert is_logged_in(client)
    client.cookies.clear()
    assert client.get(AT, headers=before).status_code == 401


def test_a_person_logs_in_and_labels_under_their_address(client: TestClient) -> None:
    redirect = client.get("/c/texts/progress", follow_redirects=False)
    assert redirect.headers["location"] == "/login?next=%2Fc%2Ftexts%2Fprogress"
    page = client.get(redirect.headers["location"]).text
    assert "Log in with the lab&#39;s account" in page
    assert 'href="/login/oidc?next=/c/texts/progress"' in page

    response = log_in(client, "/c/texts/progress")
    assert response.status_code == 200
    assert response.url.path == "/c/texts/progress"

    session = client.get("/api/v1/session").json()
    assert session["annotator"] == "ann@example.org"
    answer = {"item": "t1", "label": "ham"}
    headers = {"x-csrf-token": session["csrf"]}
    assert client.post(f"{AT}/answers", json=answer, headers=headers).status_code == 200

    client.post("/logout", data={"csrf": session["csrf"]})
    assert not is_logged_in(client)


def test_tokens_still_work_beside_it(client: TestClient) -> None:
    headers = {"authorization": f"Bearer {TOKEN}"}
    assert client.get("/api/v1/session", headers=headers).json()["annotator"] == "tom"
    csrf = find_csrf_token(client.get("/login").text)
    client.post("/login", data={"csrf": csrf, "token": TOKEN, "next": "/c/texts"})
    assert client.get("/api/v1/session").json()["annotator"] == "tom"


def test_the_cookie_of_the_login_is_for_this_server_and_short(client: TestClient) -> None:
    cookie = client.get("/login/oidc", follow_redirects=False).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "max-age=600" in cookie
    assert "secure" not in cookie, "browsers would not send it to http://127.0.0.1"


@pytest.mark.slow
def test_over_tls_no_sibling_domain_can_set_the_cookies(
    provider: MockProvider, tmp_path: Path
) -> None:
    """evil.example.org sets cookies for example.org, to log a visitor in as the attacker."""
    file = make_text_campaign(tmp_path / "texts.teeter", 30)
    url = "https://label.example.org"
    with serve_campaigns(file, security=security_config(provider, url=url)) as client:
        client.base_url = url
        sent_to = client.get("/login/oidc", follow_redirects=False)
        names = [cookie.partition("=")[0] for cookie in sent_to.headers.get_list("set-cookie")]
        assert sorted(names) == ["__Host-teeter_session", "__Host-teeter_session_login"]
        for cookie in sent_to.headers.get_list("set-cookie"):
            assert {"secure", "path=/"} <= set(cookie.lower().split("; "))
            assert "domain" not in cookie.lower()

        answer = visit_provider(sent_to.headers["location"])
        planted = {name.removeprefix("__Host-"): client.cookies[name] for name in names}
        client.cookies.clear()
        client.cookies.update(planted)
        assert "not started here" in client.get(answer).text


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [-30, 30])
def test_clocks_may_differ_by_less_than_a_minute(
    client: TestClient, provider: MockProvider, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    # The clock of the server stands still, so that the token does not expire during a slow login.
    now = int(time.time())
    monkeypatch.setattr(jwt, "JWTClaimsRegistry", partial(jwt.JWTClaimsRegistry, now=now))

    issued_at = now + seconds
    expires_at = min(issued_at, now) + 5
    provider.changed_claims = {"iat": issued_at, "nbf": issued_at, "exp": expires_at}
    assert log_in(client).status_code == 200


@pytest.mark.slow
def test_addresses_of_the_provider_are_used_as_published(
    client: TestClient, provider: MockProvider
) -> None:
    """Authentik's end in a slash, without which it does not answer; others have a query."""
    provider.changed_discovery = {
        "issuer": f"{provider.issuer}/",
        "authorization_endpoint": f"{provider.issuer}/authorize?policy=lab",
        "token_endpoint": f"{provider.issuer}/token/",
        "jwks_uri": f"{provider.issuer}/keys/",
    }
    provider.moved_paths = {"/token/": "/token", "/keys/": "/keys"}
    provider.answer_issuer = f"{provider.issuer}/"
    provider.changed_claims = {"iss": f"{provider.issuer}/"}

    sent_to = client.get("/login/oidc", follow_redirects=False).headers["location"]
    assert "/authorize?policy=lab&response_type=code" in sent_to
    assert client.get(visit_provider(sent_to)).status_code == 200


def test_a_new_key_of_the_provider_is_fetched(client: TestClient, provider: MockProvider) -> None:
    assert log_in(client).status_code == 200
    client.cookies.clear()
    provider.keys = KeySet([rsa_key("second")])
    provider.make_token = lambda claims: sign(claims, rsa_key("second"))
    assert log_in(client).status_code == 200


@pytest.mark.slow
def test_a_new_key_of_the_same_name_is_fetched(client: TestClient, provider: MockProvider) -> None:
    assert log_in(client).status_code == 200
    client.cookies.clear()
    renamed = rsa_key("second").as_dict(private=True) | {"kid": "first"}
    provider.keys = KeySet([RSAKey.import_key(renamed)])
    provider.make_token = lambda claims: sign(claims, RSAKey.import_key(renamed))
    assert log_in(client).status_code == 200


def sign_without_key_id(claims: dict[str, Any]) -> str:
    """Return a token that does not say which key it is signed with."""
    return jwt.encode({"alg": "RS256"}, claims, rsa_key("first"), algorithms=["RS256"])


@pytest.mark.slow
def test_a_single_key_needs_no_name(client: TestClient, provider: MockProvider) -> None:
    key = rsa_key("first").as_dict(private=False)
    del key["kid"]
    provider.changed_responses["/keys"] = json.dumps({"keys": [key]}).encode()
    provider.make_token = sign_without_key_id
    assert log_in(client).status_code == 200


@pytest.mark.slow
def test_a_token_that_does_not_name_its_key_is_refused_if_there_are_several(
    client: TestClient, provider: MockProvider
) -> None:
    provider.keys = KeySet([rsa_key("first"), rsa_key("second")])
    provider.make_token = sign_without_key_id
    assert "InvalidKeyIdError" in read_refusal(log_in(client), client)


@pytest.mark.slow
def test_keys_that_cannot_be_used_do_not_hide_the_others(
    client: TestClient, provider: MockProvider
) -> None:
    good = rsa_key("first").as_dict(private=False)
    unusable_keys = [
        {"kty": "AKP", "kid": "post-quantum"},
        {"kty": "EC", "crv": "P-unknown", "kid": "x", "x": "AA", "y": "AA"},
        {"kty": "RSA", "kid": "incomplete"},
        {"kty": ["RSA"]},
        "no key",
    ]
    provider.changed_responses["/keys"] = json.dumps({"keys": [*unusable_keys, good]}).encode()
    assert log_in(client).status_code == 200


@pytest.mark.slow
def test_a_key_for_encryption_signs_nothing(client: TestClient, provider: MockProvider) -> None:
    keys = [
        rsa_key("first").as_dict(private=False) | {"use": "enc"},
        rsa_key("second").as_dict(private=False),
    ]
    provider.changed_responses["/keys"] = json.dumps({"keys": keys}).encode()
    assert "InvalidKeyIdError" in read_refusal(log_in(client), client)


@pytest.mark.slow
def test_a_key_that_is_no_longer_published_is_refused_after_an_hour(
    client: TestClient, provider: MockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Someone has stolen the key, and the provider uses another one since."""
    assert log_in(client).status_code == 200
    client.cookies.clear()
    provider.keys = KeySet([rsa_key("second")])
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + 3601)
    monkeypatch.setattr("teeter.server.access.oidc.time", later)
    assert "InvalidKeyIdError" in read_refusal(log_in(client), client)


@pytest.mark.slow
def test_a_session_ends_after_its_hours(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(client)
    assert is_logged_in(client)
    later = SimpleNamespace(time=lambda: time.time() + 13 * 3600)
    monkeypatch.setattr("teeter.server.access.authenticator.time", later)
    assert not is_logged_in(client)


def test_a_person_who_is_no_longer_let_in_is_out(
    client: TestClient, provider: MockProvider, tmp_path: Path
) -> None:
    log_in(client)
    cookies = dict(client.cookies)
    make_text_campaign(tmp_path / "texts.teeter", 30)
    for access, is_in in (
        ({"domains": ["example.org"]}, True),
        ({"domains": ["other.org"]}, False),
    ):
        security = security_config(provider, access=access)
        with serve_campaigns(tmp_path / "texts.teeter", security=security) as restarted:
            restarted.cookies.update(cookies)
            assert is_logged_in(restarted) is is_in


# ---- attacks on the way


def read_refusal(response: httpx2.Response, client: TestClient, status: int = 403) -> str:
    """Return the page of a refused login, after checking that it was no login."""
    assert response.status_code == status
    assert not is_logged_in(client)
    return response.text


def test_a_wrong_state_is_refused(client: TestClient, provider: MockProvider) -> None:
    address = start_login(client)
    state = parse_qs(urlsplit(address).query)["state"][0]
    for wrong in ("", "other", state[:-1], "é"):
        response = client.get(address.replace(state, wrong))
        assert "not started here" in read_refusal(response, client)
    assert provider.token_requests == [], "the code was not used"


def test_a_login_of_another_browser_is_refused(client: TestClient) -> None:
    """An attacker sends a victim the address that completes the attacker's login."""
    address = start_login(client)
    client.cookies.clear()
    assert "not started here" in read_refusal(client.get(address), client)
    start_login(client)  # the victim has an attempt of their own
    assert "not started here" in read_refusal(client.get(address), client)


def test_an_address_and_its_cookie_work_once(client: TestClient, provider: MockProvider) -> None:
    address = start_login(client)
    stolen = dict(client.cookies)
    assert client.get(address).status_code == 200
    client.cookies.clear()
    client.cookies.update(stolen)
    assert "not started here" in read_refusal(client.get(address), client)
    assert len(provider.token_requests) == 1


@pytest.mark.slow
def test_a_forged_or_old_attempt_is_refused(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = start_login(client)
    (name,) = (name for name in client.cookies if name.endswith("_login"))
    value = client.cookies[name]
    for forged in ("", "x", value[:-2] + "AA", f"{value}.x"):
        response = client.get(address, headers={"cookie": f"{name}={forged}"})
        read_refusal(response, client)

    # The cookie that was given, which the client has dropped since.
    later = SimpleNamespace(time=lambda: time.time() + 700)
    monkeypatch.setattr("itsdangerous.timed.time", later)
    response = client.get(address, headers={"cookie": f"{name}={value}"})
    assert "too long ago" in read_refusal(response, client)


@pytest.mark.slow
def test_an_answer_of_another_provider_is_refused(client: TestClient) -> None:
    address = start_login(client)
    query = parse_qs(urlsplit(address).query)
    other = {"code": query["code"][0], "state": query["state"][0], "iss": "https://evil.example"}
    assert "Another provider" in read_refusal(client.get("/login/callback", params=other), client)


@pytest.mark.slow
def test_a_provider_that_promises_its_name_must_give_it(
    client: TestClient, provider: MockProvider
) -> None:
    provider.changed_discovery = {"authorization_response_iss_parameter_supported": True}
    assert log_in(client).status_code == 200
    client.cookies.clear()
    provider.answer_issuer = None
    assert "Another provider" in read_refusal(log_in(client), client)
    assert len(provider.token_requests) == 1, "the second code was not sent"


@pytest.mark.slow
def test_a_provider_may_leave_its_name_out(client: TestClient, provider: MockProvider) -> None:
    provider.answer_issuer = None
    assert log_in(client).status_code == 200


@pytest.mark.slow
def test_a_login_replaces_the_session_that_was_there_before(client: TestClient) -> None:
    """Session fixation: what an attacker knows of the session before the login is of no use."""
    before = find_csrf_token(client.get("/login").text)
    cookie = client.cookies["teeter_session"]
    log_in(client)
    session = client.get("/api/v1/session").json()
    assert session["csrf"] != before
    assert client.cookies["teeter_session"] != cookie

    client.cookies.clear()
    client.cookies.set("teeter_session", cookie)
    assert not is_logged_in(client)


@pytest.mark.slow
def test_attempts_take_no_memory_until_they_come_back(client: TestClient) -> None:
    attempts = client.app.state.oidc_login.attempts  # type: ignore[attr-defined]
    size = len(attempts._used_at)
    for _ in range(20):
        client.get("/login/oidc", follow_redirects=False)
    assert len(attempts._used_at) == size


@pytest.mark.slow
def test_a_refusal_of_the_provider_is_reported(client: TestClient) -> None:
    state = parse_qs(urlsplit(start_login(client)).query)["state"][0]
    error = {"state": state, "error": "access_denied<script>"}
    page = read_refusal(client.get("/login/callback", params=error), client)
    assert "did not log you in" in page
    assert "<script>" not in page.split("<main")[1]


def test_a_wrong_code_is_refused(client: TestClient) -> None:
    address = start_login(client)
    code = parse_qs(urlsplit(address).query)["code"][0]
    page = read_refusal(client.get(address.replace(code, "guessed")), client)
    assert "invalid_grant" in page


def test_a_code_cannot_be_used_without_its_verifier(
    client: TestClient, provider: MockProvider
) -> None:
    """PKCE: a code that was stolen on its way back is worth nothing in another login."""
    stolen = parse_qs(urlsplit(start_login(client)).query)["code"][0]
    client.cookies.clear()
    address = start_login(client)
    code = parse_qs(urlsplit(address).query)["code"][0]
    assert "invalid_grant" in read_refusal(client.get(address.replace(code, stolen)), client)


@pytest.mark.slow
@pytest.mark.parametrize(
    "next_page",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "javascript:alert(1)",
        "/login",
        "c/texts",
        "/" + "x" * 600,
        "////evil.example",
        "/\r\n//evil.example",
        "/\N{FULLWIDTH SOLIDUS}evil.example",
        "/\N{ZERO WIDTH SPACE}/evil.example",
        "\N{NO-BREAK SPACE}//evil.example",
        " //evil.example",
        "http:evil.example",
        "//127.0.0.1:8765@evil.example/",
        "/login/oidc",
        "/login/callback?code=1",
    ],
    ids=lambda next_page: next_page[:20],
)
def test_next_leads_to_no_other_site(client: TestClient, next_page: str) -> None:
    assert landing_page(client, next_page) == "/"

    client.cookies.clear()
    page = client.get("/login", params={"next": next_page}).text
    assert 'href="/login/oidc?next=/"' in page
    form = {"csrf": find_csrf_token(page), "token": TOKEN, "next": next_page}
    assert client.post("/login", data=form, follow_redirects=False).headers["location"] == "/"


@pytest.mark.parametrize("path", ["/%2Fevil.example", "/%5Cevil.example", "/%09/evil.example"])
def test_an_encoded_address_of_another_site_stays_encoded(client: TestClient, path: str) -> None:
    """Browsers do not decode it: it is a page of this server that does not exist."""
    redirect = client.get(path, follow_redirects=False).headers["location"]
    assert redirect == f"/login?next={quote(path, safe='')}"
    assert landing_page(client, path) == path


# ---- attacks by ID tokens


def encode(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def unsigned(claims: dict[str, Any]) -> str:
    """Return a token that says that it needs no signature."""
    header = json.dumps({"alg": "none"}).encode()
    return f"{encode(header)}.{encode(json.dumps(claims).encode())}."


def signed_with_public_key(claims: dict[str, Any]) -> str:
    """Return a token whose secret is the public key, which is published.

    joserfc refuses to make it, so it is made by hand.
    """
    header = json.dumps({"alg": "HS256", "kid": "first"}).encode()
    content = f"{encode(header)}.{encode(json.dumps(claims).encode())}"
    secret = rsa_key("first").as_pem(private=False)
    return f"{content}.{encode(hmac.digest(secret, content.encode(), 'sha256'))}"


def changed_after_signing(claims: dict[str, Any]) -> str:
    header, _, signature = sign(claims).split(".")
    content = json.dumps({**claims, "email": "olga@example.org"}).encode()
    return f"{header}.{encode(content)}.{signature}"


@pytest.mark.parametrize(
    "make_token",
    [
        unsigned,
        signed_with_public_key,
        changed_after_signing,
        lambda claims: sign(claims, rsa_key("attacker")),
        lambda claims: "not a token",
    ],
    ids=["alg none", "HS256 with the public key", "changed", "unknown key", "garbage"],
)
def test_a_token_without_the_signature_of_the_provider_is_refused(
    client: TestClient, provider: MockProvider, make_token: Callable[[dict[str, Any]], str]
) -> None:
    provider.make_token = make_token
    assert "ID token is not valid" in read_refusal(log_in(client), client)


@pytest.mark.slow
def test_a_key_with_the_name_of_the_providers_key_is_not_it(
    client: TestClient, provider: MockProvider
) -> None:
    forged = rsa_key("attacker").as_dict(private=True) | {"kid": "first"}
    provider.make_token = lambda claims: sign(claims, type(rsa_key("first")).import_key(forged))
    assert "BadSignatureError" in read_refusal(log_in(client), client)


@pytest.mark.slow
@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "another-client"},
        {"aud": [CLIENT_ID, "another-client"]},
        {"aud": [CLIENT_ID, "another-client"], "azp": "another-client"},
        {"aud": None},
        {"iss": "https://evil.example"},
        {"iss": None},
        {"exp": 1_000_000_000},
        {"exp": None},
        {"iat": 9_000_000_000},
        {"nonce": "of an earlier login"},
        {"nonce": None},
        {"sub": None},
    ],
    ids=str,
)
def test_a_token_for_another_purpose_is_refused(
    client: TestClient, provider: MockProvider, claims: dict[str, Any]
) -> None:
    provider.changed_claims = claims
    page = read_refusal(log_in(client), client)
    is_named = "ID token is not valid" in page
    assert is_named or "ID token was issued for another application" in page


@pytest.mark.slow
def test_the_token_of_an_earlier_login_cannot_be_replayed(
    client: TestClient, provider: MockProvider
) -> None:
    issued: list[str] = []

    def sign_and_remember(claims: dict[str, Any]) -> str:
        issued.append(sign(claims))
        return issued[0]

    provider.make_token = sign_and_remember
    assert log_in(client).status_code == 200
    client.cookies.clear()
    assert "ID token is not valid" in read_refusal(log_in(client), client)


# ---- who is let in


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"email": "eve@evil.example"}, "has no access here"),
        ({"email": "eve@example.org.evil.example"}, "has no access here"),
        ({"email": "eve@sub.example.org"}, "has no access here"),
        ({"email": "ann@example.org@evil.example"}, "no e-mail address"),
        ({"email": "x" * 100 + "@example.org"}, "has no access here"),
        ({"email": "a\nb@example.org"}, "no e-mail address"),
        ({"email": "ann@example.org\u00a0"}, "no e-mail address"),
        ({"email": ["ann@example.org"]}, "no e-mail address"),
        ({"email": "eve@\N{LATIN SMALL LETTER LONG S}taff.example"}, "has no access here"),
        ({"email": "eve@\N{KELVIN SIGN}eys.example"}, "has no access here"),
        ({"email": "eve@stra\N{LATIN SMALL LETTER SHARP S}e.example"}, "has no access here"),
        ({"email": "eve@evil.example,ann@example.org"}, "no e-mail address"),
        ({"email": "example.org"}, "no e-mail address"),
        ({"email": None}, "no e-mail address"),
        ({"email_verified": False}, "not verified"),
        ({"email_verified": None}, "not verified"),
        ({"email_verified": "false"}, "not verified"),
        ({"email_verified": "true"}, "not verified"),
        ({"email_verified": 1}, "not verified"),
    ],
    ids=str,
)
def test_others_are_not_let_in(
    client: TestClient, provider: MockProvider, claims: dict[str, Any], message: str
) -> None:
    provider.changed_claims = claims
    assert message in read_refusal(log_in(client), client)


@pytest.mark.slow
def test_an_address_that_is_not_verified_never_counts(
    provider: MockProvider, tmp_path: Path
) -> None:
    """The setting is for providers that do not say whether they have checked it."""
    security = security_config(provider)
    assert security.login is not None
    assert security.login.oidc is not None
    oidc = security.login.oidc.model_copy(update={"require_verified_email": False})
    login = security.login.model_copy(update={"oidc": oidc})
    file = make_text_campaign(tmp_path / "texts.teeter", 30)
    with serve_campaigns(file, security=replace(security, login=login)) as client:
        provider.changed_claims = {"email_verified": False}
        assert "not verified" in read_refusal(log_in(client), client)
        provider.changed_claims = {"email_verified": None}
        assert log_in(client).status_code == 200


@pytest.mark.slow
def test_a_member_is_recognised_in_other_letters(provider: MockProvider, tmp_path: Path) -> None:
    """The server would make her an owner; the campaign's word counts, however it spells her."""
    from teeter.campaigns import Campaign

    file = make_text_campaign(tmp_path / "texts.teeter", 30)
    campaign = Campaign.open(file)
    campaign.people.add("Olga@Example.org", "annotator", has_token=False)
    campaign.people.add("OLGA@example.org", "reviewer", has_token=False)
    campaign.database.close()

    provider.email = "olgA@example.ORG"
    with serve_campaigns(file, security=security_config(provider, roles=ROLES)) as client:
        log_in(client)
        assert client.get("/api/v1/session").json()["annotator"] == "olga@example.org"
        assert client.get(AT).json()["permissions"] == ["answer"], "the lower of both roles"


ROLES = {"olga@example.org": "owner", "guest@else.example": "reviewer"}


@pytest.mark.parametrize(
    ("email", "permissions"),
    [
        ("Olga@Example.org", {"answer", "review", "decide", "export", "manage"}),
        ("guest@else.example", {"answer", "review", "decide", "export"}),
        ("ann@example.org", {"answer"}),
    ],
)
def test_the_server_gives_roles(
    provider: MockProvider, tmp_path: Path, email: str, permissions: set[str]
) -> None:
    access = {"domains": ["example.org"], "default_role": "annotator"}
    security = security_config(provider, access=access, roles=ROLES)
    file = make_text_campaign(tmp_path / "texts.teeter", 30)
    provider.email = email
    with serve_campaigns(file, folder=tmp_path, security=security) as client:
        assert log_in(client).status_code == 200
        assert set(client.get(AT).json()["permissions"]) == permissions
        assert client.get("/new").status_code == (200 if "manage" in permissions else 403)


@pytest.mark.slow
def test_without_a_role_only_members_of_a_campaign_see_it(
    provider: MockProvider, tmp_path: Path
) -> None:
    from teeter.campaigns import Campaign

    file = make_text_campaign(tmp_path / "texts.teeter", 30)
    security = security_config(provider, roles=ROLES)
    with serve_campaigns(file, security=security) as client:
        log_in(client)
        assert client.get(AT).status_code == 403
        assert client.get("/").status_code == 200

    campaign = Campaign.open(file)
    campaign.people.add("olga@example.org", "annotator")
    campaign.people.add("ann@example.org", "reviewer", has_token=False)
    campaign.database.close()
    with serve_campaigns(file, security=security) as client:
        log_in(client)
        assert "review" in client.get(AT).json()["permissions"]
        client.cookies.clear()
        provider.email = "olga@example.org"
        log_in(client)
        assert client.get(AT).json()["permissions"] == ["answer"], "the campaign's word counts"


# ---- a provider that does not answer


def test_a_provider_that_is_away_is_reported(client: TestClient, provider: MockProvider) -> None:
    provider.is_down = True
    response = client.get("/login/oidc", follow_redirects=False)
    assert "try again, or log in with a token" in read_refusal(response, client, 502)
    provider.is_down = False
    assert log_in(client).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    "discovery",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://evil.example/token"},
        {"jwks_uri": "file:///etc/passwd"},
        {"authorization_endpoint": None},
    ],
    ids=str,
)
def test_a_provider_that_describes_itself_wrongly_is_not_used(
    client: TestClient, provider: MockProvider, discovery: dict[str, Any]
) -> None:
    provider.changed_discovery = discovery
    read_refusal(client.get("/login/oidc", follow_redirects=False), client, 502)


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/keys"])
@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"null", b'{"keys": 1}', b'{"keys": []}', b"<html>", b"[" * 100_000, b"\xff"],
    ids=lambda body: repr(body[:12]),
)
def test_any_answer_but_the_right_one_is_an_error_of_the_provider(
    client: TestClient, provider: MockProvider, path: str, body: bytes
) -> None:
    provider.changed_responses[path] = body
    response = client.get("/login/oidc", follow_redirects=False)
    if path == "/keys":
        response = client.get(visit_provider(response.headers["location"]))
    assert "did not respond as expected" in read_refusal(response, client, 502)


@pytest.mark.slow
def test_an_endless_answer_is_cut_off(client: TestClient, provider: MockProvider) -> None:
    keys = [rsa_key("first").as_dict(private=False)]
    provider.changed_responses["/keys"] = json.dumps({"keys": keys}).encode() + b" " * 1_000_001
    assert "too long" in read_refusal(log_in(client), client, 502)


@pytest.mark.slow
def test_an_answer_that_trickles_is_cut_off(
    client: TestClient, provider: MockProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each piece comes in time, but they never end."""
    clock = iter(range(0, 1000, 6))
    monkeypatch.setattr("teeter.server.access.oidc._TIMEOUT", 10.0)
    monkeypatch.setattr(
        "teeter.server.access.oidc.time", SimpleNamespace(monotonic=lambda: next(clock))
    )
    provider.changed_responses["/.well-known/openid-configuration"] = b" " * 900_000
    response = client.get("/login/oidc", follow_redirects=False)
    assert "takes too long" in read_refusal(response, client, 502)


@pytest.mark.slow
def test_a_redirect_of_the_provider_is_not_followed(
    client: TestClient, provider: MockProvider
) -> None:
    provider.changed_discovery = {"jwks_uri": f"{provider.issuer}/authorize?{AUTHORIZE_QUERY}"}
    assert "status 302" in read_refusal(log_in(client), client, 502)


AUTHORIZE_QUERY = (
    f"response_type=code&client_id={CLIENT_ID}&code_challenge_method=S256&scope=openid%20email"
    "&state=s&redirect_uri=http://127.0.0.1/"
)


@pytest.mark.slow
def test_a_silent_provider_does_not_stop_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anyone can start logins. Threads that wait for the provider must not be all."""
    file = make_text_campaign(tmp_path / "texts.teeter", 30)
    monkeypatch.setattr("teeter.server.access.oidc._TIMEOUT", 10 * PATIENCE)
    monkeypatch.setattr("teeter.server.routes.oidc._QUEUE_SECONDS", 0.2)

    silent = socket.create_server(("127.0.0.1", 0), backlog=100)
    security = security_config(MockProvider(silent.getsockname()[1]))
    with serve_campaigns(file, security=security) as client:
        statuses: SimpleQueue[int] = SimpleQueue()

        def begin_login() -> None:
            statuses.put(client.get("/login/oidc", follow_redirects=False).status_code)

        threads = [threading.Thread(target=begin_login) for _ in range(50)]
        for thread in threads:
            thread.start()

        try:
            # Most logins are refused, while some wait for the provider.
            for _ in range(50 - oidc_pages._MAX_CONCURRENT):
                assert statuses.get(timeout=PATIENCE) == 502
            headers = {"authorization": f"Bearer {TOKEN}"}
            assert client.get(AT, headers=headers).status_code == 200
            assert statuses.empty(), "some still wait"
        finally:
            # Resets the connections that wait to be accepted, so that their logins fail.
            silent.close()
            for thread in threads:
                thread.join()

        for _ in range(oidc_pages._MAX_CONCURRENT):
            assert statuses.get_nowait() == 502


def test_the_pages_exist_only_with_a_provider(tmp_path: Path) -> None:
    with serve_campaigns(make_text_campaign(tmp_path / "texts.teeter", 30)) as client:
        assert client.get("/login/oidc").status_code == 404
        assert client.get("/login/callback").status_code == 404
