"""BADGE on the embedding itself: the last layer's gradient at the predicted class, row by row."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from reference.uncertainty import probabilities

Array = npt.NDArray[np.float64]


def embeddings(logits: Array, features: Array) -> Array:
    """(N, C D): the outer product of p - onehot(argmax p) and z."""
    rows = []
    for p, z in zip(probabilities(logits), features, strict=True):
        error = [p[c] - (1.0 if c == int(np.argmax(p)) else 0.0) for c in range(len(p))]
        rows.append([e * value for e in error for value in z])
    return np.array(rows)


def distances(embedded: Array) -> Array:
    """(N, N) Euclidean."""
    return np.array([[np.sqrt(((a - b) ** 2).sum()) for b in embedded] for a in embedded])
