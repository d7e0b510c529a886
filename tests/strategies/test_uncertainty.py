"""Random, entropy, margin and least confidence: which rows come first."""

from __future__ import annotations

import numpy as np
import pytest

import teeter

PROBABILITIES = np.array(
    [[0.5, 0.3, 0.2], [0.45, 0.44, 0.11], [0.34, 0.32, 0.34 - 0.001], [0.9, 0.05, 0.05]]
)


@pytest.mark.parametrize(
    ("name", "picks"),
    [("entropy", [2, 0, 1, 3]), ("margin", [2, 1, 0, 3]), ("least-confidence", [2, 1, 0, 3])],
)
def test_uncertain_rows_first(name: str, picks: list[int]) -> None:
    assert teeter.select(name, teeter.Outputs(logits=np.log(PROBABILITIES)), 4).tolist() == picks


def test_equal_scores_go_to_the_lowest_row() -> None:
    outputs = teeter.Outputs(logits=np.zeros((9, 3)))
    for name in ("entropy", "margin", "least-confidence"):
        assert teeter.select(name, outputs, 4).tolist() == [0, 1, 2, 3]


@pytest.mark.checks("random", against="uniform frequencies")
@pytest.mark.parametrize(
    ("draws", "deviation"), [(600, 0.3), pytest.param(3000, 0.15, marks=pytest.mark.slow)]
)
def test_random_is_uniform(draws: int, deviation: float) -> None:
    counts = np.zeros(10)
    for seed in range(draws):
        counts[
            teeter.select("random", teeter.Outputs(features=np.ones((10, 1))), 3, seed=seed)
        ] += 1
    assert abs(counts / (0.3 * draws) - 1).max() < deviation
