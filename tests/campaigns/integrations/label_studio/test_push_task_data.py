"""What annotators see of an item, and how tasks and files are split into requests."""

from __future__ import annotations

from pathlib import Path

import httpx2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from campaigns.fake_label_studio import FAKE_URL, LEGACY_TOKEN
from teeter.campaigns.integrations.label_studio.client import LabelStudioClient
from teeter.campaigns.integrations.label_studio.push import (
    format_features,
    image_urls,
    split_by_size,
    upload_images,
)
from teeter.errors import FileError, ServerError


def test_features_are_readable() -> None:
    features = np.array([1.0, 2.5e-7, 3.14159], dtype=np.float32)
    assert format_features("n1", features) == "n1\n1, 2.5e-07, 3.142"

    many_features = np.zeros(500, dtype=np.float32)
    assert format_features("n1", many_features).endswith("0, … (500 features)")


def test_a_prefix_and_a_path_make_a_url() -> None:
    urls = image_urls("/data/local-files/?d=images/", {"a": "a b.png", "c": "deep/c.png"})
    assert urls == {
        "a": "/data/local-files/?d=images/a%20b.png",
        "c": "/data/local-files/?d=images/deep/c.png",
    }


def test_an_unreadable_image_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.tiff").write_bytes(b"no image")
    client = LabelStudioClient(FAKE_URL, LEGACY_TOKEN)
    with pytest.raises(FileError, match=r"Cannot read broken\.tiff as an image"):
        upload_images(client, 1, tmp_path, {"a": "broken.tiff"})


def test_images_that_the_server_does_not_store_are_an_error(tmp_path: Path) -> None:
    for name in ("a.png", "b.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)

    def store_one_file(request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST":
            return httpx2.Response(201, json={"file_upload_ids": [1, 2]})
        return httpx2.Response(200, json=[{"id": 1, "file": "upload/1/a.png"}])

    client = LabelStudioClient(
        FAKE_URL, LEGACY_TOKEN, transport=httpx2.MockTransport(store_one_file)
    )
    with pytest.raises(ServerError, match=r"stored only 1 of 2 images\. Run the sync again"):
        upload_images(client, 1, tmp_path, {"a": "a.png", "b": "b.png"})


@given(sizes=st.lists(st.integers(0, 9_000_000), max_size=250))
def test_every_part_fits_into_a_request(sizes: list[int]) -> None:
    parts = list(split_by_size(list(range(len(sizes))), sizes))

    assert [entry for part in parts for entry in part] == list(range(len(sizes)))
    assert all(len(part) <= 100 for part in parts)
    assert all(len(part) == 1 or sum(sizes[k] for k in part) <= 8_000_000 for part in parts)
