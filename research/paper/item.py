"""What an item is: a figure, a table or a claim of the paper that is computed, judged and drawn.

An item has a function that takes a ``StudyConfig`` and returns a ``Measurement``: numbers, and the
verdict on them. Modules split it in two. ``measure_...`` trains and simulates, which takes long;
``judge_...`` takes the numbers alone and decides, so that tests can check the verdict on made-up
numbers. A third function, ``draw_...``, draws figures from the measurement.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from teeter.bench.analysis.statistics import paired_t
from teeter.bench.analysis.table_formats import ReportTable, format_number, format_p_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "HOLDS",
    "IN_PART",
    "NOT",
    "SIGNIFICANCE",
    "VERDICTS",
    "Array",
    "Drawing",
    "Item",
    "Measurement",
    "StudyConfig",
    "Verdict",
    "decide_verdict",
    "describe_failed_checks",
    "format_p",
    "make_table",
    "significantly_below",
    "to_json_value",
]

Array = npt.NDArray[np.floating[Any]]

Verdict = Literal["holds", "holds in part", "does not hold"]
HOLDS: Verdict = "holds"
IN_PART: Verdict = "holds in part"
NOT: Verdict = "does not hold"
VERDICTS: tuple[Verdict, ...] = (HOLDS, IN_PART, NOT)

SIGNIFICANCE = 0.05
"""The level of every paired t-test that decides a verdict."""


@dataclass(frozen=True)
class StudyConfig:
    """The size at which items are computed, and where they find their data."""

    quick: bool = True
    """Whether to take under a minute on two cores, with data that scikit-learn carries."""
    device: torch.device | str | None = None
    """Where networks are trained; None for a GPU if there is one."""
    folder: Path | None = None
    """The folder of the datasets; None for the folders that teeter.bench.datasets searches."""
    runs: Path = Path("runs")
    """The folder that has one run folder for each setting of the benchmark."""
    seed: int = 0


@dataclass(frozen=True)
class Measurement:
    """The numbers that were measured, and the verdict that the item's test gives on them."""

    numbers: Mapping[str, Any]
    """What figures are drawn from: nested dictionaries and lists of numbers, strings, arrays."""
    verdict: Verdict
    reason: str
    """One sentence with the numbers that decided."""
    tables: tuple[ReportTable, ...] = ()
    notes: tuple[str, ...] = field(default=())
    """Further sentences for the reader, such as the dataset that was used."""


@dataclass(frozen=True)
class Drawing:
    """A figure, and a sentence that says what it shows."""

    figure: Figure
    caption: str


def draw_nothing(measurement: Measurement) -> list[Drawing]:
    """Return no figures: the default of an item that has only tables."""
    return []


@dataclass(frozen=True)
class Item:
    """A figure, a table or a claim of the paper."""

    name: str
    """Its name on the command line, and the stem of its result file."""
    title: str
    location: str
    """Its place in the paper: "figure 1", "proposition 2"; starts with "ours" if we added it."""
    claim: str
    """What the paper says, in one sentence of our own."""
    test: str
    """How the verdict is decided, in one sentence."""
    compute: Callable[[StudyConfig], Measurement]
    draw: Callable[[Measurement], list[Drawing]] = draw_nothing
    """Draws figures from the measurement alone; only this function may import matplotlib."""
    always_recompute: bool = False
    """Whether to ignore an earlier result, because the item reads runs that may have grown."""


def decide_verdict(checks: Mapping[str, bool]) -> Verdict:
    """Return the verdict of named checks: holds if all pass, in part if some do.

    Raises:
        ValueError: there is no check.

    Examples:
        >>> decide_verdict({"lower": True, "faster": False})
        'holds in part'
    """
    if not checks:
        raise ValueError("A verdict needs a check.")

    if all(checks.values()):
        return HOLDS
    if any(checks.values()):
        return IN_PART
    return NOT


def describe_failed_checks(checks: Mapping[str, bool]) -> str:
    """Return a sentence that names the failed checks, with a space before it; "" if all passed."""
    failed = [name for name, passed in checks.items() if not passed]

    if not failed:
        return ""
    return f" Failed checks: {', '.join(failed)}."


def significantly_below(values: Array, baseline: Array) -> bool:
    """Return whether values are below a baseline, by a paired t-test at 5 %.

    Args:
        values: one value for each repetition: (R,).
        baseline: the values of the same repetitions: (R,).
    """
    t, p = paired_t(values - baseline)
    return t < 0 and p < SIGNIFICANCE


def make_table(
    name: str,
    caption: str,
    data: Sequence[Mapping[str, Any]],
    formats: Mapping[str, str] | None = None,
    default_format: str = ".2f",
) -> ReportTable:
    """Return a table that shows numbers in a format and strings as they are.

    Args:
        name: the stem of the table's CSV file.
        caption: a sentence on what the table shows.
        data: the rows. A column called ``p`` holds p-values and has a format of its own.
        formats: format specifications by column.
        default_format: the format specification of the other columns.
    """
    formats = formats or {}

    def format_cell(column: str, value: Any) -> str:
        if isinstance(value, str):
            return value
        if column == "p":
            return format_p_value(value)
        return format_number(value, formats.get(column, default_format))

    shown = [{column: format_cell(column, value) for column, value in row.items()} for row in data]
    return ReportTable(name, caption, data, shown)


def format_p(p: float) -> str:
    """Return a p-value as it stands in a sentence, such as "p = 0.03"."""
    return format_p_value(p, in_sentence=True)


def to_json_value(value: Any) -> Any:
    """Return a value that JSON can hold: arrays become lists, and infinite or NaN floats None."""
    # JSON has neither NaN nor infinity, and its keys are strings.
    if isinstance(value, Mapping):
        return {str(name): to_json_value(element) for name, element in value.items()}
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return to_json_value(value.tolist())
    if isinstance(value, (list, tuple)):
        return [to_json_value(element) for element in value]
    if isinstance(value, np.generic):
        return to_json_value(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
