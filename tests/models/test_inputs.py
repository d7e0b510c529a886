"""Rows of data of every usual type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
)

from teeter.errors import InputError
from teeter.models.inputs import batches, count_rows, flat_rows, materialize, take_rows

ROWS = np.arange(20.0).reshape(10, 2)
HELD = TensorDataset(torch.from_numpy(ROWS), torch.arange(10))


class Items(Dataset[dict[str, Any]]):
    """Ten rows, each a dictionary."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, row: int) -> dict[str, Any]:
        return {"x": torch.from_numpy(ROWS[row]), "size": float(row)}


class Endless(IterableDataset[Tensor]):
    """Rows that cannot be counted."""

    def __iter__(self) -> Iterator[Tensor]:
        yield from torch.from_numpy(ROWS)


KINDS = {
    "array": ROWS,
    "tensor": torch.from_numpy(ROWS),
    "list": ROWS.tolist(),
    "tuple": tuple(ROWS),
    "sparse": sparse.csr_matrix(ROWS),
    "dictionary": {"x": ROWS, "size": list(range(10))},
    "dataset": HELD,
    "dataset of dictionaries": Items(),
}


def as_lists(data: Any) -> Any:
    """The first part of some data, as lists."""
    if isinstance(data, Dataset):
        data = next(iter(DataLoader(data, batch_size=100)))
    if isinstance(data, dict):
        data = data["x"]
    if isinstance(data, list) and isinstance(data[0], Tensor) and data[0].ndim == 2:
        data = data[0]
    return np.asarray(data.toarray() if sparse.issparse(data) else data).tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_counted(kind: str) -> None:
    assert count_rows(KINDS[kind]) == 10


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_taken_in_the_order_asked_for(kind: str) -> None:
    taken = take_rows(KINDS[kind], np.array([7, 0, 3]))
    assert count_rows(taken) == 3
    assert as_lists(taken) == ROWS[[7, 0, 3]].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_no_rows_are_none(kind: str) -> None:
    assert count_rows(take_rows(KINDS[kind], np.zeros(0, dtype=np.int64))) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 3, 10, 11])
def test_batches_hold_every_row_once_and_in_order(kind: str, size: int) -> None:
    pieces = [as_lists(batch) for batch in batches(KINDS[kind], size)]
    assert [row for piece in pieces for row in piece] == ROWS.tolist()
    assert all(len(piece) == size for piece in pieces[:-1])


def test_text_stays_text() -> None:
    texts = ["one", "two", "three"]
    assert take_rows(texts, np.array([2, 0])) == ["three", "one"]
    assert list(batches(texts, 2)) == [["one", "two"], ["three"]]


def test_labels_of_a_dataset_are_dropped() -> None:
    assert [batch.tolist() for batch in batches(HELD, 6)] == [ROWS[:6].tolist(), ROWS[6:].tolist()]
    assert materialize(HELD).tolist() == ROWS.tolist()


def test_a_dataset_of_dictionaries_is_gathered_part_by_part() -> None:
    together = materialize(Items())
    assert together["x"].tolist() == ROWS.tolist()
    assert together["size"].tolist() == list(range(10))
    assert materialize(ROWS) is ROWS


def test_a_loader_keeps_its_own_batches() -> None:
    assert count_rows(DataLoader(HELD, batch_size=4)) == 10
    assert [len(batch) for batch in batches(DataLoader(HELD, batch_size=4), 2)] == [4, 4, 2]
    assert [len(batch) for batch in batches(DataLoader(Endless(), batch_size=4), 2)] == [4, 4, 2]


@pytest.mark.parametrize("data", [HELD, DataLoader(HELD)], ids=["dataset", "loader"])
def test_the_global_stream_goes_on_undisturbed(data: Any) -> None:
    before = torch.get_rng_state()
    list(batches(data, 4))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": True},
        {"sampler": SubsetRandomSampler(range(10))},
        {"sampler": [3, 1, 2]},
        {"batch_sampler": BatchSampler(RandomSampler(HELD), 4, drop_last=False)},
        {"batch_sampler": [[1, 2], [0]]},
    ],
    ids=["shuffle", "a random sampler", "a list", "random batches", "listed batches"],
)
def test_a_loader_that_shuffles_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(
        InputError, match="shuffles, so its rows cannot be identified: create it with shuffle=False"
    ):
        list(batches(DataLoader(HELD, **options), 4))


def test_a_loader_that_leaves_rows_out_is_refused() -> None:
    with pytest.raises(InputError, match="drops the last rows: create it with drop_last=False"):
        list(batches(DataLoader(HELD, batch_size=4, drop_last=True), 4))


@pytest.mark.parametrize("nothing", [3, None, iter(ROWS), np.float64(3), Endless()])
def test_what_has_no_rows_is_refused(nothing: object) -> None:
    with pytest.raises(
        InputError, match=f"Cannot count the rows of an object of type {type(nothing).__name__}"
    ):
        count_rows(nothing)


def test_parts_of_different_lengths_are_refused() -> None:
    with pytest.raises(InputError, match=r"have different numbers of rows: \{'x': 10, 'y': 9\}"):
        count_rows({"x": ROWS, "y": ROWS[:9]})


def test_a_batch_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="The batch size is 0: it must be 1 or more"):
        list(batches(ROWS, 0))


@pytest.mark.parametrize("kind", ["array", "tensor", "list", "sparse", "dataset"])
def test_raw_rows_become_features(kind: str) -> None:
    features = flat_rows(KINDS[kind])
    assert features.dtype == np.float32
    assert features.tolist() == ROWS.tolist()


def test_images_become_flat_features() -> None:
    assert flat_rows(np.zeros((5, 3, 2, 2))).shape == (5, 12)


def test_words_are_no_features() -> None:
    with pytest.raises(
        InputError,
        match=("not numbers, so the cold start cannot use them as features: choose the cold"),
    ):
        flat_rows(["one", "two"])


def test_frames_are_indexed_by_place() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, columns=["a", "b"], index=range(100, 110))
    assert count_rows(frame) == 10
    assert take_rows(frame, np.array([7, 0])).to_numpy().tolist() == ROWS[[7, 0]].tolist()
    assert take_rows(frame["a"], np.array([7, 0])).tolist() == ROWS[[7, 0], 0].tolist()
    assert [len(batch) for batch in batches(frame, 4)] == [4, 4, 2]
