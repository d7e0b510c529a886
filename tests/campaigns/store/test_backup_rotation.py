"""Backups of a scheduled job: named by time, checked, and the newest kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from campaigns.stores import new_place
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings
from teeter.campaigns.store.backup import back_up_and_rotate
from teeter.errors import FileError, InputError, StoreError

START = datetime(2026, 11, 16, 3, 0, tzinfo=UTC)


def make_campaign(location: str, name: str = "reviews", texts: int = 4) -> Campaign:
    campaign = Campaign.make([], ("good", "poor"), at=location, name=name, settings=Settings())
    campaign.add((f"a{number}", f"text {number}") for number in range(texts))
    campaign.people.add("ann", "owner")
    campaign.tell("a0", "good", "ann")
    return campaign


def describe(campaign: Campaign) -> tuple[object, ...]:
    people = [(person.name, person.role, person.has_token) for person in campaign.people.list()]
    return (
        campaign.name,
        campaign.classes.names(),
        campaign.status().items,
        campaign.status().labelled,
        people,
    )


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_backup_of_any_database_is_restored(kind: str, tmp_path: Path) -> None:
    location = new_place(kind, tmp_path)
    campaign = make_campaign(location)
    before = describe(campaign)
    path, removed = back_up_and_rotate(campaign, tmp_path, 3, START)
    assert path == tmp_path / "reviews-20261116T030000Z.teeter"
    assert removed == []

    # What happens after the backup is undone by restoring it.
    campaign.tell("a1", "poor", "ann")
    campaign.classes.add("neither")
    campaign.database.close()
    with pytest.raises((FileError, InputError), match="overwrit"):
        Campaign.restore(path, location)
    Campaign.restore(path, location, overwrite=True)

    restored = Campaign.open(location)
    assert describe(restored) == before
    restored.tell("a1", "poor", "ann")
    assert restored.status().labelled == 2
    restored.database.close()

    copy = Campaign.open(path)
    assert describe(copy) == before, "a backup is a campaign too"
    copy.database.close()


def test_other_campaigns_of_a_database_stay(tmp_path: Path) -> None:
    url = new_place("postgresql", tmp_path)
    first, second = make_campaign(url, "first"), make_campaign(url, "second", texts=7)
    backup, _ = back_up_and_rotate(second, tmp_path, 1, START)
    before = describe(first)
    second.tell("a1", "poor", "ann")
    second.database.close()

    Campaign.restore(backup, f"{url}#second", overwrite=True)
    assert describe(first) == before
    first.database.close()
    restored = Campaign.open(f"{url}#second")
    assert restored.status().labelled == 1
    restored.database.close()


def test_a_lost_database_is_restored_from_its_backup(tmp_path: Path) -> None:
    campaign = make_campaign(new_place("postgresql", tmp_path))
    before = describe(campaign)
    backup, _ = back_up_and_rotate(campaign, tmp_path, 1, START)
    campaign.database.close()

    url = new_place("postgresql", tmp_path)
    Campaign.restore(backup, url)
    restored = Campaign.open(url)
    assert describe(restored) == before
    restored.database.close()


def test_a_restore_that_fails_leaves_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = new_place("postgresql", tmp_path)
    campaign = make_campaign(url)
    backup, _ = back_up_and_rotate(campaign, tmp_path, 1, START)
    campaign.tell("a1", "poor", "ann")

    def fail(*_: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr("teeter.campaigns.store.copies.copy_rows", fail)
    with pytest.raises(StoreError, match="full"):
        Campaign.restore(backup, url, overwrite=True)
    assert campaign.status().labelled == 2

    backup.write_bytes(backup.read_bytes()[:5000])
    with pytest.raises(StoreError, match="damaged"):
        Campaign.restore(backup, url, overwrite=True)
    assert campaign.status().labelled == 2
    campaign.database.close()


def test_the_newest_are_kept_and_other_files_stay(tmp_path: Path) -> None:
    campaign = make_campaign(str(tmp_path / "reviews.teeter"))
    folder = tmp_path / "backups"
    folder.mkdir()
    other_names = {"notes.txt", "other-20200101T000000Z.teeter", "reviews-20200101.teeter"}
    for name in other_names:
        (folder / name).write_text("x")

    for night in range(4):
        _, removed = back_up_and_rotate(campaign, folder, 2, START + timedelta(days=night))
    assert [path.name for path in removed] == ["reviews-20261117T030000Z.teeter"]
    campaign.database.close()

    names = {path.name for path in folder.iterdir()}
    assert names - other_names == {
        "reviews-20261118T030000Z.teeter",
        "reviews-20261119T030000Z.teeter",
    }
    assert other_names <= names


def test_a_damaged_copy_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = make_campaign(str(tmp_path / "reviews.teeter"))
    folder = tmp_path / "backups"
    folder.mkdir()
    good, _ = back_up_and_rotate(campaign, folder, 1, START)

    def write_half(self: Campaign, path: Path) -> None:
        path.write_bytes(good.read_bytes()[: good.stat().st_size // 2])

    monkeypatch.setattr(Campaign, "back_up", write_half)
    with pytest.raises(StoreError, match="damaged"):
        back_up_and_rotate(campaign, folder, 1, START + timedelta(days=1))
    assert list(folder.iterdir()) == [good]
    campaign.database.close()


def test_names_that_are_no_file_names_are_replaced(tmp_path: Path) -> None:
    campaign = make_campaign(str(tmp_path / "x.teeter"), "../first look: a/b")
    path, _ = back_up_and_rotate(campaign, tmp_path, 1, START)
    assert path.parent == tmp_path
    assert path.name == "first_look_a_b-20261116T030000Z.teeter"
    campaign.database.close()


def test_requests_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    campaign = make_campaign(str(tmp_path / "reviews.teeter"))
    with pytest.raises(InputError, match="keep 1 or more"):
        back_up_and_rotate(campaign, tmp_path, 0, START)
    with pytest.raises(FileError, match="no folder"):
        back_up_and_rotate(campaign, tmp_path / "none", 1, START)
    campaign.database.close()
