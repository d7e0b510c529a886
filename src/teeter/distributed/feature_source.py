"""Where features come from: rows that hold them, under a head in a file; or raw rows, through a model in a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teeter.datasets.array_files import Head, read_head
from teeter.datasets.shards import Shards
from teeter.errors import FileError, InputError
from teeter.model_files import SavedModel, file_digest, read_model
from teeter.models.outputs import Outputs
from teeter.threads import limit_threads

__all__ = ["FeatureSource", "LoadedSource", "make_feature_source"]


@dataclass(frozen=True)
class FeatureSource:
    """A file of a head or of a model, and a hash of it: another file under the same name is another source."""

    path: str
    is_model: bool
    digest: str

    def opened(self) -> LoadedSource:
        """Return what the file holds; a process reads it once."""
        return _opened(self)


@dataclass(frozen=True, eq=False)
class LoadedSource:
    """What a worker keeps of a source: the head, and the model where that makes the features."""

    head: Head
    model: SavedModel | None

    @property
    def weight(self) -> Tensor:
        """(C, D)."""
        return self.head.weight.float()

    @property
    def bias(self) -> Tensor | None:
        """(C,), or None for a head without one."""
        return None if self.head.bias is None else self.head.bias.float()

    def features(self, rows: npt.NDArray[np.float32], named: Callable[[int], str]) -> Tensor:
        """Return the features of rows as they are stored: (n, ...) -> (n, D); ``named`` says which row is the k-th."""
        stored = torch.from_numpy(rows)
        if self.model is None:
            return stored
        # As many threads as workers have: how a sum is split among threads changes its rounding.
        with limit_threads(1):
            found = self.model.features(stored)
        bad = (~torch.isfinite(found)).any(dim=1)
        if bad.any():
            which = named(int(bad.nonzero()[0]))
            raise InputError(
                f"{self.model.description} makes NaN or infinity of {which}: scale the rows as it was trained."
            )
        return found


@lru_cache(maxsize=2)
def _opened(source: FeatureSource) -> LoadedSource:
    if file_digest(source.path) != source.digest:
        raise FileError(f"{source.path} has changed since this began: begin again.")
    if source.is_model:
        model = read_model(source.path)
        return LoadedSource(model.head(), model)
    return LoadedSource(read_head(source.path), None)


def make_feature_source(
    head: str | Path | None, model: str | Path | None, shards: Shards
) -> FeatureSource | None:
    """Return the source for the rows of a pool, or None where neither file is given."""
    path = head if model is None else model
    if path is None:
        return None
    source = FeatureSource(str(Path(path).resolve()), model is not None, file_digest(path))
    opened = source.opened()
    weight = opened.head.weight
    if opened.model is not None:
        if shards.shape != opened.model.shape and shards.shape != (opened.model.width,):
            raise InputError(
                f"{opened.model.told} takes rows of shape {opened.model.shape}, flat or not, and those of the pool "
                f"are of shape {shards.shape}."
            )
    elif weight.ndim != 2 or weight.shape[1] != shards.width:
        raise InputError(
            f"The head in {path} is {tuple(weight.shape)}, and rows have {shards.width} features."
        )
    _require_head(opened, path)
    return source


def _require_head(opened: LoadedSource, path: str | Path) -> None:
    """Refuse, before hours of work, a head that could not tell of any row."""
    try:
        Outputs(
            features=torch.zeros(1, opened.weight.shape[1]), weight=opened.weight, bias=opened.bias
        )
    except InputError as error:
        raise InputError(f"The head in {path} cannot be used: {error}") from None
    names = opened.head.classes
    if names is not None and len(names) != len(opened.weight):
        raise InputError(
            f"The head in {path} names {len(names)} classes, and has weights for {len(opened.weight)}."
        )
