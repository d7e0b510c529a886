"""Read a column of class labels of which some are missing, and refuse what are no class labels."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from teeter.data.table_files import Table, is_missing
from teeter.errors import InputError

__all__ = ["Labels", "read_labels"]

_ONE_LABEL = "teeter needs one class per row, so keep one label in each cell"

_MAX_NUMERIC_CLASSES = 20
"""More different numbers than this are a regression target, if most rows have a different one."""


@dataclass(frozen=True, eq=False)
class Labels:
    """The class labels in a column."""

    classes: tuple[str, ...]
    """The class names, sorted by value if they are numbers and else by name."""
    codes: npt.NDArray[np.int64]
    """(N,) indices into ``classes``, or -1 for a row without a label."""
    notes: tuple[str, ...] = ()
    """Sentences on how cells were read."""

    @property
    def labelled(self) -> npt.NDArray[np.int64]:
        """The rows that have a label."""
        return np.flatnonzero(self.codes >= 0)

    @property
    def candidates(self) -> npt.NDArray[np.int64]:
        """The rows that have no label."""
        return np.flatnonzero(self.codes < 0)


def read_labels(table: Table, column: str) -> Labels:
    """Read the class labels in a column. Rows without a label are candidates.

    Args:
        table: the table.
        column: the name of the label column. Callers call it ``labels``.

    Raises:
        UnknownNameError: if there is no such column.
        InputError: if cells hold several labels, or numbers to predict instead of classes.
    """
    _refuse_several_columns(table, column)
    table.require(column)

    source = f"column {column!r} of {table.path}"
    holds_lists = column in table.nested or table.columns[column].ndim > 1
    if holds_lists:
        raise InputError(f"The cells of {source} are lists: {_ONE_LABEL}.")

    texts = []
    missing_words: Counter[str] = Counter()
    for cell in table.texts(column):
        text = cell.strip()
        if is_missing(text):
            missing_words[text] += 1
            text = ""
        texts.append(text)

    # From here on, only the labels that are present count.
    counts = Counter(texts)
    del counts[""]
    _refuse_several_labels(counts, source)
    _refuse_regression_target(counts, source)

    classes = _sort_classes(counts)
    code_of = {name: code for code, name in enumerate(classes)}
    code_of[""] = -1
    codes = [code_of[text] for text in texts]

    # An empty cell needs no note, but a word such as "none" might have been meant as a class.
    del missing_words[""]
    notes = []
    for word, count in missing_words.items():
        notes.append(f"{count} cells {word!r} in {source} were read as missing labels.")

    return Labels(
        classes=classes,
        codes=np.array(codes, dtype=np.int64),
        notes=tuple(notes),
    )


def _refuse_several_columns(table: Table, column: str) -> None:
    # The name of a column may have a comma in it.
    names = [name.strip() for name in column.split(",")]
    if len(names) == 1 or column in table.columns:
        return

    if any(name in table.columns for name in names):
        raise InputError(
            f"labels= names {len(names)} columns ({', '.join(names)}): {_ONE_LABEL} of one column."
        )


def _refuse_several_labels(counts: Counter[str], source: str) -> None:
    several = _find_joined_labels(counts)
    lists = [text for text in counts if _is_list(text)]
    if lists:
        several = lists[0]

    if several is not None:
        raise InputError(
            f"The cell {several!r} in {source} seems to hold several labels: {_ONE_LABEL}, and "
            f"use no ; | or , in class names."
        )


def _is_list(text: str) -> bool:
    """Return whether a cell is a list in the notation of JSON or Python."""
    if not (text.startswith("[") and text.endswith("]")):
        return False

    try:
        # Python writes single quotes, which are not JSON.
        value = json.loads(text.replace("'", '"'))
    except ValueError:
        return False

    return isinstance(value, list)


def _find_joined_labels(counts: Counter[str]) -> str | None:
    """Return a label such as ``a;b`` whose parts occur in other labels, or None.

    One shared part is enough for a semicolon or a bar. Commas also occur in names, so all parts
    must occur elsewhere.
    """
    for separator, enough in ((";", any), ("|", any), (",", all)):
        parts_of = {}
        uses: Counter[str] = Counter()
        for text in counts:
            parts = {part.strip() for part in text.split(separator)} - {""}
            parts_of[text] = parts
            uses.update(parts)  # a set: a label counts once for each of its parts

        for text, parts in parts_of.items():
            is_used_elsewhere = [uses[part] > 1 for part in parts]
            if len(parts) > 1 and enough(is_used_elsewhere):
                return text

    return None


def _refuse_regression_target(counts: Counter[str], source: str) -> None:
    numbers = _parse_numbers(counts)
    if numbers is None:
        return

    advice = "teeter needs classes, so group the numbers into a few classes."
    for text, number in zip(counts, numbers, strict=True):
        if not number.is_integer():
            raise InputError(f"It seems that {source} holds fractions such as {text}: {advice}")

    # Many different numbers are fine as classes if they repeat, such as product codes.
    rows = counts.total()
    if len(counts) > max(_MAX_NUMERIC_CLASSES, rows / 2):
        raise InputError(
            f"It seems that {source} holds {len(counts)} different numbers in {rows} "
            f"labelled rows: {advice}"
        )


def _parse_numbers(texts: Iterable[str]) -> list[float] | None:
    """Return the numbers that the texts stand for, or None if one is not a finite number."""
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return None

    # float() also reads "nan", "inf" and "infinity", which may be class names.
    if not all(math.isfinite(number) for number in numbers):
        return None
    return numbers


def _sort_classes(counts: Counter[str]) -> tuple[str, ...]:
    if _parse_numbers(counts) is None:
        return tuple(sorted(counts))
    # By value, so that 10 comes after 2. By text as well, because 1 and 1.0 are two classes.
    return tuple(sorted(counts, key=lambda text: (float(text), text)))
