"""SVHN's MATLAB files: the pixels that were written come back."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from small_datasets import (
    as_fractions,
    bytes_of,
    write_svhn,
)
from teeter.bench.datasets import load_dataset
from teeter.errors import FileError


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def test_svhn_calls_the_digit_ten_nought(tmp_path: Path) -> None:
    pixels = write_svhn(tmp_path)
    split = load_dataset("svhn", folder=tmp_path)
    assert split.train.labels.tolist() == [1, 0, 9, 0]
    torch.testing.assert_close(split.train.inputs[2, 1, 5, 6], as_fractions(pixels[5, 6, 1, 2]))
    torch.testing.assert_close(
        split.test.inputs, as_fractions(pixels[..., 4:].transpose(3, 2, 0, 1))
    )


def test_svhn_of_another_kind(tmp_path: Path) -> None:
    from scipy.io import savemat

    write_svhn(tmp_path)
    path = tmp_path / "train_32x32.mat"
    content = path.read_bytes()
    for arrays_, message in [
        ({"z": 1}, "does not hold X and y"),
        ({"X": bytes_of(28, 28, 3, 2), "y": [[1], [2]]}, r"bytes \(32, 32, 3, N\) are needed"),
        ({"X": bytes_of(32, 32, 3, 2), "y": [[1], [2], [3]]}, "has 2 images and 3 labels"),
        ({"X": bytes_of(32, 32, 3, 2), "y": [[1], [11]]}, "must hold class indices"),
    ]:
        savemat(path, arrays_)
        with pytest.raises(FileError, match=message):
            load_dataset("svhn", folder=tmp_path)
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(FileError, match="is not a valid MATLAB file"):
        load_dataset("svhn", folder=tmp_path)
