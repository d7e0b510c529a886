"""Where commands write: whole files, and a spinner for those who watch."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TextIO

from teeter.errors import FileError

__all__ = ["counted", "printable", "progress", "require_writable", "spinner", "whole_file"]


_DAY = 86_400.0
"""Seconds that the time left is told from; of Rich's own 30 nothing could be told where a step takes longer."""


def counted(count: int, thing: str) -> str:
    """Return how many things there are, in words."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def require_writable(path: Path, *sources: Path) -> None:
    """Refuse, before any work, a path that cannot be written or that is one of the ``sources``."""
    if path.exists() and not path.is_file():
        raise FileError(f"Cannot write {path}: it is not a plain file.")
    if not path.parent.is_dir():
        raise FileError(f"Cannot write {path}: there is no folder {path.parent}.")
    for source in sources:
        if path.exists() and source.exists() and path.samefile(source):
            raise FileError(f"Cannot write {path}: it is read from. Name another file.")


@contextmanager
def whole_file(path: Path) -> Iterator[TextIO]:
    """Open a file that appears under its name only when all of it is written."""
    target = path.resolve()
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        try:
            with part.open("w", encoding="utf-8", newline="") as stream:
                yield stream
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise FileError(f"Cannot write {path}: {error.strerror or error}.") from None


def printable(text: str) -> str:
    """Return a text that a terminal shows as it is: signs that would steer it are shown as a mark."""
    steers = {sign for sign in set(text) - {"\n", "\t"} if unicodedata.category(sign) == "Cc"}
    return text.translate({ord(sign): "\N{REPLACEMENT CHARACTER}" for sign in steers})


def spinner(text: str) -> AbstractContextManager[Any]:
    """Show that something is going on, if stderr is a terminal."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(text)


@contextmanager
def progress(text: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that is told how much is done of how much; it draws a bar if stderr is a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console, disable = Console(stderr=True), not sys.stderr.isatty()
    with Progress(
        *columns, console=console, disable=disable, transient=True, speed_estimate_period=_DAY
    ) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, whole: bar.update(task, completed=done, total=whole)
