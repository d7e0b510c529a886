"""Names of the types of NumPy arrays. Unlike ``arrays``, this module does not load torch."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "Booleans",
    "Floats",
    "Integers",
    "Vectors",
]

Booleans: TypeAlias = npt.NDArray[np.bool_]
Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Vectors: TypeAlias = npt.NDArray[np.float32]
"""(D,) or (N, D): the features of an item, or of several."""
