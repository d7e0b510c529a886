"""Columns beside an item in a real browser: Markdown as elements, HTML as text, safe links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.browsers import MARKS, check_accessibility, open_window, page_server, sync_api
from server.servers import HARMFUL
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings

pytestmark = [*MARKS, pytest.mark.slow]

NOTES = f"""# Order 7

**Paid** by *card*, see [the receipt](https://example.org/r?id=7) or https://example.org/help.

- `code` here
- second

[bad](javascript:alert(1)) [file](file:///etc/passwd) {HARMFUL}
"""


def make_campaign(path: Path) -> Path:
    items = []
    for number in range(12):
        item = {"id": f"r{number}", "text": f"A text {number}"}
        items.append({**item, "notes": NOTES, "customer": f"ACME {number}"})

    settings = Settings(encoder="tfidf", show=["customer", "notes"])
    Campaign.make(items, ["good", "poor"], at=path, settings=settings).database.close()
    return path


def test_columns_are_shown_beside_the_item_and_nothing_in_them_runs(
    browser: Any, tmp_path: Path
) -> None:
    problems: list[str] = []
    with page_server(make_campaign(tmp_path / "rows.teeter")) as address:
        page = open_window(browser, problems)
        page.goto(f"{address}/c/rows")
        columns = page.locator("#stage .columns")
        columns.wait_for()

        assert columns.locator("dt").all_inner_texts() == ["customer", "notes"]
        assert columns.locator("strong").all_inner_texts() == ["Order 7", "Paid"]
        assert columns.locator("li").all_inner_texts() == ["code here", "second"]
        links = columns.locator("a")
        assert [link.get_attribute("href") for link in links.all()] == [
            "https://example.org/r?id=7",
            "https://example.org/help",
        ], "javascript: and file: are no links"
        for link in links.all():
            assert link.get_attribute("target") == "_blank"
            assert link.get_attribute("rel") == "noopener noreferrer nofollow"
            assert link.get_attribute("referrerpolicy") == "no-referrer"
        assert columns.locator("script, img, b").count() == 0
        assert "<script>alert" in columns.inner_text(), "HTML is shown as text"
        check_accessibility(page, "/c/rows")

        first = columns.inner_text()
        page.keyboard.press("1")
        sync_api.expect(columns).not_to_have_text(first)
        sync_api.expect(page.locator("#saved")).to_have_text("All saved")

        page.goto(f"{address}/c/rows/item?id=r3")
        assert page.locator("dl.columns strong").all_inner_texts() == ["Order 7", "Paid"]
        for button, notice in (
            ("Withdraw the item", "The item was withdrawn."),
            ("Put the item back", "The item is in the campaign again."),
        ):
            page.get_by_role("button", name=button).click()
            sync_api.expect(page.locator("#notice")).to_have_text(notice)
            strong = page.locator("dl.columns strong")
            sync_api.expect(strong).to_have_text(["Order 7", "Paid"])
        check_accessibility(page, "the page of an item")
        page.goto(f"{address}/c/rows/find?column=customer&value=ACME+3")
        assert page.locator("tbody tr").count() == 1
        page.context.close()
    assert problems == []
