"""Where features come from: stored features and a head file, or raw rows and a model file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teeter.base.threads import limit_threads
from teeter.data.array_files import Head, read_head
from teeter.data.shards import Shards
from teeter.errors import FileError, InputError
from teeter.models.model_files import SavedModel, file_digest, read_model
from teeter.models.outputs import Outputs

__all__ = ["FeatureSource", "LoadedSource", "fetch_features", "make_feature_source"]

MODEL_CHUNK = 1 << 26
"""Bytes of raw rows that are held at once while a model computes the features of some rows."""

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class FeatureSource:
    """A head file or a model file, identified by its content.

    It is small and is sent to workers, which load the file themselves.
    """

    path: str
    is_model: bool
    digest: str
    """Hash of the file: a changed file under the same name is another source."""

    def load(self) -> LoadedSource:
        """Return the content of the file. Each process reads it once.

        Raises:
            FileError: the file has changed since this source was made.
        """
        return _load_source(self)


@dataclass(frozen=True, eq=False)
class LoadedSource:
    """The head and, if features are computed, the model of a source."""

    head: Head
    model: SavedModel | None

    @property
    def weight(self) -> Tensor:
        """(C, D) in single precision."""
        return self.head.weight.float()

    @property
    def bias(self) -> Tensor | None:
        """(C,) in single precision, or None for a head without one."""
        if self.head.bias is None:
            return None
        return self.head.bias.float()

    def features(self, rows: npt.NDArray[np.float32], describe_row: Callable[[int], str]) -> Tensor:
        """Return the features of stored rows.

        Args:
            rows: (n, ...) as stored in the pool.
            describe_row: maps a position among ``rows`` to words for an error message.

        Returns:
            (n, D): the rows themselves, or what the model computes from them.

        Raises:
            InputError: the model computes NaN or infinity.
        """
        stored = torch.from_numpy(rows)
        if self.model is None:
            return stored

        # As in workers: the number of threads changes how sums are split, and so how they round.
        with limit_threads(1):
            features = self.model.features(stored)

        is_bad = (~torch.isfinite(features)).any(dim=1)
        if is_bad.any():
            row = describe_row(int(is_bad.nonzero()[0]))
            raise InputError(
                f"{self.model.description} computes NaN or infinity for {row}: "
                "scale the rows like those that it was trained on."
            )
        return features


# Two, so that a process can alternate between two selections without reading files again.
@lru_cache(maxsize=2)
def _load_source(source: FeatureSource) -> LoadedSource:
    if file_digest(source.path) != source.digest:
        raise FileError(f"{source.path} has changed since the selection started: start it again.")

    if source.is_model:
        model = read_model(source.path)
        return LoadedSource(model.head(), model)

    return LoadedSource(read_head(source.path), None)


def make_feature_source(
    head: str | Path | None, model: str | Path | None, shards: Shards
) -> FeatureSource | None:
    """Return the source for a pool after checking that the file fits its rows.

    Args:
        head: a head file; the pool then stores features.
        model: a model file; the pool then stores the model's inputs.
        shards: the pool.

    Returns:
        The source, or None if neither file is given.

    Raises:
        InputError: the head or model does not fit the rows or cannot be used.
    """
    path = model
    if path is None:
        path = head
    if path is None:
        return None

    # Resolved, because workers may have another working directory.
    source = FeatureSource(
        path=str(Path(path).resolve()),
        is_model=model is not None,
        digest=file_digest(path),
    )
    loaded = source.load()

    if loaded.model is not None:
        accepted_shapes = (loaded.model.shape, (loaded.model.width,))
        if shards.shape not in accepted_shapes:
            raise InputError(
                f"{loaded.model.description} takes rows of shape {loaded.model.shape}, flat or "
                f"not, but the pool has rows of shape {shards.shape}."
            )
    else:
        weight = loaded.head.weight
        fits = weight.ndim == 2 and weight.shape[1] == shards.width
        if not fits:
            raise InputError(
                f"The head in {path} has the shape {tuple(weight.shape)}, but rows have "
                f"{shards.width} features."
            )

    _check_head(loaded, path)
    return source


def fetch_features(
    shards: Shards,
    rows: npt.NDArray[np.int64],
    source: FeatureSource | None,
) -> Tensor:
    """Return the features of some rows of a sharded pool.

    Args:
        shards: the pool.
        rows: (k,) row numbers, in any order.
        source: the head or model; None if the pool stores features and there is no head.

    Returns:
        (k, D), in the order of ``rows``.
    """
    if source is None or not source.is_model:
        return torch.from_numpy(shards.take(rows))

    # In the order of the files, a chunk at a time: raw rows may be much larger than features.
    loaded = source.load()
    order = np.argsort(rows, kind="stable")
    step = max(1, MODEL_CHUNK // (_FLOAT_BYTES * shards.width))
    feature_width = loaded.weight.shape[1]
    features = torch.empty(len(rows), feature_width)

    for start in range(0, len(rows), step):
        positions = order[start : start + step]
        chunk = rows[positions]

        # The default binds this chunk; a closure would see the chunk of the next iteration.
        def describe_row(k: int, chunk: npt.NDArray[np.int64] = chunk) -> str:
            return f"row {chunk[k]} of the pool"

        computed = loaded.features(shards.take(chunk), describe_row)
        features[torch.from_numpy(positions)] = computed

    return features


def _check_head(loaded: LoadedSource, path: str | Path) -> None:
    """Refuse an unusable head now, before hours of work."""
    weight = loaded.weight

    # Outputs checks a head; a single row of zeros stands for the features.
    features = torch.zeros(1, weight.shape[1])
    try:
        Outputs(features=features, weight=weight, bias=loaded.bias)
    except InputError as error:
        raise InputError(f"The head in {path} cannot be used: {error}") from None

    class_names = loaded.head.classes
    if class_names is not None and len(class_names) != len(weight):
        raise InputError(
            f"The head in {path} names {len(class_names)} classes, but has weights for "
            f"{len(weight)}."
        )
