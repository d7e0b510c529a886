"""Features of images by their pixels, colours and edges."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from teeter.encoders import encode_images
from teeter.encoders.image_encoders import PixelEncoder
from teeter.encoders.images import (
    count_left_out_files,
    describe_left_out_files,
    find_images,
    read_image,
)
from teeter.errors import FileError

COLOURS = slice(0, 768)
"""The first features of an image: its colours at 16 x 16 places."""


def save_image(path: Path, colour: tuple[int, int, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (20, 12), colour).save(path)


def describe(folder: Path, *names: str) -> list[np.ndarray]:
    """Return the raw features of images, before they are projected."""
    encoding = PixelEncoder(folder).describe(names)
    for sentence in encoding.unreadable.values():
        raise FileError(sentence)
    return list(encoding.vectors)


def test_similar_images_have_similar_features(tmp_path: Path) -> None:
    for k in range(6):
        save_image(tmp_path / f"red{k}.png", (200 + 5 * k, 10, 10))
        save_image(tmp_path / f"blue{k}.png", (10, 10, 200 + 5 * k))
    names = [f"{colour}{k}.png" for colour in ("red", "blue") for k in range(6)]

    features = encode_images(names, tmp_path)

    within = np.linalg.norm(features[0] - features[1])
    across = np.linalg.norm(features[0] - features[7])
    assert features.shape[0] == 12
    assert within < across / 3


def test_a_file_that_is_not_an_image_is_refused(tmp_path: Path) -> None:
    save_image(tmp_path / "a.png", (1, 2, 3))
    (tmp_path / "b.png").write_text("not an image")

    with pytest.raises(FileError, match=r"b\.png cannot be read as an image"):
        encode_images(["a.png", "b.png"], tmp_path)


@pytest.mark.parametrize("length", [0, 8, 16, 20, 24, 29, 33, 40, 60])
def test_a_truncated_image_is_refused(length: int, tmp_path: Path) -> None:
    save_image(tmp_path / "a.png", (1, 2, 3))
    content = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(content[:length])

    with pytest.raises(
        FileError, match=r"a\.png cannot be read as an image: fix or remove the file"
    ):
        encode_images(["a.png"], tmp_path)


def test_a_missing_image_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"There is no file .*gone\.png: fix or remove the file"):
        encode_images(["gone.png"], tmp_path)


def test_images_of_16_and_32_bits_are_scaled_to_their_range(tmp_path: Path) -> None:
    right = np.tile(np.linspace(300, 65000, 64), (64, 1)).astype(np.uint16)
    Image.fromarray(right).save(tmp_path / "right.png")
    Image.fromarray(right.T.copy()).save(tmp_path / "down.png")
    Image.fromarray(right // 2).save(tmp_path / "dark.png")
    Image.fromarray((right / 65535).astype(np.float32)).save(tmp_path / "float.tif")
    Image.fromarray(right.astype(np.int32)).save(tmp_path / "integer.tif")
    Image.fromarray((right // 256).astype(np.uint8)).save(tmp_path / "plain.png")

    first, down, dark, *equal_images = describe(
        tmp_path, "right.png", "down.png", "dark.png", "plain.png", "float.tif", "integer.tif"
    )

    assert first[COLOURS].mean() == pytest.approx(0.5, abs=0.01)
    assert dark[COLOURS].mean() == pytest.approx(0.25, abs=0.01)
    assert np.abs(first - down).max() > 0.5
    for image in equal_images:
        assert np.abs(first[COLOURS] - image[COLOURS]).max() < 0.02


def test_images_are_turned_upright_and_shown_over_white(tmp_path: Path) -> None:
    pixels = np.zeros((64, 64, 3), np.uint8)
    pixels[:32] = 255
    image = Image.fromarray(pixels)
    image.save(tmp_path / "upright.png")
    exif = Image.Exif()
    exif[0x0112] = 6  # the orientation tag: rotate by 90 degrees to the right
    image.rotate(90).save(tmp_path / "rotated.png", exif=exif)
    Image.new("RGBA", (9, 9), (255, 0, 0, 0)).save(tmp_path / "transparent.png")
    Image.new("RGB", (9, 9), (255, 255, 255)).save(tmp_path / "white.png")

    upright, rotated, transparent, white = describe(
        tmp_path, "upright.png", "rotated.png", "transparent.png", "white.png"
    )

    assert np.abs(upright - rotated).max() < 0.01
    assert np.abs(transparent - white).max() < 0.01


@pytest.mark.parametrize(
    ("mode", "colour"),
    [
        ("1", 1),
        ("L", 128),
        ("LA", (128, 200)),
        ("P", 3),
        ("RGB", (10, 200, 30)),
        ("RGBA", (10, 200, 30, 90)),
        ("CMYK", (10, 200, 30, 5)),
        ("YCbCr", (90, 100, 110)),
        ("LAB", (90, 100, 110)),
        ("I", 40_000),
        ("I;16", 40_000),
        ("F", 0.5),
    ],
)
def test_every_mode_becomes_red_green_and_blue(mode: str, colour: object, tmp_path: Path) -> None:
    suffix = "jpg" if mode in ("CMYK", "YCbCr") else "tif"
    Image.new(mode, (5, 3), colour).save(tmp_path / f"a.{suffix}")

    picture = read_image(f"a.{suffix}", 8, tmp_path)

    assert picture.shape == (8, 8, 3)
    assert picture.dtype == np.uint8


def test_the_first_frame_of_an_animation_and_a_single_pixel_are_read(tmp_path: Path) -> None:
    frames = [Image.new("RGB", (9, 9), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    Image.new("RGB", (1, 1), (7, 8, 9)).save(tmp_path / "one.png")

    assert read_image("a.gif", 4, tmp_path)[0, 0].tolist() == [255, 0, 0]
    assert read_image("one.png", 4, tmp_path)[3, 3].tolist() == [7, 8, 9]


def test_a_broken_image_is_reported_and_the_others_are_encoded(tmp_path: Path) -> None:
    for k in range(5):
        save_image(tmp_path / f"{k}.png", (40 * k, 9, 9))
    (tmp_path / "2.png").write_text("not an image")
    names = [f"{k}.png" for k in range(5)]
    encoder = PixelEncoder(tmp_path)
    encoder.fit(names)

    encoding = encoder.encode(names)

    assert list(encoding.unreadable) == [2]
    assert "2.png cannot be read as an image" in encoding.unreadable[2]
    assert not encoding.vectors[2].any()
    assert encoding.vectors[[0, 1, 3, 4]].any(axis=1).all()
    assert encoder.encode(["2.png"]).vectors.shape == (1, encoding.vectors.shape[1])


@pytest.mark.filterwarnings("error")
def test_warnings_of_pillow_are_not_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("P", (9, 9), 3).save(tmp_path / "a.png", transparency=bytes([0, 128] * 4))
    Image.new("RGB", (30, 30), (1, 2, 3)).save(tmp_path / "b.png")

    # Pillow warns above the limit, and raises above twice the limit.
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
    assert len(describe(tmp_path, "a.png", "b.png")) == 2

    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(FileError, match=r"b\.png cannot be read as an image"):
        describe(tmp_path, "b.png")


def test_files_that_are_no_images_are_counted_by_their_endings(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg", "inside/c.SVG", "d.psd", "notes", ".DS_Store", ".git/e.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(FileError, match=r"has no images: 5 files .* 3 \.svg, 1 without"):
        find_images(tmp_path)

    save_image(tmp_path / "photo.PNG", (1, 2, 3))
    assert find_images(tmp_path) == [tmp_path / "photo.PNG"]
    assert count_left_out_files(tmp_path) == {".svg": 3, "": 1, ".psd": 1}
    many = {f".{number}": 1 for number in range(12)}
    assert str(describe_left_out_files(many)).endswith("1 .9, and 2 others.")
    assert describe_left_out_files({}) is None
