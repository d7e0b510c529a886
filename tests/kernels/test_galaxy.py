"""GALAXY: bisection against a breadth-first search of its graph, and what the paper claims."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference import galaxy as literal
from teeter.kernels.galaxy import bisect_line, bisect_lines, make_lines


@pytest.mark.checks("galaxy", against="breadth-first search of the paper's graph, step by step")
@given(
    signs=st.lists(st.sampled_from([0, 0, 0, 1, -1]), min_size=1, max_size=25),
    order=st.integers(1, 6),
)
def test_the_middle_of_a_shortest_path(signs: list[int], order: int) -> None:
    place = bisect_line(np.array(signs), order)
    expected = literal.middles(signs, order)
    assert (place in expected) if expected else place is None


def test_lines_end_with_the_most_confident_row_of_the_class() -> None:
    probabilities = np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.45, 0.55]])
    assert make_lines(probabilities).tolist() == [[2, 3, 1, 0], [0, 1, 3, 2]]


def test_picks_are_different_rows_without_labels() -> None:
    generator = np.random.default_rng(0)
    probabilities = generator.dirichlet(np.ones(3), size=40)
    labels = np.full(40, -1)
    labels[:6] = [0, 1, 2, 0, 1, 2]
    picks = bisect_lines(probabilities, labels, 34, fallback=generator.permutation(40))
    assert sorted(picks.tolist()) == list(range(6, 40))


def test_without_a_boundary_the_fallback_picks() -> None:
    probabilities = np.random.default_rng(0).dirichlet(np.ones(2), size=9)
    labels = np.full(9, -1)
    assert bisect_lines(probabilities, labels, 3, fallback=np.arange(9)[::-1]).tolist() == [8, 7, 6]


def test_one_by_one_it_finds_the_boundary_in_logarithmic_time() -> None:
    """The paper's separable case: the true class changes once along the line."""
    position = np.linspace(0, 1, 1025)
    probabilities = np.stack([1 - position, position], axis=1)
    truth = (position > 0.7).astype(np.int64)
    labels = np.full(1025, -1)
    labels[[0, 1024]] = truth[[0, 1024]]
    for _ in range(10):
        (row,) = bisect_lines(probabilities, labels, 1, fallback=np.arange(1025))
        labels[row] = truth[row]
    known = np.flatnonzero(labels >= 0)
    changes = np.flatnonzero(np.diff(labels[known]))
    assert len(changes) == 1
    assert known[changes[0] + 1] - known[changes[0]] <= 2


@pytest.mark.checks("galaxy", against="the paper's claim: more labels of rare classes than margin")
def test_rare_classes_get_more_labels_than_by_uncertainty() -> None:
    """Expected beforehand, of the paper's section 4: if the classes differ a hundredfold and the
    boundary is where the model is wrong, GALAXY's labels are more balanced than those of margin.
    """
    shares = []
    for seed in range(5):
        generator = np.random.default_rng(seed)
        truth = (np.arange(2000) < 20).astype(np.int64)
        # The model finds the rare class, but its threshold is far off.
        score = generator.normal(size=2000) + 4 * truth
        rare = 1 / (1 + np.exp(-(score - 0.5)))
        probabilities = np.stack([1 - rare, rare], axis=1)
        labels = np.full(2000, -1)
        labels[[0, 1999]] = [1, 0]
        for _ in range(30):
            (row,) = bisect_lines(probabilities, labels, 1, fallback=generator.permutation(2000))
            labels[row] = truth[row]
        by_galaxy = int((labels == 1).sum())

        margin = np.abs(probabilities[:, 0] - probabilities[:, 1])
        by_margin = int(truth[np.argsort(margin)[:32]].sum())
        shares.append((by_galaxy, by_margin))
    assert all(by_galaxy > by_margin for by_galaxy, by_margin in shares)
    assert np.mean([by_galaxy for by_galaxy, _ in shares]) >= 5
