"""Items from what people have, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from teeter.campaigns.items import image_items, items_of, vector_items
from teeter.encoders.builtin import _looked_at, encode_images, encode_texts
from teeter.errors import FileError, InputError


def test_texts_alone_pairs_and_dictionaries() -> None:
    found = items_of(["one", ("b", "two"), {"id": 3, "text": "three", "label": " yes "}], "text")
    assert [(item.key, item.content, item.label) for item in found[1:]] == [
        ("b", "two", None),
        ("3", "three", "yes"),
    ]
    assert len(found[0].key) == 12
    assert items_of(["one"], "text")[0].key == found[0].key, "an id made of the content stays"


def test_a_long_text_is_kept_whole() -> None:
    (item,) = items_of(["word " * 2_000_000], "text")
    assert item.content is not None
    assert len(item.content) == 10_000_000


@pytest.mark.parametrize(
    ("thing", "message"),
    [
        (3, "Cannot make an item of a int"),
        ({"id": "a"}, "An item has no text"),
        ({"text": "  "}, "An item has no text"),
        ({"text": None}, "An item has no text"),
        ({"text": "a", "features": ["x"]}, "features are not numbers"),
        (
            {"text": "a", "features": [1.0, float("nan")]},
            "must be a list of finite numbers: number 1 of them is nan",
        ),
        (
            {"id": "v3", "text": "a", "features": [float("inf")]},
            "The features of 'v3' .* number 0 of them is inf",
        ),
        ({"text": "bad \ud800"}, "has half a character at place 4"),
        ({"id": "\ud800", "text": "a"}, "The id .* has half a character"),
        ({"text": "a", "label": "\ud800"}, "The label .* has half a character"),
        ({"text": "a", "features": []}, "must be a list of finite numbers"),
    ],
)
def test_what_is_no_item_is_told(thing: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        items_of([thing], "text")


def test_features_are_needed_where_there_is_nothing_else() -> None:
    with pytest.raises(InputError, match="An item has no features"):
        items_of([{"id": "a"}], "features")
    (item,) = vector_items(["a"], [[1, 2]])
    assert item.features is not None
    assert item.features.tolist() == [1.0, 2.0]


def picture(path: Path, colour: tuple[int, int, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (20, 12), colour).save(path)


def test_images_of_a_folder_and_those_inside_it(tmp_path: Path) -> None:
    picture(tmp_path / "b.png", (255, 0, 0))
    picture(tmp_path / "deep" / "a.jpg", (0, 255, 0))
    (tmp_path / "notes.txt").write_text("no image")
    assert [item.key for item in image_items(tmp_path)] == ["b.png", "deep/a.jpg"]


@pytest.mark.parametrize("path", ["../secret.png", "/etc/passwd", "deep/../../secret.png"])
def test_no_path_leads_out_of_the_folder(path: str, tmp_path: Path) -> None:
    picture(tmp_path / "secret.png", (0, 0, 0))
    (tmp_path / "inside" / "deep").mkdir(parents=True)
    with pytest.raises(FileError, match="leads out of the campaign's folder"):
        items_of([path], "image", tmp_path / "inside")


def test_a_link_does_not_lead_out_either(tmp_path: Path) -> None:
    picture(tmp_path / "secret.png", (0, 0, 0))
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "link.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(FileError, match="leads out"):
        items_of(["link.png"], "image", tmp_path / "inside")


def test_folders_without_images_are_told(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="has no images"):
        list(image_items(tmp_path))
    with pytest.raises(FileError, match="is not a folder of images"):
        list(image_items(tmp_path / "none"))


def test_an_image_that_is_not_one_is_told(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", (1, 2, 3))
    (tmp_path / "b.png").write_text("not an image")
    with pytest.raises(FileError, match=r"b\.png is not an image that can be read"):
        encode_images(["a.png", "b.png"], tmp_path)


def test_images_that_look_alike_have_features_alike(tmp_path: Path) -> None:
    for k in range(6):
        picture(tmp_path / f"red{k}.png", (200 + 5 * k, 10, 10))
        picture(tmp_path / f"blue{k}.png", (10, 10, 200 + 5 * k))
    names = [f"{colour}{k}.png" for colour in ("red", "blue") for k in range(6)]
    features = encode_images(names, tmp_path)
    within = np.linalg.norm(features[0] - features[1])
    across = np.linalg.norm(features[0] - features[7])
    assert features.shape[0] == 12
    assert within < across / 3


def test_texts_that_read_alike_have_features_alike() -> None:
    texts = [
        "the card was lost",
        "my card is lost",
        "a lost card",
        "exchange rate today",
        "what is the exchange rate",
    ]
    features = encode_texts(texts * 3 + ["…", "a"])
    lengths = np.linalg.norm(features, axis=1)
    assert np.isfinite(features).all()
    assert lengths[:15] == pytest.approx(1, abs=1e-4)
    assert features[0] @ features[1] > features[0] @ features[3] + 0.2


@pytest.mark.parametrize("texts", [["one"], ["one", "two"], ["same", "same", "same"]])
def test_few_texts_have_features_too(texts: list[str]) -> None:
    features = encode_texts(texts)
    assert features.shape[0] == len(texts)
    assert np.isfinite(features).all()


def looked_at(path: Path, *names: str) -> list[np.ndarray]:
    return list(_looked_at(list(names), path))


def test_images_of_many_bits_are_told_apart(tmp_path: Path) -> None:
    right = np.tile(np.linspace(300, 65000, 64), (64, 1)).astype(np.uint16)
    Image.fromarray(right).save(tmp_path / "right.png")
    Image.fromarray(right.T.copy()).save(tmp_path / "down.png")
    Image.fromarray(right // 2).save(tmp_path / "dark.png")
    Image.fromarray((right / 65535).astype(np.float32)).save(tmp_path / "f.tif")
    Image.fromarray(right.astype(np.int32)).save(tmp_path / "i.tif")
    Image.fromarray((right // 256).astype(np.uint8)).save(tmp_path / "plain.png")
    one, down, dark, *same = looked_at(
        tmp_path, *(f"{name}.png" for name in ("right", "down", "dark", "plain")), "f.tif", "i.tif"
    )
    assert one[:768].mean() == pytest.approx(0.5, abs=0.01)
    assert dark[:768].mean() == pytest.approx(0.25, abs=0.01)
    assert np.abs(one - down).max() > 0.5
    for other in same:
        assert np.abs(one[:768] - other[:768]).max() < 0.02


def test_images_are_seen_upright_and_over_white(tmp_path: Path) -> None:
    pixels = np.zeros((64, 64, 3), np.uint8)
    pixels[:32] = 255
    picture = Image.fromarray(pixels)
    picture.save(tmp_path / "upright.png")
    turned = Image.Exif()
    turned[0x0112] = 6  # to be turned by a quarter to the right
    picture.rotate(90).save(tmp_path / "turned.png", exif=turned)
    Image.new("RGBA", (9, 9), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    Image.new("RGB", (9, 9), (255, 255, 255)).save(tmp_path / "white.png")
    upright, again, clear, white = looked_at(
        tmp_path, "upright.png", "turned.png", "clear.png", "white.png"
    )
    assert np.abs(upright - again).max() < 0.01
    assert np.abs(clear - white).max() < 0.01


@pytest.mark.filterwarnings("error")
def test_what_pillow_wonders_at_is_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("P", (9, 9), 3).save(tmp_path / "a.png", transparency=bytes([0, 128] * 4))
    Image.new("RGB", (30, 30), (1, 2, 3)).save(tmp_path / "b.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 500)
    assert len(looked_at(tmp_path, "a.png", "b.png")) == 2
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(FileError, match=r"b\.png is not an image that can be read"):
        looked_at(tmp_path, "b.png")


@pytest.mark.parametrize("length", [0, 8, 16, 20, 24, 29, 33, 40, 60])
def test_an_image_that_is_cut_short_is_told(length: int, tmp_path: Path) -> None:
    picture(tmp_path / "a.png", (1, 2, 3))
    whole = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(whole[:length])
    with pytest.raises(
        FileError, match=r"a\.png is not an image that can be read: mend it, take it out"
    ):
        encode_images(["a.png"], tmp_path)
