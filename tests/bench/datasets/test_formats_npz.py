"""A dataset in one .npz file: images in every usual order, and a sentence for wrong arrays."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from small_datasets import (
    as_fractions,
    bytes_of,
)
from teeter.bench.datasets import load_dataset
from teeter.errors import FileError
from teeter.models.inputs import materialize


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


X, Y = bytes_of(6, 3, 32, 32), np.arange(6)

ORDERS: dict[str, Callable[[Any], Any]] = {
    "channels first": lambda x: x,
    "channels last": lambda x: x.transpose(0, 2, 3, 1),
    "flat": lambda x: x.reshape(6, -1),
    "fractions": lambda x: x / 255,
}


@pytest.mark.parametrize("order", ORDERS)
def test_arrays_in_every_usual_order(tmp_path: Path, order: str) -> None:
    x = ORDERS[order](X)
    np.savez(
        tmp_path / "cifar10.npz",
        x_train=x,
        y_train=Y[:, None],
        x_test=x[:2],
        y_test=np.array(["bird", "cat"]),
    )

    split = load_dataset("cifar10", folder=tmp_path)

    torch.testing.assert_close(split.train.inputs, as_fractions(X))
    assert split.train.inputs.is_contiguous()
    assert split.train.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert split.test.labels.tolist() == [2, 3]


def test_large_images_stay_bytes_until_asked_for(tmp_path: Path) -> None:
    x = bytes_of(5, 64, 64, 3)
    np.savez(
        tmp_path / "tiny-imagenet.npz",
        x_train=x,
        y_train=range(5),
        x_test=x,
        y_test=range(5),
        classes=list("abcde"),
    )

    split = load_dataset("tiny-imagenet", folder=tmp_path, validation=2)

    assert split.validation is not None
    assert len(split.validation.inputs) == 2
    torch.testing.assert_close(
        materialize(split.test.inputs), as_fractions(x.transpose(0, 3, 1, 2))
    )
    assert split.classes == tuple("abcde")


GOOD = {"x_train": X, "y_train": Y, "x_test": X, "y_test": Y}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"x_train": X[:5]},
            r"holds x_train \(5, 3, 32, 32\) and 6 labels in y_train: one label per row is needed",
        ),
        (
            {"y_test": Y + 5},
            "'y_test' in .* must hold class indices from 0 to 9, but it holds other values",
        ),
        ({"y_test": Y - 1}, "must hold class indices from 0 to 9"),
        ({"y_test": Y + 0.5}, "must hold class indices from 0 to 9"),
        ({"y_test": Y * np.nan}, "must hold class indices from 0 to 9"),
        (
            {"y_test": np.eye(6)},
            r"'y_test' in .* is float64 of shape \(6, 6\): give one class per row",
        ),
        ({"y_test": np.array(["cow"] * 6)}, "has the unknown class 'cow'"),
        ({"x_test": X[:, :2]}, r"images \(N, 3, 32, 32\) are needed"),
        (
            {"x_test": X.astype(np.int32)},
            r"save images as bytes \(uint8\), or as fractions from 0 to 1",
        ),
        ({"x_test": X * 1.0}, "fractions from 0 to 1"),
        ({"x_train": X[:0], "y_train": Y[:0]}, "holds no images"),
        ({"x_train": np.array([{}] * 6)}, "pickled Python objects, which teeter never loads"),
    ],
)
def test_wrong_arrays_are_one_sentence(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    np.savez(tmp_path / "cifar10.npz", **(GOOD | change))
    with pytest.raises(FileError, match=message):
        load_dataset("cifar10", folder=tmp_path)


def test_arrays_without_their_names_or_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "cifar10.npz"
    np.savez(path, images=X, y_train=Y)
    with pytest.raises(
        FileError,
        match=r"holds images, y_train: name its arrays x_train, y_train, x_test, y_test, or x",
    ):
        load_dataset("cifar10", folder=tmp_path)

    np.savez(path, x=X, y=Y)
    with pytest.raises(FileError, match="has a published test set, but the file has none"):
        load_dataset("cifar10", folder=tmp_path)

    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(FileError, match=r"is not a valid \.npz file"):
        load_dataset("cifar10", folder=tmp_path)
