"""An audit on its page, from a table to a verdict."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from campaigns.finish.audits import make_rows
from server.browsers import MARKS, chromium
from server.servers import TeeterServeProcess
from teeter.campaigns import Campaign

pytestmark = [*MARKS, pytest.mark.slow]


def test_an_audit_from_a_table_to_its_verdict(tmp_path: Path) -> None:
    table = tmp_path / "answers.csv"
    rows = make_rows(300, right=0.6)
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    folder = tmp_path / "campaigns"
    folder.mkdir()
    server = TeeterServeProcess(tmp_path, "--folder", folder).start()
    try:
        with chromium() as browser:
            page = browser.new_page()
            page.goto(f"{server.address}/new")
            page.set_input_files("input[name=file]", str(table))
            page.select_option("select[name=judges]", "llm")
            page.select_option("select[name=confidences]", "sure")
            page.fill("input[name=require]", "0.9")
            page.click("button.main")
            page.wait_for_url("**/c/answers")
            # The keys of the classes: people know what is right.
            page.wait_for_selector("#choices button")
            names = Campaign.open(folder / "answers.teeter").classes.names()
            for count in range(1, 41):
                text = page.inner_text(".words")
                page.keyboard.press(str(names.index(text.split()[-1]) + 1))
                page.wait_for_function(
                    "text => document.querySelector('.words')?.innerText !== text", arg=text
                )
                assert count <= 40
            page.goto(f"{server.address}/c/answers/audit")
            page.get_by_text("llm: right on at least 90%? No, at most").wait_for()
            page.get_by_text("End the audit").click()
            page.get_by_role("button", name="End it").click()
            page.get_by_text("The audit is over.").wait_for()
            assert not page.get_by_text("End the audit").count()
    finally:
        server.stop()
