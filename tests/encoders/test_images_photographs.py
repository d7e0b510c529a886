"""Photographs as phones take them: HEIC and AVIF, turned by what the camera says."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from fastapi.responses import FileResponse

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.items.image_links import image_suffix
from teeter.campaigns.settings import Settings
from teeter.encoders import images
from teeter.encoders.images import find_images, is_image_name, read_image
from teeter.errors import FileError
from teeter.server.uploads import image_response

Image = pytest.importorskip("PIL.Image")

TURNED_RIGHT = 6
"""The value of EXIF for a camera that was held on its side: the picture is turned by 90 degrees."""

FORMATS = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "AVIF": ".avif", "HEIF": ".heic"}


def write_photograph(folder: Path, form: str, orientation: int = TURNED_RIGHT) -> Path:
    """Write a photograph of 80 x 40, whose left half is blue and whose right half is red."""
    if form == "HEIF":
        pytest.importorskip("pillow_heif")
        assert images.enable_heif()
    if form == "AVIF":
        features = pytest.importorskip("PIL.features")
        if not features.check("avif"):
            pytest.skip("this Pillow has no AVIF")

    image = Image.new("RGB", (80, 40), "red")
    image.paste("blue", (0, 0, 40, 40))
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = io.BytesIO()
    image.save(content, form, exif=exif.tobytes())
    path = folder / f"photo{FORMATS[form]}"
    path.write_bytes(content.getvalue())
    return path


def is_blue(pixel: object) -> bool:
    red, _, blue = np.asarray(pixel, dtype=int)[:3]
    return bool(blue > 200 and red < 60)


@pytest.mark.parametrize("form", FORMATS)
def test_encoders_see_photographs_upright(form: str, tmp_path: Path) -> None:
    path = write_photograph(tmp_path, form)
    assert image_suffix(path.read_bytes()[:32]) == path.suffix
    assert find_images(tmp_path) == [path]

    picture = read_image(path.name, 32, tmp_path)
    assert is_blue(picture[4, 16])
    assert not is_blue(picture[28, 16])


@pytest.mark.parametrize("form", ["WEBP", "HEIF"])
def test_the_page_gets_what_browsers_show_upright(form: str, tmp_path: Path) -> None:
    response = image_response(write_photograph(tmp_path, form))
    assert response.media_type == {"WEBP": "image/webp", "HEIF": "image/jpeg"}[form]
    with Image.open(io.BytesIO(response.body)) as shown:
        assert shown.size == (40, 80)
        assert is_blue(shown.convert("RGB").getpixel((20, 10)))


@pytest.mark.parametrize("form", ["JPEG", "PNG", "AVIF"])
def test_what_browsers_turn_themselves_is_sent_as_it_is(form: str, tmp_path: Path) -> None:
    response = image_response(write_photograph(tmp_path, form))
    assert response.media_type == f"image/{form.lower()}"
    assert isinstance(response, FileResponse)


def test_a_webp_image_that_is_upright_is_sent_as_it_is(tmp_path: Path) -> None:
    path = write_photograph(tmp_path, "WEBP", orientation=1)
    assert image_response(path).body == path.read_bytes()


def test_without_the_library_heic_is_left_out_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "enable_heif", lambda: False)
    monkeypatch.setattr("teeter.server.uploads.enable_heif", lambda: False)
    heic = b"\0\0\0\x1cftypheic\0\0\0\0mif1heicmiaf" + bytes(20)
    (tmp_path / "a.heic").write_bytes(heic)
    assert not is_image_name("a.HEIC")
    with pytest.raises(FileError, match=r"1 \.heic \(to read HEIC .*, pip install pillow-heif\)"):
        find_images(tmp_path)
    with pytest.raises(FileError, match="pip install pillow-heif"):
        read_image("a.heic", 32, tmp_path)
    with pytest.raises(FileError, match="pip install pillow-heif"):
        image_response(tmp_path / "a.heic")

    Image.new("RGB", (8, 8)).save(tmp_path / "b.png")
    settings = Settings(encoder="pixels")
    campaign = Campaign.make(tmp_path, ["a", "b"], at=tmp_path / "c.teeter", settings=settings)
    assert campaign.imported.new == 1
    assert campaign.imported.left_out_files[".heic"] == 1
    campaign.database.close()


def test_damaged_photographs_have_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("pillow_heif")
    path = tmp_path / "a.heic"
    path.write_bytes(b"\0\0\0\x1cftypheic\0\0\0\0mif1heicmiaf" + bytes(200))
    with pytest.raises(FileError, match=r"a\.heic cannot be displayed as an image"):
        image_response(path)
    with pytest.raises(FileError, match=r"a\.heic cannot be read as an image"):
        read_image("a.heic", 32, tmp_path)
