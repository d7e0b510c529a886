"""Rows with their classes: the parts that a dataset is divided into, and ways to divide it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from teeter.errors import InputError
from teeter.models.inputs import take_rows
from teeter.seeds import stream

__all__ = [
    "DatasetSplit",
    "LabelledDataset",
    "LabelledRows",
    "RawDataset",
    "hold_out",
    "make_long_tailed",
    "shuffle",
    "split_at",
    "take",
]


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Some rows with their classes."""

    inputs: Any
    """A float32 tensor (N, D) or (N, channels, side, side), or a torch Dataset that reads a row when asked for it."""
    labels: npt.NDArray[np.int64]
    """(N,) numbers of classes."""

    def __len__(self) -> int:
        """Return N."""
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class RawDataset:
    """What files hold, as it stands in them; ``test`` and ``classes`` are None where the files do not tell."""

    train: LabelledRows
    test: LabelledRows | None = None
    classes: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False)
class LabelledDataset:
    """A dataset, divided as it always is and ready for a network."""

    name: str
    train: LabelledRows
    test: LabelledRows
    classes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class DatasetSplit:
    """A dataset with the rows that the seed drew for validation taken out of its training rows."""

    name: str
    train: LabelledRows
    validation: LabelledRows | None
    test: LabelledRows
    classes: tuple[str, ...]


def take(part: LabelledRows, rows: npt.NDArray[np.int64]) -> LabelledRows:
    """Return some rows of a part, in the order asked for."""
    return LabelledRows(take_rows(part.inputs, rows), part.labels[rows])


def shuffle(part: LabelledRows, name: str) -> LabelledRows:
    """Return the rows in the one order that belongs to ``name``, whatever the seed."""
    return take(part, _permutation(len(part), 0, "order", name))


def split_at(part: LabelledRows, first: int) -> tuple[LabelledRows, LabelledRows]:
    """Return the first rows, and the rest."""
    rows = np.arange(len(part))
    return take(part, rows[:first]), take(part, rows[first:])


def hold_out(
    part: LabelledRows, count: int, name: str, seed: int
) -> tuple[LabelledRows, LabelledRows | None]:
    """Return a part without ``count`` rows that the seed draws, and those rows; both keep the order."""
    if not 0 <= count < len(part):
        raise InputError(
            f"Cannot draw {count} validation rows out of {len(part)} training rows of {name}: ask for 0 to "
            f"{len(part) - 1}."
        )
    if count == 0:
        return part, None
    order = _permutation(len(part), seed, "validation", name)
    return take(part, np.sort(order[count:])), take(part, np.sort(order[:count]))


def make_long_tailed(
    part: LabelledRows,
    *,
    imbalance: float | None = None,
    counts: Sequence[int] | None = None,
    seed: int = 0,
) -> LabelledRows:
    """Return a long-tailed part: fewer and fewer rows of each class, drawn by the seed and kept in order.

    With ``imbalance`` the first class keeps n rows, as many as the largest class has, the last n / imbalance, and
    those between fall exponentially [Cui et al. 2019]; ``counts`` says instead how many each class keeps. A class
    with fewer rows than that keeps all it has.
    """
    wanted = _profile(part, imbalance) if counts is None else _counted(part, counts, imbalance)
    kept = []
    for label, count in enumerate(wanted):
        rows = np.flatnonzero(part.labels == label)
        kept.append(rows[_permutation(len(rows), seed, "thinned", label)[:count]])
    return take(part, np.sort(np.concatenate(kept)))


def _profile(part: LabelledRows, imbalance: float | None) -> list[int]:
    if imbalance is None or not imbalance >= 1:
        raise InputError(
            f"An imbalance of {imbalance} cannot be made: give a number from 1 up, or counts."
        )
    sizes = np.bincount(part.labels)
    steps = max(len(sizes) - 1, 1)
    return [max(int(sizes.max() * imbalance ** (-label / steps)), 1) for label in range(len(sizes))]


def _counted(part: LabelledRows, counts: Sequence[int], imbalance: float | None) -> list[int]:
    if imbalance is not None:
        raise InputError("Give an imbalance or counts, not both.")
    classes = int(part.labels.max()) + 1
    if len(counts) < classes or min(counts) < 0:
        raise InputError(
            f"The rows have {classes} classes: give {classes} counts of 0 or more, one a class."
        )
    return [int(count) for count in counts]


def _permutation(rows: int, seed: int, *name: str | int) -> npt.NDArray[np.int64]:
    order: npt.NDArray[np.int64] = torch.randperm(rows, generator=stream(seed, *name)).numpy()
    return order
