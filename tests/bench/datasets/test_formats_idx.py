"""IDX files: the pixels that were written come back, and a damaged file is refused."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from small_datasets import (
    as_fractions,
    bytes_of,
    write_idx,
    write_mnist,
)
from teeter.bench.datasets import load_dataset
from teeter.bench.datasets.formats import read_idx
from teeter.errors import FileError


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("dot", ["-", "."])
def test_idx(tmp_path: Path, name: str, packed: bool, dot: str) -> None:
    train, test = write_mnist(tmp_path / name, packed=packed, dot=dot)
    split = load_dataset(name, folder=tmp_path)
    torch.testing.assert_close(split.train.inputs, as_fractions(train)[:, None])
    torch.testing.assert_close(split.test.inputs, as_fractions(test)[:, None])
    assert split.train.labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert split.train.labels.dtype == np.int64
    assert len(split.classes) == 10


def test_the_same_names_are_told_apart_by_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path)
    with pytest.raises(FileError, match="There is no fashion-mnist in"):
        load_dataset("fashion-mnist", folder=tmp_path)
    write_mnist(tmp_path / "FashionMNIST" / "raw")
    assert len(load_dataset("fashion-mnist", folder=tmp_path).train) == 12
    write_mnist(tmp_path / "mnist")
    assert len(load_dataset("mnist", folder=tmp_path / "mnist").train) == 12
    monkeypatch.chdir(tmp_path / "mnist")
    assert len(load_dataset("mnist", folder=".").train) == 12


@given(arrays.arrays(np.uint8, arrays.array_shapes(max_dims=4, max_side=5)), st.booleans())
def test_any_array_of_bytes_goes_through_idx(
    tmp_path_factory: pytest.TempPathFactory, array: Any, packed: bool
) -> None:
    path = write_idx(tmp_path_factory.mktemp("idx") / ("a.gz" if packed else "a"), array)
    assert (read_idx(path) == array).all()


@given(st.binary(max_size=40), st.booleans())
def test_no_bytes_make_idx_stumble(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, packed: bool
) -> None:
    path = tmp_path_factory.mktemp("idx") / ("a.gz" if packed else "a")
    path.write_bytes(content)
    with contextlib.suppress(FileError):
        read_idx(path)


def test_idx_cut_short_or_mixed_up(tmp_path: Path) -> None:
    home = tmp_path / "mnist"
    write_mnist(home, packed=False)
    path = home / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])

    with pytest.raises(
        FileError,
        match=r"declares 12 x 28 x 28 bytes, but the file has 9407 after the header: it is incom",
    ):
        load_dataset("mnist", folder=tmp_path)

    write_idx(path, bytes_of(11, 28, 28))
    with pytest.raises(FileError, match=r"has the shape \(11, 28, 28\) and .* the shape \(12,\)"):
        load_dataset("mnist", folder=tmp_path)

    write_idx(path, bytes_of(12, 27, 28))
    with pytest.raises(FileError, match=r"images \(N, 1, 28, 28\) are needed"):
        load_dataset("mnist", folder=tmp_path)


def test_what_the_system_refuses_is_not_called_damage(tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", packed=False)
    path = tmp_path / "mnist" / "train-images-idx3-ubyte"
    path.unlink()
    path.symlink_to(path)

    with pytest.raises(
        FileError,
        match=r"Cannot read .*train-images-idx3-ubyte: Too many levels of symbolic links\.",
    ):
        load_dataset("mnist", folder=tmp_path)

    path.unlink()
    path.mkdir()
    with pytest.raises(FileError, match=r"Cannot read .*train-images-idx3-ubyte: Is a directory\."):
        load_dataset("mnist", folder=tmp_path)
