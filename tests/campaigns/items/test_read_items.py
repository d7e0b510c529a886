"""Files of items, which are read with bounded memory."""

from __future__ import annotations

import csv
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from teeter.campaigns.items.read_items import detect_kind, read_items
from teeter.campaigns.records import ItemColumns
from teeter.data import table_files
from teeter.errors import FileError, UnknownNameError


def test_the_kind_follows_from_the_path(tmp_path: Path) -> None:
    assert detect_kind(tmp_path) == "image"
    assert detect_kind(Path("a.npz")) == "features"
    assert detect_kind(Path("a.csv")) == "text"


def test_an_unknown_field_of_json_lines_is_refused_with_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one", "labels": "x"}\n')

    with pytest.raises(UnknownNameError, match=r"has a field 'label'. Did you mean 'labels'"):
        read_items(path, ItemColumns(labels="label"))


def test_line_separators_inside_json_texts_do_not_end_a_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one\u2028two"}\r\n\n{"text": "three"}', encoding="utf-8")

    assert [item.content for item in read_items(path)] == ["one\u2028two", "three"]


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow 1,000 characters in a cell and 5,000 in a line."""
    monkeypatch.setattr(table_files, "MAX_CELL_LENGTH", 1_000)
    monkeypatch.setattr(table_files, "MAX_LINE_LENGTH", 5_000)


LONG = "x" * 1_001
WITH_COMMAS = "a, b. " * 300
WITH_LINES = "a line\n" * 300


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize(
    ("rows", "place"),
    [
        ([["1", "one", "a"], ["2", LONG, "b"]], "line 3, column 'text'"),
        ([["1", "one", "a"], ["2", WITH_COMMAS, "b"]], "line 3, column 'text'"),
        ([["1", "one\nmore", "a"], ["2", WITH_LINES, "b"]], "line 4, column 'text'"),
        ([["1", "one", LONG]], "line 2, column 'label'"),
        ([["1", 'say "so"', WITH_COMMAS]], "line 2, column 'label'"),
        ([["1", LONG * 9, "a"]], "line 2, column 'text'"),
        ([["1", WITH_COMMAS * 9, "a"]], "line 2, column 'text'"),
    ],
)
def test_a_long_cell_is_refused_with_its_line_and_column(
    rows: list[list[str]], place: str, tmp_path: Path
) -> None:
    path = tmp_path / "items.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["id", "text", "label"], *rows])

    with pytest.raises(
        FileError, match=rf"The cell in {place} of \S+ has more than 1,000 characters"
    ):
        read_items(path)


@pytest.mark.usefixtures("small_limits")
def test_a_cell_at_the_limit_is_read(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text(f"text\n{LONG[1:]}\n")
    (tmp_path / "items.jsonl").write_text(json.dumps({"text": LONG[1:]}) + "\n")

    for name in ("items.csv", "items.jsonl"):
        (item,) = read_items(tmp_path / name)
        assert item.content == LONG[1:]


@pytest.mark.usefixtures("small_limits")
def test_a_line_of_many_short_cells_that_is_too_long_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("text,other\n" + ",".join(["short"] * 2000) + "\n")

    with pytest.raises(FileError, match=r"Line 2 of \S+ has more than 5,000 characters"):
        read_items(path)


@pytest.mark.usefixtures("small_limits")
def test_a_quote_that_is_never_closed_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text('text,label\none,a\n"two,b\n' + "more,a\n" * 400)

    with pytest.raises(FileError, match=r"The cell in line 3, column 'text' .* a quote is missing"):
        read_items(path)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": 2, "text": LONG}, "The field 'text' in line 2 of .* more than 1,000 characters"),
        ({"text": "two", "note": LONG}, "The field 'note' in line 2"),
        ({"id": 2, "text": LONG * 9}, "The field 'text' in line 2"),
        ({"id": 2, "text": WITH_LINES * 9}, "The field 'text' in line 2"),
        ({"text": "two", "tags": ["short"] * 2000}, "Line 2 of .* has more than 5,000 characters"),
    ],
)
def test_a_long_field_is_refused_with_its_line_and_name(
    fields: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text(json.dumps({"text": "one"}) + "\n" + json.dumps(fields) + "\n")

    with pytest.raises(FileError, match=message):
        read_items(path)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize(
    ("name", "write_start"),
    [("items.csv", lambda: 'text,label\n"'), ("items.jsonl", lambda: '{"text": "')],
)
def test_the_rest_of_a_long_field_is_never_read(
    name: str, write_start: Callable[[], str], tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text(write_start() + "a, b. " * 1_000_000)

    tracemalloc.start()
    try:
        with pytest.raises(FileError, match="has more than 1,000 characters"):
            read_items(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1_000_000, "the file has 6 MB"
