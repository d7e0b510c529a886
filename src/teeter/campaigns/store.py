"""A campaign's database: SQLite in one file by default, or any database by its URL. What was written is on disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from teeter.campaigns import copies
from teeter.campaigns.migrations import bring_up, is_up_to_date
from teeter.errors import FileError, MissingExtraError, StoreError

__all__ = ["Store", "now"]

_WAIT = 30
"""Seconds to wait for another process that is writing."""


def now() -> str:
    """Return the time, as it is written down."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Store:
    """A database, open: ``reading()`` and ``writing()`` give a connection inside one transaction."""

    def __init__(self, where: str | Path, *, create: bool = False) -> None:
        """Open a database and bring it up to date; ``create`` makes it where there is none."""
        self.url = _url(where)
        self.path = Path(self.url.database) if _is_sqlite(self.url) and self.url.database else None
        if self.path is not None:
            _require_place(self.path, create)
        self.engine = _engine(self.url)
        with self.reading() as connection:
            ready = is_up_to_date(connection)
        self.upgraded: list[str] = []
        if not ready:
            with self.writing() as connection:
                self.upgraded = bring_up(connection, now())

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection that sees one state of the database throughout."""
        with self._saying(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield a connection that alone may write; all of it is on disk afterwards, or nothing if an error left it."""
        engine = self.engine.execution_options(teeter_writes=True)
        with self._saying(), engine.connect() as connection, connection.begin():
            yield connection

    def back_up(self, path: Path) -> None:
        """Write a copy of an SQLite database as it is now, while others may go on writing."""
        if self.path is None:
            raise StoreError("Only SQLite files are backed up by teeter: use your database's own tools.")
        copies.back_up(self.path, path)

    def close(self) -> None:
        """Let go of the database."""
        self.engine.dispose()

    @contextmanager
    def _saying(self) -> Iterator[None]:
        """Turn what a database says of its troubles into one sentence."""
        try:
            yield
        except DBAPIError as error:
            raise StoreError(_sentence(str(error.orig), self.path or self.url.render_as_string())) from error


def _url(where: str | Path) -> URL:
    if isinstance(where, str) and "://" in where:
        try:
            return make_url(where)
        except ArgumentError:
            raise StoreError(f"{where!r} is not an address of a database: give a file, or postgresql://….") from None
    return URL.create("sqlite", database=str(Path(where).absolute()))


def _is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def _require_place(path: Path, create: bool) -> None:
    if path.is_dir():
        raise FileError(f"{path} is a folder: name the campaign's file.")
    if create and not path.parent.is_dir():
        raise FileError(f"Cannot make {path}: there is no folder {path.parent}.")
    if not create and not path.exists():
        raise FileError(f"There is no campaign {path}: make one with teeter campaign new.")
    if not create and path.stat().st_size == 0:
        raise FileError(f"{path} is empty: it is not a campaign. Restore a backup, or make a new one.")
    if path.exists():
        _require_own(path)


def _require_own(path: Path) -> None:
    """Refuse, without touching it, a database that another program made."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_WAIT)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.DatabaseError:
        return  # what is wrong is told when it is opened
    if tables and "migrations" not in tables:
        raise StoreError(f"{path} is a database of another program: name a campaign's file.")


def _engine(url: URL) -> Engine:
    try:
        engine = create_engine(url, connect_args={"timeout": _WAIT} if _is_sqlite(url) else {})
    except NoSuchModuleError:
        raise StoreError(f"teeter knows no database called {url.get_backend_name()!r}.") from None
    except ImportError as error:
        raise MissingExtraError(f"This database needs {error.name}: pip install 'teeter[postgres]'.") from None
    if _is_sqlite(url):
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # transactions are begun below, not guessed by the driver
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("teeter_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _sentence(said: str, where: object) -> str:
    lower = said.lower()
    if "disk is full" in lower or "disk i/o error" in lower:
        return f"The disk of {where} is full, or cannot be written. Nothing was lost; make room and try again."
    if "not a database" in lower or "malformed" in lower:
        return f"{where} is damaged, or not a campaign. Use a backup of it."
    if "locked" in lower:
        return f"{where} has been busy for {_WAIT} s: another process is writing. Try again."
    if "readonly" in lower or "unable to open" in lower:
        return f"{where} cannot be written: check its permissions."
    return f"The database {where} answers: {said}."
