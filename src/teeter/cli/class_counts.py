"""The number of labels per class, as ``teeter campaign status`` prints it.

Campaigns have two classes or hundreds. Two fit on a line. Hundreds would not be readable, so
only the most frequent ones are listed, with a summary of those that need labels.
"""

from __future__ import annotations

from collections.abc import Mapping

from teeter.cli.output import list_some, printable_line

__all__ = ["format_class_counts"]

# Classes that are listed with their counts unless all are asked for.
_LISTED = 20

# Classes with fewer labels than this are called rare: a model has hardly anything to learn from.
_FEW_LABELS = 5

# Rare and empty classes that are named in a sentence.
_NAMED = 10

_LONGEST_NAME = 30
_SPACE_BETWEEN_COLUMNS = 3


def format_class_counts(
    counts: Mapping[str, int], *, width: int, show_all: bool = False
) -> list[str]:
    """Return the lines that show how many labels each class has, the most frequent class first.

    Few classes fit on one line. More are listed in columns: the 20 with the most labels, followed
    by a sentence each on the rare and on the empty classes among the others.

    Args:
        counts: the number of labels by class.
        width: columns of the terminal.
        show_all: whether to list all classes in columns.

    Example:
        >>> format_class_counts({"ham": 52, "spam": 1070}, width=80)
        ['spam 1,070, ham 52']
    """
    # A stable sort: classes with equal counts stay in the order of the campaign.
    ranked = sorted(counts.items(), key=lambda entry: -entry[1])

    line = ", ".join(f"{name} {count:,}" for name, count in ranked)
    if _count_cells(line) <= width:
        return [line]

    if show_all:
        return _format_columns(ranked, width)

    hidden = dict(ranked[_LISTED:])
    lines = _format_columns(ranked[:_LISTED], width)
    if hidden:
        classes = "class" if len(hidden) == 1 else "classes"
        lines.append(f"{len(hidden):,} more {classes}: list them with --all.")
    return lines + _describe_small_classes(hidden)


def _describe_small_classes(counts: Mapping[str, int]) -> list[str]:
    """Return a sentence on the classes with few labels, and one on those without any."""
    rare = []
    empty = []
    # The rarest come first, because not all may be named.
    for name, count in sorted(counts.items(), key=lambda entry: entry[1]):
        if count == 0:
            empty.append(_shorten(name))
        elif count < _FEW_LABELS:
            rare.append(f"{_shorten(name)} ({count})")

    sentences = []
    if rare:
        names = list_some(rare, _NAMED)
        sentences.append(f"Fewer than {_FEW_LABELS} labels ({len(rare):,}): {names}.")
    if empty:
        names = list_some(empty, _NAMED)
        sentences.append(f"No labels ({len(empty):,}): {names}.")
    return sentences


def _format_columns(counts: list[tuple[str, int]], width: int) -> list[str]:
    """Return counts and names in as many columns as fit, to be read downwards."""
    from rich.columns import Columns
    from rich.console import Console

    digits = max(len(f"{count:,}") for _, count in counts)
    cells = []
    for name, count in counts:
        cells.append(f"{count:>{digits},} {_shorten(name)}")
    columns = Columns(cells, column_first=True, equal=True, padding=(0, _SPACE_BETWEEN_COLUMNS))

    # Class names may look like markup or emoji codes, and are printed as they are.
    console = Console(width=width, markup=False, emoji=False, highlight=False)
    with console.capture() as capture:
        console.print(columns)
    return [line.rstrip() for line in capture.get().splitlines()]


def _shorten(name: str) -> str:
    """Return a class name that is safe to print and not wider than a column should be."""
    return printable_line(name, _LONGEST_NAME)


def _count_cells(text: str) -> int:
    """Return the number of terminal columns of a text; some characters take two."""
    from rich.cells import cell_len

    return cell_len(text)
