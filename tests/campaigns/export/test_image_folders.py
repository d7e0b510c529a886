"""Labelled images are exported into a folder per class, which other libraries read."""

from __future__ import annotations

import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from PIL import Image

from teeter.campaigns import Campaign, Settings
from teeter.campaigns.export.image_folders import file_system_name
from teeter.errors import FileError


def test_images_are_sorted_into_a_folder_per_class(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    (photos / "deep").mkdir(parents=True)
    for number in range(4):
        file = io.BytesIO()
        Image.new("RGB", (8, 8), (60 * number, 0, 0)).save(file, "PNG")
        (photos / f"{number}.png").write_bytes(file.getvalue())
        file = io.BytesIO()
        Image.new("RGB", (8, 8), (0, 60 * number + 5, 0)).save(file, "PNG")
        (photos / "deep" / f"{number}.png").write_bytes(file.getvalue())
    settings = Settings(kind="image", folder=str(photos), encoder="pixels")
    paths = [f"{folder}{number}.png" for folder in ("", "deep/") for number in range(4)]
    Campaign.make(
        paths, ["red", "../green"], at=tmp_path / "p.teeter", settings=settings
    ).database.close()
    campaign = Campaign.open(tmp_path / "p.teeter")
    for path in paths[:7]:
        campaign.tell(path, "../green" if path.startswith("deep") else "red")

    campaign.export(tmp_path / "out", "image-folder")

    files = sorted(path.relative_to(tmp_path / "out").as_posix() for path in out_files(tmp_path))
    assert files == [
        *(f"%2E.%2Fgreen/deep%2F{number}.png" for number in range(3)),
        ".teeter_export",
        "metadata.jsonl",
        *(f"red/{number}.png" for number in range(4)),
    ]
    copied = tmp_path / "out" / "%2E.%2Fgreen" / "deep%2F1.png"
    assert copied.read_bytes() == (photos / "deep" / "1.png").read_bytes()


def out_files(tmp_path: Path) -> list[Path]:
    return [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def make_photos(tmp_path: Path, classes: list[str]) -> Campaign:
    """Return a campaign of three images with columns."""
    photos = tmp_path / "photos"
    photos.mkdir()
    items = []
    for number in range(3):
        Image.new("RGB", (8, 8), (60 * number, 0, 0)).save(photos / f"{number}.png")
        columns = {"image_file_name": f"raw {number}", "tags": [number, "x"], "zip": f"0{number}"}
        items.append({"id": f"p{number}", "image": f"{number}.png", **columns})
    settings = Settings(kind="image", folder=str(photos), encoder="pixels")
    Campaign.make(items, classes, at=tmp_path / "p.teeter", settings=settings).database.close()
    return Campaign.open(tmp_path / "p.teeter")


def image_paths(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.png"))


def test_an_image_whose_label_changed_leaves_its_old_folder(tmp_path: Path) -> None:
    campaign = make_photos(tmp_path, ["cat", "dog"])
    out = tmp_path / "out"
    campaign.tell("p0", "cat")
    campaign.export(out, "image-folder")
    (out / "cat" / "mine.png").write_bytes(b"not ours")

    campaign.tell("p0", "dog")
    campaign.export(out, "image-folder")

    assert image_paths(out) == ["cat/mine.png", "dog/0.png"]
    (out / "cat" / "mine.png").unlink()
    campaign.tell("p0", "cat")
    campaign.export(out, "image-folder")
    assert image_paths(out) == ["cat/0.png"]
    assert not (out / "dog").exists(), "no empty class stays behind"


def test_a_file_of_another_program_is_neither_replaced_nor_removed(tmp_path: Path) -> None:
    campaign = make_photos(tmp_path, ["cat", "dog"])
    out = tmp_path / "out"
    (out / "cat").mkdir(parents=True)
    (out / "cat" / "0.png").write_bytes(b"not ours")
    campaign.tell("p0", "cat")

    for _ in range(2):
        with pytest.raises(FileError, match="no earlier export has written it"):
            campaign.export(out, "image-folder")
    campaign.tell("p0", "dog")
    campaign.export(out, "image-folder")

    assert (out / "cat" / "0.png").read_bytes() == b"not ours"
    assert image_paths(out) == ["cat/0.png", "dog/0.png"]


def test_metadata_of_another_program_is_not_replaced(tmp_path: Path) -> None:
    campaign = make_photos(tmp_path, ["cat", "dog"])
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "metadata.jsonl").write_text("theirs")

    with pytest.raises(FileError, match=r"metadata\.jsonl exists, and no earlier export"):
        campaign.export(tmp_path / "out", "image-folder")

    assert (tmp_path / "out" / "metadata.jsonl").read_text() == "theirs"


def test_a_manifest_that_was_edited_removes_nothing_outside_the_folder(tmp_path: Path) -> None:
    campaign = make_photos(tmp_path, ["cat", "dog"])
    (tmp_path / "out").mkdir()
    (tmp_path / "precious.png").write_bytes(b"keep")
    (tmp_path / "out" / ".teeter_export").write_text("../precious.png\n/etc\n..\n")

    campaign.export(tmp_path / "out", "image-folder")

    assert (tmp_path / "precious.png").exists()


def test_without_a_label_the_folder_is_empty(tmp_path: Path) -> None:
    campaign = make_photos(tmp_path, ["cat", "dog"])

    campaign.export(tmp_path / "out", "image-folder")

    assert (tmp_path / "out").is_dir()
    assert image_paths(tmp_path / "out") == []


def test_classes_keep_their_letters_and_long_ones_are_shortened(tmp_path: Path) -> None:
    long = "猫" * 100
    campaign = make_photos(tmp_path, ["猫", long, "猫" * 99 + "犬"])
    for number, name in enumerate(campaign.classes.names()):
        campaign.tell(f"p{number}", name)

    campaign.export(tmp_path / "out", "image-folder")

    folders = [path.name for path in (tmp_path / "out").iterdir() if path.is_dir()]
    assert len(folders) == 3
    assert "猫" in folders
    assert all(len(name.encode()) <= 200 for name in folders)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("größe & mehr", "größe & mehr"),
        ("a/b\\c:d", "a%2Fb%5Cc%3Ad"),
        ("50%", "50%25"),
        ("..", "%2E%2E"),
        (".hidden", "%2Ehidden"),
        ("__other__", "%5F_other__"),
        ("end.", "end%2E"),
        ("NUL.txt", "%4EUL.txt"),
        ("a\nb", "a%0Ab"),
    ],
)
def test_only_what_file_systems_reserve_is_quoted(text: str, name: str) -> None:
    assert file_system_name(text) == name


def test_classes_that_differ_in_case_have_different_folders(tmp_path: Path) -> None:
    """Older campaigns may have such classes; new ones may not."""
    make_photos(tmp_path, ["dog", "cat"])
    with closing(sqlite3.connect(tmp_path / "p.teeter")) as connection:
        connection.execute("UPDATE classes SET name = 'Cat' WHERE name = 'dog'")
        connection.commit()
    campaign = Campaign.open(tmp_path / "p.teeter")
    campaign.tell("p0", "Cat")
    campaign.tell("p1", "cat")

    campaign.export(tmp_path / "out", "image-folder")

    first, second = image_paths(tmp_path / "out")
    assert first.split("/")[0].lower() != second.split("/")[0].lower()


def test_the_columns_stand_beside_the_folders(tmp_path: Path) -> None:
    campaign = make_photos(tmp_path, ["cat", "dog"])
    campaign.tell("p1", "dog")

    campaign.export(tmp_path / "out", "image-folder")

    assert json.loads((tmp_path / "out" / "metadata.jsonl").read_text()) == {
        "file_name": "dog/1.png",
        "id": "p1",
        "label": "dog",
        "image_file_name_imported": "raw 1",
        "tags": '[1, "x"]',
        "zip": "01",
    }


@pytest.mark.slow
def test_hugging_face_datasets_reads_the_images_with_their_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    campaign = make_photos(tmp_path, ["猫", "a/b", "__other__"])
    for number, name in enumerate(campaign.classes.names()):
        campaign.tell(f"p{number}", name)
    campaign.export(tmp_path / "out", "image-folder")

    rows = datasets.load_dataset(
        "imagefolder", data_dir=str(tmp_path / "out"), cache_dir=str(tmp_path / "cache")
    )["train"]

    by_label = {row["label"]: row for row in rows}
    assert set(by_label) == {"猫", "a/b", "__other__"}
    assert by_label["a/b"]["zip"] == "01"
    assert by_label["a/b"]["image"].getpixel((0, 0)) == (60, 0, 0)
