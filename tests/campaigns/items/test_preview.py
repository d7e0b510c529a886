"""What is in a file of items before a campaign is made of it."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from data.test_table_files_workbooks import write_workbook
from teeter.campaigns.items.preview import preview_source
from teeter.errors import FileError, TeeterError, UnknownNameError

ROWS: list[dict[str, Any]] = [
    {"id": number, "body": f"Text {number}, longer than the rest", "kind": "ab"[number % 2]}
    for number in range(20)
]


def write_csv(path: Path, encoding: str, rows: list[dict[str, Any]]) -> Path:
    lines = [",".join(rows[0]), *(",".join(f'"{cell}"' for cell in row.values()) for row in rows)]
    path.write_bytes("\r\n".join(lines).encode(encoding))
    return path


def write_source(folder: Path, form: str) -> Path:
    path = folder / f"items.{form}"
    if form == "csv":
        return write_csv(path, "utf-8", ROWS)
    if form == "json":
        path.write_text(json.dumps(ROWS, indent=2))
    elif form == "jsonl":
        path.write_text("\n".join(map(json.dumps, ROWS)))
    elif form == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    else:
        pytest.importorskip("python_calamine")
        cells = [list(ROWS[0]), *(list(row.values()) for row in ROWS)]
        write_workbook(path, {"Tickets": cells, "Empty": []})
    return path


@pytest.mark.parametrize("form", ["csv", "json", "jsonl", "parquet", "xlsx"])
def test_columns_rows_and_labels_of_every_form(form: str, tmp_path: Path) -> None:
    path = write_source(tmp_path, form)

    preview = preview_source(path)
    assert preview.columns == ("id", "body", "kind")
    assert preview.rows[1] == ("1", "Text 1, longer than the rest", "b")
    assert len(preview.rows) == 8
    assert (preview.proposed.text, preview.proposed.id) == ("body", "id")
    assert preview.proposed.labels is None
    assert preview.classes == ()

    counted = preview_source(path, "kind")
    assert counted.proposed.labels == "kind"
    assert counted.classes == (("a", 10), ("b", 10))
    with pytest.raises(UnknownNameError, match="Did you mean 'kind'"):
        preview_source(path, "kinds")


def test_a_label_column_with_a_usual_name_is_counted_without_missing_labels(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("text,label\na,spam\nb,\nc, spam \nd,ham\ne,N/A\n")
    preview = preview_source(path)
    assert preview.proposed.labels == "label"
    assert preview.classes == (("spam", 2), ("ham", 1))


def test_values_that_are_no_classes_are_not_proposed(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("text,label\n" + "".join(f"t{n},{n}\n" for n in range(300)))
    preview = preview_source(path)
    assert preview.classes == ()
    assert preview.proposed.labels is None
    assert "Column 'label' has more than 200 different values" in preview.notes[0]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "cp1252"])
def test_the_encoding_is_said(encoding: str, tmp_path: Path) -> None:
    shown = "\u201cschön\u201d"  # quotes that Windows-1252 has, too
    rows = [{"größe": n, "text": shown} for n in "abc"]
    preview = preview_source(write_csv(tmp_path / "items.csv", encoding, rows))
    assert preview.columns == ("größe", "text")
    expected = "Windows-1252" if encoding == "cp1252" else "UTF-16"
    assert preview.notes == (f"The file was read as {expected}, not as UTF-8.",)


def test_of_several_sheets_the_first_is_shown(tmp_path: Path) -> None:
    pytest.importorskip("python_calamine")
    sheets = {"Empty": [], "May": [["text"], ["one"]], "A/B": [["body"], ["two"]]}
    path = write_workbook(tmp_path / "book.xlsx", sheets)
    assert preview_source(path).sheets == ("May", "A/B")
    assert preview_source(path).rows == (("one",),)
    assert preview_source(Path(f"{path}#A/B")).rows == (("two",),)


def test_a_column_of_links_is_proposed_as_images(tmp_path: Path) -> None:
    path = tmp_path / "items.csv"
    path.write_text("photo,kind\nhttps://example.org/a.png,a\nhttps://example.org/b.png,b\n")
    preview = preview_source(path, "kind")
    assert preview.links == ("photo",)
    assert preview.proposed.image == "photo"
    assert preview.proposed.text is None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "text\n", r"has a header \(text\) and no rows"),
        ("a.csv", "", "has no header"),
        ("a.jsonl", "", "has only blank lines"),
        ("a.json", "[]", "is an empty list"),
        ("a.json", "[1, 2]", "Entry 1 of .* is not a JSON object"),
        ("a.json", '[{"text": 1} {"text": 2}]', "Line 1 of .* is no JSON"),
        ("a.parquet", "PAR1", "is not a valid Parquet file"),
        ("a.zip", "PK", "is not a valid zip archive"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused(
    name: str, content: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(TeeterError, match=message):
        preview_source(tmp_path / name)


@pytest.mark.parametrize("form", ["csv", "json", "jsonl"])
def test_only_the_beginning_of_a_large_file_is_in_memory(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"items.{form}"
    text = "x" * 1000
    lines = {
        "csv": ("id,text,label\n", f"1,{text},a\n", "2,y,b\n"),
        "jsonl": ("", f'{{"text": "{text}", "label": "a"}}\n', '{"text": "y", "label": "b"}\n'),
        "json": ("[", f'{{"text": "{text}", "label": "a"}},\n', '{"text": "y", "label": "b"}]'),
    }
    start, line, end = lines[form]
    path.write_text(start + line * 20_000 + end)

    tracemalloc.start()
    preview = preview_source(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert preview.classes == (("a", 20_000), ("b", 1))
    assert len(preview.rows[0][-2]) == 200
    assert peak < 10_000_000 < path.stat().st_size


def test_a_list_that_is_longer_than_a_part_of_it_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "items.json"
    long_text = "é" * 3_000_000
    path.write_text(json.dumps([{"text": long_text}, {"text": "b"}], ensure_ascii=False))
    assert [row[0][:1] for row in preview_source(path).rows] == ["é", "b"]


def test_a_list_with_something_after_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "items.json"
    path.write_text('[{"text": "a"}]\n[{"text": "b"}]')
    with pytest.raises(FileError, match="goes on after its list"):
        preview_source(path)


def test_no_error_is_made_for_an_entry_that_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "items.json"
    path.write_text(json.dumps([{"text": "x", "kind": "a"}] * 1000))
    made = 0

    class CountedError(json.JSONDecodeError):
        def __init__(self, *arguments: Any) -> None:
            nonlocal made
            made += 1
            super().__init__(*arguments)

    # An error counts the lines before it, which took minutes for a million entries.
    monkeypatch.setattr(json, "JSONDecodeError", CountedError)
    assert preview_source(path, "kind").classes == (("a", 1000),)
    assert made == 0
