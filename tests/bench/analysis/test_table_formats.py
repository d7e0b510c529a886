"""Tables: numbers survive, and nothing in a cell breaks the table around it."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teeter.bench.analysis.table_formats import (
    ReportTable,
    format_number,
    format_p_value,
    to_csv,
    to_latex,
    to_markdown,
)


@pytest.mark.parametrize(
    ("value", "form", "shown"),
    [
        (1.234, ".2f", "1.23"),
        (-1.234, "+.1f", "−1.2"),
        (None, ".2f", "–"),
        (float("nan"), ".2f", "–"),
    ],
)
def test_numbers_as_shown(value: float | None, form: str, shown: str) -> None:
    assert format_number(value, form) == shown


@pytest.mark.parametrize(
    ("p", "cell", "in_sentence"),
    [
        (0.0312, "0.031", "p = 0.031"),
        (0.0009, "< 0.001", "p < 0.001"),
        (0.001, "0.001", "p = 0.001"),
    ],
)
def test_p_values_as_shown(p: float, cell: str, in_sentence: str) -> None:
    assert format_p_value(p) == cell
    assert format_p_value(p, in_sentence=True) == in_sentence
    assert format_p_value(None) == "–"


@given(
    st.lists(
        st.fixed_dictionaries({"a": st.text(), "b": st.floats(-1e6, 1e6) | st.none()}), min_size=1
    )
)
def test_csv_reads_back(rows: list[dict[str, object]]) -> None:
    text = to_csv(rows)
    read = list(csv.DictReader(io.StringIO(text, newline="")))
    for row, back in zip(rows, read, strict=True):
        assert back["a"] == row["a"].replace("\r", " ")
        assert (
            back["b"] == ""
            if row["b"] is None
            else float(back["b"]) == pytest.approx(row["b"], rel=1e-7)
        )


def test_csv_has_every_column_of_every_row() -> None:
    assert to_csv([{"a": 1}, {"b": float("nan"), "a": 0.1}]) == "a,b\n1,\n0.1,\n"


def test_markdown() -> None:
    text = to_markdown([{"strategy": "a|b", "p": "< 0.001*"}])
    assert text == "| strategy | p |\n| --- | ---: |\n| a\\|b | &lt; 0.001\\* |\n"


def test_latex() -> None:
    text = to_latex(
        [{"strategy_name": "50 % & more", "gain": "−1.2 ± 0.1"}], caption="A_b", label="tab:x y"
    )
    assert r"strategy\_name & gain \\" in text
    assert r"50 \% \& more & $-$1.2 $\pm$ 0.1 \\" in text
    assert r"\caption{A\_b}" in text
    assert r"\label{tab:x-y}" in text
    for rule in ("toprule", "midrule", "bottomrule"):
        assert text.count(rule) == 1


def test_a_table_is_written_three_times(tmp_path: Path) -> None:
    paths = ReportTable("t", "What it is.", [{"a": 1.5}], [{"a": "1.5"}]).write(
        tmp_path / "openml-6.t"
    )
    assert [path.name for path in paths] == ["openml-6.t.csv", "openml-6.t.md", "openml-6.t.tex"]
    assert paths[0].read_text() == "a\n1.5\n"
    assert paths[1].read_text().startswith("What it is.\n\n| a |")
