"""The page of a campaign whose items may have several labels: keys choose, Enter confirms."""

from __future__ import annotations

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
    wait_until,
    wait_until_drawn,
)
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings

pytestmark = MARKS

LABELS = ("payment", "angry", "praise")


def make_campaign(path: Path, answered: int = 0) -> Path:
    """Make a campaign of texts that say which labels they have, with some answers and a model."""
    texts = []
    for k in range(60):
        names = [name for bit, name in enumerate(LABELS) if k >> bit & 1]
        texts.append({"id": f"t{k}", "text": f"message {k} {' '.join(names)}"})
    settings = Settings(several=True, encoder="tfidf", control=0, strategy="margin")
    campaign = Campaign.make(texts, LABELS, at=path, settings=settings)
    for text in texts[:answered]:
        campaign.tell(text["id"], [name for name in LABELS if name in text["text"]])
    if answered:
        campaign.train()
    campaign.database.close()
    return path


def read_labels(path: Path) -> dict[str, str]:
    campaign = Campaign.open(path)
    labels = {item: label.label for item, label in campaign.labels().items()}
    campaign.database.close()
    return labels


def shown_item(page: Any) -> str:
    """Return the id of the item that is shown."""
    return f"t{page.locator('#stage .words').inner_text().split()[1]}"


def expect_next(page: Any, shown: str) -> None:
    sync_api.expect(page.locator("#stage")).not_to_have_text(shown)


def test_keys_choose_labels_and_enter_confirms_them(browser: Any, tmp_path: Path) -> None:
    file = make_campaign(tmp_path / "messages.teeter")
    problems: list[str] = []
    with page_server(file) as address:
        page = open_window(browser, problems)
        page.goto(address)
        page.locator("#stage .words").wait_for()

        # Two labels, one of them taken back and chosen again.
        item = shown_item(page)
        for key in ("1", "2", "2", "2"):
            page.keyboard.press(key)
        pressed = page.locator(".choice[aria-pressed=true]")
        sync_api.expect(pressed).to_have_count(2)
        sync_api.expect(page.locator("#chosen")).to_have_text("payment, angry")
        shown = page.locator("#stage").inner_text()
        page.keyboard.press("Enter")
        expect_next(page, shown)
        sync_api.expect(pressed).to_have_count(0)
        wait_until(lambda: read_labels(file) == {item: "payment;angry"})

        # None of them is an answer.
        other = shown_item(page)
        shown = page.locator("#stage").inner_text()
        page.keyboard.press("Enter")
        expect_next(page, shown)
        wait_until(lambda: read_labels(file).get(other) == "(none)")
        sync_api.expect(page.locator("#last li b").first).to_have_text("none of these")

        # A correction begins with what was answered.
        page.locator("#last li button").nth(1).click()
        sync_api.expect(page.locator("#mode")).to_contain_text("You answered payment, angry")
        sync_api.expect(pressed).to_have_count(2)
        page.keyboard.press("3")
        page.keyboard.press("Enter")
        wait_until(lambda: read_labels(file)[item] == "payment;angry;praise")
        page.keyboard.press("Backspace")
        wait_until(lambda: read_labels(file)[item] == "payment;angry")
    assert not problems


@pytest.mark.slow
def test_predicted_labels_are_outlined_and_not_chosen(browser: Any, tmp_path: Path) -> None:
    file = make_campaign(tmp_path / "messages.teeter", answered=40)
    problems: list[str] = []
    with page_server(file) as address:
        page = open_window(browser, problems, viewport=PHONE)
        page.goto(address)
        page.locator("#stage .words").wait_for()
        for _ in range(6):
            text = page.locator("#stage").inner_text()
            names = [name for name in LABELS if name in text]
            sync_api.expect(page.locator(".choice[aria-pressed=true]")).to_have_count(0)
            # On a phone, a tap chooses, and a button confirms.
            for name in names:
                page.locator(f".choice[data-label={name}]").click()
            page.locator("#confirm").click()
            expect_next(page, text)
        suggested = page.locator(".choice.suggested")
        text = page.locator("#stage").inner_text()
        expected = sum(name in text for name in LABELS)
        sync_api.expect(suggested).to_have_count(expected)
        wait_until_drawn(page)
        check_accessibility(page, "labelling page")
    assert not problems


@pytest.mark.slow
def test_the_other_pages_show_sets_of_labels(browser: Any, tmp_path: Path) -> None:
    file = make_campaign(tmp_path / "messages.teeter", answered=40)
    problems: list[str] = []
    with page_server(file) as address:
        page = open_window(browser, problems)
        for path in ("/progress", "/find", "/classes", "/export", "/model", "/review", "/map"):
            response = page.goto(f"{address}/c/messages{path}")
            assert response.status == 200, path
            wait_until_drawn(page)
        page.goto(f"{address}/c/messages/item?id=t3")
        sync_api.expect(page.locator("main")).to_contain_text("payment")
        wait_until_drawn(page)
        check_accessibility(page, "/item")
    assert not problems
