"""An item of the paper: a figure, a table or a claim that is computed, judged by a stated test, and drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from teeter.analysis.statistics import paired_t
from teeter.analysis.table_formats import ReportTable, format_number, format_p_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "HOLDS",
    "IN_PART",
    "NOT",
    "VERDICTS",
    "Drawing",
    "Item",
    "Measured",
    "Scale",
    "Verdict",
    "below",
    "chance",
    "chance_shown",
    "judged",
    "not_found",
    "plain",
    "table_of",
]

Array = npt.NDArray[np.floating[Any]]

Verdict = Literal["holds", "holds in part", "does not hold"]
HOLDS: Verdict = "holds"
IN_PART: Verdict = "holds in part"
NOT: Verdict = "does not hold"
VERDICTS: tuple[Verdict, ...] = (HOLDS, IN_PART, NOT)


@dataclass(frozen=True)
class Scale:
    """How large an item is computed, and where it finds what it needs."""

    quick: bool = True
    """Within a minute on two cores, on what comes with scikit-learn; else on the benchmark's datasets."""
    device: torch.device | str | None = None
    """Where networks live; a GPU if there is one."""
    folder: Path | None = None
    """Where datasets are; else where teeter.datasets looks."""
    runs: Path = Path("runs")
    """Where the benchmark's runs are, each in a folder called after its setting."""
    seed: int = 0


@dataclass(frozen=True)
class Measured:
    """What was found: numbers to draw from, and the verdict that the item's test gives on them."""

    numbers: Mapping[str, Any]
    """Nested dictionaries and lists of plain numbers and strings; arrays are taken, too."""
    verdict: Verdict
    reason: str
    """One sentence with the numbers that decided."""
    tables: tuple[ReportTable, ...] = ()
    notes: tuple[str, ...] = field(default=())
    """What a reader must know besides, a sentence each."""


@dataclass(frozen=True)
class Drawing:
    """A figure, and one sentence that says what it shows."""

    figure: Figure
    caption: str


def _draw_nothing(measured: Measured) -> list[Drawing]:
    return []


@dataclass(frozen=True)
class Item:
    """A figure, a table or a claim of the paper."""

    name: str
    """What it is called on the command line, and its files."""
    title: str
    where: str
    """Its place in the paper: "figure 1", "proposition 2", "appendix, table 3"."""
    claim: str
    """What the paper says, in one sentence of our own."""
    test: str
    """How the verdict is decided, in one sentence."""
    compute: Callable[[Scale], Measured]
    draw: Callable[[Measured], list[Drawing]] = _draw_nothing
    """Figures from what was measured alone; nothing else imports matplotlib."""
    always: bool = False
    """Whether it is computed anew each time, as it reads runs that may have grown."""


def judged(passed: Mapping[str, bool]) -> Verdict:
    """Return the verdict of named checks: it holds if all pass, in part if some do."""
    if not passed:
        raise ValueError("A verdict needs a check.")
    return HOLDS if all(passed.values()) else IN_PART if any(passed.values()) else NOT


def not_found(checks: Mapping[str, bool]) -> str:
    """Return a sentence on the checks that did not pass, to follow another; nothing where all did."""
    failed = [name for name, passed in checks.items() if not passed]
    return f" Not found: {', '.join(failed)}." if failed else ""


def below(values: Array, others: Array) -> bool:
    """Return whether values are below those of the same repetitions, by a paired t-test at 5 %: (R,), (R,)."""
    t, p = paired_t(values - others)
    return t < 0 and p < 0.05


def table_of(
    name: str,
    caption: str,
    data: Sequence[Mapping[str, Any]],
    forms: Mapping[str, str] | None = None,
    form: str = ".2f",
) -> ReportTable:
    """Return a table whose columns of numbers are shown each in its form, or in one for all; words are as they are.

    A column p has p-values.
    """
    forms = forms or {}

    def cell(column: str, value: Any) -> str:
        if isinstance(value, str):
            return value
        return (
            chance_shown(value) if column == "p" else format_number(value, forms.get(column, form))
        )

    return ReportTable(
        name,
        caption,
        data,
        [{column: cell(column, value) for column, value in row.items()} for row in data],
    )


def chance_shown(p: float | None) -> str:
    """Return a p-value as it stands in a table."""
    return format_p_value(p)


def chance(p: float) -> str:
    """Return a p-value as it stands in a sentence."""
    return format_p_value(p, in_sentence=True)


def plain(value: Any) -> Any:
    """Return a value as JSON has it: arrays as lists, and nothing in the place of what is not finite."""
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value
