"""The page to find items: many are ticked, answered with one key and taken back with one undo."""

from __future__ import annotations

import re
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
)
from server.labelled_campaigns import make_labelled_campaign
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.records import AnswerOrigin

pytestmark = [*MARKS, pytest.mark.slow]


def read_origins(path: Path) -> dict[str, tuple[str | None, AnswerOrigin]]:
    """Return the label of each item, and how it was given."""
    campaign = Campaign.open(path)
    with campaign.reading() as view:
        answers = {answer.item: (answer.label, answer.origin) for answer in view.answers.live()}
    campaign.database.close()
    return answers


def ticked(page: Any) -> list[str]:
    values: list[str] = page.locator(".tick:checked").evaluate_all(
        "boxes => boxes.map(b => b.value)"
    )
    return values


def test_items_are_ticked_answered_and_taken_back_by_keyboard(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "texts.teeter"
    make_labelled_campaign(path, 40)
    before = read_origins(path)
    problems: list[str] = []
    with page_server(path) as address:
        page = open_window(browser, problems)
        page.goto(f"{address}/c/texts/find?state=unlabelled&search=cash")
        sync_api.expect(page.locator("#hits")).to_contain_text("items")

        page.keyboard.press("ArrowDown")
        page.keyboard.press(" ")
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press(" ")
        chosen = ticked(page)
        assert len(chosen) == 2
        sync_api.expect(page.locator("#ticked")).to_have_text("2 ticked")
        page.keyboard.press("1")
        sync_api.expect(page.locator("#said")).to_have_text("2 items are spam now.")
        answers = read_origins(path)
        assert {answers[item] for item in chosen} == {("spam", AnswerOrigin.BULK)}
        sync_api.expect(page.locator(f'.tick[value="{chosen[0]}"]')).to_have_count(0)

        # The cursor stays in its place, and one item alone is not in bulk.
        alone = page.evaluate("document.activeElement.value")
        page.keyboard.press("2")
        sync_api.expect(page.locator("#said")).to_have_text("1 item is ham now.")
        assert read_origins(path)[alone] == ("ham", AnswerOrigin.SEEN)

        page.keyboard.press("Backspace")
        sync_api.expect(page.locator("#said")).to_have_text("1 answer was taken back.")
        page.keyboard.press("Backspace")
        sync_api.expect(page.locator("#said")).to_have_text("2 answers were taken back.")
        assert read_origins(path) == before

        # All hits of all pages, and Shift for all rows in between.
        page.keyboard.press("/")
        page.keyboard.press("Control+A")
        page.keyboard.type("number")
        sync_api.expect(page.locator("#hits")).to_contain_text("80 items")
        page.get_by_role("button", name="Tick all 80").click()
        sync_api.expect(page.locator("#ticked")).to_have_text("80 ticked")
        assert len(ticked(page)) == 50
        page.get_by_role("button", name="Untick all").click()
        page.locator(".tick").nth(1).click()
        page.locator(".tick").nth(5).click(modifiers=["Shift"])
        sync_api.expect(page.locator("#ticked")).to_have_text("5 ticked")
        page.get_by_label("Sort by").select_option("text")
        sync_api.expect(page.locator("#ticked")).to_have_text("Nothing is ticked")
        page.context.close()
    assert problems == []


def test_a_page_of_one_prediction_is_ticked_and_answered_as_predicted(
    browser: Any, tmp_path: Path
) -> None:
    path = tmp_path / "texts.teeter"
    make_labelled_campaign(path, 40)
    before = read_origins(path)
    problems: list[str] = []
    with page_server(path) as address:
        page = open_window(browser, problems)
        page.goto(f"{address}/c/texts/find")
        sync_api.expect(page.get_by_role("button", name="Tick these 50")).to_be_visible()
        page.get_by_role("button", name="Tick these 50").click()
        sync_api.expect(page.locator("#ticked")).to_have_text("50 ticked")
        sync_api.expect(page.locator("#as-predicted")).to_be_hidden()
        page.keyboard.press("=")  # of several predictions, none is meant

        page.goto(f"{address}/c/texts/find?predicted=ham&state=unlabelled")
        page.locator("#tick-all").click()
        page.locator(".tick").nth(1).uncheck()
        chosen = ticked(page)
        assert chosen
        sync_api.expect(page.get_by_role("button", name="= ham")).to_be_visible()
        check_accessibility(page, "items of one prediction")
        page.get_by_label("Hide predictions").check()
        sync_api.expect(page.locator("#as-predicted")).to_be_hidden()
        page.get_by_label("Hide predictions").uncheck()
        page.keyboard.press("=")
        sync_api.expect(page.locator("#said")).to_contain_text("ham now")
        answers = read_origins(path)
        assert {answers[item] for item in chosen} == {("ham", AnswerOrigin.BULK)}
        assert len(answers) == len(before) + len(chosen)
        page.context.close()
    assert problems == []


def test_items_are_sorted_compared_and_shown_without_predictions(
    browser: Any, tmp_path: Path
) -> None:
    path = tmp_path / "texts.teeter"
    make_labelled_campaign(path, 40)
    problems: list[str] = []
    with page_server(path) as address:
        page = open_window(browser, problems)
        page.goto(f"{address}/c/texts/find")
        predictions = page.locator("td.guess").filter(has_text="spam")
        sync_api.expect(predictions.first).to_be_visible()
        page.get_by_role("button", name="confidence").click()
        heading = page.locator("th", has=page.get_by_role("button", name="confidence"))
        sync_api.expect(heading).to_have_attribute("aria-sort", "ascending")
        page.get_by_role("button", name="confidence").click()
        sync_api.expect(heading).to_have_attribute("aria-sort", "descending")

        page.locator("button.like").first.click()
        sync_api.expect(page.locator("#hits")).to_contain_text("closest first")
        sync_api.expect(page.locator("th").filter(has_text="similarity")).to_be_visible()
        page.get_by_role("button", name="Show all").click()
        sync_api.expect(page.locator("#hits")).to_have_text("121 items")
        page.get_by_label("By meaning").fill("urgent offer")
        page.keyboard.press("Enter")
        sync_api.expect(page.locator("td.text").first).to_contain_text("Urgent offer")
        check_accessibility(page, "the page to find items")

        page.get_by_label("Hide predictions").check()
        sync_api.expect(predictions.first).to_be_hidden()
        page.reload()
        sync_api.expect(page.locator("#hits")).to_contain_text("closest in meaning first")
        sync_api.expect(predictions.first).to_be_hidden()
        page.go_back()
        sync_api.expect(page.locator("#hits")).to_have_text("121 items")

        page.set_viewport_size(PHONE)
        check_accessibility(page, "the page to find items on a phone")
        page.context.close()
    assert problems == []


def test_a_lasso_on_the_map_is_shown_in_parts_and_answered(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "texts.teeter"
    make_labelled_campaign(path, 40)
    before = read_origins(path)
    problems: list[str] = []
    with page_server(path) as address:
        page = open_window(browser, problems)
        page.goto(f"{address}/c/texts/map")
        sync_api.expect(page.locator("#status")).to_have_text(re.compile(r"labelled, model \d+\.$"))
        assert page.get_by_label("Colour by").input_value() == "predicted"
        assert page.get_by_label("Layout").input_value() == "tsne"

        page.get_by_role("button", name="Draw a selection").click()
        box = page.locator("#map").bounding_box()
        left, top = box["x"] + 2, box["y"] + 2
        right, bottom = left + box["width"] - 4, top + box["height"] - 4
        page.mouse.move(left, top)
        page.mouse.down()
        for corner in ((right, top), (right, bottom), (left, bottom)):
            page.mouse.move(*corner)
        page.mouse.up()

        cards = page.locator("#chosen li")
        sync_api.expect(cards).to_have_count(30)
        sync_api.expect(page.locator("#caught")).to_have_text("91 more are selected.")
        cards.nth(4).locator("input").uncheck()
        kept = cards.nth(4).locator("input").get_attribute("value")
        sync_api.expect(page.locator("#ticked")).to_have_text("29 ticked")
        check_accessibility(page, "the map with a selection")

        page.keyboard.press("2")
        sync_api.expect(page.locator("#said")).to_contain_text("items are ham now.")
        sync_api.expect(page.locator("#caught")).to_have_text("61 more are selected.")
        answers = read_origins(path)
        in_bulk = {item for item, (_, origin) in answers.items() if origin == AnswerOrigin.BULK}
        assert in_bulk
        assert kept not in in_bulk
        assert before.items() <= answers.items(), "what was said of an item alone stays"

        page.get_by_role("button", name="Undo").click()
        sync_api.expect(page.locator("#said")).to_contain_text("taken back")
        assert read_origins(path) == before

        page.get_by_label("Hide predictions").check()
        sync_api.expect(page.get_by_label("Colour by")).to_have_value("label")
        page.get_by_role("button", name="End the selection").click()
        sync_api.expect(page.locator("#selected")).to_be_hidden()
        page.context.close()
    assert problems == []
