"""Where datasets are looked for, what the seed decides, embeddings, and the real ones."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from small_datasets import bytes_of, write_mnist
from teeter.bench import datasets
from teeter.bench.datasets import load_dataset, locate
from teeter.bench.datasets.catalogue import find_spec, locate_dataset
from teeter.errors import FileError, InputError, UnknownNameError


@pytest.fixture(autouse=True)
def _nothing_of_mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEETER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_every_dataset_of_the_paper_has_an_entry() -> None:
    paper = [
        "openml-6",
        "openml-156",
        "openml-44135",
        "mnist",
        "cifar10",
        "svhn",
        "cifar100",
        "tiny-imagenet",
    ]
    assert {*paper, "food101", "imagenet", "fashion-mnist", "digits"} == set(datasets.names())

    validation = {
        "mnist": 5_000,
        "cifar10": 5_000,
        "svhn": 5_000,
        "cifar100": 5_000,
        "tiny-imagenet": 10_000,
    }

    sizes = {name: find_spec(name).train - validation.get(name, 0) for name in paper}
    assert list(sizes.values()) == [16_000, 40_000, 6_237, 55_000, 45_000, 68_257, 45_000, 90_000]
    assert find_spec("food101").train == 60_600 + 15_150
    assert find_spec("imagenet").train == 1_153_047 + 128_120


def test_digits_need_no_file() -> None:
    split = load_dataset("digits", validation=100)
    assert (len(split.train), len(split.test), split.train.inputs.shape[1]) == (1_337, 360, 64)
    assert split.train.inputs.dtype == torch.float32
    assert split.train.inputs.max() == 1
    assert set(split.test.labels) == set(range(10))


def test_the_seed_moves_validation_rows_and_no_others() -> None:
    first, again, other = (load_dataset("digits", validation=200, seed=seed) for seed in (0, 0, 1))

    assert first.validation is not None
    assert again.validation is not None
    assert other.validation is not None
    assert torch.equal(first.validation.inputs, again.validation.inputs)
    assert not torch.equal(first.validation.inputs, other.validation.inputs)
    assert torch.equal(first.test.inputs, other.test.inputs)

    all_inputs = load_dataset("digits").train.inputs
    for split in (first, other):
        assert split.validation is not None
        both = torch.cat([split.train.inputs, split.validation.inputs])
        assert sorted(both.tolist()) == sorted(all_inputs.tolist())


def test_the_folder_comes_before_the_environment_and_that_before_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_labels(folder: Path, label: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        x, y = bytes_of(2, 28, 28), np.full(2, label)
        np.savez(folder / "mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y)

    def load_first_label(folder: Path | None = None) -> int:
        return int(load_dataset("mnist", folder=folder).train.labels[0])

    write_labels(tmp_path / "cache" / "teeter" / "datasets" / "mnist", 1)
    assert load_first_label() == 1
    monkeypatch.setenv("TEETER_DATA", str(tmp_path / "data"))
    assert load_first_label() == 1, "a folder that is not there is passed over"
    write_labels(tmp_path / "data", 2)
    assert load_first_label() == 2
    write_labels(tmp_path / "mine", 3)
    assert load_first_label(tmp_path / "mine") == 3
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        FileError, match=r"There is no mnist in .*empty: run teeter bench datasets mnist"
    ):
        load_first_label(tmp_path / "empty")


def test_the_cache_is_where_each_system_keeps_such_things(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert locate.cache_folder() == tmp_path / "cache" / "teeter" / "datasets"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    ends = {
        "linux": ".cache/teeter/datasets",
        "darwin": "Library/Caches/teeter/datasets",
        "win32": "local/teeter/datasets",
    }
    for system, end in ends.items():
        monkeypatch.setattr("teeter.bench.datasets.locate.sys.platform", system)
        assert locate.cache_folder().as_posix().endswith(end)


def test_a_folder_that_is_not_there_or_a_name_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"There is no folder .*nowhere to look for datasets in"):
        load_dataset("mnist", folder=tmp_path / "nowhere")
    with pytest.raises(
        UnknownNameError, match=r"No dataset is called 'cifar-10'\. Did you mean 'cifar10'\?"
    ):
        load_dataset("cifar-10")
    with pytest.raises(
        InputError, match="Cannot draw 1437 validation rows out of 1437 training rows of digits"
    ):
        load_dataset("digits", validation=1437)


def test_other_sizes_than_the_published_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_mnist(tmp_path / "mnist")
    load_dataset("mnist", folder=tmp_path)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert (
        record.getMessage() == "mnist has 12 training rows and 5 test rows here, "
        "but the published dataset has 60000 and 10000."
    )


EMBEDDED: dict[str, Any] = {
    "x_train": torch.arange(36.0).reshape(12, 3),
    "x_test": torch.arange(15.0).reshape(5, 3),
}


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_embeddings_take_the_place_of_inputs(tmp_path: Path, suffix: str) -> None:
    home = tmp_path / "mnist"
    write_mnist(home)
    path = home / f"embeddings{suffix}"
    if suffix == ".npz":
        np.savez(path, **{name: tensor.numpy() for name, tensor in EMBEDDED.items()})
    else:
        save_file(EMBEDDED, path)

    for embeddings in (True, path, str(path)):
        split = load_dataset("mnist", folder=tmp_path, validation=4, embeddings=embeddings)
        plain = load_dataset("mnist", folder=tmp_path, validation=4)
        assert split.validation is not None
        assert split.train.inputs.shape == (8, 3)
        assert split.train.labels.tolist() == plain.train.labels.tolist()
        assert [
            int(row[0]) // 3 % 10 for row in split.validation.inputs
        ] == split.validation.labels.tolist()
        assert torch.equal(split.test.inputs, EMBEDDED["x_test"])


def test_embeddings_with_labels_need_no_dataset(tmp_path: Path) -> None:
    path = tmp_path / "far.npz"
    arrays = {name: tensor.numpy() for name, tensor in EMBEDDED.items()}
    np.savez(path, **arrays, y_train=np.arange(12) * 80, y_test=np.arange(5))
    split = load_dataset("imagenet", embeddings=path)
    assert split.train.labels[-1] == 880
    assert len(split.classes) == 1000


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_train": np.zeros((12, 3))}, "holds x_train: x_train and x_test are needed"),
        (
            {"x_train": np.zeros((11, 3)), "x_test": np.zeros((5, 3))},
            "x_train in .* has 11 rows, but the dataset has 12",
        ),
        (
            {"x_train": np.zeros((12, 3)), "x_test": np.zeros((5, 2))},
            "x_train in .* has 3 features and x_test has 2",
        ),
        (
            {"x_train": np.full((12, 3), np.nan), "x_test": np.zeros((5, 3))},
            "x_train in .* has missing values",
        ),
        ({"x_train": np.zeros(12), "x_test": np.zeros((5, 3))}, r"numbers \(N, D\) are needed"),
        (
            {"x_train": np.array([["a"]] * 12), "x_test": np.zeros((5, 3))},
            r"numbers \(N, D\) are needed",
        ),
    ],
)
def test_embeddings_that_do_not_fit(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    write_mnist(tmp_path / "mnist")
    np.savez(tmp_path / "mnist" / "embeddings.npz", **arrays)
    with pytest.raises(FileError, match=message):
        load_dataset("mnist", folder=tmp_path, embeddings=True)


def test_embeddings_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        FileError,
        match=r"There is no embeddings\.npz or embeddings\.safetensors in .*mnist: "
        r"give the path of a file",
    ):
        load_dataset("mnist", folder=tmp_path, embeddings=True)
    with pytest.raises(FileError, match=r"There is no file .*none\.npz"):
        load_dataset("mnist", folder=tmp_path, embeddings=tmp_path / "none.npz")
    (tmp_path / "a.pkl").write_bytes(b"x")
    with pytest.raises(FileError, match="a file of embeddings must end in"):
        load_dataset("mnist", folder=tmp_path, embeddings=tmp_path / "a.pkl")


REAL = {
    "openml-6": ((16_000, 16), (4_000, 16), 0.0, 1.0),
    "openml-156": ((40_000, 10), (10_000, 10), None, None),
    "openml-44135": ((6_237, 613), (1_560, 613), -1.0, 1.0),
    "mnist": ((60_000, 1, 28, 28), (10_000, 1, 28, 28), 0.0, 1.0),
}


@pytest.mark.parametrize(
    "name",
    [
        "openml-6",
        pytest.param("openml-156", marks=pytest.mark.slow),
        pytest.param("openml-44135", marks=pytest.mark.slow),
        pytest.param("mnist", marks=pytest.mark.slow),
    ],
)
def test_the_real_ones_are_of_the_paper_s_sizes(
    name: str, real_data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if locate_dataset(find_spec(name), real_data) is None:
        pytest.skip(f"no {name} among the real data")
    split = load_dataset(name, folder=real_data)
    train, test, low, high = REAL[name]
    assert (tuple(split.train.inputs.shape), tuple(split.test.inputs.shape)) == (train, test)
    assert set(split.test.labels) == set(range(len(split.classes)))
    if low is not None:
        assert (split.train.inputs.min(), split.train.inputs.max()) == (low, high)
    assert not caplog.records


def test_a_linear_model_learns_from_real_letters(real_data: Path) -> None:
    from sklearn.linear_model import LogisticRegression

    if not (real_data / "letter.npz").is_file():
        pytest.skip("no letter among the real data")
    split = load_dataset("openml-6", folder=real_data)
    model = LogisticRegression(max_iter=300).fit(
        split.train.inputs[:4000], split.train.labels[:4000]
    )
    assert model.score(split.test.inputs, split.test.labels) > 0.65
