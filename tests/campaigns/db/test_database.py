"""The SQLite file: killed, full, cut short, older, newer or in use, it loses nothing and says what is wrong."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import create_engine, event

from campaigns.killed_process import Report, kill_after, needs_fork
from campaigns.stores import begun
from teeter.campaigns.db import migrations
from teeter.campaigns.db.database import Database
from teeter.campaigns.db.repository import Answer, CampaignRepository
from teeter.errors import FileError, StoreError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "campaign.teeter"


def made(path: Path, texts: int = 6) -> CampaignRepository:
    store = Database(path, create=True)
    repository = begun(store, texts=texts)
    store.close()
    return repository


def labelled(path: Path, repository: CampaignRepository) -> list[str]:
    store = Database(path)
    with store.reading() as connection:
        found = [one.item for one in repository.answers(connection)]
    store.close()
    return found


def _label_on(path: Path, repository: CampaignRepository, items: list[str], report: Report) -> None:
    """Label items one after the other, and report each once it is written."""
    store = Database(path)
    for item in items:
        with store.writing() as connection:
            repository.answer(connection, Answer(item, "ann", "label", "good"))
        report(item)


def check_after_kills(path: Path, moments: list[tuple[int, float]]) -> None:
    """Kill a process that labels, again and again: after so many answers and so many seconds more."""
    items = 30 * len(moments)
    repository = made(path, texts=items)
    left = [f"a{k}" for k in range(items)]
    for answers, pause in moments:
        reported = kill_after(partial(_label_on, path, repository, left), answers, pause)
        found = labelled(path, repository)
        assert set(reported) <= set(found)
        assert max(Counter(found).values(), default=1) == 1
        left = [item for item in left if item not in set(found)]
    store = Database(path)
    with store.reading() as connection:
        assert len(repository.items(connection)) == items
    store.close()


@needs_fork
def test_killed_every_answer_that_was_acknowledged_is_there(path: Path) -> None:
    check_after_kills(path, [(1, 0.0), (4, 0.0), (2, 0.0)])


@needs_fork
@pytest.mark.slow
def test_killed_at_a_hundred_moments_every_answer_that_was_acknowledged_is_there(
    path: Path,
) -> None:
    moments = random.Random(5)
    check_after_kills(
        path, [(moments.randrange(5), moments.uniform(0.0, 0.02)) for _ in range(100)]
    )


@needs_fork
def test_two_processes_write_in_turns(path: Path) -> None:
    repository = made(path, texts=60)
    children = []
    for part in range(2):
        child = os.fork()
        if child == 0:
            try:
                _label_on(path, repository, [f"a{k}" for k in range(part, 60, 2)], lambda _: None)
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    for child in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sorted(labelled(path, repository)) == sorted(f"a{k}" for k in range(60))


def test_a_full_disk_is_told_and_loses_nothing(path: Path) -> None:
    repository = made(path)
    store = Database(path)

    def fill_up(connection: sqlite3.Connection, _: object) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={pages + 2}")

    event.listen(store.engine, "connect", fill_up)
    store.engine.dispose()
    acknowledged = 0

    def go_on() -> None:
        nonlocal acknowledged
        for k in range(1000):
            with store.writing() as connection:
                repository.answer(
                    connection, Answer(f"a{k % 6}", f"ann {k}", "label", "good", "x" * 200)
                )
            acknowledged += 1

    with pytest.raises(StoreError, match="Nothing was lost; make room and try again"):
        go_on()
    store.close()
    assert len(labelled(path, repository)) == acknowledged > 0


@needs_fork
def test_a_file_that_may_not_grow_is_told_and_loses_nothing(path: Path) -> None:
    repository = made(path)
    child = os.fork()
    if child == 0:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        store = Database(path)
        try:
            for k in range(5000):
                with store.writing() as connection:
                    repository.answer(
                        connection, Answer(f"a{k % 6}", f"ann {k}", "label", "good", "x" * 500)
                    )
        except StoreError as error:
            os._exit(7 if "Nothing was lost" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert len(labelled(path, repository)) > 0


def test_a_file_of_a_newer_version_is_refused(path: Path) -> None:
    made(path)
    with sqlite3.connect(path) as connection:
        connection.execute("insert into migrations values ('0999_beyond', 'tomorrow')")
    connection.close()
    with pytest.raises(
        StoreError, match=r"written by a newer teeter \(0999_beyond\): update teeter"
    ):
        Database(path)


def test_a_file_of_an_older_version_is_brought_up_in_place(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = made(path)

    def later(connection: migrations.Connection) -> None:
        connection.exec_driver_sql("alter table items add column note text")

    monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, ("0002_note", later)))
    store = Database(path)
    with store.reading() as connection:
        assert connection.exec_driver_sql("select note from items").fetchall() == [(None,)] * 6
        assert len(repository.items(connection)) == 6
    store.close()
    Database(path).close()


def test_a_change_that_fails_leaves_the_file_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(path)

    def broken(connection: migrations.Connection) -> None:
        connection.exec_driver_sql("alter table items add column note text")
        connection.exec_driver_sql("alter table nothing add column note text")

    with monkeypatch.context() as patched:
        patched.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, ("0002_broken", broken)))
        with pytest.raises(StoreError):
            Database(path)
    store = Database(path)
    with store.reading() as connection:
        columns = connection.exec_driver_sql("pragma table_info(items)").fetchall()
    store.close()
    assert "note" not in {column[1] for column in columns}


@pytest.mark.parametrize("cut", [30, 5000, 20_000])
def test_a_file_cut_short_is_told(cut: int, path: Path) -> None:
    repository = made(path, texts=500)
    content = path.read_bytes()
    assert len(content) > cut
    path.write_bytes(content[:cut])
    with pytest.raises((StoreError, FileError), match=r"damaged, or not a campaign|is empty"):
        labelled(path, repository)


def test_what_is_no_campaign_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_text("hello " * 500)
    for name, message in [
        ("none", "There is no campaign .*: make one with teeter campaign new"),
        ("empty", "is empty: it is not a campaign"),
        ("text", "is damaged, or not a campaign"),
        (".", "is a folder: name the campaign's file"),
    ]:
        with pytest.raises((FileError, StoreError), match=message):
            Database(tmp_path / name)
    with pytest.raises(FileError, match="there is no folder"):
        Database(tmp_path / "no" / "such" / "place", create=True)
    with pytest.raises(StoreError, match="SQLite and PostgreSQL, not in oracles"):
        Database("oracles://here/there")
    with pytest.raises(StoreError, match="is not an address of a database"):
        Database("://")


def test_another_program_s_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes #1.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table campaigns (text)")
    connection.close()
    before = path.read_bytes()
    for create in (False, True):
        with pytest.raises(
            StoreError, match="is a database of another program: name a campaign's file"
        ):
            Database(path, create=create)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_a_backup_is_whole_while_others_write_and_opens_as_a_campaign(
    path: Path, tmp_path: Path
) -> None:
    repository = made(path)
    store = Database(path)
    with store.writing() as connection:
        repository.answer(connection, Answer("a1", "ann", "label", "poor"))
    copy = tmp_path / "copy.teeter"
    store.back_up(copy)
    with store.writing() as connection:
        repository.answer(connection, Answer("a2", "ann", "label", "poor"))
    store.close()
    assert labelled(copy, repository) == ["a1"]
    assert labelled(path, repository) == ["a1", "a2"]
    with pytest.raises(FileError, match="exists already"):
        Database(path).back_up(copy)
    with pytest.raises(FileError, match="Cannot write"):
        Database(path).back_up(tmp_path / "no" / "place")


def test_every_commit_reaches_the_disk(path: Path) -> None:
    made(path)
    store = Database(path)
    with store.reading() as connection:
        assert connection.exec_driver_sql("pragma journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("pragma synchronous").scalar() == 2
        assert connection.exec_driver_sql("pragma foreign_keys").scalar() == 1
    store.close()


def test_where_no_connection_is_free_it_says_so(path: Path) -> None:
    made(path)
    store = Database(path)
    store.engine.dispose()
    store.engine = create_engine(store.engine.url, pool_size=1, max_overflow=0, pool_timeout=0.1)
    with (
        store.reading(),
        pytest.raises(StoreError, match="no connection was free"),
        store.reading(),
    ):
        pass
    store.close()
