"""Columns of tables stay with the items, and every export returns them as they were."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

from campaigns.wide_tables import MEGABYTE, wide_objects, write_wide_jsonl, write_wide_parquet
from teeter.campaigns import Campaign, Settings
from teeter.campaigns.export.formats import format_suffix
from teeter.campaigns.items.columns import (
    ABSENT,
    ADDED_COLUMNS,
    csv_column_type,
    decode_cells,
    encode_cells,
    normalize_cell,
    parse_column_filter,
)
from teeter.campaigns.items.read_items import read_items
from teeter.campaigns.records import ColumnType, ItemColumns
from teeter.errors import InputError, UnknownNameError

ADDED = set(ADDED_COLUMNS) - {"id", "text"}


def make_campaign(source: Path, columns: ItemColumns | None = None) -> Campaign:
    """Create a campaign from a file, with one label, without encoding anything of value."""
    path = source.with_suffix(".teeter")
    items = read_items(source, columns)
    Campaign.make(
        items, ["good", "poor"], at=path, settings=Settings(encoder="tfidf")
    ).database.close()
    campaign = Campaign.open(path)
    campaign.tell("a", "good")
    return campaign


def read_csv(path: Path) -> list[dict[str, str]]:
    csv.field_size_limit(10_000_000)
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_parquet_file_comes_back_with_its_types_and_order(tmp_path: Path) -> None:
    original = write_wide_parquet(tmp_path / "wide.parquet")
    campaign = make_campaign(tmp_path / "wide.parquet")

    campaign.export(tmp_path / "out.parquet")

    exported = parquet.read_table(tmp_path / "out.parquet")
    names = original.column_names
    assert len(names) == 20
    assert exported.column_names[:20] == names
    assert set(exported.column_names[20:]) == ADDED
    assert exported.select(names).schema == original.schema
    for name in names:
        # NaN differs from itself, so these are compared as what they are stored as.
        if name == "share":
            exported_bytes = exported.column(name).fill_null(-1).to_numpy().tobytes()
            assert exported_bytes == original.column(name).fill_null(-1).to_numpy().tobytes()
        else:
            assert exported.column(name).equals(original.column(name)), name
    assert exported.column("label").to_pylist() == ["good", None, "good", None]


def test_json_lines_come_back_value_by_value(tmp_path: Path) -> None:
    original = write_wide_jsonl(tmp_path / "wide.jsonl")
    campaign = make_campaign(tmp_path / "wide.jsonl")

    campaign.export(tmp_path / "out.jsonl")

    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").split("\n")
    exported = [json.loads(line) for line in lines if line]
    for fields, before in zip(exported, original, strict=True):
        imported = {name: fields[name] for name in fields if name not in ADDED}
        assert imported == before
        assert list(imported) == list(before)
        assert {name: type(cell) for name, cell in imported.items()} == {
            name: type(cell) for name, cell in before.items()
        }


def write_wide_csv(path: Path) -> list[dict[str, str]]:
    rows = []
    for number, key in enumerate("abcd"):
        row = {"": str(number), "id": key, "text": f"text {number % 3}", "code": "007"}
        row |= {f"column {k}": f"{k}{number}" for k in range(10)}
        row |= {"price": "1.50", "day": "2024-02-29", "empty": "", "flag": "TRUE", "nul": "a\0b"}
        row |= {"notes": f'=1+1, "quoted"\r\nnext {key}', "json": '{"a": [1, null]}'}
        rows.append(row)
    rows[3]["notes"] = MEGABYTE
    rows[1] |= {"price": "", "day": "", "flag": ""}

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return rows


def test_a_csv_file_comes_back_cell_by_cell(tmp_path: Path) -> None:
    original = write_wide_csv(tmp_path / "wide.csv")
    campaign = make_campaign(tmp_path / "wide.csv")

    campaign.export(tmp_path / "out.csv")

    exported = read_csv(tmp_path / "out.csv")
    assert [{name: row[name] for name in original[0]} for row in exported] == original
    assert list(exported[0])[: len(original[0])] == list(original[0])
    assert [row["label"] for row in exported] == ["good", "", "", "good"], "d repeats the text of a"


def test_a_csv_file_has_types_in_formats_that_know_them(tmp_path: Path) -> None:
    write_wide_csv(tmp_path / "wide.csv")
    campaign = make_campaign(tmp_path / "wide.csv")

    campaign.export(tmp_path / "out.parquet")
    campaign.export(tmp_path / "out.jsonl")

    exported = parquet.read_table(tmp_path / "out.parquet")
    assert exported.column("price").to_pylist() == [1.5, None, 1.5, 1.5]
    assert exported.column("day").to_pylist()[:2] == [date(2024, 2, 29), None]
    assert exported.column("flag").to_pylist()[:2] == [True, None]
    assert exported.column("code").to_pylist() == ["007"] * 4
    first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert (first["price"], first["flag"], first["column 3"], first["empty"]) == (1.5, True, 30, "")


@pytest.mark.parametrize("write", [write_wide_parquet, write_wide_jsonl, write_wide_csv])
def test_every_file_can_be_exported_in_every_format_and_read_again(
    write: Callable[[Path], object], tmp_path: Path
) -> None:
    suffix = write.__name__.rpartition("_")[2]
    write(tmp_path / f"wide.{suffix}")
    campaign = make_campaign(tmp_path / f"wide.{suffix}")

    for form in ("csv", "jsonl", "parquet", "spreadsheet"):
        out = tmp_path / f"{form}{format_suffix(form)}"
        campaign.export(out, form)

        items = read_items(out, ItemColumns(text="text", labels="label"))
        assert [item.key for item in items] == ["a", "b", "c", "d"]
        assert [item.row is not None for item in items] == [True] * 4


def test_adding_a_file_twice_changes_nothing(tmp_path: Path) -> None:
    write_wide_jsonl(tmp_path / "wide.jsonl")
    campaign = make_campaign(tmp_path / "wide.jsonl")
    campaign.export(tmp_path / "once.jsonl")

    campaign.add(read_items(tmp_path / "wide.jsonl"))

    campaign.export(tmp_path / "twice.jsonl")
    assert (tmp_path / "twice.jsonl").read_bytes() == (tmp_path / "once.jsonl").read_bytes()


def test_rows_without_ids_are_told_apart_by_their_order(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("text,n\nsame,1\nsame,2\nother,3\n")
    Campaign.make(
        read_items(source), ["good", "poor"], at=tmp_path / "rows.teeter"
    ).database.close()
    campaign = Campaign.open(tmp_path / "rows.teeter")

    source.write_text("text,n,more\nsame,10,x\nsame,20,y\nother,30,z\nsame,40,w\n")
    result = campaign.add(read_items(source))

    campaign.export(tmp_path / "out.csv")
    exported = [(row["text"], row["n"], row["more"]) for row in read_csv(tmp_path / "out.csv")]
    assert result.new == 0
    assert exported == [
        ("same", "10", "x"),
        ("same", "20", "y"),
        ("other", "30", "z"),
        ("same", "40", "w"),
    ]


def test_items_with_and_without_columns_are_exported_together(tmp_path: Path) -> None:
    items = [{"id": "a", "text": "one", "when": date(2024, 1, 2), "n": np.int64(3)}, ("b", "two")]
    Campaign.make(items, ["good", "poor"], at=tmp_path / "c.teeter").database.close()
    campaign = Campaign.open(tmp_path / "c.teeter")
    campaign.add([{"id": "c", "text": "three", "n": 2.5, "extra": {"deep": [1]}}])

    campaign.export(tmp_path / "out.parquet")
    exported = parquet.read_table(tmp_path / "out.parquet")

    assert exported.column_names[:3] == ["when", "n", "extra"]
    assert exported.column("id").to_pylist() == ["a", "c", "b"]
    assert exported.column("when").to_pylist() == [date(2024, 1, 2), None, None]
    assert exported.column("n").to_pylist() == [3.0, 2.5, None]
    assert campaign.items.row("c") == {"n": 2.5, "extra": {"deep": [1]}}
    assert campaign.items.row("b") == {}
    assert [column.type for column in campaign.items.columns()] == ["date", "number", "json"]


def test_an_added_column_never_hides_an_imported_one(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,text,label,teeter_label\na,one,mine,too\nb,two,,\n")
    campaign = make_campaign(source)

    campaign.export(tmp_path / "out.csv")

    first, _ = read_csv(tmp_path / "out.csv")
    assert list(first)[:4] == ["id", "text", "label", "teeter_label"]
    assert (first["label"], first["teeter_label"]) == ("mine", "too")
    assert first["teeter_teeter_label"] == "good"


def test_a_spreadsheet_leaves_negative_numbers_alone(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,text,n,formula\na,one,-5,-1+1\nb,two,3,=A1\n")
    campaign = make_campaign(source)

    campaign.export(tmp_path / "out.csv", "spreadsheet")

    first, second = read_csv(tmp_path / "out.csv")
    assert (first["n"], first["formula"]) == ("-5", "'-1+1")
    assert second["formula"] == "'=A1"


def test_a_spreadsheet_escapes_names_of_columns_and_ids(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,text,=cmd|calc\n1,one,x\n2,two,y\n")
    Campaign.make(
        read_items(source), ["good", "poor"], at=tmp_path / "rows.teeter"
    ).database.close()
    campaign = Campaign.open(tmp_path / "rows.teeter")
    campaign.add([("=HYPERLINK(1)", "three")])

    campaign.export(tmp_path / "out.csv", "spreadsheet")

    rows = read_csv(tmp_path / "out.csv")
    assert [row["id"] for row in rows] == ["1", "2", "'=HYPERLINK(1)"]
    assert [row["'=cmd|calc"] for row in rows] == ["x", "y", ""]


def test_a_campaign_made_before_columns_gets_them_when_its_file_is_added_again(
    tmp_path: Path,
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,text,n\na,one,1\nb,two,2\n")
    texts = [("a", "one"), ("b", "two")]
    Campaign.make(texts, ["good", "poor"], at=tmp_path / "old.teeter").database.close()
    campaign = Campaign.open(tmp_path / "old.teeter")
    campaign.tell("b", "poor")

    result = campaign.add(read_items(source))

    assert (result.new, result.duplicates) == (0, 2)
    assert campaign.items.row("b") == {"id": "b", "text": "two", "n": 2}


def test_columns_survive_a_copy_and_a_backup(tmp_path: Path) -> None:
    from teeter.campaigns.store.copies import copy_to_location

    write_wide_parquet(tmp_path / "wide.parquet")
    campaign = make_campaign(tmp_path / "wide.parquet")
    campaign.export(tmp_path / "before.csv")

    copy_to_location(campaign.database, campaign.name, str(tmp_path / "copy.teeter"))
    campaign.back_up(tmp_path / "backup.teeter")

    for name in ("copy", "backup"):
        copy = Campaign.open(tmp_path / f"{name}.teeter")
        copy.export(tmp_path / f"{name}.csv")
        assert (tmp_path / f"{name}.csv").read_bytes() == (tmp_path / "before.csv").read_bytes()
        copy.database.close()


def test_shown_columns_must_exist(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,text,customer,day\na,one,ACME,\nb,two,**Umbrella**,2024-01-01\n")
    settings = Settings(show=["day", "customer"])
    path = tmp_path / "rows.teeter"
    Campaign.make(read_items(source), ["good", "poor"], at=path, settings=settings).database.close()

    shown = Campaign.open(path).items.shown_columns(["a", "b", "z"])

    assert shown == {
        "a": {"customer": "ACME"},
        "b": {"day": "2024-01-01", "customer": "**Umbrella**"},
    }
    with pytest.raises(UnknownNameError, match=r"No column is called 'custmer'\. Did you mean"):
        Campaign.make(
            read_items(source),
            ["good", "poor"],
            at=tmp_path / "new.teeter",
            settings=Settings(show=["custmer"]),
        )
    assert not (tmp_path / "new.teeter").exists()


def test_texts_come_from_several_columns_or_a_template(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,title,body\na,Broken,In parts\nb,,No title\n")

    joined = read_items(source, ItemColumns(text="title,body"))
    filled = read_items(source, ItemColumns(text=r"{title}:\n{body} {{}}"))

    assert [item.content for item in joined] == ["Broken\n\nIn parts", "No title"]
    assert [item.content for item in filled] == ["Broken:\nIn parts {}", ":\nNo title {}"]
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"id": 1, "title": "Broken", "n": 5}\n{"id": 2, "n": [1]}\n')
    assert [item.content for item in read_items(lines, ItemColumns(text="{title} {n}"))] == [
        "Broken 5",
        " [1]",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title,boddy", "is called 'boddy'. Did you mean 'body'"),
        ("{title", "cannot be read"),
        ("{}", "braces without a column"),
        ("{title!r}", "write only {title}"),
        ("{title:>5}", "write only {title}"),
        ("{title.__class__}", "No column of .* is called 'title.__class__'"),
    ],
)
def test_a_template_that_cannot_be_filled_is_refused(
    text: str, message: str, tmp_path: Path
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,title,body\na,Broken,In parts\n")

    with pytest.raises(InputError, match=message):
        read_items(source, ItemColumns(text=text))


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "-20", ""], ColumnType.INTEGER),
        (["01234", "1010"], ColumnType.TEXT),
        (["+43660123456"], ColumnType.TEXT),
        (["12345678901234567890"], ColumnType.TEXT),
        (["9" * 15], ColumnType.INTEGER),
        (["9" * 16], ColumnType.TEXT),
        (["1.5", "1e5", ".5", "-0"], ColumnType.NUMBER),
        (["0.30000000000000004"], ColumnType.NUMBER),
        (["0.123456789012345678"], ColumnType.TEXT),
        (["1e999"], ColumnType.TEXT),
        (["e5"], ColumnType.TEXT),
        (["true", "False"], ColumnType.BOOLEAN),
        (["2024-02-30"], ColumnType.TEXT),
        (["2024-02-29"], ColumnType.DATE),
        (["2024-02-29 10:00", "2024-02-29T10:00:00.5"], ColumnType.TIMESTAMP),
        (["nan"], ColumnType.TEXT),
        (["", ""], ColumnType.TEXT),
    ],
)
def test_the_type_of_csv_cells(cells: list[str], expected: ColumnType) -> None:
    assert csv_column_type(cells) is expected


def test_missing_fields_and_empty_objects_differ() -> None:
    cells = [ABSENT, {}, {"value": 1}, None, [], "\0", "\ud800"]

    decoded = decode_cells(encode_cells(cells))

    assert decoded == cells
    assert decoded[0] is ABSENT
    assert decoded[1] is not ABSENT
    assert "\0" not in encode_cells(cells), "PostgreSQL cannot store it"


def test_digits_that_are_no_numbers_stay_texts(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,text,zip,mixed\na,one,01234,1234\nb,two,04321,2.5\n")
    campaign = make_campaign(source)

    campaign.export(tmp_path / "out.jsonl")

    first, second = (tmp_path / "out.jsonl").read_text().splitlines()
    assert '"zip": "01234", "mixed": 1234,' in first
    assert '"zip": "04321", "mixed": 2.5,' in second


def test_times_of_numpy_are_dates_and_times() -> None:
    moment = np.datetime64("2020-01-01T10:30:00", "ns")
    assert normalize_cell(moment, "x") == ("2020-01-01T10:30:00.000000", ColumnType.TIMESTAMP)
    assert normalize_cell(moment + 1, "x")[0] == "2020-01-01T10:30:00.000000001"
    assert normalize_cell(np.datetime64("2020-01"), "x") == ("2020-01-01", ColumnType.DATE)
    assert normalize_cell(np.datetime64("2020-01-01T10"), "x")[0] == "2020-01-01T10:00"
    assert normalize_cell(np.datetime64("NaT"), "x") == (None, None)
    assert normalize_cell(np.timedelta64(5, "ns"), "x") == ("5 nanoseconds", ColumnType.TEXT)
    assert normalize_cell(np.array(3), "x") == (3, ColumnType.INTEGER)


def test_missing_values_and_times_of_pandas_are_stored(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    moment = pandas.Timestamp("2020-01-01 10:30")
    items = [
        {"id": "a", "text": "one", "when": moment, "n": 1},
        {"id": "b", "text": "two", "when": pandas.NaT, "n": pandas.NA},
    ]
    Campaign.make(items, ["good", "poor"], at=tmp_path / "c.teeter").database.close()

    Campaign.open(tmp_path / "c.teeter").export(tmp_path / "out.parquet")

    exported = parquet.read_table(tmp_path / "out.parquet")
    assert exported.column("when").to_pylist() == [moment.to_pydatetime(), None]
    assert exported.column("n").to_pylist() == [1, None]


def test_cells_that_are_nested_too_deeply_are_refused() -> None:
    nested: list[Any] = []
    for _ in range(900):
        nested = [nested]

    with pytest.raises(InputError, match=r"column 'x' has lists .* more than 100 deep"):
        normalize_cell(nested, "x")


def test_an_index_without_a_name_is_no_label(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    source.write_text(",id,age,city\n0,x,41,Wien\n1,y,20,Graz\n")

    first, _ = read_items(source, rows=True)

    assert (first.key, first.label, first.content) == ("x", None, "age: 41\ncity: Wien")


def test_a_value_that_cannot_be_stored_is_refused() -> None:
    with pytest.raises(InputError, match="column 'x' has a value of type object"):
        normalize_cell(object(), "x")
    with pytest.raises(InputError, match="write COLUMN=VALUE"):
        parse_column_filter("customer")


def test_the_objects_of_the_tests_have_20_columns() -> None:
    assert len(wide_objects()[0]) == 20


def test_rows_of_a_table_are_labelled_as_cards(tmp_path: Path) -> None:
    source = tmp_path / "loans.csv"
    lines = ["id,age,city,since,rating"]
    for number in range(60):
        age = 20 + number % 40
        since = "" if number % 7 == 0 else f"2026-01-{1 + number % 28:02}"
        lines.append(f"r{number},{age},{'AB'[age > 40]},{since},{'high' if age > 40 else 'low'}")
    source.write_text("\n".join(lines) + "\n")

    items = read_items(source, ItemColumns(labels="rating"), rows=True)
    assert items[0].content == "age: 20\ncity: A\nsince:"
    assert {item.label for item in items} == {"high", "low"}

    path = tmp_path / "loans.teeter"
    unlabelled = read_items(source, ItemColumns(labels="rating"), rows=True)[:50]
    Campaign.make(
        unlabelled, ["low", "high"], at=path, settings=Settings(encoder="table-rows")
    ).database.close()
    campaign = Campaign.open(path)
    campaign.train()
    late = source.with_name("more.csv")
    late.write_text("id,age,city,since\nx1,25,A,2026-02-01\nx2,58,B,2026-02-01\n")
    campaign.add(read_items(late, rows=True))

    campaign.export(tmp_path / "out.csv")
    predicted = {row["id"]: row["predicted"] for row in read_csv(tmp_path / "out.csv")}
    assert (predicted["x1"], predicted["x2"]) == ("low", "high")
    assert campaign.items.row("r1")["age"] == 21
