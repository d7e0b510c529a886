"""CIFAR-10 in PNG sheets: the pixels that were written come back."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from small_datasets import (
    as_fractions,
    bytes_of,
    picture,
)
from teeter.datasets import load_dataset
from teeter.errors import FileError


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def write_sheets(folder: Path) -> np.ndarray[Any, Any]:
    folder.mkdir()
    pixels = bytes_of(12, 1024, 3)
    for batch in range(6):
        name = "test_batch" if batch == 5 else f"data_batch_{batch + 1}"
        (folder / f"{name}.png").write_bytes(picture(pixels[2 * batch : 2 * batch + 2]))
    (folder / "train_lables.json").write_text(json.dumps([k % 10 for k in range(10)]))
    (folder / "test_lables.json").write_text("[8, 9]")
    return pixels


def test_sheets(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    pixels = write_sheets(tmp_path / "package")
    split = load_dataset("cifar10", folder=tmp_path)
    assert split.test.labels.tolist() == [8, 9]
    torch.testing.assert_close(
        split.train.inputs, as_fractions(pixels[:10].reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))
    )


def test_sheets_that_do_not_fit(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    folder = tmp_path / "package"
    write_sheets(folder)
    (folder / "test_lables.json").write_text("[8]")
    with pytest.raises(FileError, match=r"The sheets hold 2 images and .* 1 labels"):
        load_dataset("cifar10", folder=tmp_path)
    (folder / "test_lables.json").write_text("[8,")
    with pytest.raises(FileError, match="is not a whole JSON file"):
        load_dataset("cifar10", folder=tmp_path)
    (folder / "test_batch.png").write_bytes(picture(bytes_of(2, 100, 3)))
    with pytest.raises(FileError, match="is 100 pixels wide"):
        load_dataset("cifar10", folder=tmp_path)
    (folder / "data_batch_4.png").unlink()
    with pytest.raises(FileError, match="has 4 of the 5 sheets"):
        load_dataset("cifar10", folder=tmp_path)
