"""Near copies in a real browser: one key gives the next answer to them, one undo takes it back."""

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
)
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.records import AnswerOrigin
from teeter.campaigns.settings import Settings

pytestmark = [*MARKS, pytest.mark.slow]

WORDS = ["river", "stone", "candle", "engine", "market", "violin", "desert", "harbour", "pepper"]


def make_campaign(path: Path) -> Path:
    """Make a campaign of nine texts with six near copies each."""
    texts = [
        f"{' '.join([word] * 12)} number <b>{number}</b>" for word in WORDS for number in range(7)
    ]
    settings = Settings(encoder="tfidf", copies=0.8, control=0.0)
    campaign = Campaign.make(texts, ["ham", "spam"], at=path, settings=settings)
    first, *_ = campaign.items.find()
    assert len(campaign.items.get(first.item).copies) == 6
    campaign.database.close()
    return path


def count_by_origin(path: Path) -> tuple[int, int]:
    """Return how many answers are about an item alone, and how many were given to copies."""
    campaign = Campaign.open(path)
    with campaign.reading() as view:
        answers = view.answers.live()
    campaign.database.close()
    n_copies = sum(answer.origin is AnswerOrigin.COPY for answer in answers)
    return len(answers) - n_copies, n_copies


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_one_key_gives_an_answer_to_near_copies(browser: Any, tmp_path: Path, scheme: str) -> None:
    file = make_campaign(tmp_path / "texts.teeter")
    problems: list[str] = []
    with page_server(file) as address:
        page = open_window(browser, problems, color_scheme=scheme)
        page.goto(address)
        offer = page.locator("#copies")
        sync_api.expect(offer).to_contain_text("Answer 6 near copies, too")
        sync_api.expect(offer).to_contain_text("<b>")
        sync_api.expect(offer).to_contain_text("… and 3 more")
        check_accessibility(page, "label")

        first = page.locator("#stage .words").text_content()
        page.keyboard.press("1")  # alone
        wait_until(lambda: count_by_origin(file) == (1, 0))
        page.keyboard.press("+")
        sync_api.expect(page.locator("#with-copies")).to_be_checked()
        page.keyboard.press("2")
        wait_until(lambda: count_by_origin(file) == (2, 6))
        sync_api.expect(page.locator("#last")).to_contain_text("spam × 7")
        sync_api.expect(page.locator("#with-copies")).not_to_be_checked()

        page.keyboard.press("Backspace")
        wait_until(lambda: count_by_origin(file) == (1, 0))

        # An answer that is changed can be given to the copies, too.
        page.get_by_role("button", name="Change").first.click()
        sync_api.expect(page.locator("#stage .words")).to_have_text(first or "")
        page.keyboard.press("+")
        page.keyboard.press("2")
        wait_until(lambda: count_by_origin(file) == (1, 6))

        page.set_viewport_size(PHONE)
        sync_api.expect(offer).to_be_visible()
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"]
    assert problems == []
