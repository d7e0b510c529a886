"""Datasets that a function gives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from teeter.bench.datasets import DatasetSplit, catalogue, dataset_from_function, load_dataset
from teeter.errors import FileError, InputError, PluginError


def load_from_function(
    monkeypatch: pytest.MonkeyPatch,
    load: Callable[[], Any],
    shape: tuple[int, ...] = (2,),
    classes: Any = ("a", "b"),
) -> DatasetSplit:
    spec = dataset_from_function(
        load, about="for a test", train=3, test=2, shape=shape, classes=classes
    )
    monkeypatch.setitem(catalogue._SPECS, "made", spec)
    return load_dataset("made")


def test_rows_and_named_or_numbered_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.arange(10).reshape(5, 2)
    split = load_from_function(monkeypatch, lambda: (rows[:3], ["a", "b", "a"], rows[3:], [1, 0]))
    assert split.train.inputs.tolist() == rows[:3].tolist()
    assert split.train.labels.tolist() == [0, 1, 0]
    assert split.test.labels.tolist() == [1, 0]
    assert split.classes == ("a", "b")


def test_the_function_may_be_a_partial(monkeypatch: pytest.MonkeyPatch) -> None:
    split = load_from_function(monkeypatch, partial(tuple, [np.eye(2), [0, 1], np.eye(2), [1, 0]]))
    assert len(split.train) == 2


def test_images(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.full((5, 4, 4, 3), 255, dtype=np.uint8)
    split = load_from_function(
        monkeypatch, lambda: (pixels[:3], [0, 1, 0], pixels[3:], [1, 0]), (3, 4, 4), 2
    )
    assert split.train.inputs.shape == (3, 3, 4, 4)
    assert split.train.inputs.max() == 1


@pytest.mark.parametrize(
    ("answer", "error", "sentence"),
    [
        ((1, 2), PluginError, "did not return x_train, y_train, x_test and y_test"),
        (([[0, 0]], [0, 1], [[0, 0]], [0]), PluginError, "returns 1 rows and 2 labels in y_train"),
        (([[0, 0]], [7], [[0, 0]], [0]), FileError, "class indices from 0 to 1"),
        (([[0, 0, 0]], [0], [[0, 0, 0]], [0]), FileError, r"rows of shape \(3,\)"),
    ],
)
def test_what_does_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, answer: Any, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        load_from_function(monkeypatch, lambda: answer)


def test_rows_are_vectors_or_images() -> None:
    with pytest.raises(InputError, match=r"shape is \(2, 2\): give \(features,\) or"):
        dataset_from_function(lambda: (), about="", train=1, test=1, shape=(2, 2), classes=2)
