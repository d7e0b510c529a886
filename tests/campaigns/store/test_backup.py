"""Backups: restored in full or not at all, and never over a campaign by mistake."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from campaigns.killed_process import Report, kill_after, needs_fork
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings
from teeter.campaigns.store import backup as backup_module
from teeter.campaigns.store.backup import atomic_file
from teeter.errors import FileError, StoreError

ITEMS = [{"id": f"v{k}", "features": [k, k % 5, 1.0]} for k in range(300)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "colours.teeter"


@pytest.fixture
def backup(path: Path, tmp_path: Path) -> Path:
    """A backup with one label. The campaign itself has got a second one since."""
    campaign = Campaign.make(
        [], ("dark", "light"), at=path, name="colours", settings=Settings(kind="features")
    )
    campaign.add(ITEMS)
    campaign.tell("v1", "dark")
    campaign.back_up(tmp_path / "copy.teeter")
    campaign.tell("v2", "light")
    campaign.database.close()
    return tmp_path / "copy.teeter"


def count_labels(path: Path) -> int:
    campaign = Campaign.open(path)
    labelled = campaign.status().labelled
    campaign.database.close()
    return labelled


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_lost_campaign_is_restored(path: Path, backup: Path, tmp_path: Path) -> None:
    path.unlink()

    Campaign.restore(backup, path)

    assert list_names(tmp_path) == ["colours.teeter", "copy.teeter"]
    assert count_labels(path) == count_labels(backup) == 1
    campaign = Campaign.open(path)
    campaign.tell("v3", "dark")
    assert campaign.status().items == 300


def test_an_existing_campaign_is_replaced_only_with_overwrite(path: Path, backup: Path) -> None:
    with pytest.raises(FileError, match="already exists"):
        Campaign.restore(backup, path)
    assert count_labels(path) == 2

    Campaign.restore(backup, path, overwrite=True)
    assert count_labels(path) == 1


@needs_fork
def test_the_log_of_a_killed_process_does_not_ruin_the_restored_file(
    path: Path, backup: Path
) -> None:
    child = os.fork()
    if child == 0:
        Campaign.open(path).tell("v3", "dark")
        os._exit(0)  # as if killed: nothing is closed
    os.waitpid(child, 0)
    assert path.with_name(f"{path.name}-wal").stat().st_size > 0

    Campaign.restore(backup, path, overwrite=True)

    assert count_labels(path) == 1


def test_a_campaign_in_use_is_not_replaced(path: Path, backup: Path) -> None:
    campaign = Campaign.open(path)
    campaign.status()

    with pytest.raises(FileError, match="is in use: stop the process that has it open"):
        Campaign.restore(backup, path, overwrite=True)

    assert campaign.status().labelled == 2


def test_a_damaged_campaign_is_replaced(path: Path, backup: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])
    path.with_name(f"{path.name}-wal").write_bytes(b"the rest of a log")

    Campaign.restore(backup, path, overwrite=True)

    assert count_labels(path) == 1


def test_a_backup_in_a_read_only_folder_is_restored(
    path: Path, backup: Path, tmp_path: Path
) -> None:
    read_only = tmp_path / "read_only"
    read_only.mkdir()
    backup.rename(read_only / "copy.teeter")
    read_only.chmod(0o500)

    try:
        Campaign.restore(read_only / "copy.teeter", path, overwrite=True)
    finally:
        read_only.chmod(0o700)

    assert count_labels(path) == 1
    assert list_names(read_only) == ["copy.teeter"]


def overwrite_a_page(backup: Path) -> None:
    """Damage a page in the middle, as a bad disk would."""
    content = bytearray(backup.read_bytes())
    content[4096 * 5 : 4096 * 6] = b"\x07" * 4096
    backup.write_bytes(content)


def truncate(backup: Path) -> None:
    backup.write_bytes(backup.read_bytes()[:20_000])


def add_a_newer_migration(backup: Path) -> None:
    with sqlite3.connect(backup) as connection:
        connection.execute("insert into migrations values (999, 'beyond', 'tomorrow')")
    connection.close()


def replace_by_another_program_s(backup: Path) -> None:
    backup.unlink()
    with sqlite3.connect(backup) as connection:
        connection.execute("create table notes (text)")
    connection.close()


def delete_a_labelled_item(backup: Path) -> None:
    with sqlite3.connect(backup) as connection:
        connection.execute("delete from items where key = 'v1'")
    connection.close()


def replace_by_a_text(backup: Path) -> None:
    backup.write_text("hello " * 500)


def replace_by_nothing(backup: Path) -> None:
    backup.write_bytes(b"")


def delete(backup: Path) -> None:
    backup.unlink()


def replace_by_a_folder(backup: Path) -> None:
    backup.unlink()
    backup.mkdir()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (overwrite_a_page, "is damaged or is not a backup"),
        (truncate, "is damaged or is not a backup"),
        (delete_a_labelled_item, "refers to a missing row of items"),
        (
            add_a_newer_migration,
            r"its schema has version 999, but this version of teeter supports only .* to \d+\.",
        ),
        (
            replace_by_another_program_s,
            "is damaged or is not a backup of a campaign: it has none of a campaign's tables",
        ),
        (replace_by_a_text, "is damaged or is not a backup"),
        (replace_by_nothing, "is empty"),
        (delete, "There is no file"),
        (replace_by_a_folder, "is not a plain file"),
    ],
)
def test_a_damaged_backup_changes_nothing(
    damage: Callable[[Path], None], message: str, path: Path, backup: Path
) -> None:
    damage(backup)
    names_before = list_names(path.parent)

    with pytest.raises((StoreError, FileError), match=message):
        Campaign.restore(backup, path, overwrite=True)

    assert list_names(path.parent) == names_before
    assert count_labels(path) == 2


def test_targets_that_make_no_sense_are_refused(backup: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be restored to itself"):
        Campaign.restore(backup, backup, overwrite=True)
    with pytest.raises(FileError, match="is a folder"):
        Campaign.restore(backup, tmp_path, overwrite=True)
    with pytest.raises(FileError, match=r"Cannot write .*: there is no folder"):
        Campaign.restore(backup, tmp_path / "no" / "place")
    assert not (tmp_path / "no").exists()


def test_a_restore_that_fails_halfway_leaves_the_campaign(
    path: Path, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_disk_full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(backup_module, "_sync", raise_disk_full)
    with pytest.raises(FileError, match=r"Cannot write .*: No space left on device"):
        Campaign.restore(backup, path, overwrite=True)

    assert count_labels(path) == 2
    assert list_names(tmp_path) == ["colours.teeter", "copy.teeter"]


@needs_fork
def test_a_full_disk_is_not_blamed_on_the_backup(path: Path, backup: Path, tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
        try:
            Campaign.restore(backup, path, overwrite=True)
        except FileError as error:
            os._exit(7 if "Cannot write" in str(error) else 1)
        os._exit(2)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert count_labels(path) == 2
    assert list_names(tmp_path) == ["colours.teeter", "copy.teeter"]


def test_a_backup_is_never_written_over_a_file_or_into_a_missing_folder(
    path: Path, backup: Path, tmp_path: Path
) -> None:
    campaign = Campaign.open(path)

    with pytest.raises(FileError, match="already exists"):
        campaign.back_up(backup)
    with pytest.raises(FileError, match="Cannot write"):
        campaign.back_up(tmp_path / "no" / "place")

    campaign.database.close()
    assert count_labels(backup) == 1


def write_and_pause(target: Path, report: Report) -> None:
    """Start to write a database, and wait to be killed."""
    with atomic_file(target) as part:
        for suffix in ("", "-wal", "-shm"):
            part.with_name(part.name + suffix).write_bytes(b"half")
        report("writing")
        signal.pause()


@needs_fork
def test_files_of_a_killed_process_are_removed_by_the_next_write_in_the_folder(
    tmp_path: Path,
) -> None:
    kill_after(lambda report: write_and_pause(tmp_path / "big.teeter", report), 1)
    assert len(list_names(tmp_path)) == 4, "the part, its two logs and its lock"

    with atomic_file(tmp_path / "other.teeter") as part:
        part.write_bytes(b"complete")

    assert list_names(tmp_path) == ["other.teeter"]


def test_files_of_a_process_that_still_writes_are_left_alone(tmp_path: Path) -> None:
    with atomic_file(tmp_path / "slow.teeter") as slow_part:
        slow_part.write_bytes(b"half")

        with atomic_file(tmp_path / "fast.teeter") as fast_part:
            fast_part.write_bytes(b"complete")
        assert slow_part.exists()

        slow_part.write_bytes(b"complete")

    assert list_names(tmp_path) == ["fast.teeter", "slow.teeter"]
    assert (tmp_path / "slow.teeter").read_bytes() == b"complete"


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> None:
        with atomic_file(tmp_path / "c.teeter") as part:
            part.write_bytes(b"half")
            raise StoreError(f"{part.name} cannot be encoded.")

    with pytest.raises(StoreError, match=r"^c\.teeter cannot be encoded"):
        fail()

    assert list_names(tmp_path) == []
