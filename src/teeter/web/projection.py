"""A pool in two dimensions: by its widest directions at once, or by its neighbourhoods in the background."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load

import teeter
from teeter.campaigns.selection import RoundState
from teeter.errors import MissingExtraError
from teeter.files import atomic_write

__all__ = ["project_pca", "project_tsne", "write", "write_ldm"]

Vectors = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float32]

_LOOKED_AT = 20_000
"""Rows that directions are found from, that t-SNE lays out, and among which an LDM is a rank."""

_RAYS = 128


def project_pca(features: Vectors) -> Floats:
    """Return rows along their two widest directions, each scaled to -1 and 1: (N, D) -> (N, 2)."""
    some = features[_some(len(features))].astype(np.float64)
    _, directions = np.linalg.eigh(np.cov(some, rowvar=False).reshape(features.shape[1], -1))
    wide = directions[:, ::-1][:, :2]
    flat = np.zeros((len(features), 2), dtype=np.float32)
    flat[:, : wide.shape[1]] = features @ wide.astype(np.float32)
    return _within(flat)


def project_tsne(features: Vectors) -> Floats:
    """Return rows laid out so that neighbours stay together (t-SNE); rows beyond 20,000 are NaN: (N, D) -> (N, 2)."""
    try:
        from openTSNE import TSNE
    except ImportError:
        raise MissingExtraError(
            "A map by neighbourhoods needs openTSNE: pip install 'teeter[report]'."
        ) from None
    some = _some(len(features))
    flat = np.full((len(features), 2), np.nan, dtype=np.float32)
    perplexity = max(2.0, min(30.0, (len(some) - 1) / 3))
    flat[some] = np.asarray(
        TSNE(perplexity=perplexity, initialization="pca", random_state=0, n_jobs=1).fit(
            features[some]
        ),
        np.float32,
    )
    return _within(flat)


def _some(count: int) -> npt.NDArray[np.int64]:
    if count <= _LOOKED_AT:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, _LOOKED_AT, replace=False))


def _within(flat: Floats) -> Floats:
    """Return places scaled so that all but the farthest few lie between -1 and 1, and those on the edge."""
    known = flat[np.isfinite(flat).all(axis=1)]
    middle = np.median(known, axis=0)
    size = np.quantile(np.abs(known - middle), 0.995, axis=0)
    inside: Floats = np.clip((flat - middle) / np.where(size > 0, size, 1), -1.1, 1.1)
    return inside.astype(np.float32)


def write(path: Path, state: RoundState, flat: Floats) -> None:
    """Write what the map draws: how many rows (int32), then columns x, y (float32) and predicted class (int32).

    Rows are in the order of the items. What is not known is NaN, or -1.
    """
    predicted = np.full(len(flat), -1, dtype="<i4")
    if state.weights is not None:
        known = load(state.weights)["predicted"]
        predicted[: len(known)] = known
    _write(path, flat[:, 0].astype("<f4"), flat[:, 1].astype("<f4"), predicted)


def write_ldm(path: Path, state: RoundState) -> None:
    """Write how many rows (int32), then their LDM (float32)."""
    _write(path, _ldm(state).astype("<f4"))


def _write(path: Path, *columns: npt.NDArray[Any]) -> None:
    atomic_write(
        path,
        np.array(len(columns[0]), "<i4").tobytes()
        + b"".join(column.tobytes() for column in columns),
    )


def _ldm(state: RoundState) -> Floats:
    """Return the LDM of rows among each other by the kept head; NaN where it cannot be told."""
    found = np.full(len(state.features), np.nan, dtype=np.float32)
    kept = {} if state.weights is None else load(state.weights)
    if "weight" in kept and kept["weight"].shape[1] == state.features.shape[1]:
        for start in range(0, len(found), _LOOKED_AT):
            rows = slice(start, start + _LOOKED_AT)
            found[rows] = teeter.ldm(state.features[rows], kept["weight"], kept["bias"], rays=_RAYS)
    return found
