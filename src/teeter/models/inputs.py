"""Rows of whatever people keep data in: arrays, tensors, lists, frames, sparse matrices, dictionaries, datasets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, SequentialSampler, Subset

from teeter.errors import InputError

__all__ = [
    "BatchedInputs",
    "adapt_to",
    "as_one_batch",
    "batches",
    "count_rows",
    "flat_rows",
    "materialize",
    "take_rows",
]


class BatchedInputs(ABC):
    """Rows that are turned into a network's inputs batch by batch: texts by a tokenizer, images by a processor."""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many there are."""

    @abstractmethod
    def take(self, rows: npt.NDArray[np.int64]) -> BatchedInputs:
        """Return some of them."""

    @abstractmethod
    def suited(self, model: nn.Module) -> BatchedInputs:
        """Return the same rows as ``model`` takes them, refusing a model that cannot."""

    @abstractmethod
    def batches(self, size: int) -> Iterator[Mapping[str, Tensor]]:
        """Yield them in order, ``size`` at a time, or fewer where so many would not fit in memory."""

    @abstractmethod
    def together(self) -> Mapping[str, Tensor]:
        """Return all of them as one batch."""


def count_rows(data: Any) -> int:
    """Return how many rows ``data`` has."""
    if isinstance(data, Mapping):
        counts = {name: count_rows(part) for name, part in data.items()}
        if len(set(counts.values())) != 1:
            raise InputError(f"The parts of the data differ in rows: {counts}.")
        return next(iter(counts.values()))
    if isinstance(data, DataLoader):
        return count_rows(data.dataset)
    shape = getattr(data, "shape", None)  # sparse matrices have a shape and refuse len()
    try:
        return int(shape[0]) if shape else len(data)
    except TypeError:
        raise InputError(
            f"Cannot count the rows of a {type(data).__name__}: give an array, a list or a dataset."
        ) from None


def take_rows(data: Any, rows: npt.NDArray[np.int64]) -> Any:
    """Return some rows of ``data``, as the same kind of thing."""
    if isinstance(data, BatchedInputs):
        return data.take(rows)
    if isinstance(data, Mapping):
        return {name: take_rows(part, rows) for name, part in data.items()}
    if isinstance(data, Tensor):
        return data[torch.from_numpy(rows).to(data.device)]
    if isinstance(data, Dataset):
        return Subset(data, rows.tolist())
    if hasattr(data, "iloc"):  # a pandas frame or series, which square brackets index by name
        return data.iloc[rows]
    if isinstance(data, Sequence):
        return data[rows.tolist()] if _is_column(data) else [data[row] for row in rows.tolist()]
    return data[rows]


def _is_column(data: Sequence[Any]) -> bool:
    """Tell whether ``data`` is a column of Hugging Face's datasets, which reads many rows as fast as one."""
    kind = type(data)
    return kind.__name__ == "Column" and kind.__module__.startswith("datasets.")


def batches(data: Any, size: int) -> Iterator[Any]:
    """Yield the rows of ``data`` in order, ``size`` at a time, as something a network takes; labels are dropped."""
    if size < 1:
        raise InputError(f"The batch size is {size}: it must be 1 or more.")
    if isinstance(data, BatchedInputs):
        yield from data.batches(size)
    elif isinstance(data, DataLoader):
        _require_all_in_order(data)
        yield from _loaded(data)
    elif isinstance(data, Dataset):
        yield from _loaded(DataLoader(data, batch_size=size))
    else:
        for start in range(0, count_rows(data), size):
            yield _slice(data, slice(start, start + size))


def as_one_batch(data: Any) -> Any:
    """Return all rows of ``data`` as a single batch."""
    return (
        data.together()
        if isinstance(data, BatchedInputs)
        else next(batches(data, max(1, count_rows(data))))
    )


def materialize(data: Any) -> Any:
    """Return the rows of a dataset together, as batches of them would come; other data as they are."""
    if not isinstance(data, Dataset):
        return data
    parts = list(batches(data, 1024))
    if isinstance(parts[0], Mapping):
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return torch.cat(parts)


def adapt_to(data: Any, model: nn.Module) -> Any:
    """Return ``data`` as ``model`` takes them, where they can tell; other data as they are."""
    return data.suited(model) if isinstance(data, BatchedInputs) else data


def flat_rows(data: Any) -> npt.NDArray[np.float32]:
    """Return the raw data as features: (N, ...) -> (N, D)."""
    data = materialize(data)
    try:
        array = np.asarray(data.toarray() if hasattr(data, "toarray") else data, dtype=np.float32)
    except (TypeError, ValueError):
        raise InputError(
            "The data are not numbers, so a cold start by features cannot see them: use random."
        ) from None
    return array.reshape(len(array), -1)


def _require_all_in_order(loader: DataLoader[Any]) -> None:
    if isinstance(loader.dataset, IterableDataset):
        return
    sampler = (
        loader.sampler
        if loader.batch_sampler is None
        else getattr(loader.batch_sampler, "sampler", None)
    )
    if not isinstance(sampler, SequentialSampler):
        raise InputError(
            "The data loader shuffles, so rows could not be told apart: make one with shuffle=False."
        )
    if getattr(loader.batch_sampler, "drop_last", False):
        raise InputError("The data loader leaves out the last rows: make one with drop_last=False.")


def _loaded(loader: DataLoader[Any]) -> Iterator[Any]:
    before = torch.get_rng_state()
    started = iter(loader)
    torch.set_rng_state(before)  # a loader draws a seed for workers that it may not even have
    yield from (batch[0] if isinstance(batch, tuple | list) else batch for batch in started)


def _slice(data: Any, rows: slice) -> Any:
    if isinstance(data, Mapping):
        return {name: _slice(part, rows) for name, part in data.items()}
    return data.iloc[rows] if hasattr(data, "iloc") else data[rows]
