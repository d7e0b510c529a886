"""Your table comes back in the kind of file or data frame that it came in, and can come in again.

Data frames and .xlsx need libraries that teeter does not: their cases are skipped without them.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from teeter.campaigns import Campaign, Settings
from teeter.campaigns.items.columns import ADDED_COLUMNS, SHORT_COLUMNS, find_added_columns
from teeter.campaigns.records import ItemColumns
from teeter.data.table_files import read_cells, read_table
from teeter.errors import InputError, MissingExtraError, UnknownNameError

CLASSES = ["good", "poor"]
READ_BY_PEOPLE = list(SHORT_COLUMNS[2:])


def make_rows(count: int) -> list[dict[str, Any]]:
    """Return rows with what is easily lost: zeros, blanks, dates, digits, nested values."""
    rows = []
    for number in range(count):
        is_blank = number % 7 == 3
        rows.append(
            {
                "ticket": f"{number:05d}",
                "review": f"text {number}, with 'quotes', =1+1\nand a line",
                "postcode": f"{number % 100:04d}",
                "label": None if is_blank else ("old", "=HYPERLINK(1)", "-5")[number % 3],
                "count": None if is_blank else 2**53 + 1 + number,
                "small": None if is_blank else number,
                "price": None if is_blank else number * 0.1,
                "paid": None if is_blank else number % 2 == 0,
                "day": None if is_blank else date(2024, 2, 29) + timedelta(days=number),
                "at": None if is_blank else datetime(1999, 12, 31, 23, 59, number % 60),
                "tags": None if is_blank else ["a", str(number)],
                "address": None if is_blank else {"zip": "01234", "lines": [number, 1]},
                "empty": None,
            }
        )
    return rows


def arrow_table(count: int) -> Any:
    return pyarrow.Table.from_pylist(make_rows(count)).set_column(
        12, "empty", pyarrow.array([None] * count, "string")
    )


def make_campaign(source: Any, folder: Path, **settings: Any) -> Campaign:
    columns = ItemColumns(text="review", id="ticket")
    campaign = Campaign.make(
        source,
        CLASSES,
        at=folder / "c.teeter",
        columns=columns,
        settings=Settings(encoder="tfidf", **settings),
    )
    campaign.tell("00000", "good")
    campaign.tell("00001", "poor", "ann")
    return campaign


def count_differences(ours: list[list[Any]], theirs: list[list[Any]]) -> int:
    """Return how many cells differ, of any type. A row that is missing differs in all."""
    differences = 0
    for row in range(max(len(ours), len(theirs))):
        for column in range(len(theirs[0])):
            try:
                here, there = ours[row][column], theirs[row][column]
            except IndexError:
                differences += 1
                continue
            is_same = repr(here) == repr(there) and type(here) is type(there)
            differences += not is_same
    return differences


# Each writes the rows to a file or a frame, and returns it with what the campaign gives back:
# the names of its columns, and its cells.
Cells = tuple[list[str], list[list[Any]]]


def pandas_cells(folder: Path, count: int) -> tuple[Any, Callable[[Campaign], Cells], Cells]:
    pandas = pytest.importorskip("pandas")
    frame = arrow_table(count).to_pandas(ignore_metadata=True)
    frame["count"] = pandas.array([row["count"] for row in make_rows(count)], dtype="Int64")
    for name in ("tags", "address"):
        cells = [row[name] for row in make_rows(count)]
        frame[name] = pandas.Series(cells, dtype=object)

    def cells(frame: Any) -> Cells:
        columns = [frame[name].tolist() for name in frame.columns]
        return list(frame.columns), [list(row) for row in zip(*columns, strict=True)]

    def read(campaign: Campaign) -> Cells:
        back = campaign.to_frame()
        assert type(back) is pandas.DataFrame
        assert back.dtypes.tolist()[: len(frame.columns)] == frame.dtypes.tolist()
        return cells(back)

    return frame, read, cells(frame)


def polars_cells(folder: Path, count: int) -> tuple[Any, Callable[[Campaign], Cells], Cells]:
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(arrow_table(count))

    def cells(frame: Any) -> Cells:
        return frame.columns, [list(row) for row in frame.rows()]

    def read(campaign: Campaign) -> Cells:
        back = campaign.to_frame()
        assert type(back) is polars.DataFrame
        assert back.dtypes[: len(frame.columns)] == frame.dtypes
        return cells(back)

    return frame, read, cells(frame)


def sheet_cells(folder: Path, count: int) -> tuple[Any, Callable[[Campaign], Cells], Cells]:
    xlsxwriter = pytest.importorskip("xlsxwriter")
    pytest.importorskip("python_calamine")
    names = list(make_rows(1)[0])
    workbook = xlsxwriter.Workbook(folder / "in.xlsx", {"default_date_format": "yyyy-mm-dd"})
    sheet = workbook.add_worksheet("May")
    times = workbook.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"})
    sheet.write_row(0, 0, names)
    for number, row in enumerate(make_rows(count), start=1):
        for position, value in enumerate(row.values()):
            if isinstance(value, bool):
                sheet.write_boolean(number, position, value)
            elif isinstance(value, datetime):
                sheet.write_datetime(number, position, value, times)
            elif isinstance(value, date):
                sheet.write_datetime(number, position, value)
            elif isinstance(value, float) or (isinstance(value, int) and value < 10**15):
                sheet.write_number(number, position, value)
            elif value is not None:
                text = value if isinstance(value, str) else json.dumps(value)
                sheet.write_string(number, position, text)
    workbook.close()

    def read(path: Path) -> Cells:
        from python_calamine import CalamineWorkbook

        names, *rows = CalamineWorkbook.from_path(str(path)).get_sheet_by_index(0).to_python()
        return [str(name) for name in names], rows

    def export(campaign: Campaign) -> Cells:
        campaign.export(folder / "out.xlsx")
        return read(folder / "out.xlsx")

    return folder / "in.xlsx", export, read(folder / "in.xlsx")


def csv_cells(folder: Path, count: int) -> tuple[Any, Callable[[Campaign], Cells], Cells]:
    rows = make_rows(count)
    with (folder / "in.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(rows[0])
        for row in rows:
            nested = {name: json.dumps(row[name]) for name in ("tags", "address")}
            writer.writerow((row | nested).values())

    def read(path: Path) -> Cells:
        with path.open(newline="", encoding="utf-8") as file:
            names, *cells = csv.reader(file)
        return names, cells

    def export(campaign: Campaign) -> Cells:
        campaign.export(folder / "out.csv")
        return read(folder / "out.csv")

    return folder / "in.csv", export, read(folder / "in.csv")


def parquet_cells(folder: Path, count: int) -> tuple[Any, Callable[[Campaign], Cells], Cells]:
    table = arrow_table(count)
    parquet.write_table(table, folder / "in.parquet")

    def cells(table: Any) -> Cells:
        return table.column_names, [list(row.values()) for row in table.to_pylist()]

    def export(campaign: Campaign) -> Cells:
        campaign.export(folder / "out.parquet")
        exported = parquet.read_table(folder / "out.parquet")
        assert exported.select(table.column_names).schema.equals(table.schema)
        return cells(exported)

    return folder / "in.parquet", export, cells(table)


KINDS = {
    "pandas": pandas_cells,
    "polars": polars_cells,
    "xlsx": sheet_cells,
    "csv": csv_cells,
    "parquet": parquet_cells,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_comes_back_cell_by_cell_and_type_by_type(kind: str, tmp_path: Path) -> None:
    source, give_back, (names, cells) = KINDS[kind](tmp_path, 40)
    campaign = make_campaign(source, tmp_path)

    back_names, back = give_back(campaign)

    assert back_names[: len(names)] == names
    assert count_differences(back, cells) == 0
    added = find_added_columns(back_names)
    assert added["label"] == "teeter_label", "the table has a column of this name"
    assert back_names[len(names) :][:6] == [added[name] for name in READ_BY_PEOPLE]
    is_for_programs = kind == "parquet"
    assert (len(back_names) - len(names)) == (len(ADDED_COLUMNS) - 2 if is_for_programs else 6)
    labels = [row[back_names.index("teeter_label")] for row in back]
    assert labels[:2] == ["good", "poor"]
    assert not [label for label in labels[2:] if label and label == label]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "xlsx"])
def test_an_export_that_comes_in_again_changes_nothing(suffix: str, tmp_path: Path) -> None:
    if suffix == "xlsx":
        pytest.importorskip("xlsxwriter")
        pytest.importorskip("python_calamine")
    source, _, _ = parquet_cells(tmp_path, 12)
    campaign = make_campaign(source, tmp_path)
    columns = campaign.items.columns()
    campaign.export(tmp_path / f"out.{suffix}")

    from teeter.campaigns.items.read_items import read_items

    notes: list[str] = []
    source_columns = ItemColumns(text="review", id="ticket", labels="teeter_label")
    items = read_items(tmp_path / f"out.{suffix}", source_columns, notes=notes)
    result = campaign.add(items)

    assert (result.new, result.duplicates, result.conflicts) == (0, 12, 0)
    assert [column.name for column in campaign.items.columns()] == [
        column.name for column in columns
    ]
    assert campaign.items.row("00001")["label"] == "=HYPERLINK(1)", "that of the user"
    assert notes == [
        "The columns that an earlier export has added were left out: teeter_label, "
        + ", ".join(
            list(ADDED_COLUMNS)[3:] if suffix in ("jsonl", "parquet") else READ_BY_PEOPLE[1:]
        )
        + "."
    ]
    campaign.export(tmp_path / f"again.{suffix}")
    if suffix != "xlsx":
        again = (tmp_path / f"again.{suffix}").read_bytes()
        assert again == (tmp_path / f"out.{suffix}").read_bytes()


def test_a_table_without_ids_gets_none_in_files_that_people_open(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("text,n\nsame,1\nsame,2\nother,3\n")
    campaign = Campaign.make(source, CLASSES, settings=Settings(encoder="tfidf"))

    campaign.export(tmp_path / "out.csv")
    campaign.export(tmp_path / "out.jsonl")

    assert list(read_table(tmp_path / "out.csv").columns) == ["text", "n", *READ_BY_PEOPLE]
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert lines[0]["item"] == lines[1]["item"] != lines[2]["item"]
    assert "id" not in lines[0]


@pytest.mark.parametrize(
    ("items", "lead"),
    [
        (["one", "two"], ["text"]),
        ([("a", "one"), ("b", "two")], ["id", "text"]),
        ([{"id": "a", "text": "one", "n": 1}, ("b", "two")], ["n", "id", "text"]),
    ],
)
def test_a_plain_list_comes_back_with_its_texts(
    items: list[Any], lead: list[str], tmp_path: Path
) -> None:
    campaign = Campaign.make(
        items, CLASSES, at=tmp_path / "c.teeter", settings=Settings(encoder="tfidf")
    )

    campaign.export(tmp_path / "out.csv")

    table = read_table(tmp_path / "out.csv")
    assert list(table.columns) == [*lead, *READ_BY_PEOPLE]
    assert table.texts("text") == ["one", "two"]


def test_texts_without_a_row_are_in_the_column_of_the_others(tmp_path: Path) -> None:
    source, _, _ = csv_cells(tmp_path, 3)
    campaign = make_campaign(source, tmp_path)
    campaign.add([("x", "one more")])

    for suffix in ("csv", "parquet"):
        campaign.export(tmp_path / f"out.{suffix}")
        table = read_table(tmp_path / f"out.{suffix}")
        assert table.texts("ticket")[3] == "x"
        assert table.texts("review")[3] == "one more"
        assert "text" not in table.columns
        assert "id" not in table.columns


def test_texts_that_no_column_holds_have_one(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("id,title,body\na,Broken,In parts\nb,Fine,\n")
    columns = ItemColumns(text="{title}: {body}")
    campaign = Campaign.make(source, CLASSES, columns=columns, settings=Settings(encoder="tfidf"))

    campaign.export(tmp_path / "out.csv")

    table = read_table(tmp_path / "out.csv")
    assert list(table.columns)[:4] == ["id", "title", "body", "text"]
    assert table.texts("text") == ["Broken: In parts", "Fine: "]


def test_a_table_with_columns_of_our_names_is_not_taken_for_an_export() -> None:
    own = ["text", "label", "source", "confidence", "answers", "when"]
    exported = [*own, "teeter_label", "teeter_source", "teeter_confidence", "predicted"]
    exported += ["who", "teeter_when"]

    assert find_added_columns(own) == {}
    assert list(find_added_columns(exported).values()) == [
        *("teeter_label", "teeter_source", "teeter_confidence", "predicted", "who", "teeter_when")
    ], "answers is a column of the user"


def test_the_page_of_the_docs_has_the_meaning_of_each_column() -> None:
    page = Path(__file__).parents[3] / "docs" / "how_to" / "bring_your_table.md"
    lines = page.read_text(encoding="utf-8").splitlines()

    glossary = [f"| `{column}` | {meaning} |" for column, meaning in ADDED_COLUMNS.items()]

    start = lines.index(glossary[0])
    assert lines[start : start + len(glossary)] == glossary


def test_a_dataset_says_what_its_columns_mean(tmp_path: Path) -> None:
    campaign = Campaign.make(["one", "two"], CLASSES, at=tmp_path / "c.teeter")

    campaign.export(tmp_path / "dataset")

    card = (tmp_path / "dataset" / "README.md").read_text(encoding="utf-8")
    exported = parquet.read_table(tmp_path / "dataset" / "unlabelled.parquet").column_names
    assert [line.split()[1] for line in card.splitlines() if line.startswith("| ")][2:] == exported


def test_a_frame_may_be_asked_for_by_its_kind(tmp_path: Path) -> None:
    campaign = Campaign.make(["one", "two"], CLASSES, at=tmp_path / "c.teeter")

    for kind in ("pandas", "polars"):
        if find_spec(kind) is None:
            with pytest.raises(MissingExtraError, match=f"needs {kind}: pip install {kind}"):
                campaign.to_frame(kind)
        else:
            frame = campaign.to_frame(kind)
            assert type(frame).__module__.partition(".")[0] == kind
            assert list(frame.columns) == ["text", *READ_BY_PEOPLE]
    with pytest.raises(UnknownNameError, match="kind of data frame is called 'pands'"):
        campaign.to_frame("pands")


@pytest.mark.parametrize("has_more", [False, True])
def test_a_frame_keeps_its_index(has_more: bool, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"text": ["a", "b", "c"], "n": [1, 2, 3], "kind": pandas.Categorical(["x", "y", "x"])},
        index=pandas.Index(["r7", "r8", "r9"], name="row"),
    )
    campaign = Campaign.make(frame, CLASSES, at=tmp_path / "c.teeter")
    if has_more:
        campaign.add([("d", "one more")])

    back = campaign.to_frame()

    assert back["text"].tolist() == ["a", "b", "c", *["one more"] * has_more]
    assert back["n"].tolist() == [1, 2, 3, *[pandas.NA] * has_more]
    if not has_more:
        pandas.testing.assert_frame_equal(back[list(frame.columns)], frame)


def test_a_frame_without_a_library_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = Campaign.make(["one", "two"], CLASSES, at=tmp_path / "c.teeter")
    monkeypatch.setattr("teeter.data.table_files.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match="needs pandas or polars: pip install pandas"):
        campaign.to_frame()

    monkeypatch.setattr("teeter.campaigns.export.formats.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"Writing \.xlsx needs XlsxWriter: pip install"):
        campaign.export(tmp_path / "out.xlsx")
    assert not (tmp_path / "out.xlsx").exists()


def test_a_sheet_refuses_what_it_cannot_hold(tmp_path: Path) -> None:
    pytest.importorskip("xlsxwriter")
    long = "x" * 40_000
    campaign = Campaign.make([("a", long)], CLASSES, at=tmp_path / "c.teeter")

    with pytest.raises(InputError, match=r"holds 32,767 characters, and 'text' of 'a' has 40,000"):
        campaign.export(tmp_path / "out.xlsx")
    assert not (tmp_path / "out.xlsx").exists()


def test_a_sheet_keeps_odd_texts_and_runs_no_formula(tmp_path: Path) -> None:
    pytest.importorskip("xlsxwriter")
    pytest.importorskip("python_calamine")
    texts = ["=1+1", "https://example.org", "\x01 control", "_x0041_", " spaces ", "a\r\nb", "1e5"]
    campaign = Campaign.make(texts, CLASSES, at=tmp_path / "c.teeter")

    campaign.export(tmp_path / "out.xlsx")

    assert [row[0] for row in read_cells(tmp_path / "out.xlsx").rows] == texts


def test_a_sheet_has_all_digits_of_a_number(tmp_path: Path) -> None:
    pytest.importorskip("xlsxwriter")
    pytest.importorskip("python_calamine")
    numbers = [0.1 + 0.2, 1e300, -5, 999_999_999_999_999, 2**53 + 1]
    items = [{"text": str(number), "n": number} for number in numbers]
    campaign = Campaign.make(items, CLASSES, at=tmp_path / "c.teeter")

    campaign.export(tmp_path / "out.xlsx")

    cells = [row[0] for row in read_cells(tmp_path / "out.xlsx").rows]
    assert [float(cell) for cell in cells[:4]] == numbers[:4]
    assert cells[4] == "9007199254740993"


def test_times_that_a_sheet_would_change_are_texts(tmp_path: Path) -> None:
    pytest.importorskip("xlsxwriter")
    times = ["2024-02-29T10:00:00.250000", "1899-01-01T00:00:00", "2024-02-29T10:00:00"]
    moments = [{"text": time, "at": datetime.fromisoformat(time)} for time in times]
    zoned = {"text": "zone", "at": datetime(2024, 2, 29, tzinfo=UTC)}
    campaign = Campaign.make([*moments, zoned], CLASSES, at=tmp_path / "c.teeter")

    campaign.export(tmp_path / "out.xlsx")

    cells = [row[0] for row in read_cells(tmp_path / "out.xlsx").rows]
    assert cells == [*times, "2024-02-29T00:00:00+00:00"]


def test_columns_of_several_types_are_refused_in_one_sentence(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["a", "b"], "mixed": [1, "x"]})

    with pytest.raises(InputError, match=r"values of several types: .* column mixed"):
        Campaign.make(frame, CLASSES, at=tmp_path / "c.teeter")
