"""Logins by OpenID Connect in a real browser.

The provider is another site than the server: only a browser knows which cookies it sends on the way
back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("joserfc")

from server.access.mock_oidc_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    MockProvider,
    running_provider,
)
from server.browsers import MARKS, PHONE, check_accessibility, open_window, page_server, sync_api
from server.servers import make_text_campaign
from teeter.server.access import LoginConfig, SecurityConfig

pytestmark = [*MARKS, pytest.mark.slow]

DEEP_LINK = "/c/texts/progress?from=mail&item=a%20b"
DESKTOP = {"width": 1280, "height": 800}

REFUSAL = "eve@evil.example has no access here: ask the person who runs this server."


@pytest.fixture(scope="module")
def _shared_provider() -> Iterator[MockProvider]:
    with running_provider("localhost") as provider:
        yield provider


@pytest.fixture
def provider(_shared_provider: MockProvider) -> MockProvider:
    """A provider that shows a page, at which ann is logged in."""
    _shared_provider.shows_page = True
    _shared_provider.email = "ann@example.org"
    return _shared_provider


@pytest.fixture(scope="module")
def address(
    _shared_provider: MockProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of a server whose people log in at the provider."""

    def make_security(address: str) -> SecurityConfig:
        settings = {
            "url": address,
            "oidc": {
                "issuer": _shared_provider.issuer,
                "client_id": CLIENT_ID,
                "client_secret": CLIENT_SECRET,
                "name": "your account of the lab",
            },
            "access": {"domains": ["example.org"]},
        }
        return SecurityConfig(b"secret", login=LoginConfig.model_validate(settings))

    file = make_text_campaign(tmp_path_factory.mktemp("served") / "texts.teeter", 30)
    with page_server(file, make_security) as address:
        yield address


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A window; nothing must go wrong in it but requests that the server refuses."""
    problems: list[str] = []
    page = open_window(browser, problems)
    yield page
    page.context.close()
    assert [problem for problem in problems if "the server responded with" not in problem] == []


def log_in(page: Any, address: str, path: str = "/") -> None:
    """Open a page without a session, and press both buttons."""
    page.goto(address + path)
    page.get_by_role("link", name="Log in with your account of the lab").click()
    page.get_by_role("link", name="It is me").click()


def login_cookies(page: Any) -> list[str]:
    return [cookie["name"] for cookie in page.context.cookies() if "_login" in cookie["name"]]


def test_a_deep_link_leads_through_the_login_and_back(
    page: Any, address: str, provider: MockProvider
) -> None:
    log_in(page, address, DEEP_LINK)
    page.wait_for_url(address + DEEP_LINK)
    sync_api.expect(page.get_by_role("heading", level=1)).to_be_visible()
    sync_api.expect(page.locator("header")).to_contain_text("ann@example.org")
    assert login_cookies(page) == [], "the attempt is used up"

    # The address of the callback, with its code, is not in the history.
    page.reload()
    assert page.url == address + DEEP_LINK
    page.go_back()
    assert "/login/callback" not in page.url


def test_a_link_of_another_site_works_for_people_who_are_logged_in(
    page: Any, address: str, provider: MockProvider
) -> None:
    log_in(page, address)
    page.wait_for_url("**/c/texts")

    page.goto(provider.issuer + "/elsewhere")
    page.evaluate("address => { location.href = address }", f"{address}/c/texts/progress")
    page.wait_for_url("**/c/texts/progress")
    sync_api.expect(page.locator("header")).to_contain_text("ann@example.org")


def test_labels_are_saved_under_the_address_and_logging_out_ends_it(
    page: Any, address: str, provider: MockProvider
) -> None:
    log_in(page, address, "/c/texts")
    page.wait_for_url("**/c/texts")
    page.locator("#stage .words").wait_for()
    page.keyboard.press("1")
    sync_api.expect(page.locator("#saved")).to_have_text("All saved")

    page.locator(".who summary").click()
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    page.goto(f"{address}/c/texts/progress")
    page.wait_for_url("**/login?next=%2Fc%2Ftexts%2Fprogress")

    provider.email = "bob@example.org"
    log_in(page, address, "/c/texts/progress")
    page.wait_for_url("**/c/texts/progress")
    sync_api.expect(page.locator("header")).to_contain_text("bob@example.org")


def test_the_answer_to_the_login_of_another_browser_logs_no_one_in(
    page: Any, browser: Any, address: str, provider: MockProvider
) -> None:
    attacker = open_window(browser, [])
    attacker.goto(address)
    attacker.get_by_role("link", name="Log in with your account of the lab").click()
    answer = attacker.get_by_role("link", name="It is me").get_attribute("href")
    attacker.context.close()

    page.goto(answer)
    sync_api.expect(page.get_by_role("alert")).to_contain_text("This login was not started here")
    page.goto(f"{address}/c/texts")
    page.wait_for_url("**/login?next=**")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_refused_person_reads_one_sentence(
    browser: Any, address: str, provider: MockProvider, scheme: str, viewport: dict[str, int]
) -> None:
    provider.email = "eve@evil.example"
    page = open_window(browser, [], viewport=viewport, color_scheme=scheme)
    name = f"{viewport['width']}-{scheme}"

    page.goto(address + DEEP_LINK)
    take_picture(page, f"login-{name}")
    check_accessibility(page, "login")

    log_in(page, address, DEEP_LINK)
    alert = page.get_by_role("alert")
    sync_api.expect(alert).to_have_text(REFUSAL)
    sync_api.expect(page.get_by_role("alert")).to_have_count(1)
    take_picture(page, f"refusal-{name}")
    check_accessibility(page, "refusal")

    # With another account they arrive where they wanted to go.
    provider.email = "ann@example.org"
    page.get_by_role("link", name="Log in with your account of the lab").click()
    page.get_by_role("link", name="It is me").click()
    page.wait_for_url(address + DEEP_LINK)
    page.context.close()


def take_picture(page: Any, name: str) -> None:
    """Save what a person sees, if ``TEETER_SCREENSHOTS`` names a folder."""
    folder = os.environ.get("TEETER_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png")
