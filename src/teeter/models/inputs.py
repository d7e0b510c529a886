"""Rows of data in any common form: arrays, tensors, lists, frames, sparse matrices, datasets.

A pool may also be a mapping of such parts, all with the same number of rows, or a data loader.
Everything that needs rows of a user's data counts, takes and batches them by the functions here.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, SequentialSampler, Subset

from teeter.errors import InputError

_MATERIALIZE_BATCH_SIZE = 1024


class BatchedInputs(ABC):
    """Rows that become a network's inputs batch by batch.

    Texts need a tokenizer for that, and images a processor. Instances are immutable: ``take`` and
    ``adapt_to`` return new ones.
    """

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def take(self, rows: npt.NDArray[np.int64]) -> BatchedInputs:
        """Return the rows at these positions (K,), in this order."""

    @abstractmethod
    def adapt_to(self, model: nn.Module) -> BatchedInputs:
        """Return the same rows in the form that ``model`` takes.

        Raises:
            InputError: if ``model`` cannot take them.
        """

    @abstractmethod
    def batches(self, size: int) -> Iterator[Mapping[str, Tensor]]:
        """Yield the rows in order, at most ``size`` at a time; fewer if they need much memory."""

    @abstractmethod
    def as_one_batch(self) -> Mapping[str, Tensor]:
        """Return all rows as one batch."""


def count_rows(data: Any) -> int:
    """Return the number of rows.

    Raises:
        InputError: if ``data`` has no rows to count, or if its parts differ in their number.

    Example:
        >>> count_rows({"pixels": np.zeros((3, 8, 8)), "age": [31, 40, 27]})
        3
    """
    if isinstance(data, Mapping):
        counts = {name: count_rows(part) for name, part in data.items()}
        distinct_counts = set(counts.values())
        if len(distinct_counts) != 1:
            raise InputError(f"The parts of the data have different numbers of rows: {counts}.")
        return distinct_counts.pop()

    if isinstance(data, DataLoader):
        return count_rows(data.dataset)

    # Sparse matrices have a shape but refuse len().
    shape = getattr(data, "shape", None)
    try:
        if shape:
            return int(shape[0])
        return len(data)
    except TypeError:
        raise InputError(
            f"Cannot count the rows of an object of type {type(data).__name__}: give an array, a "
            f"list or a dataset."
        ) from None


def take_rows(data: Any, rows: npt.NDArray[np.int64]) -> Any:
    """Return some rows of ``data``, in the same form as ``data``.

    Args:
        data: the rows, in any form that this module takes except a data loader.
        rows: (K,) their positions.

    Example:
        >>> take_rows(["red", "green", "blue"], np.array([2, 0]))
        ['blue', 'red']
    """
    if isinstance(data, BatchedInputs):
        return data.take(rows)
    if isinstance(data, Mapping):
        return {name: take_rows(part, rows) for name, part in data.items()}

    if isinstance(data, Tensor):
        positions = torch.from_numpy(rows).to(data.device)
        return data[positions]

    if isinstance(data, Dataset):
        # A view: rows are loaded when a batch needs them.
        return Subset(data, rows.tolist())

    if _is_frame(data):
        return data.iloc[rows]
    library = sys.modules.get("datasets.arrow_dataset")
    column_class = getattr(library, "Column", None)  # since version 4
    is_hugging_face_column = column_class is not None and isinstance(data, column_class)
    if is_hugging_face_column:
        # All rows at once: one by one, each would be read from disk on its own.
        return data[rows.tolist()]

    if isinstance(data, Sequence):
        # A list does not take an array of positions.
        return [data[row] for row in rows.tolist()]

    return data[rows]


def batches(data: Any, size: int) -> Iterator[Any]:
    """Yield the rows in order, ``size`` at a time, as a network takes them.

    Labels that a dataset or a data loader returns beside its rows are dropped. A data loader keeps
    its own batch size.

    Raises:
        InputError: if ``size`` is below 1, or if a data loader shuffles or drops rows.
    """
    if size < 1:
        raise InputError(f"The batch size is {size}: it must be 1 or more.")

    if isinstance(data, BatchedInputs):
        yield from data.batches(size)
    elif isinstance(data, DataLoader):
        _require_all_rows_in_order(data)
        yield from _load_batches(data)
    elif isinstance(data, Dataset):
        yield from _load_batches(DataLoader(data, batch_size=size))
    else:
        for start in range(0, count_rows(data), size):
            part = slice(start, start + size)
            yield _slice_rows(data, part)


def is_stream(data: Any) -> bool:
    """Return whether the rows come from an iterable dataset, which may not start again."""
    if isinstance(data, DataLoader):
        data = data.dataset
    return isinstance(data, IterableDataset)


def as_one_batch(data: Any) -> Any:
    """Return all rows of ``data`` as a single batch."""
    if isinstance(data, BatchedInputs):
        return data.as_one_batch()
    size = max(1, count_rows(data))
    return next(batches(data, size))


def materialize(data: Any) -> Any:
    """Load a dataset into one tensor, or into a mapping of tensors. Return other data unchanged."""
    if not isinstance(data, Dataset):
        return data

    parts = list(batches(data, _MATERIALIZE_BATCH_SIZE))
    if not isinstance(parts[0], Mapping):
        return torch.cat(parts)

    tensors = {}
    for name in parts[0]:
        pieces = [part[name] for part in parts]
        tensors[name] = torch.cat(pieces)
    return tensors


def adapt_to(data: Any, model: nn.Module) -> Any:
    """Return ``BatchedInputs`` in the form that ``model`` takes, and other data unchanged."""
    if isinstance(data, BatchedInputs):
        return data.adapt_to(model)
    return data


def flat_rows(data: Any) -> npt.NDArray[np.float32]:
    """Return raw rows as features: (N, ...) -> (N, D).

    Raises:
        InputError: if the rows are not numbers.
    """
    from scipy.sparse import issparse

    data = materialize(data)
    if issparse(data):
        data = data.toarray()

    try:
        array = np.asarray(data, dtype=np.float32)
    except (TypeError, ValueError):
        raise InputError(
            "The data are not numbers, so the cold start cannot use them as features: choose the "
            "cold start random."
        ) from None
    return array.reshape(len(array), -1)


def _is_frame(data: Any) -> bool:
    """Return whether ``data`` is a frame or series like those of pandas.

    Their square brackets select by label, and ``iloc`` by position. Libraries that imitate pandas
    share no class with it, so the attribute decides.
    """
    return hasattr(data, "iloc")


def _require_all_rows_in_order(loader: DataLoader[Any]) -> None:
    # An iterable dataset has no positions to shuffle: its order is its own.
    if isinstance(loader.dataset, IterableDataset):
        return

    sampler: Any = loader.sampler
    if loader.batch_sampler is not None:
        # A batch sampler of the user's own need not have a sampler inside.
        sampler = getattr(loader.batch_sampler, "sampler", None)

    if not isinstance(sampler, SequentialSampler):
        raise InputError(
            "The data loader shuffles, so its rows cannot be identified: create it with "
            "shuffle=False."
        )
    if getattr(loader.batch_sampler, "drop_last", False):
        raise InputError("The data loader drops the last rows: create it with drop_last=False.")


def _load_batches(loader: DataLoader[Any]) -> Iterator[Any]:
    # A loader draws a seed for its workers, even if it has none: undo that draw.
    state = torch.get_rng_state()
    iterator = iter(loader)
    torch.set_rng_state(state)

    for batch in iterator:
        # The rest of a pair or a longer tuple is labels.
        if isinstance(batch, tuple | list):
            yield batch[0]
        else:
            yield batch


def _slice_rows(data: Any, rows: slice) -> Any:
    if isinstance(data, Mapping):
        return {name: _slice_rows(part, rows) for name, part in data.items()}
    if _is_frame(data):
        return data.iloc[rows]
    return data[rows]
