"""A campaign's database: an SQLite file, or PostgreSQL by its URL.

One process writes at a time, and a commit returns when the data is on disk. Readers never wait:
each sees one state of the database throughout its transaction.

``FILE#NAME`` and ``URL#NAME`` name one of several campaigns in a database; see ``split_location``.

Errors of databases become sentences. They are recognised by their codes: PostgreSQL's SQLSTATE,
SQLite's result codes. Their texts depend on the version and on the language of the server.
"""

from __future__ import annotations

import json
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event, inspect
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, NoSuchModuleError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from teeter.campaigns.store import schema
from teeter.campaigns.store.migrations import (
    is_campaign_database,
    is_up_to_date,
    migrate,
    require_own_schema,
)
from teeter.errors import FileError, InputError, MissingExtraError, StoreError

Clock = Callable[[], datetime]
"""Returns the current time in UTC. Tests inject another one."""


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def format_time(moment: datetime) -> str:
    """Return a time as databases store it.

    Args:
        moment: a time with a time zone.

    Returns:
        The time in UTC as ISO 8601 with milliseconds. All have the same length and zone, so sorting
        and comparing the texts sorts and compares the times.
    """
    return moment.astimezone(UTC).isoformat(timespec="milliseconds")


_WRITE_TIMEOUT = 30
"""Seconds to wait for another process that is writing."""

_CONNECT_TIMEOUT = 10
"""Seconds to wait for a PostgreSQL server to accept a connection."""

_LONGEST_PAUSE = 0.005
"""Seconds between two attempts to lock an SQLite file, at most."""

_ADVISORY_LOCK = 0x7EE7E4
"""The PostgreSQL advisory lock that the one writer holds."""

_CAMPAIGN_SUFFIX = ".teeter"

_MOST_NAMED_FILES = 5

_SQLITE_HEADER = b"SQLite format 3\0"
"""How every SQLite file begins that is not empty."""

_ITEM_FILES = {
    ".csv": "a CSV file",
    ".tsv": "a TSV file",
    ".txt": "a text file",
    ".jsonl": "a JSON lines file",
    ".ndjson": "a JSON lines file",
    ".parquet": "a Parquet file",
    ".npz": "a file of arrays",
    ".npy": "a file of arrays",
    ".safetensors": "a file of arrays",
}
"""Files of items by their suffix."""

_WRITE_OPTION = "teeter_write_timeout"
"""The execution option that makes a transaction a writing one, with its timeout as the value."""


class Database:
    """An open database. ``reading()`` and ``writing()`` yield a connection inside a transaction.

    Args:
        location: a path, or a URL such as ``postgresql://user@host/name``.
        create: create the database's tables, and the SQLite file, if they do not exist.

    Raises:
        FileError: the SQLite file cannot be opened or created.
        StoreError: the location is not a campaign's database, or it cannot be used.
    """

    def __init__(self, location: str | Path, *, create: bool = False) -> None:
        self.url = _parse_location(location)
        self.path: Path | None = None
        """The SQLite file; None for a server."""
        if self.url.get_backend_name() == "sqlite" and self.url.database:
            self.path = Path(self.url.database)
            _prepare_file(self.path, create=create)

        self.write_timeout: float = _WRITE_TIMEOUT
        """Seconds to wait for another process that is writing."""
        self.engine = _create_engine(self.url)
        self._thread = threading.local()
        self.upgraded: list[str] = []
        """The migrations that were applied when it was opened."""

        try:
            self._migrate(create=create)
        except BaseException:
            # The caller gets no object to close, not even after Ctrl-C.
            self.close()
            raise

        self._file_identity = _file_identity(self.path)

    def _migrate(self, *, create: bool) -> None:
        # Read first: opening a database that is up to date need not wait for other writers.
        with self.reading() as connection:
            if connection.dialect.name == "sqlite":
                require_own_schema(connection.exec_driver_sql, self.display_url)
            up_to_date = is_up_to_date(connection)
            if self.path is None and not is_campaign_database(connection):
                # A server's database that is not teeter's, and cannot become it.
                if not create:
                    raise StoreError(
                        f"There is no campaign in {self.display_url}: create one with teeter "
                        f"campaign new."
                    )

                if set(inspect(connection).get_table_names()) & set(schema.metadata.tables):
                    raise StoreError(
                        f"{self.display_url} has tables of another program with the same names as "
                        f"teeter's tables. Use a separate database for teeter."
                    )

        if not up_to_date:
            with self.writing() as connection:
                self.upgraded = migrate(connection, format_time(utc_now()))

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection that sees one state of the database throughout, and cannot write."""
        with self._transaction(self.engine) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield the only connection that may write.

        Everything is on disk when the context ends. If it ends with an exception, nothing was
        written.
        """
        engine = self.engine.execution_options(**{_WRITE_OPTION: self.write_timeout})
        with self._transaction(engine) as connection:
            yield connection

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Connection]:
        # One inside the other would wait for itself, or see another state of the database.
        if getattr(self._thread, "in_transaction", False):
            raise RuntimeError(f"This thread has a transaction of {self.display_url} open already.")

        self._thread.in_transaction = True
        try:
            with self._translate_errors(), engine.connect() as connection, connection.begin():
                yield connection
        finally:
            self._thread.in_transaction = False

    @property
    def display_url(self) -> str:
        """The path, or the URL without its password, as users may read it."""
        if self.path is not None:
            return str(self.path)

        # People type postgresql://, without the driver that _parse_location adds.
        as_typed = self.url.set(drivername=self.url.get_backend_name())
        return as_typed.render_as_string(hide_password=True)

    def is_in_place(self) -> bool:
        """Return whether the file at the path is still the one that was opened.

        A database on a server is always in place.
        """
        return self._file_identity == _file_identity(self.path)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise a database's errors as ``StoreError`` with a sentence for the user.

        A value that does not fit is an ``InputError``: trying again does not help.
        """
        try:
            yield
        except DataError as error:
            raise InputError(
                f"{self.display_url} cannot store a value: {str(error.orig).strip().rstrip('.')}."
            ) from error
        except DBAPIError as error:
            message = database_error_message(
                error, self.display_url, self.url, timeout=self.write_timeout
            )
            raise StoreError(message) from error
        except PoolTimeoutError as error:
            raise StoreError(
                f"{self.display_url} is busy: all connections are in use. Try again."
            ) from error
        except UnicodeEncodeError as error:
            raise InputError(
                f"{error.object!r} contains a lone surrogate, which cannot be stored as UTF-8. "
                f"Remove that character."
            ) from None
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            # Only what was read from the database is parsed inside a transaction.
            raise StoreError(_Problem.DAMAGED.format(location=self.display_url)) from error


def is_url(location: str | Path) -> bool:
    """Return whether a location is the URL of a database, not a file."""
    # A Path is never a URL: it turns :// into :/.
    return isinstance(location, str) and "://" in location


def split_location(location: str | Path) -> tuple[str | Path, str | None]:
    """Split a location into the file or URL and the campaign's name after ``#``.

    Returns:
        The file or URL, and the name; None if the location has no name.

    Example:
        >>> split_location("reviews.teeter#first")
        ('reviews.teeter', 'first')
        >>> split_location("postgresql://host/reviews")
        ('postgresql://host/reviews', None)
    """
    if not isinstance(location, str):
        return location, None

    place, separator, name = location.rpartition("#")
    if not separator:
        return location, None
    # A file may have the character in its own name.
    if not is_url(place) and Path(location).exists():
        return location, None

    return place, name or None


def _parse_location(location: str | Path) -> URL:
    if isinstance(location, Path) or "://" not in location:
        return URL.create("sqlite", database=str(Path(location).absolute()))

    try:
        url = make_url(location)
    except ArgumentError:
        raise StoreError(
            "This is not a database URL. Give a file, or a URL such as postgresql://host/name."
        ) from None

    # SQLAlchemy would use psycopg2 by default, and does not know the name postgres.
    if url.drivername in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg")

    return url


def _file_identity(path: Path | None) -> tuple[int, int] | None:
    """Return the device and inode of the file at a path, or None if there is no file."""
    if path is None:
        return None

    try:
        status = path.stat()
    except OSError:
        return None

    return status.st_dev, status.st_ino


def _prepare_file(path: Path, *, create: bool) -> None:
    """Refuse a path that cannot be a campaign's file, and create the file of a new campaign."""
    if path.is_dir():
        raise FileError(
            f"{path} is a folder: give a campaign file, or create a campaign from a folder of "
            f"images with teeter campaign new."
        )

    if path.exists():
        if not create and path.stat().st_size == 0:
            raise FileError(
                f"{path} is empty, so it is not a campaign. Restore a backup, or create a new "
                f"campaign."
            )
        _require_database_file(path)
        _require_teeter_file(path)
        return

    if not create:
        raise FileError(_explain_missing_file(path))

    if not path.parent.is_dir():
        raise FileError(f"Cannot create {path}: there is no folder {path.parent}.")

    with suppress(OSError):  # opening the file reports the reason
        path.touch()


def _explain_missing_file(path: Path) -> str:
    """Say that there is no campaign at a path, and where it may be."""
    if not path.parent.is_dir():
        return (
            f"There is no campaign {path}, because there is no folder {path.parent}. If the "
            f"campaign was moved, give its new path."
        )

    names = sorted(campaign.name for campaign in path.parent.glob(f"*{_CAMPAIGN_SUFFIX}"))
    if names:
        return (
            f"There is no campaign {path}. The campaigns in this folder are "
            f"{', '.join(names[:_MOST_NAMED_FILES])}."
        )
    return (
        f"There is no campaign {path}. If it was moved, give its new path; to create one, run "
        f"teeter campaign new."
    )


def _require_database_file(path: Path) -> None:
    """Refuse a file of items, which people give instead of the campaign that was made from it."""
    kind = _ITEM_FILES.get(path.suffix.lower())
    if kind is None:
        return

    try:
        with path.open("rb") as file:
            start = file.read(len(_SQLITE_HEADER))
    except OSError:
        return  # opening the database reports the reason

    # A campaign may have any suffix, and a new one is empty.
    if not start or start == _SQLITE_HEADER:
        return

    advice = f"create a campaign from it with teeter campaign new {path} --classes NAMES."
    campaign = path.with_suffix(_CAMPAIGN_SUFFIX)
    if campaign.exists():
        advice = f"did you mean {campaign}?"
    raise StoreError(f"{path} is {kind}, not a campaign: {advice}")


def _require_teeter_file(path: Path) -> None:
    """Refuse, without changing the file, an SQLite database of another program."""
    address = f"file:{quote(str(path))}?mode=ro"
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"

    try:
        with closing(sqlite3.connect(address, uri=True, timeout=_WRITE_TIMEOUT)) as connection:
            tables = {name for (name,) in connection.execute(query)}
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return  # opening the database reports the reason

    if tables and "migrations" not in tables:
        raise StoreError(f"{path} belongs to another program: give a campaign file.")


def _create_engine(url: URL) -> Engine:
    backend = url.get_backend_name()
    if backend not in ("sqlite", "postgresql"):
        raise StoreError(f"Campaigns are stored in SQLite or PostgreSQL, not in {backend}.")

    try:
        if backend == "sqlite":
            # mode=rw keeps SQLite from creating an empty file where a campaign was moved away.
            if url.database not in (None, "", ":memory:") and not url.query:
                address = f"file:{quote(str(url.database))}"
                url = url.set(
                    database=address,
                    query={"mode": "rw", "uri": "true"},
                )

            engine = create_engine(url, connect_args={"timeout": _WRITE_TIMEOUT})
            event.listen(engine, "connect", _configure_sqlite)
            event.listen(engine, "begin", _begin_sqlite)
            return engine
        server = create_engine(
            url,
            connect_args={"connect_timeout": _CONNECT_TIMEOUT},
            # Servers that restart and firewalls close idle connections: test each one before its
            # use.
            pool_pre_ping=True,
            pool_size=16,
            max_overflow=16,
            pool_recycle=1800,
        )
        event.listen(server, "begin", _begin_postgres)
        return server
    except NoSuchModuleError:
        raise StoreError(
            f"There is no database driver {url.drivername!r}. "
            "Give a file, or a URL such as postgresql://host/name."
        ) from None
    except ImportError as error:
        raise MissingExtraError(
            f"This database needs {error.name}: pip install 'teeter[team]'."
        ) from None


def _configure_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # _begin_sqlite begins transactions, not the driver

    # The schema may be a stranger's, whose views and triggers must not call risky functions. FULL
    # syncs the write-ahead log at every commit, so that a commit survives a power failure.
    settings = ("trusted_schema=OFF", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON")
    for setting in settings:
        connection.execute(f"PRAGMA {setting}")


def _begin_sqlite(connection: Connection) -> None:
    timeout = connection.get_execution_options().get(_WRITE_OPTION)
    sqlite_connection: Any = connection.connection.dbapi_connection
    # A connection serves readers and writers in turn.
    sqlite_connection.execute(f"PRAGMA query_only = {timeout is None:d}")
    if timeout is None:
        connection.exec_driver_sql("BEGIN")
        return

    # _lock_sqlite_file waits itself, so SQLite's busy handler must not.
    sqlite_connection.execute("PRAGMA busy_timeout = 0")
    try:
        if not _lock_sqlite_file(sqlite_connection, timeout):
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # fails with the reason
    finally:
        sqlite_connection.execute(f"PRAGMA busy_timeout = {1000 * _WRITE_TIMEOUT}")


def _lock_sqlite_file(connection: sqlite3.Connection, timeout: float) -> bool:
    """Try to begin a writing transaction until a timeout, and return whether it began.

    SQLite's own busy handler waits longer and longer, so that one of many writers may wait for
    seconds. Short random pauses treat all alike.
    """
    deadline = time.monotonic() + timeout

    while time.monotonic() < deadline:
        try:
            # Locks at once: a transaction that begins as a reader may fail at its first write.
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not is_sqlite_busy(error):
                return False
            time.sleep(random.uniform(0, _LONGEST_PAUSE))
        else:
            return True

    return False


def _begin_postgres(connection: Connection) -> None:
    timeout = connection.get_execution_options().get(_WRITE_OPTION)
    if timeout is None:
        # At PostgreSQL's default level, each statement may see a newer state than the one before.
        connection.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return

    # Writers wait here for each other, so that none of them sees half of another's changes. The
    # commit waits for the disk, whatever the server's default is.
    connection.exec_driver_sql(
        f"SET LOCAL lock_timeout = '{timeout}s'; SET LOCAL synchronous_commit = on; "
        f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"
    )


class _Problem(StrEnum):
    """What a database's error means and what to do, in one or two sentences."""

    DISK = (
        "The disk of {location} is full or cannot be written to. Nothing was lost. Free some space "
        "and try again."
    )
    BUSY = (
        "{location} has been locked by another process for {timeout:g} s. Try again when that "
        "process has finished writing."
    )
    NOT_WRITABLE = "{location} cannot be written to. Check its permissions."
    DAMAGED = "{location} is damaged or is not a campaign. If it was a campaign, restore a backup."
    UNAVAILABLE = (
        "The database {location} is not responding. Saved answers are safe. Try again later."
    )
    REFUSED = (
        "The database {location} refused the connection: {reason}. Check the database name, the "
        "user and the password."
    )
    OTHER = "The database {location} reported an error: {error}."


_SQLITE_PROBLEMS = {
    sqlite3.SQLITE_FULL: _Problem.DISK,
    sqlite3.SQLITE_IOERR: _Problem.DISK,
    sqlite3.SQLITE_BUSY: _Problem.BUSY,
    sqlite3.SQLITE_LOCKED: _Problem.BUSY,
    sqlite3.SQLITE_READONLY: _Problem.NOT_WRITABLE,
    sqlite3.SQLITE_CANTOPEN: _Problem.NOT_WRITABLE,
    sqlite3.SQLITE_PERM: _Problem.NOT_WRITABLE,
    # All statements are ours, so a table or a column is not what we created.
    sqlite3.SQLITE_ERROR: _Problem.DAMAGED,
    sqlite3.SQLITE_CORRUPT: _Problem.DAMAGED,
    sqlite3.SQLITE_NOTADB: _Problem.DAMAGED,
}

_POSTGRES_PROBLEMS = {
    "53100": _Problem.DISK,
    "55P03": _Problem.BUSY,  # the lock timeout
    # A table or a column of ours is missing, or the server found damaged data.
    **dict.fromkeys(("42P01", "42703", "XX001", "XX002"), _Problem.DAMAGED),
    # A read-only server, or a user who may not write.
    **dict.fromkeys(("25006", "42501"), _Problem.NOT_WRITABLE),
    # The server is shutting down, crashed, is starting up, or has no connection left.
    **dict.fromkeys(("57P01", "57P02", "57P03", "53300"), _Problem.UNAVAILABLE),
    # Classes of SQLSTATE: connection failures, invalid user or password, unknown database.
    "08": _Problem.UNAVAILABLE,
    "28": _Problem.REFUSED,
    "3D": _Problem.REFUSED,
}
"""By SQLSTATE or its class, which are its first two characters."""


def database_error_message(error: DBAPIError, location: str, url: URL, timeout: float) -> str:
    """Say in one or two sentences what a database's error means and what to do.

    Args:
        error: the error as SQLAlchemy wraps it.
        location: where the database is, as users may read it.
        url: its URL with the password, to ask a server whether it runs.
        timeout: seconds that writers wait for each other.
    """
    cause: Any = error.orig
    code = getattr(cause, "sqlstate", None)
    if isinstance(cause, sqlite3.Error):
        problem = _sqlite_problem(cause)
    elif code is None:
        problem = _connection_problem(error, url)
    else:
        by_class = _POSTGRES_PROBLEMS.get(code[:2], _Problem.OTHER)
        problem = _POSTGRES_PROBLEMS.get(code, by_class)

    text = str(cause).strip()
    # libpq writes "SEVERITY:  message", with two spaces in every language.
    _, _, message = text.rpartition(":  ")
    first_line, _, _ = message.strip().partition("\n")
    reason = first_line.rstrip(".")
    return problem.format(location=location, timeout=timeout, reason=reason, error=text.rstrip("."))


def is_sqlite_busy(error: sqlite3.Error) -> bool:
    """Return whether SQLite failed because another connection has the file locked."""
    return _primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _primary_code(error: sqlite3.Error) -> int | None:
    """Return SQLite's result code without its extension, or None if Python raised the error."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    # The lowest byte is the primary code: SQLITE_IOERR_WRITE is SQLITE_IOERR | (3 << 8).
    if code is None:
        return None
    return code & 0xFF


def _sqlite_problem(error: sqlite3.Error) -> _Problem:
    code = _primary_code(error)
    # Python raises an operational error without a code for a stored text that is not valid UTF-8.
    if code is None and isinstance(error, sqlite3.OperationalError):
        return _Problem.DAMAGED
    return _SQLITE_PROBLEMS.get(code or 0, _Problem.OTHER)


def _connection_problem(error: DBAPIError, url: URL) -> _Problem:
    """Return why there is no connection: libpq gives no SQLSTATE for that.

    A server that answers a ping and still gives no connection refuses the user or the database.
    """
    import psycopg

    cause = error.orig
    if not isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError):
        return _Problem.OTHER

    # A connection that broke, or a server that did not answer in time, was not refused.
    was_connected = error.connection_invalidated or isinstance(cause, psycopg.InterfaceError)
    timed_out = isinstance(cause, psycopg.errors.ConnectionTimeout)
    if not was_connected and not timed_out and _answers_ping(url):
        return _Problem.REFUSED
    return _Problem.UNAVAILABLE


def _answers_ping(url: URL) -> bool:
    """Return whether a PostgreSQL server accepts connections. Needs no valid user or password."""
    from psycopg import conninfo, pq

    address = conninfo.make_conninfo(host=url.host, port=url.port, connect_timeout=5)
    answer = pq.PGconn.ping(address.encode())
    return bool(answer == pq.Ping.OK)
