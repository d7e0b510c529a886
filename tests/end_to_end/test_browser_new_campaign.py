"""The form for a new campaign in a real browser: a file is chosen, then its columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from data.test_table_files_workbooks import write_workbook
from server.browsers import MARKS, PHONE, check_accessibility, open_window, sync_api
from server.servers import HARMFUL, TeeterServeProcess, text

pytestmark = MARKS

CELLS = [["nr", "mail", "body", "label"]] + [
    [f"m{k}", text(k), f"more {k}", ("spam, or so", "ham")[k % 2] if k < 12 else None]
    for k in range(40)
]


@pytest.mark.slow
@pytest.mark.parametrize("viewport", [None, PHONE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_campaign_is_made_of_a_sheet_whose_columns_are_chosen(
    browser: Any, tmp_path: Path, viewport: dict[str, int] | None, scheme: str
) -> None:
    pytest.importorskip("python_calamine")
    problems: list[str] = []
    notes = [["note"], [HARMFUL], ["x"]]
    book = write_workbook(tmp_path / "my mails.xlsx", {"Notes": notes, "Mails": CELLS})
    work = tmp_path / "work"
    work.mkdir()
    server = TeeterServeProcess(tmp_path / "home", "--folder", work).start()
    try:
        page = open_window(browser, problems)
        page.goto(f"{server.address}/new")
        page.emulate_media(color_scheme=scheme)
        if viewport is not None:
            page.set_viewport_size(viewport)

        page.get_by_label("A file of texts").set_input_files(book)
        table = page.get_by_role("table", name="The first rows")
        sync_api.expect(table.get_by_role("cell").first).to_have_text(HARMFUL)
        sync_api.expect(page.get_by_label("Name", exact=True)).to_have_value("my mails")

        page.get_by_label("Sheet").select_option("Mails")
        sync_api.expect(table.get_by_role("columnheader").nth(1)).to_have_text("mail")
        classes = page.get_by_label("Classes, separated by commas")
        sync_api.expect(classes).to_have_value('"spam, or so", ham')
        counts = page.get_by_text("In label, 12 rows have a label: spam, or so (6), ham (6)")
        sync_api.expect(counts).to_be_visible()
        page.get_by_role("combobox", name="Text The column").select_option("several columns…")
        page.get_by_label("Template").fill(r"{mail}\n{body}")
        page.get_by_label("Ids").select_option("nr")
        page.get_by_role("checkbox", name="body").focus()
        page.keyboard.press("Space")
        check_accessibility(page, "/new")
        width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert width <= 0, "the page is not wider than the screen"

        page.get_by_role("button", name="Create campaign").click()
        page.wait_for_url("**/c/my-mails")
        page.locator("#stage .words").wait_for()
        sync_api.expect(page.locator("#stage .columns dt")).to_have_text("body")

        page.goto(f"{server.address}/new")
        damaged = tmp_path / "damaged.parquet"
        damaged.write_bytes(b"x")
        page.get_by_label("A file of texts").set_input_files(damaged)
        sentence = page.get_by_text("damaged.parquet is not a valid Parquet file")
        sync_api.expect(sentence).to_be_visible()
        page.context.close()
    finally:
        server.stop()
    assert [problem for problem in problems if "422" not in problem] == []
