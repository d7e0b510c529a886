"""The columns of a table as features: numbers scaled, categories as one column each, free text left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.datasets.table_files import Column, Table, is_missing

__all__ = ["Encoded", "encode", "numbers_in"]

CATEGORIES = 50
"""A column gives at most so many categories; the rarest are folded into one."""

Numbers: TypeAlias = npt.NDArray[np.float64]
Block: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Encoded:
    """A table's features, (N, K) without NaN, and notes on the columns that gave none."""

    features: Block
    notes: tuple[str, ...]


def encode(table: Table, *, leave_out: Collection[str] = ()) -> Encoded:
    """Return the features of every row, from all columns but those to ``leave_out``.

    Numbers and dates are scaled to mean 0 and standard deviation 1, with the median for a missing one and a column
    more that tells where; a category is a column of 0 and 1, and so is its absence. Columns that never vary give none.
    """
    blocks = [np.empty((len(table), 0), dtype=np.float32)]
    free_text = []
    for name, column in table.columns.items():
        if name in leave_out:
            continue
        block = _block(column)
        if block is None:
            free_text.append(name)
        else:
            blocks.append(block)
    nested = [name for name in table.nested if name not in leave_out]
    reasons = {"Left out as free text": free_text, "Left out as nested": nested}
    notes = [f"{reason}: {', '.join(names)}." for reason, names in reasons.items() if names]
    return Encoded(np.hstack(blocks), tuple(notes))


def numbers_in(column: Column) -> Numbers | None:
    """Return a column as numbers, NaN where missing, or None where it holds other texts: (N,) or (N, K) -> the same."""
    if column.dtype.kind != "O":
        return column.astype(np.float64, copy=False)
    return _parsed(_cleaned(column))


def _block(column: Column) -> Block | None:
    """Return the features that a column gives, (N, 0) or more, or None for free text."""
    if column.dtype.kind != "O":
        parts = [_scaled(part.astype(np.float64)) for part in column.reshape(len(column), -1).T]
        return np.hstack(parts)
    texts = _cleaned(column)
    for read in (_parsed, _truths, _moments):
        numbers = read(texts)
        if numbers is not None:
            return _scaled(numbers)
    return _one_hot(texts)


def _cleaned(column: Column) -> list[str]:
    """Return the texts without spaces around them, '' where missing."""
    return ["" if is_missing(text) else text.strip() for text in column.tolist()]


def _parsed(texts: list[str]) -> Numbers | None:
    try:
        return np.array([text or "nan" for text in texts], dtype=np.float64)
    except ValueError:
        return None


def _truths(texts: list[str]) -> Numbers | None:
    values = {"": np.nan, "false": 0.0, "true": 1.0}
    lowered = [text.lower() for text in texts]
    return np.array([values[text] for text in lowered]) if set(lowered) <= values.keys() else None


def _moments(texts: list[str]) -> Numbers | None:
    """Return dates and times as seconds; those without a zone are taken as UTC, so that every machine agrees."""
    try:
        moments = [datetime.fromisoformat(text) if text else None for text in texts]
        return np.array([_seconds(moment) for moment in moments])
    except (ValueError, OverflowError):
        return None


def _seconds(moment: datetime | None) -> float:
    if moment is None:
        return float("nan")
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _scaled(numbers: Numbers) -> Block:
    """Return numbers at mean 0 and standard deviation 1, and where any is missing a column that says so."""
    missing = ~np.isfinite(numbers)
    if missing.all():
        return np.empty((len(numbers), 0), dtype=np.float32)
    values = np.where(missing, 0.0, numbers)
    values /= np.abs(values).max() or 1.0  # first, so that nothing below overflows
    if missing.any():
        values[missing] = np.median(values[~missing])
    columns = [missing] if missing.any() else []
    if values.max() > values.min():
        values -= values.mean()
        columns.insert(0, values / values.std())
    return (
        np.stack(columns, axis=1).astype(np.float32)
        if columns
        else np.empty((len(numbers), 0), dtype=np.float32)
    )


def _one_hot(texts: list[str]) -> Block | None:
    """Return a column of 0 and 1 for each category, the missing one first, or None for free text."""
    counts = Counter(texts)
    if _is_free_text(counts):
        return None
    ranked = sorted(counts, key=lambda text: (text != "", -counts[text], text))
    kept = ranked if len(ranked) <= CATEGORIES else ranked[: CATEGORIES - 1]
    places = {text: place for place, text in enumerate(kept)}
    codes = np.array([places.get(text, len(kept)) for text in texts])
    width = min(len(ranked), CATEGORIES)
    if width < 2:
        return np.empty((len(texts), 0), dtype=np.float32)
    block: Block = (codes[:, None] == np.arange(width)).astype(np.float32)
    return block


def _is_free_text(counts: Counter[str]) -> bool:
    """Tell texts that are mostly different, so that none of them stands for a kind of row."""
    filled = counts.total() - counts[""]
    different = len(counts) - ("" in counts)
    return different > filled / 2 and (different > CATEGORIES or different == filled)
