"""Whose turn it is to pick: one at a time picks for all who wait, so that many who ask at once do not all do the same.

The turn is a batch of nobody's that has an end; whoever dies in it keeps others waiting no longer than that.
"""

from __future__ import annotations

import time
from datetime import timedelta

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select

from teeter.campaigns.clock import written
from teeter.campaigns.db import schema
from teeter.campaigns.db.database import Database
from teeter.campaigns.db.picks_repository import NOBODY, Questions

__all__ = ["acquire_pick_lock", "release_pick_lock", "wait_for_pick_lock"]

_LASTS = 10.0
"""Seconds after which another may pick too."""

_PAUSE = 0.15
"""Seconds between two looks whether it is over."""


def acquire_pick_lock(questions: Questions, connection: Connection, annotator: str) -> bool:
    """Take the turn to pick for an annotator, and tell whether it was free."""
    if _is_taken(questions, connection, annotator):
        return False
    release_pick_lock(questions, connection)
    values = {
        "campaign_id": questions.campaign,
        "annotator": NOBODY,
        "asked": questions.now(),
        "strategy": annotator,  # who has the turn
        "seed": 0,
        "model_version": 0,
        "due": written(questions.clock() + timedelta(seconds=_LASTS)),
    }
    connection.execute(insert(schema.batches).values(values))
    return True


def release_pick_lock(questions: Questions, connection: Connection) -> None:
    """Let others pick."""
    connection.execute(delete(schema.batches).where(_turn(questions)))


def wait_for_pick_lock(store: Database, questions: Questions, annotator: str) -> None:
    """Wait until nobody else picks, or takes too long to."""
    until = time.monotonic() + _LASTS
    while time.monotonic() < until:
        time.sleep(_PAUSE)
        with store.reading() as connection:
            if not _is_taken(questions, connection, annotator):
                return


def _turn(questions: Questions) -> ColumnElement[bool]:
    batches = schema.batches
    return and_(
        batches.c.campaign_id == questions.campaign,
        batches.c.annotator == NOBODY,
        batches.c.due.is_not(None),
    )


def _is_taken(questions: Questions, connection: Connection, annotator: str) -> bool:
    """Tell whether somebody else has the turn; one's own, left by a process that died, is no hindrance.

    Nor is one that ends long from now: it was left before the clock was set back.
    """
    latest = written(questions.clock() + timedelta(seconds=2 * _LASTS))
    due = schema.batches.c.due
    others = and_(due > questions.now(), due <= latest, schema.batches.c.strategy != annotator)
    return (
        connection.scalar(select(schema.batches.c.id).where(_turn(questions), others).limit(1))
        is not None
    )
