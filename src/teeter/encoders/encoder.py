"""What an encoder is: a function from contents to features, built in or a user's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.errors import InputError

__all__ = ["MAX_FEATURES", "MAX_TEXT_LENGTH", "Encoder", "Vectors", "run_encoder"]

Vectors: TypeAlias = npt.NDArray[np.float32]
"""(N, D) features, one row per text or image."""

Encoder: TypeAlias = Callable[[Sequence[str]], Any]
"""Takes N texts, or the paths of N images, and returns (N, D) numbers."""

MAX_TEXT_LENGTH = 1_000_000
"""Characters of a text that are encoded. A longer text is stored in full."""

MAX_FEATURES = 256
"""Features per item of the built-in encoders; fewer if there are fewer items."""


def run_encoder(encoder: Encoder, contents: Sequence[str]) -> Vectors:
    """Encode contents with a function that may be a user's own, and check what it returns.

    Args:
        encoder: The function to call.
        contents: N texts, or the paths of N images.

    Returns:
        The features, (N, D).

    Raises:
        InputError: If the function does not return N rows of finite numbers.

    Example:
        >>> run_encoder(lambda texts: [[len(text)] for text in texts], ["one", "three"]).tolist()
        [[3.0], [5.0]]
    """
    vectors = np.ascontiguousarray(encoder(contents), dtype=np.float32)

    has_expected_shape = vectors.ndim == 2 and len(vectors) == len(contents)
    if not has_expected_shape or not np.isfinite(vectors).all():
        raise InputError(
            f"The encoder returned an array of shape {vectors.shape} for {len(contents)} items: "
            f"it must return finite numbers of shape (items, features)."
        )

    return vectors
