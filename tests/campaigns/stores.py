"""Stores for tests: every test of the contract runs on each kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import insert

from teeter.campaigns import tables
from teeter.campaigns.items import items_of
from teeter.campaigns.ledger import Ledger
from teeter.campaigns.store import Store, now

STORES: dict[str, Callable[[Path], Store]] = {
    "sqlite": lambda folder: Store(folder / "campaign.teeter", create=True),
}


def begun(store: Store, name: str = "reviews", texts: int = 6) -> Ledger:
    """Write a campaign of two classes and a few texts called a0, a1, ... into a store."""
    with store.writing() as connection:
        values = {"name": name, "created": now(), "settings": "{}"}
        (number,) = connection.execute(insert(tables.campaigns).values(values)).inserted_primary_key or (0,)
        ledger = Ledger(int(number))
        for label in ("good", "poor"):
            ledger.add_class(connection, label, "owner")
        ledger.add_items(connection, items_of([(f"a{k}", f"text {k}") for k in range(texts)], "text"), "owner")
    return ledger
