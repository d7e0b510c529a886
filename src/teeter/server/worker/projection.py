"""The map of a pool: its features in two dimensions, and the file that the page reads.

t-SNE is openTSNE's, which lays out 20,000 rows in 21 s on one core, where scikit-learn needs 94 s
for a map that is as trustworthy. It takes 13 MB and brings no other package.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load

import teeter
from teeter.base.files import atomic_write
from teeter.campaigns.learning.rounds import RoundState
from teeter.campaigns.learning.saved_models import predicted_names
from teeter.errors import MissingExtraError

FloatArray = npt.NDArray[np.float32]

MAX_ROWS = 20_000
"""Rows from which PCA finds its directions, which t-SNE lays out, and whose LDM is computed
together. More would take minutes and show no more."""

_RAYS = 128
"""Directions for the LDM of the map. Fewer than for picking: a colour needs no more precision."""

_NEIGHBOURS = 5
"""Rows of the layout whose median place another row gets."""

_INSIDE = 0.995
"""Share of the points that the scale of the map fits; the others are drawn at the edge."""

_EDGE = 1.1


def project_items(state: RoundState, project: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Project the items of a campaign, but withdrawn and unreadable ones.

    Args:
        state: the items.
        project: ``project_pca`` or ``project_tsne``.

    Returns:
        (N, 2) coordinates; NaN for items that are not on the map.
    """
    shape = (len(state.features), 2)
    coordinates = np.full(shape, np.nan, dtype=np.float32)
    rows = _mapped_rows(state)
    if len(rows):
        coordinates[rows] = project(state.features[rows])
    return coordinates


def project_pca(features: FloatArray) -> FloatArray:
    """Project rows onto their two principal components.

    Args:
        features: (N, D).

    Returns:
        (N, 2) coordinates, most of them between -1 and 1.
    """
    from sklearn.decomposition import PCA

    rows = _sample_rows(len(features))
    sample = features[rows].astype(np.float64)
    coordinates = np.zeros((len(features), 2), dtype=np.float32)

    # Equal rows vary in no direction: all are drawn in the middle.
    if not np.ptp(sample, axis=0).any():
        return coordinates

    # A single feature has a single component.
    n_components = min(2, sample.shape[1])
    pca = PCA(n_components, svd_solver="covariance_eigh").fit(sample)
    coordinates[:, :n_components] = pca.transform(features)
    return _scale_to_map(coordinates)


def project_tsne(features: FloatArray) -> FloatArray:
    """Lay rows out so that similar ones are close to each other (t-SNE).

    Args:
        features: (N, D).

    Returns:
        (N, 2) coordinates, most of them between -1 and 1. Of more than ``MAX_ROWS`` rows, so many
        random ones are laid out, and each other row is placed among its nearest ones of these.

    Raises:
        MissingExtraError: openTSNE is not installed.
    """
    try:
        from openTSNE import TSNE
    except ImportError:
        raise MissingExtraError(
            "The t-SNE map needs openTSNE: pip install 'teeter[label]'."
        ) from None

    if len(features) == 1:
        return np.zeros((1, 2), dtype=np.float32)

    rows = _sample_rows(len(features))
    # openTSNE looks for three times as many neighbours as the perplexity.
    most_neighbours = (len(rows) - 1) / 3
    perplexity = max(2.0, min(30.0, most_neighbours))
    tsne = TSNE(perplexity=perplexity, initialization="pca", random_state=0, n_jobs=1)

    layout = tsne.fit(features[rows])
    coordinates = np.zeros((len(features), 2), dtype=np.float32)
    coordinates[rows] = np.asarray(layout)
    others = np.setdiff1d(np.arange(len(features)), rows)
    for start in range(0, len(others), MAX_ROWS):
        part = others[start : start + MAX_ROWS]
        placed = layout.prepare_partial(features[part], k=_NEIGHBOURS)
        coordinates[part] = np.asarray(placed)
    return _scale_to_map(coordinates)


def write_map(path: Path, state: RoundState, coordinates: FloatArray) -> None:
    """Write the points of a map.

    The file has the number of rows (int32), then the columns x and y (float32) and predicted class
    (int32), all little-endian. Rows are in the order of the items. Unknown values are NaN, or -1.
    """
    predicted = np.full(len(coordinates), -1, dtype="<i4")
    if state.weights is not None:
        # Items that were added after the training have no prediction yet.
        arrays = load(state.weights)
        predicted_before = arrays["predicted"]
        if "sets" in arrays:
            # In the numbers of MapLabels.classes: those of the model come after the classes.
            sets = predicted_names(arrays, state.classes)
            names = list(dict.fromkeys([*state.classes, *sets]))
            numbers = np.array([names.index(name) for name in sets])
            predicted_before = numbers[predicted_before]
        predicted[: len(predicted_before)] = predicted_before
    predicted[sorted(state.withdrawn | state.unreadable)] = -1

    x = coordinates[:, 0].astype("<f4")
    y = coordinates[:, 1].astype("<f4")
    _write_columns(path, x, y, predicted)


def write_ldm(path: Path, state: RoundState) -> None:
    """Write the number of rows (int32), then the LDM of each (float32)."""
    _write_columns(path, _compute_ldm(state).astype("<f4"))


def _mapped_rows(state: RoundState) -> npt.NDArray[np.int64]:
    """Return the rows of the items that are on the map, in ascending order."""
    all_rows = np.arange(len(state.features))
    left_out = sorted(state.withdrawn | state.unreadable)
    return np.setdiff1d(all_rows, left_out)


def _sample_rows(count: int) -> npt.NDArray[np.int64]:
    """Return all rows, or a fixed random sample in ascending order if there are too many."""
    if count <= MAX_ROWS:
        return np.arange(count)
    generator = np.random.default_rng(0)
    drawn = generator.choice(count, MAX_ROWS, replace=False)
    return np.sort(drawn)


def _scale_to_map(coordinates: FloatArray) -> FloatArray:
    """Scale coordinates so that all but a few outliers lie between -1 and 1."""
    is_finite = np.isfinite(coordinates).all(axis=1)
    finite = coordinates[is_finite]
    centre = np.median(finite, axis=0)
    distances = np.abs(finite - centre)
    extent = np.quantile(distances, _INSIDE, axis=0)
    extent = np.where(extent > 0, extent, 1)

    scaled = (coordinates - centre) / extent
    clipped: FloatArray = np.clip(scaled, -_EDGE, _EDGE)
    return clipped.astype(np.float32)


def _compute_ldm(state: RoundState) -> FloatArray:
    """Return the LDM of the items by the saved head.

    It is NaN for items that are not on the map, and for all without a linear head of these
    features.
    """
    ldm = np.full(len(state.features), np.nan, dtype=np.float32)
    if state.weights is None:
        return ldm

    arrays = load(state.weights)
    weight = arrays.get("weight")
    if weight is None or weight.shape[1] != state.features.shape[1]:
        return ldm

    # The LDM of a row is relative to the rows it is computed with.
    mapped = _mapped_rows(state)
    for start in range(0, len(mapped), MAX_ROWS):
        rows = mapped[start : start + MAX_ROWS]
        features = state.features[rows]
        if "cuts" not in arrays:
            ldm[rows] = teeter.ldm(features, weight, arrays["bias"], rays=_RAYS)
            continue
        outputs = teeter.Outputs(
            features=features,
            weight=weight,
            bias=arrays["bias"] - arrays["cuts"],
            several=True,
        )
        ldm[rows] = teeter.scores("ldm", outputs, options={"rays": _RAYS})
    return ldm


def _write_columns(path: Path, *columns: npt.NDArray[Any]) -> None:
    content = np.array(len(columns[0]), "<i4").tobytes()
    for column in columns:
        content += column.tobytes()
    atomic_write(path, content)
