"""Images that are no longer where the campaign found them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands import run_campaign, run_teeter
from teeter.campaigns import Campaign
from teeter.campaigns.items.image_links import describe_missing_images

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def photo_campaign(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    for number in range(4):
        Image.new("RGB", (8, 8), (60 * number, 9, 9)).save(tmp_path / "photos" / f"{number}.png")
    run_campaign("new", tmp_path / "photos", "--classes", "a,b")
    return tmp_path / "photos.teeter"


def describe(path: Path) -> str | None:
    campaign = Campaign.open(path)
    try:
        return describe_missing_images(campaign)
    finally:
        campaign.database.close()


def test_images_that_are_there_are_not_mentioned(photo_campaign: Path) -> None:
    assert describe(photo_campaign) is None
    assert run_teeter("status", photo_campaign).stderr == ""


def test_a_deleted_image_is_counted_and_named(photo_campaign: Path) -> None:
    folder = photo_campaign.with_suffix("")
    (folder / "2.png").unlink()
    assert describe(photo_campaign) == (
        f"1 of 4 image files are missing, such as 2.png: they are expected in {folder}."
    )


def test_a_renamed_folder_is_named_where_the_status_is_shown(photo_campaign: Path) -> None:
    folder = photo_campaign.with_suffix("")
    folder.rename(folder.with_name("pictures"))
    result = run_teeter("status", photo_campaign)
    assert result.exit_code == 0
    assert result.stderr == (
        f"The folder of the images is missing: 4 image files are expected in {folder}. If the "
        "folder was moved or renamed, move it back.\n"
    )


def test_texts_have_no_images(tmp_path: Path) -> None:
    Campaign.make(["one", "two"], ["a", "b"], at=tmp_path / "t.teeter").database.close()
    assert describe(tmp_path / "t.teeter") is None
