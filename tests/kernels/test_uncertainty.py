"""Uncertainty against the textbook formulas, where probabilities are 0 and logits are huge too."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from reference import uncertainty as literal
from teeter.kernels import uncertainty

NAMES = ["entropy", "margin", "least_confidence"]


@pytest.mark.checks(
    "entropy", "margin", "least-confidence", against="the textbook formula, row by row"
)
@given(
    arrays.arrays(
        np.float64,
        st.tuples(st.integers(1, 8), st.integers(2, 6)),
        elements=st.floats(-700, 700, width=32),
    )
)
@pytest.mark.parametrize("name", NAMES)
def test_is_the_formula(name: str, logits: np.ndarray) -> None:
    scores = getattr(uncertainty, name)(torch.from_numpy(logits))
    np.testing.assert_allclose(scores, getattr(literal, name)(logits), atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_certain_row_is_the_least_uncertain(name: str) -> None:
    logits = torch.tensor([[1e4, 0.0, -1e4], [0.0, 0.0, 0.0]])
    sure, unsure = getattr(uncertainty, name)(logits).tolist()
    assert np.isfinite([sure, unsure]).all()
    assert (sure, unsure) == pytest.approx(
        {"entropy": (0, np.log(3)), "margin": (1, 0), "least_confidence": (0, 2 / 3)}[name]
    )


def test_entropy_is_at_most_log_of_the_classes() -> None:
    assert float(uncertainty.entropy(torch.zeros(1, 7))) == pytest.approx(np.log(7))
