"""Images in IDX, CIFAR's binary version, MATLAB files and arrays: the pixels that were written come back."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from small_datasets import bytes_of, write_cifar10, write_cifar100, write_idx, write_mnist, write_svhn
from teeter.datasets import load_dataset
from teeter.datasets.formats.idx import read_idx
from teeter.errors import FileError
from teeter.models.inputs import materialize


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def fractions(pixels: Any) -> torch.Tensor:
    return torch.as_tensor(np.asarray(pixels), dtype=torch.float32) / 255


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("dot", ["-", "."])
def test_idx(tmp_path: Path, name: str, packed: bool, dot: str) -> None:
    train, test = write_mnist(tmp_path / name, packed=packed, dot=dot)
    split = load_dataset(name, folder=tmp_path)
    torch.testing.assert_close(split.train.inputs, fractions(train)[:, None])
    torch.testing.assert_close(split.test.inputs, fractions(test)[:, None])
    assert split.train.labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert split.train.labels.dtype == np.int64
    assert len(split.classes) == 10


def test_the_same_names_are_told_apart_by_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_no_bytes_make_idx_stumble(tmp_path_factory: pytest.TempPathFactory, content: bytes, packed: bool) -> None:
    path = tmp_path_factory.mktemp("idx") / ("a.gz" if packed else "a")
    path.write_bytes(content)
    with contextlib.suppress(FileError):
        read_idx(path)


def test_idx_cut_short_or_mixed_up(tmp_path: Path) -> None:
    home = tmp_path / "mnist"
    write_mnist(home, packed=False)
    path = home / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(FileError, match=r"announces 12 x 28 x 28 = 9408 bytes, and it holds 9407: it is incomplete"):
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
    with pytest.raises(FileError, match=r"Cannot read .*train-images-idx3-ubyte: Too many levels of symbolic links\."):
        load_dataset("mnist", folder=tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(FileError, match=r"Cannot read .*train-images-idx3-ubyte: Is a directory\."):
        load_dataset("mnist", folder=tmp_path)


def test_cifar10(tmp_path: Path) -> None:
    train, test = write_cifar10(tmp_path / "cifar-10-batches-bin")
    split = load_dataset("cifar10", folder=tmp_path, validation=3)
    assert split.validation is not None
    assert (len(split.train), len(split.validation), len(split.test)) == (17, 3, 4)
    whole = load_dataset("cifar10", folder=tmp_path)
    torch.testing.assert_close(whole.train.inputs, fractions(train[:, 1:]).reshape(-1, 3, 32, 32))
    assert whole.train.labels.tolist() == train[:, 0].tolist()
    torch.testing.assert_close(whole.test.inputs, fractions(test[:, 1:]).reshape(-1, 3, 32, 32))


def test_cifar100_has_the_fine_classes(tmp_path: Path) -> None:
    records = write_cifar100(tmp_path / "cifar100" / "cifar-100-binary")
    split = load_dataset("cifar100", folder=tmp_path)
    assert split.train.labels.tolist() == records[:6, 1].tolist()
    torch.testing.assert_close(split.test.inputs, fractions(records[6:, 2:]).reshape(-1, 3, 32, 32))
    assert split.classes[:2] == ("apple", "aquarium_fish")


def test_cifar_cut_short_or_wrong(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    path = tmp_path / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(FileError, match=r"has 12285 bytes, which is not a multiple of 3073 bytes per image: it is incomplete"):
        load_dataset("cifar10", folder=tmp_path)
    path.write_bytes(b"\x0a" + bytes(3072))
    with pytest.raises(FileError, match="must hold class indices from 0 to 9"):
        load_dataset("cifar10", folder=tmp_path)
    path.unlink()
    with pytest.raises(FileError, match="There is no cifar10 in"):
        load_dataset("cifar10", folder=tmp_path)


@pytest.mark.parametrize(("name", "file"), [("cifar10", "cifar-10-batches-py/data_batch_1"), ("cifar100", "train")])
def test_pickled_batches_are_never_loaded(tmp_path: Path, name: str, file: str) -> None:
    path = tmp_path / name / file
    path.parent.mkdir(parents=True)
    path.write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    with pytest.raises(FileError, match=r"is a pickle, which teeter never loads: get CIFAR's binary version, cifar-10"):
        load_dataset(name, folder=tmp_path)


def test_svhn_calls_the_digit_ten_nought(tmp_path: Path) -> None:
    pixels = write_svhn(tmp_path)
    split = load_dataset("svhn", folder=tmp_path)
    assert split.train.labels.tolist() == [1, 0, 9, 0]
    torch.testing.assert_close(split.train.inputs[2, 1, 5, 6], fractions(pixels[5, 6, 1, 2]))
    torch.testing.assert_close(split.test.inputs, fractions(pixels[..., 4:].transpose(3, 2, 0, 1)))


def test_svhn_of_another_kind(tmp_path: Path) -> None:
    from scipy.io import savemat

    write_svhn(tmp_path)
    path = tmp_path / "train_32x32.mat"
    whole = path.read_bytes()
    for arrays_, said in [
        ({"z": 1}, "does not hold X and y"),
        ({"X": bytes_of(28, 28, 3, 2), "y": [[1], [2]]}, r"bytes \(32, 32, 3, N\) are needed"),
        ({"X": bytes_of(32, 32, 3, 2), "y": [[1], [2], [3]]}, "has 2 images and 3 labels"),
        ({"X": bytes_of(32, 32, 3, 2), "y": [[1], [11]]}, "must hold class indices"),
    ]:
        savemat(path, arrays_)
        with pytest.raises(FileError, match=said):
            load_dataset("svhn", folder=tmp_path)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileError, match="is not a valid MATLAB file"):
        load_dataset("svhn", folder=tmp_path)


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
    np.savez(tmp_path / "cifar10.npz", x_train=x, y_train=Y[:, None], x_test=x[:2], y_test=np.array(["bird", "cat"]))
    split = load_dataset("cifar10", folder=tmp_path)
    torch.testing.assert_close(split.train.inputs, fractions(X))
    assert split.train.inputs.is_contiguous()
    assert split.train.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert split.test.labels.tolist() == [2, 3]


def test_large_images_stay_bytes_until_asked_for(tmp_path: Path) -> None:
    x = bytes_of(5, 64, 64, 3)
    np.savez(
        tmp_path / "tiny-imagenet.npz", x_train=x, y_train=range(5), x_test=x, y_test=range(5), classes=list("abcde")
    )
    split = load_dataset("tiny-imagenet", folder=tmp_path, validation=2)
    assert split.validation is not None
    assert len(split.validation.inputs) == 2
    torch.testing.assert_close(materialize(split.test.inputs), fractions(x.transpose(0, 3, 1, 2)))
    assert split.classes == tuple("abcde")


GOOD = {"x_train": X, "y_train": Y, "x_test": X, "y_test": Y}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"x_train": X[:5]}, r"holds x_train \(5, 3, 32, 32\) and 6 labels in y_train: one label per row is needed"),
        ({"y_test": Y + 5}, "'y_test' in .* must hold class indices from 0 to 9, and it holds other values"),
        ({"y_test": Y - 1}, "must hold class indices from 0 to 9"),
        ({"y_test": Y + 0.5}, "must hold class indices from 0 to 9"),
        ({"y_test": Y * np.nan}, "must hold class indices from 0 to 9"),
        ({"y_test": np.eye(6)}, r"'y_test' in .* is float64 of shape \(6, 6\): give one class per row"),
        ({"y_test": np.array(["cow"] * 6)}, "has the unknown class 'cow'"),
        ({"x_test": X[:, :2]}, r"images \(N, 3, 32, 32\) are needed"),
        ({"x_test": X.astype(np.int32)}, r"save images as bytes \(uint8\), or as fractions from 0 to 1"),
        ({"x_test": X * 1.0}, "fractions from 0 to 1"),
        ({"x_train": X[:0], "y_train": Y[:0]}, "holds no images"),
        ({"x_train": np.array([{}] * 6)}, "pickled Python objects, which teeter never loads"),
    ],
)
def test_wrong_arrays_are_one_sentence(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    np.savez(tmp_path / "cifar10.npz", **(GOOD | change))
    with pytest.raises(FileError, match=said):
        load_dataset("cifar10", folder=tmp_path)


def test_arrays_without_their_names_or_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "cifar10.npz"
    np.savez(path, images=X, y_train=Y)
    with pytest.raises(
        FileError, match=r"holds images, y_train: name its arrays x_train, y_train, x_test, y_test, or x"
    ):
        load_dataset("cifar10", folder=tmp_path)
    np.savez(path, x=X, y=Y)
    with pytest.raises(FileError, match="has a published test set, and the file has none"):
        load_dataset("cifar10", folder=tmp_path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(FileError, match=r"is not a valid \.npz file"):
        load_dataset("cifar10", folder=tmp_path)
