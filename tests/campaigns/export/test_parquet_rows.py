"""Parquet exports have types that hold the values of all rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from teeter.campaigns import Campaign
from teeter.campaigns.items.read_items import read_items


def make_campaign(source: Path) -> Campaign:
    """Create a campaign from a file."""
    path = source.with_suffix(".teeter")
    Campaign.make(read_items(source), ["good", "poor"], at=path).database.close()
    return Campaign.open(path)


def export_table(campaign: Campaign, path: Path) -> pyarrow.Table:
    campaign.export(path)
    return parquet.read_table(path)


def write_typed_ids(folder: Path, arrow_type: pyarrow.DataType) -> Path:
    """Write a Parquet file whose columns of ids and numbers must not be empty."""
    schema = pyarrow.schema(
        [
            pyarrow.field("id", arrow_type, nullable=False),
            pyarrow.field("text", pyarrow.string()),
            pyarrow.field("n", pyarrow.int64(), nullable=False),
        ]
    )
    path = folder / "rows.parquet"
    rows = [{"id": 1, "text": "one", "n": 5}, {"id": 2, "text": "two", "n": 6}]
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema), path)
    return path


@pytest.mark.parametrize(
    ("new_id", "expected"), [("7", [1, 2, 7]), ("x", ["1", "2", "x"]), ("07", ["1", "2", "07"])]
)
def test_ids_of_a_csv_file_are_texts_if_a_new_one_is_no_integer(
    new_id: str, expected: list[object], tmp_path: Path
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,text\n1,one\n2,two\n")
    campaign = make_campaign(source)
    campaign.add([(new_id, "three")])

    exported = export_table(campaign, tmp_path / "out.parquet")

    assert exported.column("id").to_pylist() == expected


@pytest.mark.parametrize(
    ("new_id", "expected"), [("7", [1, 2, 7]), ("300", ["1", "2", "300"]), ("x", ["1", "2", "x"])]
)
def test_ids_of_a_parquet_file_are_texts_if_a_new_one_does_not_fit(
    new_id: str, expected: list[object], tmp_path: Path
) -> None:
    campaign = make_campaign(write_typed_ids(tmp_path, pyarrow.int8()))
    campaign.add([(new_id, "three")])

    exported = export_table(campaign, tmp_path / "out.parquet")

    assert exported.column("id").to_pylist() == expected
    assert exported.column("n").to_pylist() == [5, 6, None]


def test_a_column_may_be_empty_only_if_it_is(tmp_path: Path) -> None:
    campaign = make_campaign(write_typed_ids(tmp_path, pyarrow.int64()))
    before = export_table(campaign, tmp_path / "before.parquet").schema

    campaign.add([("3", "three")])

    after = export_table(campaign, tmp_path / "after.parquet").schema
    assert (before.field("n").nullable, after.field("n").nullable) == (False, True)
    assert not after.field("id").nullable


def test_large_integers_beside_fractions_keep_their_digits(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text(
        '{"id": "a", "text": "one", "n": 9007199254740993}\n{"id": "b", "text": "two", "n": 1.5}\n'
    )

    exported = export_table(make_campaign(source), tmp_path / "out.parquet")

    assert exported.column("n").to_pylist() == ["9007199254740993", "1.5"]


def test_small_integers_beside_fractions_are_numbers(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text('{"id": "a", "text": "one", "n": 3}\n{"id": "b", "text": "two", "n": 1.5}\n')

    exported = export_table(make_campaign(source), tmp_path / "out.parquet")

    assert exported.column("n").to_pylist() == [3.0, 1.5]


def test_the_splits_of_datasets_have_the_same_types(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,text\n1,one\n2,two\n")
    campaign = make_campaign(source)
    campaign.add([("x", "three")])
    campaign.tell("1", "good")

    campaign.export(tmp_path / "folder")

    splits = [
        parquet.read_table(tmp_path / "folder" / f"{name}.parquet")
        for name in ("train", "unlabelled")
    ]
    assert splits[0].schema == splits[1].schema
    assert [split.column("id").to_pylist() for split in splits] == [["1"], ["2", "x"]]
