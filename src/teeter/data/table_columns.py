"""Columns of a table as features, as class labels, and as the texts of its rows.

Features are scaled numbers and one-hot categories. Some labels may be missing; what are no class
labels is refused. A text is a column, or a template over several of them.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from string import Formatter
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.base.registry import require_known
from teeter.data.table_files import Column, Table, is_missing
from teeter.errors import InputError

__all__ = [
    "ADDED_PREFIX",
    "LABEL_COLUMNS",
    "MAX_CATEGORIES",
    "TEXT_COLUMNS",
    "Features",
    "Labels",
    "Numbers",
    "TextTemplate",
    "encode_table",
    "find_label_column",
    "find_text_column",
    "parse_numbers",
    "parse_text_template",
    "read_labels",
    "rename_added",
]

ADDED_PREFIX = "teeter_"
"""What a column begins with that is added to a table if the table has one of its name."""

MAX_CATEGORIES = 50
"""The largest number of one-hot features for a column. The rarest categories share one."""

Numbers: TypeAlias = npt.NDArray[np.float64]
Features: TypeAlias = npt.NDArray[np.float32]


def encode_table(
    table: Table, *, leave_out: Collection[str] = ()
) -> tuple[Features, tuple[str, ...]]:
    """Turn a table into features.

    Numbers and dates are scaled to mean 0 and standard deviation 1. A missing number is replaced by
    the median, and a column of 0 and 1 marks where. A category becomes a column of 0 and 1, and so
    does a missing category. Columns that never vary give no features, and free text is left out.

    Args:
        table: the table.
        leave_out: the names of columns to ignore, such as ids and labels.

    Returns:
        (N, K) finite features, and sentences about the columns that were left out.

    Example:
        >>> from pathlib import Path
        >>> colours = np.array(["red", "blue", "red"], dtype=object)
        >>> features, _ = encode_table(Table(Path("pool.csv"), {"colour": colours}))
        >>> features.tolist()
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

    return np.hstack(blocks), tuple(notes)


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

    # Free text: most texts differ from each other, so that none stands for a category. A short
    # column of categories may look like this too, unless no text is repeated.
    present = counts.total() - counts[""]
    distinct = len(counts) - ("" in counts)
    is_long = distinct > MAX_CATEGORIES or distinct == present
    if distinct > present / 2 and is_long:
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
    # The name of a column may have a comma in it.
    names = [name.strip() for name in column.split(",")]
    is_any_column = any(name in table.columns for name in names)
    has_several = len(names) > 1 and is_any_column
    if has_several and column not in table.columns:
        raise InputError(
            f"labels= names {len(names)} columns ({', '.join(names)}): {_ONE_LABEL} of one column."
        )
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

    classes = tuple(sorted(counts))
    if _parse_class_numbers(counts) is not None:
        # By value, so that 10 comes after 2. By text as well, because 1 and 1.0 are two classes.
        classes = tuple(sorted(counts, key=lambda text: (float(text), text)))
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
            parts = {part.strip() for part in text.split(separator)}
            parts.discard("")
            parts_of[text] = parts
            uses.update(parts)  # a set: a label counts once for each of its parts

        for text, parts in parts_of.items():
            is_used_elsewhere = [uses[part] > 1 for part in parts]
            if len(parts) > 1 and enough(is_used_elsewhere):
                return text

    return None


def _refuse_regression_target(counts: Counter[str], source: str) -> None:
    numbers = _parse_class_numbers(counts)
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


def _parse_class_numbers(texts: Iterable[str]) -> list[float] | None:
    """Return the numbers that the texts stand for, or None if one is not a finite number."""
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return None

    # float() also reads "nan", "inf" and "infinity", which may be class names.
    if not all(math.isfinite(number) for number in numbers):
        return None
    return numbers


_ESCAPES = {r"\n": "\n", r"\t": "\t"}
"""What people write in a shell for characters that are hard to type there."""


@dataclass(frozen=True)
class TextTemplate:
    """Literal texts and the columns between them."""

    parts: tuple[tuple[str, str | None], ...]
    """Each is a literal text, and the column that follows it; None after the last."""
    is_list: bool = False
    """Whether it is a list of columns, whose empty cells leave no blank lines."""

    @property
    def columns(self) -> list[str]:
        """The columns that it uses, each once."""
        names = [column for _, column in self.parts if column is not None]
        return list(dict.fromkeys(names))

    @property
    def only_column(self) -> str | None:
        """The column whose cells are the texts, if there is nothing else in them."""
        if len(self.parts) != 1:
            return None

        [(literal, column)] = self.parts
        if literal:
            return None
        return column

    def fill(self, cells: Mapping[str, str]) -> str:
        """Return the text of a row.

        Args:
            cells: The cells of the columns as texts.
        """
        if self.is_list:
            filled = [cells[name] for name in self.columns if cells[name].strip()]
            return "\n\n".join(filled)

        text = ""
        for literal, column in self.parts:
            text += literal
            if column is not None:
                text += cells[column]
        return text


def parse_text_template(text: str, columns: Sequence[str], source: Path) -> TextTemplate:
    r"""Return the template that the value of ``text`` stands for.

    Args:
        text: A column, several separated by commas, or a template.
        columns: The columns of the table.
        source: Its file, for error messages.

    Raises:
        InputError: If the template is not valid.
        UnknownNameError: If it names a column that the table does not have.

    Example:
        >>> template = parse_text_template(r"{title}\n\n{body}", ["title", "body"], Path("a.csv"))
        >>> template.fill({"title": "Broken", "body": "It came in parts."})
        'Broken\n\nIt came in parts.'
    """
    if text in columns:
        return TextTemplate((("", text),))

    if "{" in text:
        template = _parse_braces(text)
    else:
        names = [name.strip() for name in text.split(",")]
        parts = tuple(("", name) for name in names)
        template = TextTemplate(parts, is_list=len(names) > 1)

    for name in template.columns:
        require_known(f"column of {source}", name, columns)
    return template


def _parse_braces(text: str) -> TextTemplate:
    for escape, character in _ESCAPES.items():
        text = text.replace(escape, character)

    parts: list[tuple[str, str | None]] = []
    try:
        for literal, column, specification, conversion in Formatter().parse(text):
            # Formats and conversions would run code of the values, and names are looked up as they
            # are: {user.name} is the column "user.name", not an attribute.
            if specification or conversion:
                raise InputError(
                    f"The template {text!r} contains formatting: write only {{{column}}}."
                )
            if column == "":
                raise InputError(f"The template {text!r} has braces without a column in them.")
            parts.append((literal, column))
    except ValueError as error:
        raise InputError(
            f"The template {text!r} cannot be read ({error}): write {{COLUMN}} for a column, and "
            "{{ for a brace."
        ) from None

    template = TextTemplate(tuple(parts))
    if not template.columns:
        raise InputError(f"The template {text!r} names no column: write {{COLUMN}} for one.")
    return template


TEXT_COLUMNS = (
    "text",
    "sentence",
    "content",
    "message",
    "review",
    "body",
    "question",
    "query",
    "title",
)
"""Names of columns that hold the texts if no column is named, in the order of preference."""

LABEL_COLUMNS = ("label", "labels", "class", "category", "intent", "target", "tag")
"""Names of columns that usually hold labels, in the order of preference."""

_MAX_LISTED_COLUMNS = 10


def find_text_column(names: Sequence[str], path: Path) -> str:
    """Return the column with a usual name for texts, or the only column.

    Args:
        names: the columns of a table.
        path: its file, for the error message.

    Raises:
        InputError: if the column is not clear.

    Example:
        >>> find_text_column(["id", "Message"], Path("messages.csv"))
        'Message'
    """
    names_by_lower_case = {name.lower(): name for name in names}
    for name in TEXT_COLUMNS:
        if name in names_by_lower_case:
            return names_by_lower_case[name]

    if len(names) == 1:
        return names[0]

    listed = ", ".join(names[:_MAX_LISTED_COLUMNS])
    raise InputError(
        f"Which column of {path} has the texts: {listed}? Name it as the text column (text=), or "
        f"rename it to 'text'."
    )


def find_label_column(names: Sequence[str]) -> str | None:
    """Return the column with a usual name for labels, if there is one.

    Example:
        >>> find_label_column(["id", "text", "Category"])
        'Category'
    """
    names_by_lower_case = {name.lower(): name for name in names}
    for name in LABEL_COLUMNS:
        if name in names_by_lower_case:
            return names_by_lower_case[name]
    return None


def rename_added(column: str, taken: Collection[str]) -> str:
    """Return the name of a column that is added to a table, which has none of this name.

    Example:
        >>> rename_added("label", ["label", "teeter_label"])
        'teeter_teeter_label'
    """
    while column in taken:
        column = ADDED_PREFIX + column
    return column
