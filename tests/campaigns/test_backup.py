"""Backups: put back whole, or not at all, and never over a campaign by mistake."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from teeter.campaigns import backup as backup_module
from teeter.campaigns.campaign import Campaign, Settings
from teeter.errors import FileError, StoreError

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")
ITEMS = [{"id": f"v{k}", "features": [k, k % 5, 1.0]} for k in range(300)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "colours.teeter"


@pytest.fixture
def backup(path: Path, tmp_path: Path) -> Path:
    """A backup with one label; the campaign itself has another since."""
    campaign = Campaign.create(path, "colours", ("dark", "light"), Settings(kind="features"))
    campaign.add(ITEMS)
    campaign.tell("v1", "dark")
    campaign.back_up(tmp_path / "copy.teeter")
    campaign.tell("v2", "light")
    campaign.database.close()
    return tmp_path / "copy.teeter"


def labels(path: Path) -> int:
    campaign = Campaign.open(path)
    found = campaign.status().labelled
    campaign.database.close()
    return found


def only(folder: Path, *names: str) -> bool:
    return sorted(one.name for one in folder.iterdir()) == sorted(names)


def test_a_lost_campaign_is_put_back(path: Path, backup: Path, tmp_path: Path) -> None:
    path.unlink()
    Campaign.restore(backup, path)
    assert only(tmp_path, "colours.teeter", "copy.teeter")
    assert labels(path) == labels(backup) == 1
    campaign = Campaign.open(path)
    campaign.tell("v3", "dark")
    assert campaign.status().items == 300


def test_a_campaign_that_is_there_is_replaced_only_if_told(path: Path, backup: Path) -> None:
    with pytest.raises(FileError, match="exists already"):
        Campaign.restore(backup, path)
    assert labels(path) == 2
    Campaign.restore(backup, path, overwrite=True)
    assert labels(path) == 1


@needs_fork
def test_the_log_of_a_campaign_that_was_killed_does_not_spoil_what_is_restored(
    path: Path, backup: Path
) -> None:
    child = os.fork()
    if child == 0:
        Campaign.open(path).tell("v3", "dark")
        os._exit(0)  # as if killed: nothing is closed
    os.waitpid(child, 0)
    assert path.with_name(f"{path.name}-wal").stat().st_size > 0
    Campaign.restore(backup, path, overwrite=True)
    assert labels(path) == 1


def test_a_campaign_in_use_is_not_replaced(path: Path, backup: Path) -> None:
    campaign = Campaign.open(path)
    campaign.status()
    with pytest.raises(FileError, match="is in use: stop whatever has it open"):
        Campaign.restore(backup, path, overwrite=True)
    assert campaign.status().labelled == 2


def test_a_damaged_campaign_is_replaced(path: Path, backup: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])
    path.with_name(f"{path.name}-wal").write_bytes(b"what is left of a log")
    Campaign.restore(backup, path, overwrite=True)
    assert labels(path) == 1


def test_a_backup_where_nothing_can_be_written_is_read(
    path: Path, backup: Path, tmp_path: Path
) -> None:
    shut = tmp_path / "shut"
    shut.mkdir()
    backup.rename(shut / "copy.teeter")
    shut.chmod(0o500)
    try:
        Campaign.restore(shut / "copy.teeter", path, overwrite=True)
    finally:
        shut.chmod(0o700)
    assert labels(path) == 1
    assert only(shut, "copy.teeter")


def damaged(backup: Path) -> None:
    """Overwrite a page in the middle, as a bad disk would."""
    content = bytearray(backup.read_bytes())
    content[4096 * 5 : 4096 * 6] = b"\x07" * 4096
    backup.write_bytes(content)


def cut(backup: Path) -> None:
    backup.write_bytes(backup.read_bytes()[:20_000])


def newer(backup: Path) -> None:
    with sqlite3.connect(backup) as connection:
        connection.execute("insert into migrations values (999, 'beyond', 'tomorrow')")
    connection.close()


def another_program_s(backup: Path) -> None:
    backup.unlink()
    with sqlite3.connect(backup) as connection:
        connection.execute("create table notes (text)")
    connection.close()


def torn(backup: Path) -> None:
    """Take items away under their labels."""
    with sqlite3.connect(backup) as connection:
        connection.execute("delete from items where key = 'v1'")
    connection.close()


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (damaged, "is damaged, or not a backup"),
        (cut, "is damaged, or not a backup"),
        (torn, "belongs to none of items"),
        (
            newer,
            r"its schema has version 999, and this teeter knows versions up to \d+\. Update teeter",
        ),
        (another_program_s, "is damaged, or not a backup of a campaign: it has none of its tables"),
        (lambda backup: backup.write_text("hello " * 500), "is damaged, or not a backup"),
        (lambda backup: backup.write_bytes(b""), "is empty"),
        (lambda backup: backup.unlink(), "There is no file"),
        (lambda backup: (backup.unlink(), backup.mkdir()), "is not a plain file"),
    ],
)
def test_what_is_no_whole_backup_changes_nothing(
    harm: object, message: str, path: Path, backup: Path
) -> None:
    harm(backup)  # type: ignore[operator]
    before = sorted(one.name for one in path.parent.iterdir())
    with pytest.raises((StoreError, FileError), match=message):
        Campaign.restore(backup, path, overwrite=True)
    assert sorted(one.name for one in path.parent.iterdir()) == before
    assert labels(path) == 2


def test_places_that_make_no_sense_are_told(path: Path, backup: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be restored to itself"):
        Campaign.restore(backup, backup, overwrite=True)
    with pytest.raises(FileError, match="is a folder"):
        Campaign.restore(backup, tmp_path, overwrite=True)
    with pytest.raises(FileError, match="Cannot write"):
        Campaign.restore(backup, tmp_path / "no" / "place")


def test_a_restore_that_stops_in_the_middle_leaves_the_campaign(
    path: Path, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup_module, "_sync", full)
    with pytest.raises(FileError, match=r"Cannot write .*: No space left on device"):
        Campaign.restore(backup, path, overwrite=True)
    assert labels(path) == 2
    assert only(tmp_path, "colours.teeter", "copy.teeter")


@needs_fork
def test_a_disk_without_room_is_not_the_backup_s_fault(
    path: Path, backup: Path, tmp_path: Path
) -> None:
    child = os.fork()
    if child == 0:
        import resource
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        try:
            Campaign.restore(backup, path, overwrite=True)
        except FileError as error:
            os._exit(7 if "Cannot write" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert labels(path) == 2
    assert only(tmp_path, "colours.teeter", "copy.teeter")


def test_a_backup_is_never_written_over_a_file_or_into_a_folder_that_is_missing(
    path: Path, backup: Path, tmp_path: Path
) -> None:
    campaign = Campaign.open(path)
    with pytest.raises(FileError, match="exists already"):
        campaign.back_up(backup)
    with pytest.raises(FileError, match="Cannot write"):
        campaign.back_up(tmp_path / "no" / "place")
    campaign.database.close()
    assert labels(backup) == 1


def test_a_database_on_a_server_is_not_backed_up(path: Path, backup: Path, tmp_path: Path) -> None:
    campaign = Campaign.open(path)
    campaign.database.path = None
    with pytest.raises(StoreError, match="use the tools of your database server"):
        campaign.back_up(tmp_path / "other.teeter")
    campaign.database.close()
