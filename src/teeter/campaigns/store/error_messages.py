"""Sentences for the errors of databases.

Errors are recognised by their codes: PostgreSQL's SQLSTATE, SQLite's result codes. Their texts
depend on the version and on the language of the server.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError

__all__ = ["damage_message", "database_error_message", "is_sqlite_busy"]

_DISK_FULL = "53100"
_LOCK_TIMEOUT = "55P03"

_DAMAGED = ("42P01", "42703", "XX001", "XX002")
"""A table or a column of ours is missing, or the server found damaged data."""

_NOT_WRITABLE = ("25006", "42501")
"""A read-only server, or a user who may not write."""

_REFUSED_CLASSES = ("28", "3D")
"""Classes of SQLSTATE: invalid user or password, unknown database."""

_UNAVAILABLE_CLASSES = ("08",)
"""Classes of SQLSTATE: connection failures."""

_UNAVAILABLE = ("57P01", "57P02", "57P03", "53300")
"""The server is shutting down, crashed, is starting up, or has no connection left."""


def database_error_message(error: DBAPIError, location: str, url: URL, timeout: float) -> str:
    """Say in one or two sentences what a database's error means and what to do.

    Args:
        error: the error as SQLAlchemy wraps it.
        location: where the database is, as users may read it.
        url: its URL with the password, to ask a server whether it runs.
        timeout: seconds that writers wait for each other.
    """
    cause = error.orig

    if isinstance(cause, sqlite3.Error):
        return _sqlite_message(cause, location, timeout)

    return _postgres_message(error, location, url, timeout)


def damage_message(location: str) -> str:
    """Say that a database cannot be read."""
    return f"{location} is damaged or is not a campaign. If it was a campaign, restore a backup."


def is_sqlite_busy(error: sqlite3.Error) -> bool:
    """Return whether SQLite failed because another connection has the file locked."""
    return _primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _primary_code(error: sqlite3.Error) -> int | None:
    """Return SQLite's result code without its extension, or None if Python raised the error."""
    code = getattr(error, "sqlite_errorcode", None)
    # The lowest byte is the primary code: SQLITE_IOERR_WRITE is SQLITE_IOERR | (3 << 8).
    return None if code is None else code & 0xFF


def _sqlite_message(error: sqlite3.Error, location: str, timeout: float) -> str:
    code = _primary_code(error)

    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return _disk_message(location)

    if is_sqlite_busy(error):
        return _busy_message(location, timeout)

    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return _not_writable_message(location)

    if _means_damage(error):
        return damage_message(location)

    return _other_message(location, error)


def _means_damage(error: sqlite3.Error) -> bool:
    code = _primary_code(error)

    # Python raises an operational error without a code for a stored text that is not valid UTF-8.
    if code is None:
        return isinstance(error, sqlite3.OperationalError)

    # All statements are ours, so SQLITE_ERROR means that a table or a column is not what we
    # created.
    return code in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _postgres_message(error: DBAPIError, location: str, url: URL, timeout: float) -> str:
    cause: Any = error.orig
    sqlstate = getattr(cause, "sqlstate", None)

    if sqlstate is None:
        return _connection_message(error, location, url)

    if sqlstate == _DISK_FULL:
        return _disk_message(location)

    if sqlstate == _LOCK_TIMEOUT:
        return _busy_message(location, timeout)

    if sqlstate in _DAMAGED:
        return damage_message(location)

    if sqlstate in _NOT_WRITABLE:
        return _not_writable_message(location)

    if sqlstate in _UNAVAILABLE or sqlstate[:2] in _UNAVAILABLE_CLASSES:
        return _unavailable_message(location)

    if sqlstate[:2] in _REFUSED_CLASSES:
        return _refused_message(location, cause)

    return _other_message(location, cause)


def _connection_message(error: DBAPIError, location: str, url: URL) -> str:
    """Say why there is no connection: libpq gives no SQLSTATE for that.

    A server that answers a ping and still gives no connection refuses the user or the database.
    """
    import psycopg

    cause = error.orig
    if not isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError):
        return _other_message(location, cause)

    # A connection that broke, or a server that did not answer in time, was not refused.
    was_connected = error.connection_invalidated or isinstance(cause, psycopg.InterfaceError)
    timed_out = isinstance(cause, psycopg.errors.ConnectionTimeout)
    if not was_connected and not timed_out and _answers_ping(url):
        return _refused_message(location, cause)

    return _unavailable_message(location)


def _answers_ping(url: URL) -> bool:
    """Return whether a PostgreSQL server accepts connections. Needs no valid user or password."""
    from psycopg import conninfo, pq

    address = conninfo.make_conninfo(host=url.host, port=url.port, connect_timeout=5)
    return bool(pq.PGconn.ping(address.encode()) == pq.Ping.OK)


def _disk_message(location: str) -> str:
    return (
        f"The disk of {location} is full or cannot be written to. Nothing was lost. Free some "
        f"space and try again."
    )


def _busy_message(location: str, timeout: float) -> str:
    return (
        f"{location} has been locked by another process for {timeout:g} s. "
        "Try again when that process has finished writing."
    )


def _not_writable_message(location: str) -> str:
    return f"{location} cannot be written to. Check its permissions."


def _unavailable_message(location: str) -> str:
    return f"The database {location} is not responding. Saved answers are safe. Try again later."


def _refused_message(location: str, error: BaseException | None) -> str:
    # libpq writes "SEVERITY:  message", with two spaces in every language.
    reason = str(error).rpartition(":  ")[2].strip().splitlines()[0].rstrip(".")
    return (
        f"The database {location} refused the connection: {reason}. Check the database name, the "
        f"user and the password."
    )


def _other_message(location: str, error: BaseException | None) -> str:
    return f"The database {location} reported an error: {str(error).strip().rstrip('.')}."
