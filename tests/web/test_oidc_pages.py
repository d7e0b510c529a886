"""Logins by an OpenID Connect provider, and attacks on them."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from fastapi.testclient import TestClient

pytest.importorskip("joserfc")

from joserfc.jwk import KeySet

from teeter.web.auth import LoginConfig, SecurityConfig
from teeter.web.tokens import Tokens
from web.auth.mock_oidc_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    MockProvider,
    rsa_key,
    running_provider,
    sign,
)
from web.auth.requests import TOKEN
from web.labelled_campaigns import AT
from web.servers import BASE, find_csrf_token, make_text_campaign, serve_campaigns


@pytest.fixture(scope="module")
def _shared_provider() -> Iterator[MockProvider]:
    with running_provider() as provider:
        yield provider


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
    content = {"url": BASE, "oidc": oidc, "access": {"domains": ["example.org"]}, **settings}
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


def begin(client: TestClient, next_page: str = "/") -> str:
    """Begin a login, and return the address that the provider sends the browser back to."""
    sent_to = client.get("/login/oidc", params={"next": next_page}, follow_redirects=False)
    assert sent_to.status_code == 303
    return httpx.get(sent_to.headers["location"]).headers["location"]


def log_in(client: TestClient, next_page: str = "/") -> httpx.Response:
    """Log in, and return the answer to the browser that comes back."""
    return client.get(begin(client, next_page))  # type: ignore[return-value]


def is_logged_in(client: TestClient) -> bool:
    return client.get(AT).status_code == 200


# ---- logins


def test_a_person_logs_in_and_labels_under_their_address(client: TestClient) -> None:
    redirect = client.get("/c/texts/progress", follow_redirects=False)
    assert redirect.headers["location"] == "/login?next=%2Fc%2Ftexts%2Fprogress"
    page = client.get(redirect.headers["location"]).text
    assert "Log in with the lab&#39;s account" in page
    assert 'href="/login/oidc?next=/c/texts/progress"' in page

    response = log_in(client, "/c/texts/progress")
    assert response.status_code == 200
    assert '<meta http-equiv="refresh" content="0;url=/c/texts/progress">' in response.text

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
    assert "path=/login" in cookie


def test_a_new_key_of_the_provider_is_fetched(client: TestClient, provider: MockProvider) -> None:
    assert log_in(client).status_code == 200
    client.cookies.clear()
    provider.keys = KeySet([rsa_key("second")])
    provider.make_token = lambda claims: sign(claims, rsa_key("second"))
    assert log_in(client).status_code == 200


def test_a_session_ends_after_its_hours(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in(client)
    assert is_logged_in(client)
    now = time.time()
    monkeypatch.setattr("teeter.web.auth.authenticator.time.time", lambda: now + 13 * 3600)
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


def refused(response: httpx.Response, client: TestClient, status: int = 403) -> str:
    """Return the page of a refused login, after checking that it was no login."""
    assert response.status_code == status
    assert not is_logged_in(client)
    return response.text


def test_a_wrong_state_is_refused(client: TestClient, provider: MockProvider) -> None:
    address = begin(client)
    state = parse_qs(urlsplit(address).query)["state"][0]
    for wrong in ("", "other", state[:-1], "é"):
        response = client.get(address.replace(state, wrong))
        assert "not begun here" in refused(response, client)
    assert provider.token_requests == [], "the code was not used"


def test_a_login_of_another_browser_is_refused(client: TestClient) -> None:
    """An attacker sends a victim the address that completes the attacker's login."""
    address = begin(client)
    client.cookies.clear()
    assert "not begun here" in refused(client.get(address), client)
    begin(client)  # the victim has an attempt of their own
    assert "not begun here" in refused(client.get(address), client)


def test_an_address_and_its_cookie_work_once(client: TestClient, provider: MockProvider) -> None:
    address = begin(client)
    stolen = dict(client.cookies)
    assert client.get(address).status_code == 200
    client.cookies.clear()
    client.cookies.update(stolen)
    assert "not begun here" in refused(client.get(address), client)
    assert len(provider.token_requests) == 1


def test_a_forged_or_old_attempt_is_refused(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = begin(client)
    (name,) = (name for name in client.cookies if name.endswith("_login"))
    value = client.cookies[name]
    for forged in ("", "x", value[:-2] + "AA", f"{value}.x"):
        response = client.get(address, headers={"cookie": f"{name}={forged}"})
        refused(response, client)

    now = time.time()
    monkeypatch.setattr("itsdangerous.timed.time.time", lambda: now + 700)
    assert "too long ago" in refused(client.get(address), client)


def test_an_answer_of_another_provider_is_refused(client: TestClient) -> None:
    address = begin(client)
    query = parse_qs(urlsplit(address).query)
    other = {"code": query["code"][0], "state": query["state"][0], "iss": "https://evil.example"}
    assert "Another provider" in refused(client.get("/login/callback", params=other), client)


def test_a_refusal_of_the_provider_is_reported(client: TestClient) -> None:
    state = parse_qs(urlsplit(begin(client)).query)["state"][0]
    error = {"state": state, "error": "access_denied<script>"}
    page = refused(client.get("/login/callback", params=error), client)
    assert "did not log you in" in page
    assert "<script>" not in page.split("<main")[1]


def test_a_wrong_code_is_refused(client: TestClient) -> None:
    address = begin(client)
    code = parse_qs(urlsplit(address).query)["code"][0]
    page = refused(client.get(address.replace(code, "guessed")), client)
    assert "invalid_grant" in page


def test_a_code_cannot_be_used_without_its_verifier(
    client: TestClient, provider: MockProvider
) -> None:
    """PKCE: a code that was stolen on its way back is worth nothing in another login."""
    stolen = parse_qs(urlsplit(begin(client)).query)["code"][0]
    client.cookies.clear()
    address = begin(client)
    code = parse_qs(urlsplit(address).query)["code"][0]
    assert "invalid_grant" in refused(client.get(address.replace(code, stolen)), client)


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
    ],
    ids=lambda next_page: next_page[:20],
)
def test_next_leads_to_no_other_site(client: TestClient, next_page: str) -> None:
    page = log_in(client, next_page).text
    assert 'content="0;url=/">' in page

    client.cookies.clear()
    page = client.get("/login", params={"next": next_page}).text
    assert 'href="/login/oidc?next=/"' in page
    form = {"csrf": find_csrf_token(page), "token": TOKEN, "next": next_page}
    assert client.post("/login", data=form, follow_redirects=False).headers["location"] == "/"


# ---- attacks by ID tokens


def encode(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).rstrip(b"=").decode()


def unsigned(claims: dict[str, Any]) -> str:
    """Return a token that says that it needs no signature."""
    header = json.dumps({"alg": "none"}).encode()
    return f"{encode(header)}.{encode(json.dumps(claims).encode())}."


def signed_with_public_key(claims: dict[str, Any]) -> str:
    """Return a token whose secret is the public key, which everybody knows.

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
    assert "ID token is not valid" in refused(log_in(client), client)


def test_a_key_with_the_name_of_the_providers_key_is_not_it(
    client: TestClient, provider: MockProvider
) -> None:
    forged = rsa_key("attacker").as_dict(private=True) | {"kid": "first"}
    provider.make_token = lambda claims: sign(claims, type(rsa_key("first")).import_key(forged))
    assert "BadSignatureError" in refused(log_in(client), client)


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
    assert "ID token is" in refused(log_in(client), client)


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
    assert "ID token is not valid" in refused(log_in(client), client)


# ---- who is let in


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"email": "eve@evil.example"}, "not let in"),
        ({"email": "eve@example.org.evil.example"}, "not let in"),
        ({"email": "eve@sub.example.org"}, "not let in"),
        ({"email": "ann@example.org@evil.example"}, "not let in"),
        ({"email": "x" * 100 + "@example.org"}, "not let in"),
        ({"email": "a\nb@example.org"}, "name"),
        ({"email": "example.org"}, "no e-mail address"),
        ({"email": None}, "no e-mail address"),
        ({"email_verified": False}, "not verified"),
        ({"email_verified": None}, "not verified"),
        ({"email_verified": "false"}, "not verified"),
    ],
    ids=str,
)
def test_others_are_not_let_in(
    client: TestClient, provider: MockProvider, claims: dict[str, Any], message: str
) -> None:
    provider.changed_claims = claims
    assert message in refused(log_in(client), client)


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
    assert "try again, or log in with a token" in refused(response, client, 502)
    provider.is_down = False
    assert log_in(client).status_code == 200


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
    refused(client.get("/login/oidc", follow_redirects=False), client, 502)


def test_the_pages_exist_only_with_a_provider(tmp_path: Path) -> None:
    with serve_campaigns(make_text_campaign(tmp_path / "texts.teeter", 30)) as client:
        assert client.get("/login/oidc").status_code == 404
        assert client.get("/login/callback").status_code == 404
