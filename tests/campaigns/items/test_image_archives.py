"""Archives of images: unpacked beside the campaign, or refused as a whole."""

from __future__ import annotations

import io
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.items import image_archives
from teeter.campaigns.records import ItemColumns
from teeter.campaigns.settings import Settings
from teeter.errors import TeeterError

Image = pytest.importorskip("PIL.Image")


def png(shade: int) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (8, 8), (shade, 9 * shade % 256, 0)).save(content, "PNG")
    return content.getvalue()


def write_archive(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def make(archive: Path, at: Path) -> Campaign:
    return Campaign.make(archive, ["a", "b"], at=at, settings=Settings(encoder="pixels"))


def test_an_archive_is_unpacked_beside_the_campaign(tmp_path: Path) -> None:
    files = {f"photos/{n}.png": png(n) for n in range(4)}
    others = {"photos/.hidden.png": b"", "__MACOSX/photos/._0.png": b"", "photos/read.txt": b"x"}
    archive = write_archive(tmp_path / "in.zip", {**files, **others, "b\\c.PNG": png(9), ".": b""})
    work = tmp_path / "work"
    work.mkdir()

    campaign = make(archive, work / "photos.teeter")

    assert campaign.imported.new == 5
    assert campaign.imported.left_out_files == {".txt": 1}
    assert campaign.items.image("photos/1.png").read_bytes() == files["photos/1.png"]
    assert (work / "photos.images" / "b" / "c.PNG").is_file()
    assert campaign.items.read_again(archive, ItemColumns(), []) == ([], [])
    campaign.database.close()
    with pytest.raises(TeeterError, match=r"photos.teeter already exists"):
        make(archive, work / "photos.teeter")
    assert (work / "photos.images").is_dir()


def link(archive: zipfile.ZipFile) -> None:
    entry = zipfile.ZipInfo("link.png")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    archive.writestr(entry, "/etc/passwd")


def bomb(archive: zipfile.ZipFile) -> None:
    archive.writestr("bomb.png", b"\0" * 101_000_000, zipfile.ZIP_DEFLATED, 1)


def twice(archive: zipfile.ZipFile) -> None:
    archive.writestr("x/a.png", png(1))
    archive.writestr("x\\a.png", png(2))


def many(archive: zipfile.ZipFile) -> None:
    for number in range(30):
        archive.writestr(f"{number}.png", b"")


def named(name: str) -> Callable[[zipfile.ZipFile], None]:
    return lambda archive: archive.writestr(name, png(1))


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (link, "'link.png' is a link"),
        (bomb, r"would unpack to 101 MB, but the limit is 100 MB"),
        (twice, "two files called x/a.png"),
        (many, "has 31 files, but the limit is 20"),
        (named("../out.png"), "'../out.png' leads out of the folder"),
        (named("a/../../out.png"), "leads out of the folder"),
        (named("/tmp/out.png"), "leads out of the folder"),
        (named("C:/out.png"), "leads out of the folder"),
        (named("..\\out.png"), "leads out of the folder"),
        (named("x" * 300 + ".png"), "Cannot save to"),
    ],
)
def test_a_harmful_archive_is_refused_and_leaves_nothing(
    add: Callable[[zipfile.ZipFile], None],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(image_archives, "_MAX_ENTRIES", 20)
    archive = write_archive(tmp_path / "in.zip", {"good.png": png(1)})
    work = tmp_path / "work"
    work.mkdir()
    with zipfile.ZipFile(archive, "a") as opened:
        add(opened)

    with pytest.raises(TeeterError, match=message):
        make(archive, work / "c.teeter")
    assert list(work.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.zip", "work"]


def test_an_archive_that_lies_about_its_sizes_or_is_cut_is_refused(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "in.zip", {"a.png": png(1), "b.png": b"\0" * 10_000_000})
    content = bytearray(archive.read_bytes())
    entry = content.rindex(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = (1000).to_bytes(4, "little")
    archive.write_bytes(content)
    with pytest.raises(TeeterError, match="is not a valid zip archive"):
        make(archive, tmp_path / "c.teeter")

    archive.write_bytes(content[: len(content) // 2])
    with pytest.raises(TeeterError, match="is not a valid zip archive"):
        make(archive, tmp_path / "c.teeter")
    assert [path.name for path in tmp_path.iterdir()] == ["in.zip"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"has no images. It is empty"),
        ({"a.txt": b"x"}, r"has no images. 1 file was left out.*: 1 .txt"),
    ],
)
def test_an_archive_without_images_is_refused(
    files: dict[str, bytes], message: str, tmp_path: Path
) -> None:
    archive = write_archive(tmp_path / "in.zip", files)
    with pytest.raises(TeeterError, match=message):
        make(archive, tmp_path / "c.teeter")


def test_a_folder_that_exists_is_not_touched(tmp_path: Path) -> None:
    archive = write_archive(tmp_path / "in.zip", {"a.png": png(1), "b.png": png(2)})
    (tmp_path / "c.images").mkdir()
    (tmp_path / "c.images" / "mine.txt").write_text("x")
    with pytest.raises(TeeterError, match=r"to c.images, which exists: choose another name"):
        make(archive, tmp_path / "c.teeter")
    assert [path.name for path in (tmp_path / "c.images").iterdir()] == ["mine.txt"]
