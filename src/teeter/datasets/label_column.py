"""A column of labels, filled in part: one class a row, or a sentence that says why it is something else."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from teeter.datasets.table_files import Table, is_missing
from teeter.errors import InputError

__all__ = ["Labels", "read_labels"]

_ONE_LABEL = "teeter picks for one class a row, so keep one label in each cell"


@dataclass(frozen=True, eq=False)
class Labels:
    """The classes of a label column, and each row's."""

    classes: tuple[str, ...]
    codes: npt.NDArray[np.int64]
    """(N,) a position in ``classes``, or -1 where the row has no label."""
    notes: tuple[str, ...] = ()

    @property
    def labelled(self) -> npt.NDArray[np.int64]:
        """The rows that have a label."""
        return np.flatnonzero(self.codes >= 0)

    @property
    def candidates(self) -> npt.NDArray[np.int64]:
        """The rows that have none."""
        return np.flatnonzero(self.codes < 0)


def read_labels(table: Table, column: str) -> Labels:
    """Return the labels in a column, refusing several labels a row and numbers to be predicted."""
    where = f"column {column!r} of {table.path}"
    parts = [part.strip() for part in column.split(",")]
    if (
        len(parts) > 1
        and column not in table.columns
        and any(part in table.columns for part in parts)
    ):
        raise InputError(
            f"--labels names {len(parts)} columns ({', '.join(parts)}): {_ONE_LABEL} of one column."
        )
    table.require(column)
    if column in table.nested or table.columns[column].ndim > 1:
        raise InputError(f"The cells of {where} are lists: {_ONE_LABEL}.")
    cells = table.texts(column)
    texts = ["" if is_missing(text) else text.strip() for text in cells]
    words = Counter(text.strip() for text in cells if text.strip() and is_missing(text))
    counts = Counter(texts)
    del counts[""]
    _refuse_several(counts, where)
    _refuse_regression(counts, where)
    classes = _in_order(counts)
    places = {"": -1} | {name: place for place, name in enumerate(classes)}
    notes = tuple(
        f"{count} cells {word!r} in {where} were read as no label." for word, count in words.items()
    )
    return Labels(classes, np.array([places[text] for text in texts], dtype=np.int64), notes)


def _refuse_several(counts: Counter[str], where: str) -> None:
    found = next(filter(_is_list, counts), None) or _joined(counts)
    if found is not None:
        raise InputError(
            f"The cell {found!r} in {where} seems to hold several labels: {_ONE_LABEL}, "
            "and write a class without ; | or ,."
        )


def _is_list(text: str) -> bool:
    if not (text.startswith("[") and text.endswith("]")):
        return False
    try:
        return isinstance(json.loads(text.replace("'", '"')), list)
    except ValueError:
        return False


def _joined(counts: Counter[str]) -> str | None:
    """Return a label such as a;b that is made of other labels or shares a part with them.

    A comma also stands within names, so there all parts must be found again.
    """
    for separator, enough in ((";", any), ("|", any), (",", all)):
        parts = {text: {part.strip() for part in text.split(separator)} - {""} for text in counts}
        uses = Counter(part for several in parts.values() for part in several)
        for text, several in parts.items():
            if len(several) > 1 and enough(uses[part] > 1 for part in several):
                return text
    return None


def _refuse_regression(counts: Counter[str], where: str) -> None:
    numbers = _numbers(counts)
    if numbers is None:
        return
    fraction = next(
        (text for text, number in zip(counts, numbers, strict=True) if not number.is_integer()),
        None,
    )
    if fraction is not None:
        found = f"holds fractions such as {fraction}"
    elif len(counts) > max(20, counts.total() / 2):
        found = f"holds {len(counts)} different numbers in {counts.total()} labelled rows"
    else:
        return
    raise InputError(
        f"It seems that {where} {found}: teeter picks for classes, so group the numbers into a few."
    )


def _numbers(texts: Iterable[str]) -> list[float] | None:
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return None
    return numbers if all(map(math.isfinite, numbers)) else None


def _in_order(counts: Counter[str]) -> tuple[str, ...]:
    """Return the classes by number where they are numbers, else by name."""
    if _numbers(counts) is not None:
        return tuple(sorted(counts, key=lambda text: (float(text), text)))
    return tuple(sorted(counts))
