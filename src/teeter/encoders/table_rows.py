"""Encode rows of a table: scaled numbers and dates, and one-hot categories.

A row is a text that people can read, a card with a line per column (``format_card``). So rows are
shown, stored and exported like any other text, and this encoder reads the columns back.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import numpy as np

from teeter.encoders.encoder import ContentKind, Encoder, EncoderState, Encoding, Vectors
from teeter.encoders.registry import encoders
from teeter.errors import InputError

__all__ = [
    "TableRowEncoder",
    "format_card",
    "parse_card",
]

_MAX_CATEGORIES = 50
"""Categories of a column that have a feature of their own. The others share one."""

_MAX_DEVIATIONS = 20.0
"""Numbers that come later may be far outside of what was seen, and are cut off here."""

_BOOLEANS = {"true": 1.0, "false": 0.0}
_MISSING = frozenset({"", "na", "nan", "null", "none", "n/a"})


def format_card(cells: Mapping[str, str]) -> str:
    r"""Return a row as a text with a line per column.

    Names and values that a line cannot hold as they are, are written as JSON.

    Example:
        >>> print(format_card({"age": "41", "city": "", "note": "two\nlines", "a: b": "x"}))
        age: 41
        city:
        note: "two\nlines"
        "a: b": x
    """
    lines = []
    for name, value in cells.items():
        is_plain_name = bool(name.strip()) and ":" not in name and _is_plain(name)
        if not is_plain_name:
            name = json.dumps(name, ensure_ascii=False)
        if not _is_plain(value):
            value = json.dumps(value, ensure_ascii=False)
        lines.append(f"{name}: {value}".rstrip())
    return "\n".join(lines)


def _is_plain(text: str) -> bool:
    """Return whether a text reads the same after it was part of a line."""
    is_one_line = len(text.splitlines()) <= 1
    is_stripped = text == text.strip()
    return is_one_line and is_stripped and not text.startswith('"')


def parse_card(card: str) -> dict[str, str]:
    r"""Return the cells of a card by column. Lines that are none are ignored.

    Example:
        >>> parse_card('age: 41\ncity:\n"a: b": "two\\nlines"')
        {'age': '41', 'city': '', 'a: b': 'two\nlines'}
    """
    cells = {}
    for line in card.split("\n"):
        name, separator, value = _split_line(line)
        if not separator:
            continue
        value = value.strip()
        if value.startswith('"'):
            # As it is if it is no JSON.
            with suppress(ValueError):
                value = str(json.loads(value))
        cells[name] = value
    return cells


def _split_line(line: str) -> tuple[str, str, str]:
    if not line.startswith('"'):
        return line.partition(":")

    try:
        name, end = json.JSONDecoder().raw_decode(line)
    except ValueError:
        return line, "", ""
    _, separator, value = line[end:].partition(":")
    return str(name), separator, value


@encoders.register("table-rows")
class TableRowEncoder(Encoder):
    """The columns of rows, each scaled or one-hot.

    A column of numbers, booleans or ISO dates gives two features: its value in standard deviations
    from the mean, and whether it is missing. A column of categories gives one feature per category,
    and one for all that are rare or come later. Free text and columns that never vary give none.
    """

    kind = ContentKind.TEXT
    fit_size = 50_000

    def __init__(self) -> None:
        self.name = "table-rows"
        self._columns: list[dict[str, Any]] = []
        """For each column its name, and either its mean and deviation, or its categories."""

    def fit(self, contents: Sequence[str]) -> None:
        """Learn the columns, their scales and their categories.

        Raises:
            InputError: If no column tells rows apart.
        """
        rows = [parse_card(card) for card in contents]
        names: dict[str, None] = {}
        for row in rows:
            names |= dict.fromkeys(row)

        columns = []
        for name in names:
            cells = [_clean(row.get(name, "")) for row in rows]
            column = _fit_column(cells)
            if column is not None:
                columns.append({"name": name, **column})

        if not columns:
            raise InputError(
                "No column of the table tells its rows apart: it needs numbers, dates or "
                "categories that vary."
            )
        self._columns = columns

    def state(self) -> EncoderState:
        """Return the columns, their scales and their categories."""
        self._require_fit()
        return EncoderState({"columns": self._columns})

    def restore(self, state: EncoderState) -> None:
        """Adopt columns, scales and categories.

        Raises:
            InputError: If a scale is not a number that a float holds.
        """
        columns = [dict(column) for column in state.config["columns"]]
        for column in columns:
            if "categories" in column:
                continue
            try:
                column["mean"] = float(column["mean"])
                column["deviation"] = float(column["deviation"])
            except (OverflowError, TypeError, ValueError):
                raise _unreadable_scale(column) from None
            is_positive = 0 < column["deviation"] < math.inf
            if not math.isfinite(column["mean"]) or not is_positive:
                raise _unreadable_scale(column)
        self._columns = columns

    def encode(self, contents: Sequence[str]) -> Encoding:
        """Return the features of rows."""
        self._require_fit()
        rows = [parse_card(card) for card in contents]

        blocks = []
        for column in self._columns:
            name = column["name"]
            cells = [_clean(row.get(name, "")) for row in rows]
            if "categories" in column:
                blocks.append(_encode_categories(cells, column))
            else:
                blocks.append(_encode_numbers(cells, column))
        return Encoding(np.hstack(blocks))

    def _require_fit(self) -> None:
        if not self._columns:
            raise InputError("The encoder table-rows is not fitted: call fit with some rows first.")


def _unreadable_scale(column: Mapping[str, Any]) -> InputError:
    return InputError(
        f"The saved scale of the column {str(column['name'])[:80]!r} is not a finite number: fit "
        f"the encoder again."
    )


def _clean(cell: str) -> str:
    stripped = cell.strip()
    if stripped.lower() in _MISSING:
        return ""
    return stripped


def _parse_number(cell: str) -> float | None:
    """Return a number, a boolean or a date as a number; NaN if it is missing, None for others."""
    if not cell:
        return math.nan
    if cell.lower() in _BOOLEANS:
        return _BOOLEANS[cell.lower()]
    try:
        return float(cell)
    except ValueError:
        pass

    try:
        moment = datetime.fromisoformat(cell)
    except ValueError:
        return None
    # UTC and not the local time zone, so that every machine computes the same features.
    if not moment.tzinfo:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()


def _fit_column(cells: Sequence[str]) -> dict[str, Any] | None:
    """Return what the features of a column depend on, or None if it has no features."""
    counts = Counter(cells)
    if len(counts) < 2:
        return None

    numbers = [_parse_number(cell) for cell in cells]
    if all(number is not None for number in numbers):
        present = [number for number in numbers if number is not None and math.isfinite(number)]
        if not present:
            return None
        # Scaled down first, so that the squares of large numbers cannot overflow.
        largest = max(map(abs, present)) or 1.0
        scaled = np.array(present) / largest
        mean = float(scaled.mean()) * largest
        deviation = float(scaled.std()) * largest
        return {"mean": mean, "deviation": deviation or 1.0}

    distinct = len(counts) - ("" in counts)
    filled = counts.total() - counts[""]
    # Texts that mostly differ stand for nothing. A short column may look like this by chance.
    is_long = distinct > _MAX_CATEGORIES or distinct == filled
    if distinct > filled / 2 and is_long:
        return None

    by_rank = sorted(counts, key=lambda cell: (-counts[cell], cell))
    return {"categories": by_rank[:_MAX_CATEGORIES]}


def _encode_numbers(cells: Sequence[str], column: Mapping[str, Any]) -> Vectors:
    """Return (N, 2): the value, and whether it is missing."""
    block = np.zeros((len(cells), 2), dtype=np.float32)
    for row, cell in enumerate(cells):
        number = _parse_number(cell)
        if number is None or not math.isfinite(number):
            block[row, 1] = 1.0
        else:
            value = (number - column["mean"]) / column["deviation"]
            block[row, 0] = np.clip(value, -_MAX_DEVIATIONS, _MAX_DEVIATIONS)
    return block


def _encode_categories(cells: Sequence[str], column: Mapping[str, Any]) -> Vectors:
    """Return (N, C + 1): a feature per category, and one for all others."""
    categories = column["categories"]
    other_code = len(categories)
    code_of = {category: code for code, category in enumerate(categories)}
    block = np.zeros((len(cells), other_code + 1), dtype=np.float32)
    for row, cell in enumerate(cells):
        code = code_of.get(cell, other_code)
        block[row, code] = 1.0
    return block
