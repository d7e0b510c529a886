"""Suggestions in a real browser: accepted with a key, hidden by a switch, and recorded as seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.browsers import (
    MARKS,
    check_accessibility,
    open_window,
    page_server,
    sync_api,
    wait_until,
)
from server.servers import make_text_campaign
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.records import ClassDescription

pytestmark = [*MARKS, pytest.mark.slow]


def make_suggested_campaign(path: Path) -> Path:
    """Make a campaign in which a source says that every item is spam."""
    make_text_campaign(path, 40, control=0.0)
    campaign = Campaign.open(path)
    rows = [{"id": f"t{number}", "label": "spam", "probability": 0.9} for number in range(40)]
    campaign.suggestions.add(rows, "old <model>")
    campaign.classes.describe({"spam": ClassDescription("<i>Ads</i>", ("Win & win",))})
    campaign.database.close()
    return path


def shown_labels(path: Path) -> list[str]:
    """Return the labels of the answers that were given beside a suggestion."""
    campaign = Campaign.open(path)
    with campaign.reading() as view:
        seen = view.suggestions.shown_with_live_answers()
        answers = view.answers.live()
    campaign.database.close()
    return [str(answer.label) for answer in answers if (answer.item, answer.annotator) in seen]


def show_suggestion(page: Any) -> None:
    """Answer until an item has a suggestion: one in ten is answered blind."""
    page.locator("#stage .words").wait_for()
    while not page.locator("#suggestion .accept").count():
        page.keyboard.press("2")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_suggestion_is_accepted_by_a_key_and_hidden_by_a_switch(
    browser: Any, tmp_path: Path, scheme: str
) -> None:
    file = make_suggested_campaign(tmp_path / "texts.teeter")
    problems: list[str] = []
    with page_server(file) as address:
        page = open_window(browser, problems, color_scheme=scheme)
        page.goto(address)
        show_suggestion(page)
        suggestion = page.locator("#suggestion")
        sync_api.expect(suggestion).to_contain_text("by old <model> (90% sure)")
        sync_api.expect(suggestion).to_contain_text("accuracy not measured yet")
        sync_api.expect(page.locator(".meanings")).to_contain_text("<i>Ads</i>")
        check_accessibility(page, "the page")

        page.keyboard.press("=")
        wait_until(lambda: shown_labels(file) == ["spam"])

        # Hidden, the key does nothing and no suggestion is recorded with the answer.
        show_suggestion(page)
        page.locator("#suggest").uncheck()
        sync_api.expect(suggestion).to_be_empty()
        text = page.locator("#stage").inner_text()
        page.keyboard.press("=")
        assert page.locator("#stage").inner_text() == text
        page.keyboard.press("1")
        sync_api.expect(page.locator("#saved")).to_have_text("All saved")
        assert len(shown_labels(file)) == 1

        page.reload()
        page.locator("#stage .words").wait_for()
        assert not page.locator("#suggest").is_checked(), "the browser remembers the switch"

        page.goto(f"{address}/c/texts/classes")
        sync_api.expect(page.locator("tbody")).to_contain_text("old <model>")
        check_accessibility(page, "the page")
        page.context.close()
    assert problems == []


def test_classes_are_described_renamed_and_left_out_on_their_page(
    browser: Any, tmp_path: Path
) -> None:
    file = make_suggested_campaign(tmp_path / "texts.teeter")
    problems: list[str] = []
    with page_server(file) as address:
        page = open_window(browser, problems)
        page.goto(f"{address}/c/texts/classes")
        notice = page.locator("#notice")

        def open_class(name: str) -> Any:
            row = page.locator("details.class").filter(has=page.locator("b", has_text=name))
            row.locator("summary").click()
            return row

        row = open_class("ham")
        row.get_by_label("Description").fill("Wanted.")
        row.get_by_label("Examples").fill("one\n\n two ")
        row.get_by_role("button", name="Save").click()
        sync_api.expect(notice).to_have_text("ham is saved.")

        row = open_class("spam")
        row.get_by_label("Name").fill("<ads>")
        row.get_by_role("button", name="Save").click()
        sync_api.expect(notice).to_have_text("<ads> is saved.")
        row = open_class("<ads>")
        row.get_by_label("Name").fill("ham")
        row.get_by_role("button", name="Save").click()
        sync_api.expect(notice).to_contain_text("Cannot rename")

        for name in ("hmm", "maybe"):
            page.get_by_label("New class").fill(name)
            page.get_by_role("button", name="Add", exact=True).first.click()
            sync_api.expect(notice).to_have_text(f"{name} was added.")
        row = open_class("hmm")
        row.get_by_label("Make it part of").select_option("ham")
        check_accessibility(page, "a class that is changed")
        row.get_by_role("button", name="Merge").click()
        sync_api.expect(notice).to_have_text("hmm is part of ham now.")
        open_class("maybe").get_by_role("button", name="Delete maybe").click()
        sync_api.expect(notice).to_have_text("maybe was deleted.")
        sync_api.expect(page.locator("details.class")).to_have_count(2)

        page.get_by_role("button", name="Do not use the names").click()
        sync_api.expect(notice).to_contain_text("The next model")
        page.get_by_role("button", name="Use the names", exact=True).wait_for()
        check_accessibility(page, "the page of classes")
        page.context.close()

    campaign = Campaign.open(file)
    described = campaign.classes.descriptions()
    assert described["ham"] == ClassDescription("Wanted.", ("one", "two"))
    assert described["<ads>"] == ClassDescription("<i>Ads</i>", ("Win & win",))
    assert not campaign.settings.names
    campaign.database.close()
    assert all("422" in problem for problem in problems), problems
