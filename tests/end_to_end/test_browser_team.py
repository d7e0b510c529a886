"""A team in a real browser: logged in by token, deciding by keyboard, naming people, on a phone and
for all eyes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from server.browsers import (
    MARKS,
    PHONE,
    check_accessibility,
    open_window,
    page_server,
    sync_api,
    wait_until_drawn,
)
from server.servers import TeeterServeProcess, make_text_campaign
from teeter.campaigns.campaign import Campaign

pytestmark = [*MARKS, pytest.mark.slow]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = make_text_campaign(tmp_path / "texts.teeter", 60, overlap=1.0)

    campaign = Campaign.open(path)

    for k in range(12):
        campaign.tell(f"t{k}", "spam", "ann")
        campaign.tell(f"t{k}", "ham" if k < 4 else "spam", "Bo <b>b</b>")

    campaign.database.close()
    return path


@pytest.fixture
def tokens(file: Path) -> dict[str, str]:
    campaign = Campaign.open(file)
    roles = {"ann": "annotator", "rey": "reviewer", "olga": "owner"}
    tokens = {name: campaign.people.add(name, role) for name, role in roles.items()}
    campaign.database.close()
    return tokens


@pytest.fixture
def server(file: Path, tokens: dict[str, str], tmp_path: Path) -> Iterator[TeeterServeProcess]:
    server = TeeterServeProcess(tmp_path / "home", file).start()
    yield server
    server.stop()


def log_in(
    browser: Any, server: TeeterServeProcess, token: str, problems: list[str], **options: Any
) -> Any:
    """Open a new window, and log in with a token."""
    page = open_window(browser, problems, **options)
    page.on("dialog", lambda _: problems.append("a script of a name ran"))
    page.goto(f"{server.address}/login")
    page.get_by_label("Your token").fill(token)
    page.keyboard.press("Enter")
    page.wait_for_url("**/c/texts**")
    return page


def read_decisions(file: Path) -> dict[str, str]:
    campaign = Campaign.open(file)
    decisions = {
        item: label.label
        for item, label in campaign.labels().items()
        if label.by not in ("majority", "dawid-skene")
    }
    campaign.database.close()
    return decisions


def expect_to_decide(page: Any, count: int) -> None:
    sync_api.expect(page.locator("#count")).to_have_text(f"{count} to decide")
    sync_api.expect(page.locator("#saved")).to_have_text("All saved")


def test_disagreements_are_decided_by_keyboard(
    server: TeeterServeProcess, browser: Any, file: Path, tokens: dict[str, str]
) -> None:
    problems: list[str] = []
    page = log_in(browser, server, tokens["rey"], problems)
    page.get_by_role("link", name="Disagreements").click()

    sync_api.expect(page.locator("#count")).to_have_text("4 to decide")
    sync_api.expect(page.locator("#why")).to_contain_text("Bo <b>b</b>")
    sync_api.expect(page.locator("#mode")).to_contain_text("ann: spam")

    page.keyboard.press("1")
    expect_to_decide(page, 3)
    page.keyboard.press("2")
    expect_to_decide(page, 2)
    assert sorted(read_decisions(file).values()) == ["ham", "spam"]

    page.keyboard.press("Backspace")
    expect_to_decide(page, 3)
    sync_api.expect(page.locator("#mode")).to_contain_text("Decide again")
    assert list(read_decisions(file).values()) == ["spam"]

    page.keyboard.press("u")  # no decision
    page.keyboard.press("f")
    expect_to_decide(page, 2)

    page.keyboard.press(" ")
    page.keyboard.press("1")
    expect_to_decide(page, 1)
    sync_api.expect(page.locator("#stage")).to_contain_text("skipped the remaining items")

    page.reload()
    expect_to_decide(page, 1)
    sync_api.expect(page.locator("#last li")).to_have_count(3)

    page.keyboard.press("2")
    sync_api.expect(page.locator("#stage")).to_contain_text("Nothing to decide")
    expect_to_decide(page, 0)
    assert sorted(read_decisions(file).values()) == ["ham", "spam", "spam"]

    campaign = Campaign.open(file)
    assert campaign.review.disagreements().disagreements == []
    assert [line["label"] for line in campaign.history() if line["what"] == "decided"].count(
        None
    ) == 1
    campaign.database.close()

    page.context.close()
    assert problems == []


def test_an_owner_adds_a_reviewer_who_logs_in(
    server: TeeterServeProcess, browser: Any, tokens: dict[str, str]
) -> None:
    problems: list[str] = []
    page = log_in(browser, server, tokens["olga"], problems)
    page.get_by_role("link", name="Team").click()

    page.locator(".add input[name=name]").fill("zoe")
    page.locator(".add select").select_option("reviewer")
    page.get_by_role("button", name="Add").click()
    token = page.locator(".token").inner_text()

    other = log_in(browser, server, token, problems)
    other.goto(f"{server.address}/c/texts/team")
    sync_api.expect(other.get_by_role("row", name="zoe reviewer")).to_be_visible()
    assert other.get_by_role("button", name="Add").count() == 0, (
        "a reviewer adds no one to the team"
    )

    changes = page.locator("details.change", has=page.get_by_label("Change zoe"))
    changes.locator("summary").click()
    changes.get_by_role("button", name="Revoke token").click()
    sync_api.expect(page.locator("#notice")).to_contain_text("was revoked")

    other.reload()
    other.wait_for_url("**/login?next=*")

    page.get_by_label("Combine several answers about an item by").select_option("dawid-skene")
    page.get_by_role("button", name="Save").click()
    sync_api.expect(page.locator("#notice")).to_contain_text("combined by dawid-skene")
    sync_api.expect(page.get_by_label("Combine several answers about an item by")).to_have_value(
        "dawid-skene"
    )

    other.context.close()
    page.context.close()
    assert [problem for problem in problems if "401" not in problem] == []


def test_the_first_member_is_logged_in_at_once(browser: Any, tmp_path: Path) -> None:
    problems: list[str] = []
    with page_server(make_text_campaign(tmp_path / "texts.teeter", 10)) as address:
        page = open_window(browser, problems)
        page.goto(f"{address}/c/texts/team")
        sync_api.expect(page.get_by_text("Add yourself first")).to_be_visible()
        page.get_by_label("Name", exact=True).fill("olga")
        page.get_by_role("button", name="Add").click()
        token = page.locator("#notice .token").inner_text()
        assert len(token) > 40
        sync_api.expect(page.get_by_role("row", name="olga owner")).to_be_visible()

        # The session is a new one, and so is the CSRF token that the next form sends.
        page.get_by_label("Name", exact=True).fill("ann")
        page.get_by_role("button", name="Add").click()
        sync_api.expect(page.get_by_role("row", name="ann annotator")).to_be_visible()
        assert page.locator("#notice .token").inner_text() != token

        # An error stays beside what was typed, as text.
        page.get_by_label("Name", exact=True).fill("ann")
        page.get_by_role("button", name="Add").click()
        sync_api.expect(page.get_by_role("alert")).to_contain_text("ann is already an annotator")
        assert page.get_by_label("Name", exact=True).input_value() == "ann"
        check_accessibility(page, "the team")
        page.context.close()
    assert [problem for problem in problems if "422" not in problem] == []


def test_an_annotator_may_not_decide_and_is_sent_to_a_reviewer(
    server: TeeterServeProcess, browser: Any, tokens: dict[str, str]
) -> None:
    page = log_in(browser, server, tokens["ann"], [])
    assert page.locator("nav a").all_inner_texts() == ["Label", "Progress", "Model", "Classes"]
    response = page.goto(f"{server.address}/c/texts/disagreements")
    assert response.status == 403
    sync_api.expect(
        page.get_by_text("ann is an annotator and may not decide: ask a reviewer.")
    ).to_be_visible()
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_and_who_sees_little(
    server: TeeterServeProcess, browser: Any, tokens: dict[str, str], scheme: str
) -> None:
    problems: list[str] = []
    page = log_in(
        browser,
        server,
        tokens["olga"],
        problems,
        viewport=PHONE,
        color_scheme=scheme,
        has_touch=True,
    )

    for path in ("disagreements", "team"):
        page.goto(f"{server.address}/c/texts/{path}")
        wait_until_drawn(page)
        if path == "team":
            page.locator(".change summary").first.click()
        check_accessibility(page, path)

    page.goto(f"{server.address}/c/texts/disagreements")
    page.locator(".choice").first.tap()
    expect_to_decide(page, 3)

    page.context.close()
    assert problems == []
