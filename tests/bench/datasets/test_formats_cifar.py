"""CIFAR's binary version: the pixels that were written come back, and pickles are never loaded."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from small_datasets import (
    as_fractions,
    write_cifar10,
    write_cifar100,
)
from teeter.bench.datasets import load_dataset
from teeter.errors import FileError


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def test_cifar10(tmp_path: Path) -> None:
    train, test = write_cifar10(tmp_path / "cifar-10-batches-bin")
    split = load_dataset("cifar10", folder=tmp_path, validation=3)
    assert split.validation is not None
    assert (len(split.train), len(split.validation), len(split.test)) == (17, 3, 4)

    unsplit = load_dataset("cifar10", folder=tmp_path)
    torch.testing.assert_close(
        unsplit.train.inputs, as_fractions(train[:, 1:]).reshape(-1, 3, 32, 32)
    )
    assert unsplit.train.labels.tolist() == train[:, 0].tolist()
    torch.testing.assert_close(
        unsplit.test.inputs, as_fractions(test[:, 1:]).reshape(-1, 3, 32, 32)
    )


def test_cifar100_has_the_fine_classes(tmp_path: Path) -> None:
    records = write_cifar100(tmp_path / "cifar100" / "cifar-100-binary")
    split = load_dataset("cifar100", folder=tmp_path)
    assert split.train.labels.tolist() == records[:6, 1].tolist()
    torch.testing.assert_close(
        split.test.inputs, as_fractions(records[6:, 2:]).reshape(-1, 3, 32, 32)
    )
    assert split.classes[:2] == ("apple", "aquarium_fish")


def test_cifar_cut_short_or_wrong(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    path = tmp_path / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-7])

    with pytest.raises(
        FileError,
        match=r"has 12285 bytes, which is not a multiple of 3073 bytes per image: it is incomplete",
    ):
        load_dataset("cifar10", folder=tmp_path)

    path.write_bytes(b"\x0a" + bytes(3072))
    with pytest.raises(FileError, match="must hold class indices from 0 to 9"):
        load_dataset("cifar10", folder=tmp_path)

    path.unlink()
    with pytest.raises(FileError, match="There is no cifar10 in"):
        load_dataset("cifar10", folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "file"), [("cifar10", "cifar-10-batches-py/data_batch_1"), ("cifar100", "train")]
)
def test_pickled_batches_are_never_loaded(tmp_path: Path, name: str, file: str) -> None:
    path = tmp_path / name / file
    path.parent.mkdir(parents=True)
    path.write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    with pytest.raises(
        FileError,
        match=r"is a pickle, which teeter never loads: get the binary version of CIFAR, cifar-10",
    ):
        load_dataset(name, folder=tmp_path)
