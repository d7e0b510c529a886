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
from campaigns.stores import POSTGRESQL_SLOW, begun, new_place
from teeter.campaigns.store import CampaignRepository, Database, LockName

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
def repository(database: Database, clock: FakeClock) -> CampaignRepository:
    repository = begun(database)
    repository.scope.clock = clock
    return repository


def acquire(database: Database, repository: CampaignRepository) -> str | None:
    with database.writing() as connection:
        return repository.locks.acquire(connection, LockName.PICKING, SECONDS)


def test_of_many_threads_one_gets_the_lock(
    database: Database, repository: CampaignRepository
) -> None:
    holders: list[str | None] = []
    threads = [
        threading.Thread(target=lambda: holders.append(acquire(database, repository)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(holders) == 8
    assert sum(holder is not None for holder in holders) == 1


def test_a_lock_expires_and_its_old_holder_cannot_release_the_new_one(
    database: Database, repository: CampaignRepository, clock: FakeClock
) -> None:
    first = acquire(database, repository)
    assert first is not None
    clock.wait(1)
    second = acquire(database, repository)
    assert second is not None

    with database.writing() as connection:
        repository.locks.release(connection, LockName.PICKING, first)
        repository.locks.extend(connection, LockName.PICKING, first, 10_000)
    assert acquire(database, repository) is None
    with database.writing() as connection:
        repository.locks.release(connection, LockName.PICKING, second)
    assert acquire(database, repository) is not None


def test_a_lock_that_is_extended_lasts(
    database: Database, repository: CampaignRepository, clock: FakeClock
) -> None:
    holder = acquire(database, repository)
    assert holder is not None
    for _ in range(3):
        clock.wait(0.1)
        with database.writing() as connection:
            repository.locks.extend(connection, LockName.PICKING, holder, SECONDS)
    assert acquire(database, repository) is None


def test_a_lock_from_before_the_clock_was_set_back_does_not_count(
    database: Database, repository: CampaignRepository, clock: FakeClock
) -> None:
    assert acquire(database, repository) is not None
    clock.wait(-1440)
    assert acquire(database, repository) is not None, "it would last for a day"


@needs_fork
def test_the_lock_of_a_process_that_was_killed_is_free_at_once(tmp_path: Path) -> None:
    path = tmp_path / "campaign.teeter"
    database = Database(path, create=True)
    repository = begun(database)
    database.close()

    child = os.fork()
    if child == 0:
        acquire(Database(path), repository)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)

    database = Database(path)
    with database.reading() as connection:
        assert connection.exec_driver_sql("select count(*) from locks").scalar() == 1
    assert acquire(database, repository) is not None
    database.close()
