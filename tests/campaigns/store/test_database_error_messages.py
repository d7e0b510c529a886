"""Errors of databases: recognised by their codes, whatever language the server speaks."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from campaigns.stores import shared_server
from teeter.campaigns.store import Database
from teeter.campaigns.store.database import database_error_message
from teeter.errors import StoreError

URL = make_url("postgresql+psycopg://ann@127.0.0.1:9/teeter")


class ForeignError(Exception):
    """An error of PostgreSQL with a text that is not English."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__("Ein Fehler ist aufgetreten.")
        self.sqlstate = sqlstate


def message_for(cause: BaseException) -> str:
    error = DBAPIError("select 1", {}, cause)
    return database_error_message(error, "HERE", URL, timeout=30)


def sqlite_error(code: int | None) -> sqlite3.Error:
    error = sqlite3.OperationalError("a text that changes with every version")
    if code is not None:
        error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("sqlstate", "message"),
    [
        ("53100", "disk of HERE is full"),
        ("55P03", "locked by another process for 30 s"),
        ("42P01", "HERE is damaged"),
        ("42703", "HERE is damaged"),
        ("25006", "HERE cannot be written to"),
        ("08006", "HERE is not responding"),
        ("57P01", "HERE is not responding"),
        ("57P03", "HERE is not responding"),
        ("28P01", "HERE refused the connection"),
        ("3D000", "HERE refused the connection"),
        ("22003", "HERE reported an error: Ein Fehler ist aufgetreten."),
    ],
)
def test_postgresql_s_errors_are_recognised_by_sqlstate(sqlstate: str, message: str) -> None:
    assert message in message_for(ForeignError(sqlstate))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (sqlite3.SQLITE_FULL, "disk of HERE is full"),
        (sqlite3.SQLITE_IOERR_WRITE, "disk of HERE is full or cannot be written to"),
        (sqlite3.SQLITE_BUSY, "locked by another process"),
        (sqlite3.SQLITE_BUSY_SNAPSHOT, "locked by another process"),
        (sqlite3.SQLITE_READONLY, "HERE cannot be written to"),
        (sqlite3.SQLITE_CANTOPEN, "HERE cannot be written to"),
        (sqlite3.SQLITE_CORRUPT, "HERE is damaged"),
        (sqlite3.SQLITE_NOTADB, "HERE is damaged"),
        (sqlite3.SQLITE_ERROR, "HERE is damaged"),
        (sqlite3.SQLITE_CONSTRAINT, "HERE reported an error"),
        (None, "HERE is damaged"),
    ],
)
def test_sqlite_s_errors_are_recognised_by_their_result_code(
    code: int | None, message: str
) -> None:
    assert message in message_for(sqlite_error(code))


@pytest.mark.slow
def test_a_server_that_refuses_is_told_from_one_that_does_not_answer(tmp_path: Path) -> None:
    """libpq gives no SQLSTATE for a failed connection, so the server is asked whether it runs."""
    url = make_url(shared_server().new_database())
    with pytest.raises(StoreError, match="refused the connection"):
        Database(url.set(database="nothing").render_as_string(hide_password=False))
    with pytest.raises(StoreError, match="is not responding"):
        Database(url.set(port=9).render_as_string(hide_password=False))
