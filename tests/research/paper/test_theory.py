"""The disc against counting by hand, and the verdicts of the theory on made-up numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from research.paper.disc import (
    disagreement_shares,
    estimated_ldm,
    exact_ldm,
    rng,
    rotation_angles,
    row_angles,
    sample_disc,
)
from research.paper.figure_01_definition import LONG, RAYS, SHORT, allowed_error, judge_illustration
from research.paper.item import HOLDS, IN_PART, NOT, Measurement, StudyConfig
from research.paper.propositions import (
    bound_miss_probability,
    compute_wedge_distances,
    flip_log_probability,
    judge_coverage,
    judge_disagreement,
    judge_flips,
    mean_disagreement,
    measure_coverage,
    measure_disagreement,
    measure_flips,
)
from research.paper.theorem_01_convergence import (
    HYPOTHESES,
    NEGLIGIBLE_SHARE,
    ROWS,
    SIZES,
    TOLERANCE,
    compute_inverted_share,
    compute_needed_rows,
    fit_slope,
    judge_errors,
    judge_orders,
    measure_errors,
    measure_orders,
)

RNG = np.random.default_rng(0)


# The disc and figure 1


def test_row_angles_and_exact_ldm() -> None:
    """The LDM is 0 on the vertical boundary of g, and one half across it."""
    rows = np.array([[0.0, 1.0], [0.0, -0.5], [0.3, 0.0], [-0.5, 0.5], [0.5, 0.5]])
    angles = row_angles(rows)

    assert angles == pytest.approx(np.pi * np.array([0, 0, 0.5, 0.25, 0.75]))
    assert exact_ldm(angles) == pytest.approx([0, 0, 0.5, 0.25, 0.25])


@pytest.mark.slow
def test_estimated_ldm_agrees_with_counting_labels() -> None:
    rows = sample_disc(40, RNG)
    reference = sample_disc(300, RNG)
    parameters = np.array([1.0, 0.0]) + 0.8 * RNG.standard_normal((25, 2))

    reference_changes = (reference @ parameters.T > 0) != (reference[:, :1] > 0)
    row_flips = (rows @ parameters.T > 0) != (rows[:, :1] > 0)
    shares = reference_changes.mean(axis=0)
    expected = np.where(row_flips, shares[None, :], 1.0).min(axis=1)

    rotations = rotation_angles(parameters)
    sorted_angles = np.sort(row_angles(reference))
    assert disagreement_shares(rotations, sorted_angles) == pytest.approx(shares)
    assert estimated_ldm(row_angles(rows), rotations, sorted_angles) == pytest.approx(expected)


@pytest.mark.slow
def test_illustration_verdict_follows_the_estimates() -> None:
    rows = sample_disc(30, RNG)
    reference = sample_disc(1000, RNG)
    exact = exact_ldm(row_angles(rows))
    good = {RAYS: exact, SHORT: exact + 0.3, LONG: exact}
    one_is_off = {**good, LONG: exact + 2 * allowed_error(1000)}
    all_are_off = dict.fromkeys(good, 1 - exact)

    assert judge_illustration(rows, reference, good).verdict == HOLDS
    assert judge_illustration(rows, reference, one_is_off).verdict == IN_PART
    assert judge_illustration(rows, reference, all_are_off).verdict == NOT


# Proposition 1


@pytest.mark.slow
def test_flip_probability_is_that_of_the_logit() -> None:
    """The logit of a row across the boundary is N(1, 1): it flips if N(0, 1) is below -1."""
    probability = np.exp(flip_log_probability(np.array([0.0, 0.5]), [1.0]))
    assert probability == pytest.approx(np.array([[0.5, 0.158655]]), abs=1e-6)


@pytest.mark.slow
def test_flips_verdict_follows_the_numbers() -> None:
    exact = np.array([0.1, 0.2, 0.3])
    falling = np.array([[0.5, 0.3, 0.1]])
    counts = np.array([[500, 300, 100]])

    def judge(probability: np.ndarray, flip_counts: np.ndarray) -> str:
        measurement = judge_flips(
            exact,
            np.log(probability),
            flip_counts,
            draw_count=1000,
            sigmas=[1.0],
            estimated=exact,
        )
        return measurement.verdict

    assert judge(falling, counts) == HOLDS
    assert judge(falling, counts[:, ::-1]) == IN_PART
    assert judge(falling[:, ::-1], counts) == NOT


# Proposition 2


@pytest.mark.slow
def test_mean_disagreement_has_its_limits() -> None:
    """Under weak noise the angle is half normal, under strong noise it is uniform."""
    weak = 1e-3 * np.sqrt(2 / np.pi) / np.pi
    assert mean_disagreement(1e-3) == pytest.approx(weak, rel=1e-4)
    assert mean_disagreement(1e4) == pytest.approx(0.5, abs=1e-4)

    noise = RNG.standard_normal((200_000, 2))
    simulated = np.abs(rotation_angles([1.0, 0.0] + 0.7 * noise)).mean() / np.pi
    assert mean_disagreement(0.7) == pytest.approx(simulated, abs=2e-3)


@pytest.mark.slow
def test_disagreement_verdict_follows_the_numbers() -> None:
    sigmas = np.array([0.1, 1.0, 10.0])
    rising = np.array([0.1, 0.2, 0.3])
    errors = np.full(3, 0.01)

    assert judge_disagreement(sigmas, rising, rising, errors).verdict == HOLDS
    assert judge_disagreement(sigmas, rising, rising + 0.1, errors).verdict == IN_PART
    assert judge_disagreement(sigmas, rising[::-1], rising, errors).verdict == NOT


# Proposition 3


@pytest.mark.slow
def test_wedge_distances() -> None:
    """A row at 45 degrees and a wedge up to 90: in it, beside, behind, and without a flip."""
    parameters = np.array([[0.1, 1.0], [-0.3, 2.0], [-0.4, -0.3], [1.0, 0.0]])
    distances = compute_wedge_distances(parameters, angle=np.pi / 4, near=0.25)
    assert distances == pytest.approx([0, 0.3, 0.5, np.inf])


@pytest.mark.slow
def test_miss_probability_agrees_with_simulation() -> None:
    noise = rng(1, "test").standard_normal((20_000, 8, 2))
    nearest = compute_wedge_distances(np.array([1.0, 0.0]) + 0.5 * noise).min(axis=1)
    assert bound_miss_probability(8, 0.3) == pytest.approx((nearest > 0.3).mean(), abs=0.02)


@pytest.mark.slow
def test_coverage_verdict_follows_the_numbers() -> None:
    counts = [1, 4, 16]
    fast = [0.5, 0.1, 0.01]
    slow = [0.5, 0.45, 0.4]

    assert judge_coverage(counts, fast, [500, 100, 10], 1000).verdict == HOLDS
    assert judge_coverage(counts, slow, [500, 450, 400], 1000).verdict == IN_PART
    assert judge_coverage(counts, slow, [900, 900, 900], 1000).verdict == NOT


# Theorem 1


@pytest.mark.slow
def test_needed_rows_follow_the_formula() -> None:
    assert compute_needed_rows(16, delta=0.1) == int(800 * np.log(32)) + 1


def make_errors(sizes: tuple[int, ...], power: float) -> np.ndarray:
    """Return errors (sizes, 40) that are a power of the size, up to 10 % of noise."""
    noise = RNG.uniform(0.9, 1.1, (len(sizes), 40))
    return np.array(sizes, dtype=float)[:, None] ** power * noise


@pytest.mark.slow
def test_fit_slope_finds_the_power() -> None:
    mean, lower_limit = fit_slope(HYPOTHESES, make_errors(HYPOTHESES, -1.0))
    assert mean == pytest.approx(-1, abs=0.02)
    assert lower_limit < mean


@pytest.mark.slow
def test_theorem_verdict_follows_the_errors() -> None:
    within_bound = np.zeros((len(HYPOTHESES), 40))
    good = {
        "by_hypotheses": make_errors(HYPOTHESES, -0.8),
        "by_rows": make_errors(ROWS, -0.5),
        "by_both": within_bound,
        "with_few_rows": make_errors(HYPOTHESES, -0.5),
    }
    assert judge_errors(**good).verdict == HOLDS

    slow_in_rows = make_errors(ROWS, -0.2)
    assert judge_errors(**{**good, "by_both": within_bound + 1}).verdict == IN_PART
    assert judge_errors(**{**good, "by_rows": slow_in_rows}).verdict == IN_PART

    bad = {
        "by_hypotheses": make_errors(HYPOTHESES, -0.1),
        "by_rows": slow_in_rows,
        "by_both": within_bound + 1,
    }
    assert judge_errors(**{**good, **bad}).verdict == NOT


# Corollary 1


def test_inverted_pairs_are_counted() -> None:
    exact = np.array([0.1, 0.2, 0.3])
    slightly_wrong = np.array([0.1, 0.301, 0.3])

    assert compute_inverted_share(exact, exact, 0.0) == 0
    assert compute_inverted_share(exact, exact[::-1], 0.0) == 1
    assert compute_inverted_share(exact, slightly_wrong, 0.0) == pytest.approx(1 / 3)
    assert compute_inverted_share(exact, slightly_wrong, TOLERANCE) == 0


@pytest.mark.slow
def test_corollary_verdict_follows_the_shares() -> None:
    falling = np.linspace(0.2, 0, len(SIZES))[None, :, None].repeat(2, axis=0)
    rising = falling[:, ::-1]

    assert judge_orders({"a": falling, "b": falling}).verdict == HOLDS
    assert judge_orders({"a": falling, "b": rising}).verdict == IN_PART
    assert judge_orders({"a": falling + 2 * NEGLIGIBLE_SHARE}).verdict == NOT


@pytest.mark.slow
def test_inverted_pairs_become_rare() -> None:
    """The verdict needs the many repetitions of a full computation; a quick one shows the trend."""
    measurement = measure_orders(StudyConfig(seed=1))

    for name, (_, share) in measurement.numbers["inverted"].items():
        assert (np.diff(share) <= 0).all(), name
        assert share[-1] < share[0] / 20, name


# All statements that the paper proves with exact constants


@pytest.mark.slow
@pytest.mark.parametrize(
    "measure",
    [measure_flips, measure_disagreement, measure_coverage, measure_errors],
    ids=lambda measure: measure.__name__,
)
def test_proven_statements_hold(measure: Callable[[StudyConfig], Measurement]) -> None:
    assert measure(StudyConfig(seed=1)).verdict == HOLDS
