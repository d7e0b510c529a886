"""Format numbers for readers, and write tables as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teeter.bench.experiments.run_folder import round_to_row
from teeter.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from teeter.bench.experiments.run_folder import Run

__all__ = [
    "MISSING",
    "ReportTable",
    "format_duration",
    "format_mean_and_std",
    "format_number",
    "format_p_value",
    "round_rows",
    "rounds_to_csv",
    "to_csv",
    "to_latex",
    "to_markdown",
    "write_rounds",
]


MISSING = "–"
"""Shown instead of a number that does not exist."""

_LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "±": r"$\pm$",
    "−": r"$-$",
    "×": r"$\times$",
    "–": r"--",
}


@dataclass(frozen=True)
class ReportTable:
    """A table in two forms: its numbers in full precision, and the same as readers see them."""

    name: str
    """Name of the table's files, without an extension."""
    caption: str
    data: Sequence[Mapping[str, Any]]
    """Rows in full precision, for the CSV file."""
    shown: Sequence[Mapping[str, str]]
    """Formatted rows, for people. All rows have the columns of the first one."""

    def write(self, stem: Path) -> list[Path]:
        """Write the table as CSV (the data), Markdown and LaTeX (the formatted rows).

        Args:
            stem: path of the files without an extension; ``.csv``, ``.md`` and ``.tex`` are added.

        Returns:
            The paths written, in that order.
        """
        texts = {
            "csv": to_csv(self.data),
            "md": f"{self.caption}\n\n{to_markdown(self.shown)}",
            "tex": to_latex(self.shown, caption=self.caption, label=f"tab:{stem.name}"),
        }
        paths = []

        for extension, text in texts.items():
            # Not with_suffix, which would cut "openml-6.5" at its dot.
            path = stem.with_name(f"{stem.name}.{extension}")
            path.write_text(text, encoding="utf-8", newline="")
            paths.append(path)

        return paths


def format_number(value: float | None, spec: str = ".2f") -> str:
    """Format a number; use an en dash for a missing one and a real minus sign.

    Args:
        value: the number; None and NaN are missing.
        spec: a format specification, as for ``format``.

    Example:
        >>> format_number(-1.234, "+.1f"), format_number(None)
        ('−1.2', '–')
    """
    if value is None or math.isnan(value):
        return MISSING

    return format(value, spec).replace("-", "−")


def format_duration(value: float) -> str:
    """Format minutes or seconds with the digits that matter: 12.3, but 1.23."""
    if value >= 10:
        return format_number(value, ",.1f")

    return format_number(value, ".2f")


def format_mean_and_std(mean: float, deviation: float, repetitions: int, spec: str = ".2f") -> str:
    """Format a mean with its standard deviation, or alone if there is a single repetition.

    Example:
        >>> format_mean_and_std(1.5, 0.25, 5, "+.2f"), format_mean_and_std(1.5, 0.0, 1)
        ('+1.50 ± 0.25', '1.50')
    """
    if repetitions < 2:
        return format_number(mean, spec)

    # A deviation has no sign, even where the mean shows one.
    mean_text = format_number(mean, spec)
    deviation_text = format_number(deviation, spec.lstrip("+"))
    return f"{mean_text} ± {deviation_text}"


def format_p_value(p: float | None, *, in_sentence: bool = False) -> str:
    """Format a p-value with three decimals.

    Args:
        p: the p-value, or None if there was no test.
        in_sentence: begin with "p =" or "p <" instead of leaving that to a column's header.

    Example:
        >>> format_p_value(0.0312), format_p_value(0.0002), format_p_value(None)
        ('0.031', '< 0.001', '–')
        >>> format_p_value(0.0312, in_sentence=True), format_p_value(0.0002, in_sentence=True)
        ('p = 0.031', 'p < 0.001')
    """
    if p is not None and p < 0.001:
        return "p < 0.001" if in_sentence else "< 0.001"

    formatted = format_number(p, ".3f")
    if in_sentence:
        return f"p = {formatted}"
    return formatted


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV. The header has the columns of all rows; missing cells stay empty."""
    # A dict keeps the order in which columns first appear. A set would not.
    columns: dict[str, None] = {}
    for row in rows:
        columns |= dict.fromkeys(row)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    writer.writeheader()

    for row in rows:
        cells = {name: _csv_cell(value) for name, value in row.items()}
        writer.writerow(cells)

    return stream.getvalue()


def to_markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """Return rows as a Markdown table: the first column is text, the others are numbers."""
    columns = list(rows[0])
    header = _markdown_line([_escape_markdown(name) for name in columns])

    # A colon aligns to the right.
    number_columns = len(columns) - 1
    alignment = _markdown_line(["---", *["---:"] * number_columns])

    body = ""
    for row in rows:
        cells = [_escape_markdown(cell) for cell in row.values()]
        body += _markdown_line(cells)

    return header + alignment + body


def to_latex(rows: Sequence[Mapping[str, str]], *, caption: str, label: str) -> str:
    """Return rows as a LaTeX table with the rules of the booktabs package."""
    columns = list(rows[0])
    alignment = "l" + "r" * (len(columns) - 1)
    body = [_latex_line(list(row.values())) for row in rows]

    # \label takes no spaces or brackets, which names of runs may have.
    safe_label = re.sub(r"[^A-Za-z0-9:.-]", "-", label)

    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escape_latex(caption)}}}",
        rf"\label{{{safe_label}}}",
        rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule",
        _latex_line(columns),
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _csv_cell(value: Any) -> Any:
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        # Eight digits survive a change of platform; the last bits of a mean do not.
        return float(f"{value:.8g}")

    if isinstance(value, str):
        # Spreadsheets take a lone carriage return for the end of a row.
        return value.replace("\r", " ")

    return value


def _markdown_line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def _escape_markdown(cell: str) -> str:
    # The backslash first, or it would escape the escapes that follow.
    for character, escaped in (
        ("\\", "\\\\"),
        ("|", "\\|"),
        ("*", "\\*"),
        ("<", "&lt;"),
        ("\n", " "),
    ):
        cell = cell.replace(character, escaped)

    return cell


def _latex_line(cells: Sequence[str]) -> str:
    escaped = [_escape_latex(cell) for cell in cells]
    return " & ".join(escaped) + r" \\"


def _escape_latex(text: str) -> str:
    text = text.replace("\n", " ")
    return "".join(_LATEX_ESCAPES.get(character, character) for character in text)


def round_rows(run: Run) -> list[dict[str, Any]]:
    """Return one row per round: what was run, its accuracy, its cost and the rows it picked."""
    return [round_to_row(run.setting, entry) for entry in run.rounds]


def rounds_to_csv(run: Run) -> str:
    """Return the rounds of a run as CSV. Picks are one cell, separated by spaces."""
    rows = round_rows(run)

    # Spaces, so that a list does not need quotes inside a CSV file.
    for row in rows:
        picks = row["picks"]
        row["picks"] = " ".join(str(pick) for pick in picks)

    return to_csv(rows)


def write_rounds(run: Run, path: str | Path) -> None:
    """Write the rounds of a run to a CSV or Parquet file.

    Args:
        run: the run to export.
        path: where to write; its extension, ``.csv`` or ``.parquet``, chooses the format.

    Raises:
        InputError: if the path has another extension.
        MissingExtraError: if Parquet is asked for and pyarrow is not installed.
    """
    path = Path(path)
    if path.suffix == ".csv":
        path.write_text(rounds_to_csv(run), encoding="utf-8", newline="")
    elif path.suffix == ".parquet":
        _write_parquet(run, path)
    else:
        raise InputError(f"Cannot write {path.name}: rounds are exported as .csv or .parquet.")


def _write_parquet(run: Run, path: Path) -> None:
    """Write the rounds as Parquet, with picks as lists of integers."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError(
            "Writing Parquet needs pyarrow: pip install 'teeter[parquet]'."
        ) from None

    # pyarrow would infer "null" for a column that is None in every row.
    types = {
        "picks": pyarrow.list_(pyarrow.int64()),
        "validation": pyarrow.float64(),
        "ensemble_accuracy": pyarrow.float64(),
    }
    # Rows may differ in their columns: phases of the time depend on the strategy.
    rows = round_rows(run)
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {}

    for name in names:
        values = [row.get(name) for row in rows]
        column_type = types.get(name)
        columns[name] = pyarrow.array(values, column_type)

    parquet.write_table(pyarrow.table(columns), path)
