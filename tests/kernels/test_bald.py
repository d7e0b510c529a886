"""Mutual information and variation ratio against the formulas, where samples are certain and alike
too.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from reference import bald as literal
from teeter.base.arrays import working_memory
from teeter.base.seeds import stream
from teeter.kernels.bald import mutual_information, p_log_p, variation_ratio

LOGITS = arrays.arrays(
    np.float64,
    st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(2, 5)),
    elements=st.floats(-700, 700, width=32),
)


@pytest.mark.checks("dbal", against="the formula, one row and one sample at a time")
@given(LOGITS)
def test_mutual_information_is_the_formula(logits: np.ndarray) -> None:
    information = mutual_information(torch.from_numpy(logits))
    np.testing.assert_allclose(information, literal.mutual_information(logits), atol=1e-12)
    assert bool((information >= 0).all())


@pytest.mark.checks("ensemble", against="votes counted one by one")
@given(LOGITS)
def test_variation_ratio_is_the_formula(logits: np.ndarray) -> None:
    np.testing.assert_allclose(
        variation_ratio(torch.from_numpy(logits)), literal.variation_ratio(logits), atol=1e-15
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_that_agree_tell_nothing(dtype: torch.dtype) -> None:
    logits = torch.randn(1, 500, 7, generator=stream(0, "logits"), dtype=dtype) * 5
    assert bool((mutual_information(logits) == 0).all()), "one sample"
    several = mutual_information(logits.expand(9, -1, -1))
    assert bool((several >= 0).all()), "never below 0 by rounding"
    assert float(several.max()) < 20 * torch.finfo(dtype).eps
    assert bool((variation_ratio(logits.expand(9, -1, -1)) == 0).all())


def test_samples_that_contradict_each_other_tell_the_most() -> None:
    logits = torch.eye(4)[:, None] * 1000
    assert float(mutual_information(logits)) == pytest.approx(np.log(4))
    assert float(variation_ratio(logits)) == pytest.approx(3 / 4)


def test_logits_may_be_log_probabilities() -> None:
    logits = torch.randn(3, 20, 4, generator=stream(0, "logits"), dtype=torch.float64)
    torch.testing.assert_close(
        mutual_information(logits.log_softmax(dim=2)), mutual_information(logits)
    )
    impossible = torch.tensor([[[0.0, -torch.inf]], [[-torch.inf, 0.0]]])
    assert float(mutual_information(impossible)) == pytest.approx(np.log(2))


@pytest.mark.parametrize("size", [1, 100_000])
def test_chunks_and_neighbours_change_nothing(size: int) -> None:
    logits = torch.randn(7, 401, 5, generator=stream(1, "logits")).repeat(1, 2, 1)
    expected = mutual_information(logits)
    assert torch.equal(expected[:401], expected[401:]), "copies are equal"
    with working_memory(size):
        assert torch.equal(mutual_information(logits), expected)


def test_p_log_p_is_0_at_0() -> None:
    p = torch.tensor([0.0, 1e-45, 0.5, 1.0])
    np.testing.assert_allclose(p_log_p(p), torch.xlogy(p, p), atol=1e-42)
    assert p[0] == 0, "the probabilities stay as they were"
