"""Items that came from several tables, or from none, are exported together."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from teeter.campaigns import Campaign
from teeter.campaigns.items.read_items import read_items


def make_campaign(source: Path) -> Campaign:
    """Create a campaign from a file."""
    path = source.with_suffix(".teeter")
    Campaign.make(read_items(source), ["good", "poor"], at=path).database.close()
    return Campaign.open(path)


@pytest.fixture
def rows_with_ids(tmp_path: Path) -> Campaign:
    source = tmp_path / "rows.csv"
    source.write_text("id,text,city\n1,one,Wien\n2,two,Graz\n")
    return make_campaign(source)


def test_an_item_with_other_columns_keeps_its_id(rows_with_ids: Campaign, tmp_path: Path) -> None:
    rows_with_ids.add([{"id": "r9", "text": "three", "customer": "ACME"}])
    rows_with_ids.add([("r10", "four")])

    rows_with_ids.export(tmp_path / "out.csv")
    rows_with_ids.export(tmp_path / "out.jsonl")

    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ["1", "2", "r9", "r10"]
    assert [row["customer"] for row in rows] == ["", "", "ACME", ""]
    objects = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [fields["id"] for fields in objects] == [1, 2, "r9", "r10"]


def test_a_line_without_an_id_is_exported_with_that_of_its_item(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text('{"id": 1, "text": "one"}\n{"text": "two"}\n')
    campaign = make_campaign(source)

    campaign.export(tmp_path / "out.jsonl")

    objects = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert objects[0]["id"] == 1
    assert objects[1]["id"] == read_items(source)[1].key
