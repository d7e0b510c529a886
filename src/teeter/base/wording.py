"""Numbers and lists in sentences."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "list_some",
    "pluralize",
]


def pluralize(count: int, singular: str, plural: str | None = None) -> str:
    """Return a number with words in the singular or the plural, which by default ends in "s".

    Example:
        >>> pluralize(1, "item"), pluralize(2500, "item"), pluralize(2, "item is", "items are")
        ('1 item', '2,500 items', '2 items are')
    """
    if count == 1:
        return f"1 {singular}"
    return f"{count:,} {plural or singular + 's'}"


def list_some(texts: Sequence[str], limit: int) -> str:
    """Join texts by commas; beyond ``limit``, only their number is given.

    Example:
        >>> list_some(["ham", "spam", "eggs"], 2)
        'ham, spam and 1 more'
    """
    listed = ", ".join(texts[:limit])
    if len(texts) <= limit:
        return listed
    return f"{listed} and {len(texts) - limit:,} more"
