"""A campaign's database: SQLite in one file by default, or any database by its URL. What was written is on disk."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, inspect
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from teeter.campaigns import backup
from teeter.campaigns.clock import utc, written
from teeter.campaigns.db import schema
from teeter.campaigns.db.migrations import is_campaign_database, is_up_to_date, migrate
from teeter.errors import FileError, InputError, MissingExtraError, StoreError

__all__ = ["Database", "now"]

_WAIT = 30
"""Seconds to wait for another process that is writing."""

_PAUSE = 0.005
"""Seconds at most between two looks whether SQLite's file is free to be written."""

_LOCK = 0x7EE7E4
"""The advisory lock of PostgreSQL that whoever writes holds."""


def now() -> str:
    """Return the time, as it is written down."""
    return written(utc())


class Database:
    """A database, open: ``reading()`` and ``writing()`` give a connection inside one transaction."""

    def __init__(self, where: str | Path, *, create: bool = False) -> None:
        """Open a database and bring it up to date; ``create`` makes it where there is none."""
        self.url = _url(where)
        self.path = Path(self.url.database) if _is_sqlite(self.url) and self.url.database else None
        if self.path is not None:
            _require_place(self.path, create)
        self.wait = _WAIT
        """Seconds to wait for another process that is writing."""
        self.engine = _engine(self.url)
        self.upgraded: list[str] = []
        try:
            self._bring_up(create)
        except BaseException:
            self.close()
            raise
        self._file = _file_at(self.path)

    def _bring_up(self, create: bool) -> None:
        with self.reading() as connection:
            ready = is_up_to_date(connection)
            if self.path is None and not is_campaign_database(connection):
                self._require_empty(connection, create)
        if not ready:
            with self.writing() as connection:
                self.upgraded = migrate(connection, now())

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection that sees one state of the database throughout."""
        with self._saying(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield a connection that alone may write; all of it is on disk afterwards, or nothing if an error left it."""
        engine = self.engine.execution_options(teeter_writes=self.wait)
        with self._saying(), engine.connect() as connection, connection.begin():
            yield connection

    def _require_empty(self, connection: Connection, create: bool) -> None:
        """Refuse a database on a server that is not a campaign's, and is not to become one."""
        if not create:
            raise StoreError(
                f"There is no campaign in {self.said}: make one with teeter campaign new."
            )
        if set(inspect(connection).get_table_names()) & set(schema.metadata.tables):
            raise StoreError(
                f"{self.said} has tables of another program with our names: use a database of its own."
            )

    @property
    def said(self) -> str:
        """Where it is, as people may read it: without a password."""
        if self.path is not None:
            return str(self.path)
        return self.url.set(drivername=self.url.get_backend_name()).render_as_string(
            hide_password=True
        )

    def is_in_place(self) -> bool:
        """Return whether what lies at its path is still the file that was opened; a server's database always is."""
        return self._file == _file_at(self.path)

    def back_up(self, path: Path) -> None:
        """Write a copy of an SQLite database as it is now, while others may go on writing."""
        if self.path is None:
            raise StoreError(
                "Only SQLite files are backed up by teeter: use your database's own tools."
            )
        backup.back_up(self.path, path)

    def close(self) -> None:
        """Let go of the database."""
        self.engine.dispose()

    @contextmanager
    def _saying(self) -> Iterator[None]:
        """Turn what a database says of its troubles into one sentence."""
        try:
            yield
        except DBAPIError as error:
            raise StoreError(_sentence(str(error.orig), self.said, self.wait)) from error
        except PoolTimeoutError as error:
            raise StoreError(f"{self.said} is busy: no connection was free. Try again.") from error
        except UnicodeEncodeError as error:
            raise InputError(
                f"{error.object!r} has half a character (a lone surrogate): mend it."
            ) from None
        except (
            json.JSONDecodeError,
            UnicodeDecodeError,
        ) as error:  # of what was read: nothing else is parsed inside
            raise StoreError(_sentence("malformed", self.said, self.wait)) from error


def _url(where: str | Path) -> URL:
    if isinstance(where, str) and "://" in where:
        try:
            url = make_url(where)
        except ArgumentError:
            raise StoreError(
                "This is not an address of a database: give a file, or postgresql://…."
            ) from None
        plain = url.drivername in ("postgres", "postgresql")
        return url.set(drivername="postgresql+psycopg") if plain else url
    return URL.create("sqlite", database=str(Path(where).absolute()))


def _is_sqlite(url: URL) -> bool:
    return url.get_backend_name() == "sqlite"


def _file_at(path: Path | None) -> tuple[int, int] | None:
    """Return which file lies at a path, whatever it is called; None if there is none."""
    try:
        found = None if path is None else path.stat()
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)


def _require_place(path: Path, create: bool) -> None:
    if path.is_dir():
        raise FileError(f"{path} is a folder: name the campaign's file.")
    if create and not path.parent.is_dir():
        raise FileError(f"Cannot make {path}: there is no folder {path.parent}.")
    if not create and not path.exists():
        raise FileError(f"There is no campaign {path}: make one with teeter campaign new.")
    if not create and path.stat().st_size == 0:
        raise FileError(
            f"{path} is empty: it is not a campaign. Restore a backup, or make a new one."
        )
    if path.exists():
        _require_own(path)
    elif create:
        with suppress(OSError):  # why it cannot be made is told when it is opened
            path.touch()


def _require_own(path: Path) -> None:
    """Refuse, without touching it, a database that another program made."""
    try:
        with closing(
            sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=_WAIT)
        ) as connection:
            schema = {
                name
                for (name,) in connection.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table'"
                )
            }
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return  # what is wrong is told when it is opened
    if schema and "migrations" not in schema:
        raise StoreError(f"{path} is a database of another program: name a campaign's file.")


def _engine(url: URL) -> Engine:
    if url.get_backend_name() not in ("sqlite", "postgresql"):
        raise StoreError(
            f"teeter keeps campaigns in SQLite and PostgreSQL, not in {url.get_backend_name()}."
        )
    on_server: dict[str, Any] = {
        "pool_pre_ping": True,
        "pool_size": 16,
        "max_overflow": 16,
        "pool_recycle": 1800,
    }
    try:
        if _is_sqlite(url):
            engine = create_engine(_existing(url), connect_args={"timeout": _WAIT})
        else:
            engine = create_engine(url, connect_args={"connect_timeout": _WAIT // 3}, **on_server)
    except NoSuchModuleError:
        raise StoreError(
            f"No driver is called {url.drivername!r}: give a file, or postgresql://…."
        ) from None
    except ImportError as error:
        raise MissingExtraError(
            f"This database needs {error.name}: pip install 'teeter[postgres]'."
        ) from None
    if _is_sqlite(url):
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    else:
        event.listen(engine, "begin", _begin_postgres)
    return engine


def _existing(url: URL) -> URL:
    """Return an address at which SQLite opens a file, and never makes an empty one where it was moved away."""
    if url.database in (None, "", ":memory:") or url.query:
        return url
    return url.set(database=f"file:{quote(str(url.database))}", query={"mode": "rw", "uri": "true"})


def _set_up_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # transactions are begun below, not guessed by the driver
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    wait = connection.get_execution_options().get("teeter_writes")
    if wait is None:
        connection.exec_driver_sql("BEGIN")
        return
    file: Any = connection.connection.dbapi_connection
    file.execute("PRAGMA busy_timeout = 0")
    try:
        if not _got_turn(file, wait):
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # fails, and says why
    finally:
        file.execute(f"PRAGMA busy_timeout = {1000 * _WAIT}")


def _got_turn(file: Any, wait: float) -> bool:
    """Wait for a turn to write by asking often: SQLite's own pauses grow, and among many somebody waits for seconds."""
    until = time.monotonic() + wait
    while time.monotonic() < until:
        try:
            file.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                return False
            time.sleep(random.uniform(0, _PAUSE))
        else:
            return True
    return False


def _begin_postgres(connection: Connection) -> None:
    """Let one process write at a time, and readers see one state throughout; a commit waits for the disk."""
    wait = connection.get_execution_options().get("teeter_writes")
    if wait is not None:
        settings = f"SET LOCAL lock_timeout = '{wait}s'; SET LOCAL synchronous_commit = on"
        connection.exec_driver_sql(f"{settings}; SELECT pg_advisory_xact_lock({_LOCK})")
    else:
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")


def _sentence(said: str, where: object, wait: float) -> str:
    lower = said.lower()
    if "disk is full" in lower or "disk i/o error" in lower:
        return f"The disk of {where} is full, or cannot be written. Nothing was lost; make room and try again."
    if any(sign in lower for sign in _DAMAGED):
        return f"{where} is damaged, or not a campaign. Use a backup of it."
    if "locked" in lower or "lock timeout" in lower:
        return f"{where} has been busy for {wait} s: another process is writing. Try again."
    if "readonly" in lower or "unable to open" in lower:
        return f"{where} cannot be written: check its permissions."
    if "connection failed" in lower and any(sign in lower for sign in _REFUSED):
        why = said.rpartition("FATAL:")[2].strip().splitlines()[0].rstrip(".")
        return f"The database {where} refuses: {why}. Check its name, the user and the password."
    if any(sign in lower for sign in _AWAY):
        return f"The database {where} does not answer. What was acknowledged is safe; try again when it is back."
    if "could not extend file" in lower or "no space left" in lower:
        return f"The disk of {where} is full. Nothing was lost; make room and try again."
    return f"The database {where} answers: {said.strip().rstrip('.')}."


_DAMAGED = ("not a database", "malformed", "could not decode", "no such table", "no such column")
"""Words of a database that is not as it was written."""

_REFUSED = ("authentication failed", "no password supplied", "pg_hba.conf", "does not exist")
"""Words of a server that is there, and does not let us in."""

_AWAY = (
    "connection refused",
    "connection failed",
    "server closed the connection",
    "terminating connection",
    "shutting down",
    "starting up",
    "in recovery mode",
    "could not connect",
    "could not translate host name",
    "failed to resolve",
    "connection is lost",
    "connection timeout expired",
)
"""Words of a server that is not there, at least for now."""
