"""Find the columns that hold the texts and the labels of a table, by their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from teeter.errors import InputError

__all__ = ["LABEL_COLUMNS", "TEXT_COLUMNS", "find_label_column", "find_text_column"]

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
