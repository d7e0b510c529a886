"""Turn the columns of a table into features: scaled numbers and one-hot categories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.data.table_files import Column, Table, is_missing

__all__ = ["TableFeatures", "encode_table", "parse_numbers"]

MAX_CATEGORIES = 50
"""The largest number of one-hot features for a column. The rarest categories share one."""

Numbers: TypeAlias = npt.NDArray[np.float64]
Features: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class TableFeatures:
    """The features of a table's rows."""

    features: Features
    """(N, K) finite numbers."""
    notes: tuple[str, ...]
    """Sentences about the columns that were left out."""


def encode_table(table: Table, *, leave_out: Collection[str] = ()) -> TableFeatures:
    """Turn a table into features.

    Numbers and dates are scaled to mean 0 and standard deviation 1. A missing number is replaced by
    the median, and a column of 0 and 1 marks where. A category becomes a column of 0 and 1, and so
    does a missing category. Columns that never vary give no features, and free text is left out.

    Args:
        table: the table.
        leave_out: the names of columns to ignore, such as ids and labels.

    Returns:
        (N, K) features and notes on the columns that were left out.

    Example:
        >>> from pathlib import Path
        >>> colours = np.array(["red", "blue", "red"], dtype=object)
        >>> encode_table(Table(Path("pool.csv"), {"colour": colours})).features.tolist()
        [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """
    # An empty block, so that a table without features still gives (N, 0).
    blocks = [_no_features(len(table))]
    free_text = []
    for name, column in table.columns.items():
        if name in leave_out:
            continue

        block = _encode_column(column)
        if block is None:
            free_text.append(name)
        else:
            blocks.append(block)

    notes = []
    if free_text:
        notes.append(f"Left out because they hold free text: {', '.join(free_text)}.")
    nested = [name for name in table.nested if name not in leave_out]
    if nested:
        notes.append(f"Left out because they hold nested values: {', '.join(nested)}.")

    return TableFeatures(np.hstack(blocks), tuple(notes))


def parse_numbers(column: Column) -> Numbers | None:
    """Return a column as float64 of the same shape, with NaN for missing values.

    Returns:
        The numbers, or None if the column holds other texts.
    """
    if column.dtype.kind != "O":
        return column.astype(np.float64, copy=False)
    return _parse_numbers(_clean_texts(column))


def _encode_column(column: Column) -> Features | None:
    """Return the features of a column, (N, 0) or more, or None for free text."""
    if column.dtype.kind != "O":
        # Each position of a vector is scaled on its own. A plain number is a vector of one.
        vectors = column.reshape(len(column), -1)
        positions = vectors.astype(np.float64).T
        return np.hstack([_scale(numbers) for numbers in positions])

    texts = _clean_texts(column)
    # The first parser that understands every cell decides the type of the column.
    for parse in (_parse_numbers, _parse_booleans, _parse_dates):
        numbers = parse(texts)
        if numbers is not None:
            return _scale(numbers)

    return _one_hot(texts)


def _clean_texts(column: Column) -> list[str]:
    """Strip the texts and replace missing ones by ''."""
    cleaned = []
    for text in column.tolist():
        if is_missing(text):
            cleaned.append("")
        else:
            cleaned.append(text.strip())
    return cleaned


def _parse_numbers(texts: list[str]) -> Numbers | None:
    filled = [text or "nan" for text in texts]
    try:
        return np.array(filled, dtype=np.float64)
    except ValueError:
        return None


def _parse_booleans(texts: list[str]) -> Numbers | None:
    values = {"": np.nan, "false": 0.0, "true": 1.0}
    lowered = [text.lower() for text in texts]
    if not set(lowered) <= values.keys():
        return None

    return np.array([values[text] for text in lowered])


def _parse_dates(texts: list[str]) -> Numbers | None:
    """Return dates and times in ISO format as seconds since 1970."""
    try:
        return np.array([_seconds(text) for text in texts])
    except (ValueError, OverflowError):
        return None


def _seconds(text: str) -> float:
    if not text:
        return float("nan")

    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        # UTC and not the local time zone, so that every machine computes the same features.
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()


def _scale(numbers: Numbers) -> Features:
    """Return scaled numbers, if they vary, and a column that marks missing ones, if there are any.

    Args:
        numbers: (N,) numbers. Infinite ones count as missing.
    """
    missing = ~np.isfinite(numbers)
    if missing.all():
        return _no_features(len(numbers))

    values = np.where(missing, 0.0, numbers)
    # Divide by the largest magnitude first, so that the mean and the deviation cannot overflow.
    largest = np.abs(values).max()
    values /= largest or 1.0

    columns = []
    if missing.any():
        present = values[~missing]
        values[missing] = np.median(present)
        columns.append(missing)
    if values.max() > values.min():
        values -= values.mean()
        scaled = values / values.std()
        columns.insert(0, scaled)

    if not columns:
        return _no_features(len(numbers))
    return np.stack(columns, axis=1).astype(np.float32)


def _no_features(rows: int) -> Features:
    return np.empty((rows, 0), dtype=np.float32)


def _one_hot(texts: list[str]) -> Features | None:
    """Return a column of 0 and 1 per category, the missing one first, or None for free text."""
    counts = Counter(texts)
    if _is_free_text(counts):
        return None

    if len(counts) < 2:
        return _no_features(len(texts))

    # Missing first, then from common to rare, and in alphabetical order where counts are equal.
    def rank(text: str) -> tuple[bool, int, str]:
        return text != "", -counts[text], text

    categories = sorted(counts, key=rank)
    width = min(len(categories), MAX_CATEGORIES)
    if len(categories) > MAX_CATEGORIES:
        categories = categories[: MAX_CATEGORIES - 1]

    # Rare categories have no code of their own and share the last column.
    rare_code = len(categories)
    code_of = {text: code for code, text in enumerate(categories)}
    codes = np.array([code_of.get(text, rare_code) for text in texts])

    # (N, 1) against (width,): row i has its 1 in the column of its code.
    is_category = codes[:, None] == np.arange(width)
    features: Features = is_category.astype(np.float32)
    return features


def _is_free_text(counts: Counter[str]) -> bool:
    """Return whether most texts differ from each other, so that none stands for a category."""
    present = counts.total() - counts[""]
    distinct = len(counts) - ("" in counts)
    if distinct <= present / 2:
        return False

    # A short column of categories may look like this too, unless no text is repeated.
    return distinct > MAX_CATEGORIES or distinct == present
