"""What commands show and write: spinners, progress bars, safe terminal text and output files."""

from __future__ import annotations

import io
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TextIO

from teeter.errors import FileError

__all__ = [
    "atomic_text_file",
    "pluralize",
    "print_table",
    "printable",
    "progress",
    "require_writable",
    "spinner",
]

# Rich estimates the remaining time from the steps of the last 30 seconds by default, so it could
# not estimate any if a step takes longer.
_SPEED_ESTIMATE_SECONDS = 86_400.0

# Without a terminal, Rich would wrap tables at 80 columns.
_WIDTH_WITHOUT_TERMINAL = 140


def pluralize(count: int, noun: str) -> str:
    """Return a number with a noun in the singular or the plural.

    Example:
        >>> pluralize(1, "item"), pluralize(2500, "item")
        ('1 item', '2,500 items')
    """
    ending = "" if count == 1 else "s"
    return f"{count:,} {noun}{ending}"


def require_writable(path: Path, *sources: Path) -> None:
    """Check, before any work is done, that a file can be written to ``path``.

    Raises:
        FileError: If the path is no plain file, its folder is missing, or it is one of ``sources``.
    """
    if path.exists() and not path.is_file():
        raise FileError(f"Cannot write {path}: it is not a plain file.")
    if not path.parent.is_dir():
        raise FileError(f"Cannot write {path}: there is no folder {path.parent}.")

    if not path.exists():
        return
    for source in sources:
        # Not by name: a link, or another way to write the path, leads to the same file.
        if source.exists() and path.samefile(source):
            raise FileError(f"Cannot write {path}: it is an input file. Name another file.")


@contextmanager
def atomic_text_file(path: Path) -> Iterator[TextIO]:
    """Open a text file that replaces ``path`` only once all of it is written.

    Raises:
        FileError: If it cannot be written.
    """
    from teeter.files import atomic_open

    try:
        # Resolved, so that a link stays a link and the file it points to is replaced.
        with atomic_open(path.resolve()) as file:
            stream = io.TextIOWrapper(file, encoding="utf-8", newline="")
            try:
                yield stream
            finally:
                stream.detach()  # Flushes the text and leaves the file open.
    except OSError as error:
        raise FileError(f"Cannot write {path}: {error.strerror or error}.") from None


def printable(text: str) -> str:
    """Replace control characters, which could change the state of a terminal."""
    kept_controls = {"\n", "\t"}
    replacements = {}
    for character in set(text) - kept_controls:
        if unicodedata.category(character) == "Cc":
            replacements[ord(character)] = "\N{REPLACEMENT CHARACTER}"

    return text.translate(replacements)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table as wide as the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(*header, box=SIMPLE_HEAD)
    for row in rows:
        table.add_row(*row)

    # No markup: names and paths may have square brackets.
    width = None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL
    console = Console(markup=False, highlight=False, width=width)
    console.print(table)


def spinner(description: str) -> AbstractContextManager[Any]:
    """Show a spinner for the length of the block, if stderr is a terminal."""
    if not sys.stderr.isatty():
        return nullcontext()

    from rich.console import Console

    return Console(stderr=True).status(description)


@contextmanager
def progress(description: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar for the length of the block, if stderr is a terminal.

    Yields:
        A function to call with the number of steps done and the number of steps in all.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
        speed_estimate_period=_SPEED_ESTIMATE_SECONDS,
    )
    with bar:
        task = bar.add_task(description, total=None)

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield update
