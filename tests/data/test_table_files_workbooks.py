"""Spreadsheets: their cells as a CSV file would hold them, and those that cannot be read."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from teeter.base import arrays
from teeter.data.table_files import read_cells, read_table
from teeter.data.workbooks import split_sheet
from teeter.errors import FileError, InputError, MissingExtraError, UnknownNameError

pytest.importorskip("python_calamine")

DATE_STYLE = 1

Rows = Sequence[Sequence[str | float | None]]


def write_workbook(
    path: Path, sheets: Mapping[str, Sequence[Sequence[str | float | None]]]
) -> Path:
    """Write a workbook of texts and numbers. A negative number stands for a date."""
    relations = []
    listed = []
    with zipfile.ZipFile(path, "w") as archive:
        for number, (name, rows) in enumerate(sheets.items(), start=1):
            relations.append(
                f'<Relationship Id="r{number}" Target="worksheets/sheet{number}.xml" Type="http://'
                'schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet"/>'
            )
            listed.append(f'<sheet name="{escape(name)}" sheetId="{number}" r:id="r{number}"/>')
            archive.writestr(f"xl/worksheets/sheet{number}.xml", sheet_xml(rows))
        archive.writestr(
            "[Content_Types].xml",
            '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
            '<Default Extension="xml" ContentType="application/xml"/></Types>',
        )
        archive.writestr(
            "_rels/.rels",
            '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
            '<Relationship Id="w" Target="xl/workbook.xml" Type="http://schemas.openxmlformats.org/'
            'officeDocument/2006/relationships/officeDocument"/></Relationships>',
        )
        archive.writestr(
            "xl/_rels/workbook.xml.rels",
            '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
            f'{"".join(relations)}<Relationship Id="s" Target="styles.xml" Type="http://schemas.'
            'openxmlformats.org/officeDocument/2006/relationships/styles"/></Relationships>',
        )
        archive.writestr(
            "xl/workbook.xml",
            '<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" xmlns:r='
            '"http://schemas.openxmlformats.org/officeDocument/2006/relationships">'
            f"<sheets>{''.join(listed)}</sheets></workbook>",
        )
        archive.writestr(
            "xl/styles.xml",
            '<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
            '<cellXfs count="2"><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs></styleSheet>',
        )
    return path


def sheet_xml(rows: Rows) -> str:
    lines = []
    for number, row in enumerate(rows, start=1):
        cells = []
        for column, value in zip("ABCDEFGH", row, strict=False):
            place = f'r="{column}{number}"'
            if isinstance(value, str):
                text = escape(value)
                cells.append(f'<c {place} t="inlineStr"><is><t>{text}</t></is></c>')
            elif value is not None and value < 0:
                cells.append(f'<c {place} s="{DATE_STYLE}"><v>{-value}</v></c>')
            elif value is not None:
                cells.append(f"<c {place}><v>{value}</v></c>")
        lines.append(f'<row r="{number}">{"".join(cells)}</row>')
    return (
        '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
        f"{''.join(lines)}</sheetData></worksheet>"
    )


def test_cells_are_those_of_a_csv_file(tmp_path: Path) -> None:
    path = write_workbook(
        tmp_path / "book.xlsx",
        {
            "Tickets": [
                [None],
                ["id", "text", "size", "day"],
                ["007", "first, with a comma", 3, -46023],
                [None, None, None, None],
                ["008", "second", 2.5, None],
            ]
        },
    )

    content = read_cells(path)

    assert content.names == ["id", "text", "size", "day"]
    assert content.rows == [
        ["007", "first, with a comma", "3", "2026-01-01"],
        ["008", "second", "2.5", ""],
    ]
    assert content.lines == (3, 5)
    assert content.blank == (4,)
    assert read_table(path).texts("size") == ["3", "2.5"]


def test_of_several_sheets_one_is_named(tmp_path: Path) -> None:
    rows = [["text"], ["one"]]
    path = write_workbook(tmp_path / "book.xlsx", {"May": rows, "June": [*rows, ["two"]], "No": []})

    with pytest.raises(InputError, match=r"has the sheets May, June: choose one, as in '.*#May'"):
        read_cells(path)
    assert len(read_cells(path.with_name("book.xlsx#June")).rows) == 2
    with pytest.raises(UnknownNameError, match=r"has no sheet 'Juni'.*June"):
        read_cells(path.with_name("book.xlsx#Juni"))


def test_a_file_may_have_a_number_sign_in_its_name(tmp_path: Path) -> None:
    path = write_workbook(tmp_path / "book.xlsx#1.xlsx", {"May": [["text"], ["one"]]})
    assert split_sheet(path) == (path, None)
    assert split_sheet(Path("data.csv#1")) == (Path("data.csv#1"), None)
    assert split_sheet(Path(f"book.xlsx#{'M' * 999}")) == (Path("book.xlsx"), "M" * 999)
    assert read_cells(path).rows == [["one"]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "has no cells"),
        ([["text"]], r"has a header \(text\) and no rows"),
        ([["text", None, None], ["one", "two", "three"]], "2 columns of .* no name: name each"),
        ([["Report", None], ["text", "kind"], ["one", "a"]], "1 column of .* no name: name each"),
        ([[" "], [" "]], "has no header"),
        ([["a", "a"], ["one", "two"]], "has 2 columns called 'a'"),
    ],
)
def test_a_sheet_that_is_no_table_is_refused(
    rows: list[list[str | None]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(FileError, match=message):
        read_cells(write_workbook(tmp_path / "book.xlsx", {"Sheet1": rows}))


def test_a_damaged_workbook_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "book.xlsx"
    path.write_bytes(b"no workbook")
    with pytest.raises(FileError, match="is not a valid spreadsheet"):
        read_cells(path)


def test_a_workbook_that_unpacks_to_more_than_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "available_memory", lambda device: 1 << 30)
    path = write_workbook(tmp_path / "book.xlsx", {"Sheet1": [["text"], ["one"]]})
    with zipfile.ZipFile(path, "a") as archive:
        information = zipfile.ZipInfo("xl/bomb.xml")
        archive.writestr(information, b"")
    data = path.read_bytes()
    # The directory of the archive says that the last file unpacks to 4 GB.
    start = data.rindex(b"PK\x01\x02")
    path.write_bytes(data[: start + 24] + b"\xff\xff\xff\xfe" + data[start + 28 :])
    with pytest.raises(FileError, match=r"half of the free memory"):
        read_cells(path)


def test_without_the_library_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_workbook(tmp_path / "book.xlsx", {"Sheet1": [["text"], ["one"]]})
    monkeypatch.setitem(__import__("sys").modules, "python_calamine", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'teeter\[label\]'"):
        read_cells(path)


def replace_sheet(path: Path, rows: str, after: str = "") -> Path:
    """Write a workbook whose only sheet has these rows, as XML."""
    write_workbook(path, {"Sheet1": []})
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    sheet = f"<sheetData>{rows}</sheetData>{after}</worksheet>"
    start = parts["xl/worksheets/sheet1.xml"].decode().partition("<sheetData")[0]
    parts["xl/worksheets/sheet1.xml"] = (start + sheet).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def cell(place: str, text: str) -> str:
    return f'<c r="{place}" t="inlineStr"><is><t>{text}</t></is></c>'


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs a limit of memory")
def test_a_cell_in_the_last_row_and_column_does_not_end_the_process(tmp_path: Path) -> None:
    rows = f'<row r="1">{cell("A1", "text")}</row>'
    rows += f'<row r="1048576">{cell("XFD1048576", "x")}</row>'
    path = replace_sheet(tmp_path / "book.xlsx", rows)
    with pytest.raises(FileError, match="does not fit in memory, or it is damaged"):
        read_cells(path)


def test_a_header_of_merged_cells_is_refused(tmp_path: Path) -> None:
    rows = (
        f'<row r="1">{cell("A1", "text")}</row><row r="2">{cell("A2", "x")}{cell("B2", "y")}</row>'
    )
    merged = '<mergeCells><mergeCell ref="A1:B1"/></mergeCells>'
    path = replace_sheet(tmp_path / "book.xlsx", rows, merged)
    with pytest.raises(FileError, match=r"header .* has cells over several columns: take merged"):
        read_cells(path)


def test_formulas_without_a_value_are_blank_cells(tmp_path: Path) -> None:
    rows = f'<row r="1">{cell("A1", "text")}{cell("B1", "n")}</row>'
    rows += '<row r="2"><c r="A2" t="str"><f>B1</f><v>n</v></c><c r="B2"><f>1+1</f></c></row>'
    assert read_cells(replace_sheet(tmp_path / "book.xlsx", rows)).rows == [["n", ""]]
