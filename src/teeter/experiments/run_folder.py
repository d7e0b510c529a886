"""A run's folder as it is written: a line that returned is on disk, and only one process writes."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from teeter.errors import FileError, InputError
from teeter.experiments.results import (
    CELLS,
    FACTS,
    FAILURES,
    FORMAT,
    Cell,
    Round,
    complete_lines,
    read_facts,
    read_failures,
    read_rounds,
    round_to_json,
)
from teeter.files import atomic_write, merge_arrays, read_state, split_arrays, write_state

__all__ = ["RunFolder", "run_lock"]


class RunFolder:
    """The rounds of a run, appended as they are done, with what strategies remember from round to round."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tell: Callable[[Round], None] = lambda one: None
        """Is told of a round when it is on disk."""

    def facts(self) -> dict[str, Any] | None:
        """Return what the run says about itself, or None where there is none yet."""
        return read_facts(self.folder)

    def write_facts(self, facts: dict[str, Any]) -> None:
        """Write what the run is, whole or not at all."""
        with _saying(self.folder / FACTS):
            atomic_write(
                self.folder / FACTS,
                (json.dumps({"format": FORMAT, **facts}, indent=1) + "\n").encode(),
            )
            _sync(self.folder)

    def rounds(self, cell: Cell) -> list[Round]:
        """Return the finished rounds of a cell, and cut off what a crash left of a line."""
        path = self._path(cell)
        rounds = read_rounds(path)
        with _saying(path):
            size = sum(map(len, complete_lines(path)))
            if path.exists() and path.stat().st_size > size:
                os.truncate(path, size)
        return rounds

    def append(self, one: Round, memory: dict[str, Any]) -> None:
        """Record a round and what its strategy remembers; it is on disk when this returns."""
        cell = one.strategy, one.repetition
        if memory:
            header, tensors = split_arrays(memory, "")
            write_state(self._memory(cell, one.number), {"memory": header}, tensors)
            with _saying(self.folder / CELLS):
                _sync(self.folder / CELLS)  # a line never outlives the memory that goes with it
        _append(self._path(cell), round_to_json(one))
        with contextlib.suppress(OSError):
            self._memory(cell, one.number - 1).unlink(missing_ok=True)
        self.tell(one)

    def memory(self, cell: Cell, number: int) -> dict[str, Any]:
        """Return what a cell's strategy remembered after a round."""
        path = self._memory(cell, number)
        if not path.exists():
            return {}
        header, tensors = read_state(path)
        return merge_arrays(header["memory"], tensors, "")

    def fail(self, cell: Cell, number: int, group: int, error: str, trace: str) -> None:
        """Record why a cell of a group could not go on at a round."""
        told = {"strategy": cell[0], "repetition": cell[1], "round": number, "group": group}
        _append(self.folder / FAILURES, json.dumps({**told, "error": error, "trace": trace}) + "\n")

    def failed_in(self, group: int, cells: Collection[Cell]) -> dict[Cell, int]:
        """Return the rounds at which cells of a group failed in it."""
        found = [
            one for one in read_failures(self.folder) if one.group == group and one.cell in cells
        ]
        return {one.cell: one.round for one in found}

    def _path(self, cell: Cell) -> Path:
        return self.folder / CELLS / f"{_file_name(cell)}.jsonl"

    def _memory(self, cell: Cell, number: int) -> Path:
        return self.folder / CELLS / f"{_file_name(cell)}-memory-{number}.safetensors"


def _file_name(cell: Cell) -> str:
    return f"{quote(cell[0], safe='')}-{cell[1]}"


def _append(path: Path, line: str) -> None:
    with _saying(path):
        new = not path.exists()
        with path.open("ab") as file:
            start = file.tell()
            try:
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
            except OSError:  # a full disk: no half line stays
                with contextlib.suppress(OSError):
                    os.truncate(path, start)
                raise
        if new:
            _sync(path.parent)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _saying(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileError(
            f"Cannot write {path}: {error.strerror or error}. What was recorded before is safe; run it again to go on."
        ) from None


@contextmanager
def run_lock(folder: Path, *, waiting: bool = False) -> Iterator[None]:
    """Make the folder and hold it; a second process is refused, or waits until the first is gone."""
    try:
        (folder / CELLS).mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise FileError(
            f"Cannot record a run in {folder}: {error.strerror or error}. Make it writable, or choose another folder."
        ) from None
    with lock:
        _hold(lock.fileno(), folder, waiting=waiting)
        yield


def _hold(handle: int, folder: Path, *, waiting: bool) -> None:
    try:
        import fcntl
    except ImportError:  # not on Windows, where a second writer is the user's to avoid
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if waiting else fcntl.LOCK_NB))
    except OSError:
        raise InputError(
            f"Another process is running {folder}: wait for it, or choose another folder."
        ) from None
