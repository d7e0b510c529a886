"""Campaigns on PostgreSQL: restarted, killed, shared or unavailable, it loses
nothing and says why.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from sqlalchemy import text

from campaigns.killed_process import Report, kill_after, needs_fork
from campaigns.postgres_server import PostgresServer, running_server
from campaigns.stores import begun, reopened, shared_server
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.records import Answer, AnswerKind
from teeter.campaigns.settings import Settings
from teeter.campaigns.store import CampaignStore, Database
from teeter.errors import StoreError


@pytest.fixture
def url() -> str:
    return shared_server().new_database()


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that a test may stop."""
    with running_server() as server:
        yield server


def label(store: CampaignStore, item: str, who: str = "ann") -> None:
    with store.writing() as change:
        change.answers.record(Answer(item, who, AnswerKind.LABEL, "good"))


def labelled_items(store: CampaignStore) -> list[str]:
    with store.reading() as view:
        return [answer.item for answer in view.answers.live()]


def test_a_campaign_runs_on_a_server(url: str) -> None:
    rows = np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)
    campaign = Campaign.make(
        [], ["left", "right"], at=url, name="points", settings=Settings(kind="features", seed=2**62)
    )
    campaign.add({"id": f"p{k}", "features": row} for k, row in enumerate(rows))

    for _ in range(2):
        for question in campaign.ask(10):
            campaign.tell(question.item, "right" if rows[int(question.item[1:]), 0] > 0 else "left")
        campaign.train()
    campaign.database.close()

    reopened = Campaign.open(url)
    status = reopened.status()
    assert (status.items, status.labelled, status.version) == (80, 20, 2)
    assert reopened.undo() is not None
    assert reopened.status().labelled == 19

    reopened.database.close()


def test_after_a_crash_of_the_server_acknowledged_answers_are_there_and_work_continues(
    own_server: PostgresServer,
) -> None:
    database = Database(own_server.new_database(), create=True)
    store = begun(database, texts=40)
    for k in range(10):
        label(store, f"a{k}")
    own_server.stop("immediate")
    with pytest.raises(StoreError, match=r"is not responding\. Saved answers are safe"):
        label(store, "a10")
    own_server.start()
    label(store, "a11")
    assert labelled_items(store) == [*(f"a{k}" for k in range(10)), "a11"]
    database.close()


@needs_fork
@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_a_process_killed_while_it_writes_loses_no_acknowledged_answer(
    kills: int, url: str
) -> None:
    database = Database(url, create=True)
    created = begun(database, texts=200 * kills)
    database.close()

    unlabelled = [f"a{k}" for k in range(200 * kills)]
    moments = random.Random(3)

    for _ in range(kills):
        pause = 0.0 if kills == 1 else moments.uniform(0.0, 0.15)
        reported = kill_after(partial(label_items, url, created, unlabelled), 3, pause)

        store = reopened(created, url)
        labelled = labelled_items(store)
        store.database.close()

        assert len(labelled) == len(set(labelled))
        assert set(reported) <= set(labelled)
        unlabelled = [item for item in unlabelled if item not in set(labelled)]


def label_items(url: str, created: CampaignStore, items: list[str], report: Report) -> None:
    store = reopened(created, url)
    for item in items:
        label(store, item)
        report(item)


@pytest.mark.slow
def test_many_writers_at_once_lose_nothing(url: str) -> None:
    database = Database(url, create=True)
    store = begun(database, texts=64)

    with ThreadPoolExecutor(8) as executor:
        list(executor.map(lambda k: label(store, f"a{k}", f"person {k % 8}"), range(64)))

    assert len(labelled_items(store)) == 64

    with store.reading() as view:
        numbers = [line["number"] for line in view.history.lines() if "number" in line]
    assert len(numbers) == len(set(numbers))
    database.close()


def test_a_reader_sees_one_state_throughout(url: str) -> None:
    database = Database(url, create=True)
    store = begun(database)
    with store.reading() as view, ThreadPoolExecutor() as pool:
        assert view.answers.live() == []
        pool.submit(label, store, "a0").result()
        assert view.answers.live() == []
    assert labelled_items(store) == ["a0"]
    database.close()


def test_a_server_that_does_not_answer_is_named_without_its_password() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(StoreError, match="is not responding") as caught:
        Database("postgresql://ann:secret@127.0.0.1:9/teeter")
    assert "secret" not in str(caught.value)
    with pytest.raises(StoreError, match="in SQLite or PostgreSQL, not in mysql"):
        Database("mysql://ann:secret@127.0.0.1:9/teeter")


def test_a_server_that_refuses_is_not_called_unavailable(url: str) -> None:
    with pytest.raises(
        StoreError,
        match=r'refused the connection: database "nothing" does not exist\. Check the database',
    ) as caught:
        Database(f"{url.rpartition('/')[0]}/nothing")
    assert "postgresql://teeter@" in str(caught.value)  # as people write it
    with pytest.raises(
        StoreError, match=r'refused the connection: role "stranger" does not exist\.'
    ):
        Database(url.replace("teeter@", "stranger@"))


def test_tables_are_created_only_on_request(url: str) -> None:
    with pytest.raises(StoreError, match="There is no campaign in postgresql"):
        Campaign.open(url)
    database = Database(url.replace("postgresql+psycopg", "postgres"), create=True)
    with database.writing() as connection:
        assert connection.scalar(text("select count(*) from items")) == 0
    database.close()


def test_a_database_with_tables_of_our_names_is_left_alone(url: str) -> None:
    import psycopg

    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute("create table items (price int)")
    with pytest.raises(StoreError, match="has tables of another program"):
        Database(url, create=True)
