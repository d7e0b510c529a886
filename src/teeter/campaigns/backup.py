"""Copies of a campaign's SQLite file: made while others write, and put back only if they are whole."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from teeter.campaigns.db.error_messages import is_sqlite_busy
from teeter.campaigns.db.migrations import require_known_versions
from teeter.errors import FileError, StoreError

__all__ = ["atomic_file", "back_up", "restore"]


def back_up(source: Path, target: Path) -> None:
    """Write a copy of a campaign's file as it is now, while others may go on writing."""
    if target.exists():
        raise FileError(f"{target} exists already: name another file.")
    with atomic_file(target) as part:
        _copy(source, part, "mode=rw")


def restore(backup: Path, target: Path, *, overwrite: bool = False) -> None:
    """Put a backup in a campaign's place, if it is whole; a campaign that is there is lost only with ``overwrite``."""
    _require_backup(backup, target)
    target = target.resolve()  # a link stays one
    if target.exists() and not overwrite:
        raise FileError(
            f"{target} exists already: name another file, or say that it may be overwritten."
        )
    with atomic_file(target) as part:
        try:
            # With no log beside it, a backup is read as it is: it may lie where nothing can be written.
            logged = backup.with_name(f"{backup.name}-wal").exists()
            _copy(backup, part, "mode=ro" if logged else "immutable=1")
            _require_whole(part)
        except sqlite3.OperationalError:
            raise  # no room, or no such place
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"{backup} is damaged, or not a backup of a campaign: {error}."
            ) from None
        if target.exists():
            _leave_nothing_beside(target)


def _require_backup(backup: Path, target: Path) -> None:
    if not backup.is_file():
        raise FileError(
            f"There is no file {backup}."
            if not backup.exists()
            else f"{backup} is not a plain file."
        )
    if backup.stat().st_size == 0:
        raise FileError(f"{backup} is empty: it is not a backup of a campaign.")
    if target.is_dir():
        raise FileError(f"{target} is a folder: name the campaign's file.")
    if target.exists() and backup.samefile(target):
        raise FileError(f"{backup} cannot be restored to itself: name another file.")


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Yield a temporary name; what is written there takes the target's place, on disk, if nothing went wrong."""
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        try:
            yield part
            _sync(part)
            part.replace(target)
            _sync(target.parent)
        finally:
            for ending in ("", "-journal", "-wal", "-shm"):
                part.with_name(part.name + ending).unlink(missing_ok=True)
    except StoreError as error:
        raise StoreError(str(error).replace(part.name, target.name)) from error
    except OSError as error:
        raise FileError(f"Cannot write {target}: {error.strerror or error}.") from None
    except sqlite3.Error as error:
        raise FileError(f"Cannot write {target}: {error}.") from None


def _copy(source: Path, target: Path, how: str) -> None:
    with (
        closing(sqlite3.connect(f"file:{quote(str(source.absolute()))}?{how}", uri=True)) as one,
        closing(sqlite3.connect(target)) as other,
    ):
        one.backup(other)


def _require_whole(path: Path) -> None:
    """Refuse a file that SQLite finds fault with, that has no campaign's tables, or that is of a newer version."""
    with closing(sqlite3.connect(path)) as connection:
        found = [line for (line,) in connection.execute("PRAGMA integrity_check(3)")]
        if found != ["ok"]:
            raise sqlite3.DatabaseError(str(found[0]).splitlines()[-1])
        loose = connection.execute("PRAGMA foreign_key_check").fetchone()
        if loose is not None:
            raise sqlite3.DatabaseError(f"a row of {loose[0]} belongs to none of {loose[2]}")
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if not {"campaigns", "migrations"} <= tables:
            raise sqlite3.DatabaseError("it has none of its tables")
        versions = connection.execute("SELECT version FROM migrations")
        require_known_versions(version for (version,) in versions)


def _leave_nothing_beside(target: Path) -> None:
    """Fold a file's log into it: replayed over another file it would ruin that. Refused while somebody has it open."""
    try:
        with closing(sqlite3.connect(target, timeout=1)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE").fetchone()
    except sqlite3.DatabaseError as error:
        if is_sqlite_busy(error):
            raise FileError(
                f"{target} is in use: stop whatever has it open, then restore."
            ) from None
    # A damaged file keeps its log.
    for ending in ("-wal", "-shm"):
        target.with_name(target.name + ending).unlink(missing_ok=True)


def _sync(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return  # Windows opens no folders
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
