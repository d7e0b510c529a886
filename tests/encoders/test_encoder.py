"""What a user's own encoder may return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from teeter.encoders import run_encoder
from teeter.errors import InputError


def test_features_become_contiguous_float32_rows() -> None:
    vectors = run_encoder(lambda texts: np.ones((3, len(texts))).T, ["a", "b"])

    assert vectors.shape == (2, 3)
    assert vectors.dtype == np.float32
    assert vectors.flags.c_contiguous


@pytest.mark.parametrize(
    ("output", "shape"),
    [
        ([[1.0]], r"\(1, 1\) for 2 items"),
        ([1.0, 2.0], r"\(2,\) for 2 items"),
        ([[1.0], [float("nan")]], r"\(2, 1\) for 2 items"),
    ],
)
def test_other_results_are_refused_with_their_shape(output: Any, shape: str) -> None:
    with pytest.raises(
        InputError, match=f"The encoder returned an array of shape {shape}: it must return"
    ):
        run_encoder(lambda texts: output, ["a", "b"])
