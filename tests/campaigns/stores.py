"""Stores for tests: every test of the contract runs on each kind."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from sqlalchemy import insert

from campaigns.postgres_server import Server, running_server
from teeter.campaigns.db import schema
from teeter.campaigns.db.database import Database, now
from teeter.campaigns.db.repository import CampaignRepository
from teeter.campaigns.items import parse_items

STORES = ("sqlite", "postgresql")

POSTGRESQL_SLOW = ("sqlite", pytest.param("postgresql", marks=pytest.mark.slow))
"""Every store, where the contract of the stores already checks PostgreSQL in the fast tier."""


@contextmanager
def new_store(kind: str, folder: Path) -> Iterator[Database]:
    """Yield an empty store of a kind; skip where there is no server for it."""
    store = Database(new_place(kind, folder), create=True)
    yield store
    store.close()


@cache
def shared_server() -> Server:
    """Return one server for all tests of a process, ended when it ends."""
    held = running_server(durable=False)
    server = held.__enter__()
    atexit.register(held.__exit__, None, None, None)
    return server


def begun(store: Database, name: str = "reviews", texts: int = 6) -> CampaignRepository:
    """Write a campaign of two classes and a few texts called a0, a1, ... into a store."""
    with store.writing() as connection:
        values = {"name": name, "created": now(), "settings": "{}"}
        (number,) = connection.execute(
            insert(schema.campaigns).values(values)
        ).inserted_primary_key or (0,)
        repository = CampaignRepository(int(number))
        for label in ("good", "poor"):
            repository.add_class(connection, label, "owner")
        repository.add_items(
            connection, parse_items([(f"a{k}", f"text {k}") for k in range(texts)], "text"), "owner"
        )
    return repository


def new_place(kind: str, folder: Path) -> str:
    """Return where a campaign of a kind of store can be made; skip where there is no server for it."""
    return str(folder / "campaign.teeter") if kind == "sqlite" else shared_server().new_database()
