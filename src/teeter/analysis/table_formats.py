"""Tables as data and as people read them: CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ReportTable", "format_duration", "format_number", "latex", "markdown", "to_csv"]

MISSING = "–"

_LATEX = {
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
    """A table twice: its numbers in full, and what is shown of them."""

    name: str
    """What its files are called."""
    caption: str
    data: Sequence[Mapping[str, Any]]
    shown: Sequence[Mapping[str, str]]

    def write(self, stem: Path) -> list[Path]:
        """Write ``stem`` with the endings .csv (the data), .md and .tex (what is shown), and return the paths."""
        texts = {
            "csv": to_csv(self.data),
            "md": f"{self.caption}\n\n{markdown(self.shown)}",
            "tex": latex(self.shown, caption=self.caption, label=f"tab:{stem.name}"),
        }
        paths = []
        for ending, text in texts.items():
            path = stem.with_name(f"{stem.name}.{ending}")
            path.write_text(text, encoding="utf-8", newline="")
            paths.append(path)
        return paths


def format_number(value: float | None, form: str = ".2f") -> str:
    """Return a number as it is shown, a dash for what is not there, and a minus that is one."""
    if value is None or math.isnan(value):
        return MISSING
    return format(value, form).replace("-", "−")


def format_duration(value: float) -> str:
    """Return minutes or seconds with as many digits as they are worth."""
    return format_number(value, ",.1f" if value >= 10 else ".2f")


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as CSV; the names of all cells are the header, and what is not there is left empty."""
    stream = io.StringIO()
    writer = csv.DictWriter(
        stream, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows({name: _plain(value) for name, value in row.items()} for row in rows)
    return stream.getvalue()


def markdown(rows: Sequence[Mapping[str, str]]) -> str:
    """Return rows as a Markdown table; the first column is text, the others are numbers."""
    heads = list(rows[0])
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *(list(row.values()) for row in rows)]
    return "".join(
        "| " + " | ".join(_in_markdown(cell) for cell in line) + " |\n" for line in lines
    )


def latex(rows: Sequence[Mapping[str, str]], *, caption: str, label: str) -> str:
    """Return rows as a LaTeX table with the rules of booktabs."""
    heads = list(rows[0])
    lines = [
        " & ".join(_in_latex(cell) for cell in row) + r" \\"
        for row in (heads, *(row.values() for row in rows))
    ]
    return "\n".join(
        [
            r"% needs \usepackage{booktabs}",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_in_latex(caption)}}}",
            rf"\label{{{re.sub(r'[^A-Za-z0-9:.-]', '-', label)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else float(f"{value:.8g}")
    return value.replace("\r", " ") if isinstance(value, str) else value


def _in_markdown(cell: str) -> str:
    return (
        cell.replace("\\", "\\\\")
        .replace("|", "\\|")
        .replace("*", "\\*")
        .replace("<", "&lt;")
        .replace("\n", " ")
    )


def _in_latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text.replace("\n", " "))
