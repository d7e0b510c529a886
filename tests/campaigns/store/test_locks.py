"""Locks: one holder at a time, also among threads and processes, and none that blocks after a
crash.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.fake_clock import FakeClock
from campaigns.killed_process import needs_fork
from campaigns.stores import POSTGRESQL_SLOW, begun, new_place, reopened
from teeter.campaigns.store import CampaignStore, Database, LockName

SECONDS = 10.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=POSTGRESQL_SLOW)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    database = Database(new_place(request.param, tmp_path), create=True)
    yield database
    database.close()


@pytest.fixture
def store(database: Database, clock: FakeClock) -> CampaignStore:
    return begun(database, clock=clock)


def acquire(store: CampaignStore) -> str | None:
    with store.writing() as change:
        return change.locks.acquire(LockName.PICKING, SECONDS)


def test_of_many_threads_one_gets_the_lock(store: CampaignStore) -> None:
    holders: list[str | None] = []
    threads = [threading.Thread(target=lambda: holders.append(acquire(store))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(holders) == 8
    assert sum(holder is not None for holder in holders) == 1


def test_a_lock_expires_and_its_old_holder_cannot_release_the_new_one(
    store: CampaignStore, clock: FakeClock
) -> None:
    first = acquire(store)
    assert first is not None
    clock.wait(1)
    second = acquire(store)
    assert second is not None

    with store.writing() as change:
        change.locks.release(LockName.PICKING, first)
        change.locks.extend(LockName.PICKING, first, 10_000)
    assert acquire(store) is None
    with store.writing() as change:
        change.locks.release(LockName.PICKING, second)
    assert acquire(store) is not None


def test_a_lock_that_is_extended_lasts(store: CampaignStore, clock: FakeClock) -> None:
    holder = acquire(store)
    assert holder is not None
    for _ in range(3):
        clock.wait(0.1)
        with store.writing() as change:
            change.locks.extend(LockName.PICKING, holder, SECONDS)
    assert acquire(store) is None


def test_a_lock_from_before_the_clock_was_set_back_does_not_count(
    store: CampaignStore, clock: FakeClock
) -> None:
    assert acquire(store) is not None
    clock.wait(-1440)
    assert acquire(store) is not None, "it would last for a day"


@needs_fork
def test_the_lock_of_a_process_that_was_killed_is_free_at_once(tmp_path: Path) -> None:
    path = tmp_path / "campaign.teeter"
    database = Database(path, create=True)
    created = begun(database)
    database.close()

    child = os.fork()
    if child == 0:
        acquire(reopened(created, path))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)

    store = reopened(created, path)
    with store.reading() as view:
        assert view.connection.exec_driver_sql("select count(*) from locks").scalar() == 1
    assert acquire(store) is not None
    store.database.close()
