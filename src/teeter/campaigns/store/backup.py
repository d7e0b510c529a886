"""Back up and restore a campaign's SQLite file, and write such files atomically.

A database cannot be written through ``teeter.base.files.atomic_open``: SQLite opens files by their
name and keeps a log beside them. ``atomic_file`` gives it a temporary name instead.

``back_up_and_rotate`` is for a scheduled job: a new file each time, checked, and only the newest
are kept.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import quote

from filelock import FileLock, Timeout

from teeter.campaigns.store.database import is_sqlite_busy
from teeter.campaigns.store.migrations import require_own_schema
from teeter.errors import FileError, InputError, StoreError

if TYPE_CHECKING:
    from teeter.campaigns.campaign import Campaign


_LOG_SUFFIXES = ("-journal", "-wal", "-shm")
"""What SQLite appends to the name of a database for the files beside it."""

_LOCK_SUFFIX = "-lock"
"""What is appended to a temporary name for the lock that its process holds."""

_BUSY_SECONDS = 1
"""Seconds to wait for other processes before a campaign counts as being in use."""

_TIME_FORMAT = "%Y%m%dT%H%M%SZ"

_TIME_PATTERN = r"\d{8}T\d{6}Z"
"""What ``_TIME_FORMAT`` writes. Names of one campaign sort by time."""


def back_up(source: Path, target: Path) -> None:
    """Copy a campaign's file as it is now, while other processes may write to it.

    Raises:
        FileError: If the target exists or cannot be written.
    """
    if target.exists():
        raise FileError(f"{target} already exists: choose another file.")

    with atomic_file(target) as part:
        _copy_database(source, part, "mode=rw")


def restore(backup: Path, target: Path, *, overwrite: bool = False) -> None:
    """Replace a campaign's file by a backup, if the backup is intact.

    Args:
        backup: The file to restore.
        target: The campaign's file.
        overwrite: Whether an existing campaign may be replaced.

    Raises:
        FileError: If a file is missing, in the way or in use, or cannot be written.
        StoreError: If the backup is damaged, or its schema is not one of teeter's.
    """
    _require_backup(backup, target)

    # The file behind a link is replaced, not the link.
    target = target.resolve()
    if target.exists() and not overwrite:
        raise FileError(f"{target} already exists: choose another file, or allow overwriting it.")

    with atomic_file(target) as part:
        _copy_backup(backup, part)
        if target.exists():
            # SQLite would replay the old log over the restored file and ruin it.
            try:
                with closing(sqlite3.connect(target, timeout=_BUSY_SECONDS)) as connection:
                    connection.execute("PRAGMA journal_mode=DELETE").fetchone()
            except sqlite3.DatabaseError as error:
                if is_sqlite_busy(error):
                    raise FileError(
                        f"{target} is in use: stop the process that has it open, then restore."
                    ) from None

            # The log of a damaged database cannot be moved into it, and is worthless.
            for suffix in ("-wal", "-shm"):
                _append_to_name(target, suffix).unlink(missing_ok=True)


@contextmanager
def copy_intact_backup(backup: Path) -> Iterator[Path]:
    """Yield a temporary copy of a backup that is intact. The backup itself is never written to.

    Raises:
        FileError: If it is missing or empty, or there is no space for the copy.
        StoreError: If it is damaged, or its schema is not one of teeter's.
    """
    with TemporaryDirectory(prefix="teeter-backup-") as folder:
        copy = Path(folder) / backup.name
        _require_backup(backup, copy)
        try:
            _copy_backup(backup, copy)
        except sqlite3.OperationalError as error:
            raise FileError(f"Cannot read {backup}: {error}.") from None
        yield copy


def _require_backup(backup: Path, target: Path) -> None:
    if not backup.exists():
        raise FileError(f"There is no file {backup}.")
    if not backup.is_file():
        raise FileError(f"{backup} is not a plain file.")
    if backup.stat().st_size == 0:
        raise FileError(f"{backup} is empty, so it is not a backup of a campaign.")

    if target.is_dir():
        raise FileError(f"{target} is a folder: give the path of a campaign file.")
    if target.exists() and backup.samefile(target):
        raise FileError(f"{backup} cannot be restored to itself: choose another file.")


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Yield a temporary path for a database, which is renamed to ``target`` after the block.

    The database is on disk under its name when this returns. If the block raises, the temporary
    file and its logs are removed, and an existing target stays as it was. If the process is
    killed, the next call for any file in the same folder removes what it left behind: a free lock
    shows that the file was abandoned.

    Args:
        target: The path of the database.

    Raises:
        FileError: If the file cannot be written.
        StoreError: As raised in the block, but with the final name in its message.
    """
    # FileLock would create a missing folder.
    if not target.parent.is_dir():
        raise FileError(f"Cannot write {target}: there is no folder {target.parent}.")

    # Machines that share a folder may have the same process ids, hence the random part.
    unique = f"{os.getpid()}-{secrets.token_hex(4)}"
    part = target.with_name(f".{target.name}.{unique}.part")
    lock = FileLock(_append_to_name(part, _LOCK_SUFFIX))

    try:
        # Temporary databases whose process was killed.
        for lock_path in target.parent.glob(f".*.part{_LOCK_SUFFIX}"):
            abandoned = lock_path.with_name(lock_path.name.removesuffix(_LOCK_SUFFIX))
            # Files of another user cannot be locked or removed. They are not ours to clean up.
            with suppress(Timeout, OSError), FileLock(lock_path, timeout=0):
                _remove_part(abandoned)
        # The lock comes before the file, so a file without a held lock is always abandoned.
        with lock:
            try:
                yield part
                _sync(part)
                part.replace(target)
                _sync(target.parent)
            finally:
                _remove_part(part)

    except StoreError as error:
        sentence = str(error).replace(part.name, target.name)
        raise StoreError(sentence) from error
    except OSError as error:
        raise FileError(f"Cannot write {target}: {error.strerror or error}.") from None
    except sqlite3.Error as error:
        raise FileError(f"Cannot write {target}: {error}.") from None


def _remove_part(part: Path) -> None:
    """Remove a temporary database and everything beside it. The caller holds its lock."""
    # The lock goes last: without it the other files would never be recognised as abandoned.
    for suffix in ("", *_LOG_SUFFIXES, _LOCK_SUFFIX):
        _append_to_name(part, suffix).unlink(missing_ok=True)


def _append_to_name(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _copy_database(source: Path, target: Path, mode: str) -> None:
    """Copy a database with SQLite's backup function, which sees one consistent state."""
    path = quote(str(source.absolute()))
    url = f"file:{path}?{mode}"
    with (
        closing(sqlite3.connect(url, uri=True)) as source_connection,
        closing(sqlite3.connect(target)) as target_connection,
    ):
        source_connection.backup(target_connection)


def _copy_backup(backup: Path, part: Path) -> None:
    """Copy a backup to a temporary file, and raise StoreError if it is damaged."""
    # Without a log beside it, a backup may be in a folder that cannot be written.
    has_log = _append_to_name(backup, "-wal").exists()
    try:
        _copy_database(backup, part, "mode=ro" if has_log else "immutable=1")
        damage = _find_damage(part, backup)
    except sqlite3.OperationalError:
        raise  # No space left, or no such folder: not the fault of the backup.
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{backup} is damaged or is not a backup of a campaign.") from error

    if damage is not None:
        raise StoreError(f"{backup} is damaged or is not a backup of a campaign: {damage}.")


def _find_damage(path: Path, backup: Path) -> str | None:
    """Return what is wrong with a campaign's file, or None if it is intact.

    Args:
        path: A temporary copy of the backup.
        backup: The backup, for messages.

    Raises:
        StoreError: If its schema is too old, too new, or has something that teeter did not make.
    """
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA trusted_schema=OFF")
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if not {"campaigns", "migrations"} <= tables:
            return "it has none of a campaign's tables"
        # First, because the checks below evaluate expressions of the schema.
        require_own_schema(connection.execute, str(backup))

        problems = [line for (line,) in connection.execute("PRAGMA integrity_check(3)")]
        if problems != ["ok"]:
            return str(problems[0]).splitlines()[-1]

        dangling = connection.execute("PRAGMA foreign_key_check").fetchone()
        if dangling is not None:
            table, _, parent, _ = dangling
            return f"a row of {table} refers to a missing row of {parent}"
    return None


def _sync(path: Path) -> None:
    """Wait until a file or folder is on disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open folders.

    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def back_up_and_rotate(
    campaign: Campaign, folder: Path, keep: int, now: datetime
) -> tuple[Path, list[Path]]:
    """Back up a campaign into a folder, check the copy, and remove the oldest backups.

    Nothing is removed unless the new copy is intact, so a job that fails every night leaves the
    last good backups alone. Other files in the folder, and backups of other campaigns, stay.

    Args:
        campaign: The campaign, in a file or on a server. Others may write to it meanwhile.
        folder: Where the backups are.
        keep: How many to keep, the new one included.
        now: The time in the name of the new backup, in UTC.

    Returns:
        The new backup, and the old ones that were removed, the oldest first.

    Raises:
        InputError: If ``keep`` is less than 1.
        FileError: If the folder does not exist, or the backup cannot be written.
        StoreError: If the copy is damaged.
    """
    if keep < 1:
        raise InputError(f"Cannot keep {keep} backups: keep 1 or more.")
    if not folder.is_dir():
        raise FileError(f"There is no folder {folder}: create it first.")

    # A campaign may be called anything, and a file may not.
    stem = re.sub(r"[^\w.-]+", "_", campaign.name).strip("._") or "campaign"
    time = now.strftime(_TIME_FORMAT)
    path = folder / f"{stem}-{time}.teeter"

    campaign.back_up(path)
    try:
        with copy_intact_backup(path):
            pass
    except StoreError:
        # A damaged copy must not count as one of the backups to keep.
        path.unlink()
        raise

    pattern = re.compile(rf"{re.escape(stem)}-{_TIME_PATTERN}\.teeter")
    backups = [file for file in folder.iterdir() if pattern.fullmatch(file.name)]
    # By the time in the name: the time of a file may change when it is copied.
    backups.sort()
    removed = backups[:-keep]
    for old in removed:
        old.unlink()
    return path, removed
