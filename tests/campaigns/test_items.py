"""Items from what people have, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from teeter.campaigns.encoders import encode_images, encode_texts
from teeter.campaigns.items import image_items, items_of, vector_items
from teeter.errors import FileError, InputError


def test_texts_alone_pairs_and_dictionaries() -> None:
    found = items_of(["one", ("b", "two"), {"id": 3, "text": "three", "label": " yes "}], "text")
    assert [(item.key, item.content, item.label) for item in found[1:]] == [("b", "two", None), ("3", "three", "yes")]
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
        ({"text": "a", "features": [1.0, float("nan")]}, "must be a list of finite numbers"),
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
    texts = ["the card was lost", "my card is lost", "a lost card", "exchange rate today", "what is the exchange rate"]
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
