"""The SQLite file: killed, full, cut short, locked or another program's, it loses nothing and says
what is wrong.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sqlite3
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import create_engine, event

from campaigns.killed_process import Report, kill_after, needs_fork
from campaigns.stores import begun, reopened
from teeter.campaigns.records import Answer, AnswerKind
from teeter.campaigns.store import CampaignStore, Database, LockName
from teeter.errors import FileError, StoreError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "campaign.teeter"


def create_campaign(path: Path, texts: int = 6) -> CampaignStore:
    """Return a campaign whose database is closed."""
    database = Database(path, create=True)
    store = begun(database, texts=texts)
    database.close()
    return store


def labelled_items(path: Path, created: CampaignStore) -> list[str]:
    store = reopened(created, path)
    with store.reading() as view:
        items = [answer.item for answer in view.answers.live()]
    store.database.close()
    return items


def good(item: str, annotator: str = "ann", comment: str | None = None) -> Answer:
    return Answer(item, annotator, AnswerKind.LABEL, "good", comment)


def label_items(path: Path, created: CampaignStore, items: list[str], report: Report) -> None:
    """Label items one after the other, and report each once it is written."""
    store = reopened(created, path)
    for item in items:
        with store.writing() as change:
            change.answers.record(good(item))
        report(item)


def check_after_kills(path: Path, moments: list[tuple[int, float]]) -> None:
    """Kill a process that labels, again and again: after some answers and some seconds more."""
    items = 30 * len(moments)
    created = create_campaign(path, texts=items)
    unlabelled = [f"a{k}" for k in range(items)]
    for answers, pause in moments:
        reported = kill_after(partial(label_items, path, created, unlabelled), answers, pause)
        labelled = labelled_items(path, created)
        assert set(reported) <= set(labelled)
        assert max(Counter(labelled).values(), default=1) == 1
        unlabelled = [item for item in unlabelled if item not in set(labelled)]

    store = reopened(created, path)
    with store.reading() as view:
        assert len(view.items.all()) == items
    store.database.close()


@needs_fork
def test_after_a_kill_every_acknowledged_answer_is_there(path: Path) -> None:
    check_after_kills(path, [(1, 0.0), (4, 0.0), (2, 0.0)])


@needs_fork
@pytest.mark.slow
def test_after_a_hundred_kills_every_acknowledged_answer_is_there(path: Path) -> None:
    moments = random.Random(5)
    check_after_kills(
        path, [(moments.randrange(5), moments.uniform(0.0, 0.02)) for _ in range(100)]
    )


@needs_fork
def test_two_processes_write_by_turns(path: Path) -> None:
    created = create_campaign(path, texts=60)
    children = []
    for part in range(2):
        child = os.fork()
        if child == 0:
            try:
                items = [f"a{k}" for k in range(part, 60, 2)]
                label_items(path, created, items, lambda _: None)
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)

    for child in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sorted(labelled_items(path, created)) == sorted(f"a{k}" for k in range(60))


def test_a_full_disk_is_reported_and_loses_nothing(path: Path) -> None:
    created = create_campaign(path)
    store = reopened(created, path)
    database = store.database

    def limit_pages(connection: sqlite3.Connection, _: object) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={pages + 2}")

    event.listen(database.engine, "connect", limit_pages)
    database.engine.dispose()
    acknowledged = 0

    def fill_disk() -> None:
        nonlocal acknowledged
        for k in range(1000):
            with store.writing() as change:
                change.answers.record(good(f"a{k % 6}", f"ann {k}", "x" * 200))
            acknowledged += 1

    with pytest.raises(StoreError, match=r"Nothing was lost\. Free some space and try again"):
        fill_disk()
    database.close()
    assert len(labelled_items(path, created)) == acknowledged > 0


@needs_fork
def test_a_file_that_may_not_grow_is_reported_and_loses_nothing(path: Path) -> None:
    created = create_campaign(path)
    child = os.fork()
    if child == 0:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        store = reopened(created, path)
        try:
            for k in range(5000):
                with store.writing() as change:
                    change.answers.record(good(f"a{k % 6}", f"ann {k}", "x" * 500))
        except StoreError as error:
            os._exit(7 if "Nothing was lost" in str(error) else 1)
        os._exit(2)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert len(labelled_items(path, created)) > 0


def test_a_writer_that_waits_too_long_learns_who_has_the_file(path: Path) -> None:
    create_campaign(path)
    first, second = Database(path), Database(path)
    second.write_timeout = 0.1
    with (
        first.writing(),
        pytest.raises(StoreError, match=r"has been locked by another process for 0\.1 s"),
        second.writing(),
    ):
        pass
    first.close()
    second.close()


@pytest.mark.parametrize("cut", [30, 5000, 20_000])
def test_a_file_cut_short_is_reported(cut: int, path: Path) -> None:
    created = create_campaign(path, texts=500)
    content = path.read_bytes()
    assert len(content) > cut
    path.write_bytes(content[:cut])
    with pytest.raises((StoreError, FileError), match=r"damaged or is not a campaign|is empty"):
        labelled_items(path, created)


def test_what_is_not_a_campaign_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("hello " * 500)
    for name, message in [
        ("none", "There is no campaign .*none. If it was moved, give its new path; to create one"),
        ("no/none", "there is no folder .*no. If the campaign was moved, give its new path"),
        ("empty", "is empty, so it is not a campaign"),
        ("text", "is damaged or is not a campaign"),
        (".", "is a folder: give a campaign file"),
    ]:
        with pytest.raises((FileError, StoreError), match=message):
            Database(tmp_path / name)

    (tmp_path / "kept.teeter").touch()
    with pytest.raises(FileError, match=r"The campaigns in this folder are kept\.teeter\."):
        Database(tmp_path / "keept.teeter")

    with pytest.raises(FileError, match="there is no folder"):
        Database(tmp_path / "no" / "such" / "place", create=True)
    with pytest.raises(StoreError, match="SQLite or PostgreSQL, not in oracles"):
        Database("oracles://here/there")
    with pytest.raises(StoreError, match="is not a database URL"):
        Database("://")


@pytest.mark.parametrize("create", [False, True])
def test_a_file_of_items_is_not_called_damaged(create: bool, tmp_path: Path) -> None:
    items = tmp_path / "messages.csv"
    items.write_text("text\none\n")
    command = f"teeter campaign new {re.escape(str(items))} --classes NAMES"
    with pytest.raises(StoreError, match=f"is a CSV file, not a campaign: .* with {command}"):
        Database(items, create=create)

    (tmp_path / "messages.teeter").touch()
    with pytest.raises(StoreError, match=r"did you mean .*messages\.teeter\?"):
        Database(items, create=create)
    assert items.read_text() == "text\none\n"


def test_a_missing_table_and_a_text_that_is_not_utf_8_count_as_damage(path: Path) -> None:
    store = reopened(create_campaign(path), path)
    with sqlite3.connect(path) as connection:
        connection.execute("update items set content = cast(x'ff' as text)")
        connection.execute("drop table locks")
    connection.close()

    with pytest.raises(StoreError, match="is damaged"), store.reading() as view:
        view.items.all()
    with pytest.raises(StoreError, match="is damaged"), store.reading() as view:
        view.locks.is_taken(LockName.PICKING, 10)
    store.database.close()


def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes #1.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table campaigns (text)")
    connection.close()
    before = path.read_bytes()
    for create in (False, True):
        message = "belongs to another program: give a campaign file"
        with pytest.raises(StoreError, match=message):
            Database(path, create=create)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_every_commit_reaches_the_disk_and_the_schema_is_not_trusted(path: Path) -> None:
    create_campaign(path)
    database = Database(path)
    with database.reading() as connection:
        assert connection.exec_driver_sql("pragma journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("pragma synchronous").scalar() == 2
        assert connection.exec_driver_sql("pragma foreign_keys").scalar() == 1
        assert connection.exec_driver_sql("pragma trusted_schema").scalar() == 0
    database.close()


def test_a_pool_without_a_free_connection_is_reported(path: Path) -> None:
    create_campaign(path)
    database = Database(path)
    database.engine.dispose()
    database.engine = create_engine(
        database.engine.url, pool_size=1, max_overflow=0, pool_timeout=0.1
    )

    def read_too() -> None:
        with database.reading():
            pass

    with (
        database.reading(),
        ThreadPoolExecutor() as pool,
        pytest.raises(StoreError, match="all connections are in use"),
    ):
        pool.submit(read_too).result()

    database.close()
