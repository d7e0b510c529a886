"""Databases for tests: every test of the contract runs on each kind."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from campaigns.postgres_server import PostgresServer, running_server
from teeter.campaigns.items.item import parse_items
from teeter.campaigns.settings import Settings
from teeter.campaigns.store import CampaignStore, Database
from teeter.campaigns.store.database import Clock, format_time, utc_now
from teeter.campaigns.store.transaction import add_campaign

STORES = ("sqlite", "postgresql")

POSTGRESQL_SLOW = ("sqlite", pytest.param("postgresql", marks=pytest.mark.slow))
"""Every kind, where the contract already checks PostgreSQL in the fast tier."""


def stores_in_groups(name: str) -> list[Any]:
    """Return every kind, for cases of minutes: those of each kind run on a worker of their own."""
    return [pytest.param(kind, marks=pytest.mark.xdist_group(f"{name}, {kind}")) for kind in STORES]


@contextmanager
def new_store(kind: str, folder: Path) -> Iterator[Database]:
    """Yield a database of a kind without campaigns; skip if there is no server for it."""
    if kind == "sqlite":
        database = Database(new_place(kind, folder), create=True)
    else:
        # Copying tables takes a third of the time of creating them.
        database = Database(shared_server().new_database(template=database_with_tables()))
    yield database
    database.close()


@cache
def database_with_tables() -> str:
    """Return the name of a database on the shared server with all tables and no campaign."""
    place = shared_server().new_database()
    Database(place, create=True).close()
    return place.rpartition("/")[2]


@cache
def shared_server() -> PostgresServer:
    """Return one server for all tests of a process, stopped when it ends."""
    context = running_server(durable=False)
    server = context.__enter__()
    atexit.register(context.__exit__, None, None, None)
    return server


def begun(
    database: Database, name: str = "reviews", texts: int = 6, clock: Clock = utc_now
) -> CampaignStore:
    """Write a campaign of two classes and a few texts called a0, a1, ... into a database."""
    with database.writing() as connection:
        campaign_id = add_campaign(connection, name, format_time(utc_now()), "{}")

    store = CampaignStore(database, campaign_id, Settings(), clock)
    with store.writing() as change:
        change.classes.add(["good", "poor"], "owner")
        items = parse_items([(f"a{k}", f"text {k}") for k in range(texts)], "text")
        change.items.add(items, "owner")
    return store


def reopened(store: CampaignStore, location: str | Path) -> CampaignStore:
    """Return the campaign of a database that was closed, as another process opens it."""
    return CampaignStore(Database(location), store.campaign_id, Settings())


def new_place(kind: str, folder: Path) -> str:
    """Return where a campaign can be created; skip if there is no server for the kind."""
    if kind == "sqlite":
        return str(folder / "campaign.teeter")
    return shared_server().new_database()
