"""Items from the forms that users pass, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from teeter.campaigns import Campaign
from teeter.campaigns.items.item import parse_items, quote_id, read_image_items, require_printable
from teeter.errors import FileError, InputError


def test_texts_pairs_and_dictionaries_become_items() -> None:
    items = parse_items(["one", ("b", "two"), {"id": 3, "text": "three", "label": " yes "}], "text")

    assert [(item.key, item.content, item.label) for item in items[1:]] == [
        ("b", "two", None),
        ("3", "three", "yes"),
    ]
    assert len(items[0].key) == 12
    assert parse_items(["one"], "text")[0].key == items[0].key, "the same text has the same id"


def test_a_long_text_is_stored_in_full() -> None:
    (item,) = parse_items(["word " * 2_000_000], "text")

    assert item.content is not None
    assert len(item.content) == 10_000_000


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (3, "An item cannot be of type int: give a string with the text, an"),
        ({"id": "a"}, "An item has no text"),
        ({"text": "  "}, "An item has no text"),
        ({"text": None}, "An item has no text"),
        ({"text": "a", "features": ["x"]}, "features are not numbers"),
        (
            {"text": "a", "features": [1.0, float("nan")]},
            "must be a list of finite numbers, but the value at position 1 is nan",
        ),
        (
            {"id": "v3", "text": "a", "features": [float("inf")]},
            "The features of 'v3' .* position 0 is inf",
        ),
        (
            {"id": "v3", "text": "a", "features": np.ma.array([1.0, 2.0], mask=[False, True])},
            "The features of 'v3' have masked values: fill them in",
        ),
        ({"text": "bad \ud800"}, "has a lone surrogate at position 4"),
        ({"id": "\ud800", "text": "a"}, "The id .* has a lone surrogate"),
        ({"text": "a", "label": "\ud800"}, "The label .* has a lone surrogate"),
        ({"text": "a", "features": []}, "must be a list of finite numbers"),
    ],
)
def test_invalid_entries_are_refused(entry: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_items([entry], "text")


class PandasFrame:
    """What a data frame of pandas looks like: iterating it gives the names of its columns."""

    columns = ("text", "label")

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)


class PandasSeries:
    """What a column of pandas looks like."""

    def to_frame(self) -> PandasFrame:
        return PandasFrame()

    def __iter__(self) -> Iterator[str]:
        return iter(["one", "two"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (PandasFrame(), r"a PandasFrame: give a list of .* frame\.to_dict\('records'\)"),
        (PandasSeries(), r"a PandasSeries: give a list of its values.* series\.tolist\(\)"),
    ],
)
def test_data_frames_are_refused_instead_of_read_as_their_column_names(
    values: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        Campaign.make(values, ["a", "b"], at=tmp_path / "new.teeter")
    assert not (tmp_path / "new.teeter").exists()

    campaign = Campaign.make([], ["a", "b"], at=tmp_path / "c.teeter")
    with pytest.raises(InputError, match=message):
        campaign.add(values)
    with pytest.raises(InputError, match=message):
        campaign.suggestions.add(values, "old model")


def test_a_column_of_a_real_data_frame_is_refused(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["one", "two"], "label": ["a", "b"]})
    campaign = Campaign.make([], ["a", "b"], at=tmp_path / "c.teeter")

    with pytest.raises(InputError, match=r"give a list of .* In pandas"):
        campaign.add(frame["text"])
    assert campaign.add(frame).new == 2
    assert campaign.add(frame.to_dict("records")).labelled == 2


def test_a_campaign_of_features_needs_features() -> None:
    with pytest.raises(InputError, match="One of the items has no features"):
        parse_items([{"id": "a"}], "features")

    (item,) = parse_items([{"id": "a", "features": [1, 2]}], "features")
    assert item.features is not None
    assert item.features.tolist() == [1.0, 2.0]


def test_a_masked_array_without_masked_numbers_is_accepted() -> None:
    (item,) = parse_items([{"id": "a", "features": np.ma.array([1.0, 2.0])}], "features")

    assert item.features is not None
    assert item.features.tolist() == [1.0, 2.0]


def save_image(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (20, 12), (1, 2, 3)).save(path)


def test_images_of_a_folder_and_of_folders_inside_it_are_found(tmp_path: Path) -> None:
    save_image(tmp_path / "b.png")
    save_image(tmp_path / "deep" / "a.jpg")
    (tmp_path / "notes.txt").write_text("no image")

    assert [item.key for item in read_image_items(tmp_path)] == ["b.png", "deep/a.jpg"]


@pytest.mark.parametrize("path", ["../secret.png", "/etc/passwd", "deep/../../secret.png"])
def test_no_path_leads_out_of_the_folder(path: str, tmp_path: Path) -> None:
    save_image(tmp_path / "secret.png")
    (tmp_path / "inside" / "deep").mkdir(parents=True)

    with pytest.raises(FileError, match="is outside the campaign's folder"):
        parse_items([path], "image", tmp_path / "inside")


def test_a_link_does_not_lead_out_of_the_folder_either(tmp_path: Path) -> None:
    save_image(tmp_path / "secret.png")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "link.png").symlink_to(tmp_path / "secret.png")

    with pytest.raises(FileError, match="is outside"):
        parse_items(["link.png"], "image", tmp_path / "inside")


def test_folders_without_images_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="has no images"):
        list(read_image_items(tmp_path))
    with pytest.raises(FileError, match="is not a folder of images"):
        list(read_image_items(tmp_path / "none"))


def test_images_without_a_folder_are_refused() -> None:
    with pytest.raises(InputError, match=r"Cannot read a\.png without the folder"):
        parse_items(["a.png"], "image")


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31mred", "a\u2028b"])
def test_names_with_control_characters_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"The class .* has a control character"):
        require_printable(name, "class")


def test_long_ids_are_shortened_in_messages() -> None:
    assert len(quote_id("x" * 100)) == 62
    assert quote_id("a\nb") == "'a\\nb'"
