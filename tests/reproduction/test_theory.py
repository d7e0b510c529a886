"""The plane of the paper's propositions against counting by hand, and verdicts that turn when numbers do."""

from __future__ import annotations

import numpy as np
import pytest

from reproduction.disc import (
    disagreement_shares,
    estimated_ldm,
    exact_ldm,
    rng,
    rotation_angles,
    row_angles,
    sample_disc,
)
from reproduction.figure_01_definition import LONG, RAYS, SHORT, allowed_error, judge_illustration
from reproduction.item import HOLDS, IN_PART, NOT, StudyConfig
from reproduction.propositions import (
    distances,
    flip_log_probability,
    judge_coverage,
    judge_disagreement,
    judge_flips,
    mean_disagreement,
    measure_coverage,
    measure_disagreement,
    measure_flips,
    never_covered,
)
from reproduction.theorem_01_convergence import (
    APART,
    HYPOTHESES,
    RARE,
    ROWS,
    SIZES,
    inverted,
    judge_errors,
    judge_order,
    measure_errors,
    measure_order,
    needed_rows,
    slope,
)

RNG = np.random.default_rng(0)


def test_a_rows_tilt_and_its_ldm() -> None:
    """On g's upright boundary the LDM is 0, and across it one half."""
    rows = np.array([[0.0, 1.0], [0.0, -0.5], [0.3, 0.0], [-0.5, 0.5], [0.5, 0.5]])
    assert row_angles(rows) == pytest.approx(np.pi * np.array([0, 0, 0.5, 0.25, 0.75]))
    assert exact_ldm(row_angles(rows)) == pytest.approx([0, 0, 0.5, 0.25, 0.25])


@pytest.mark.slow
def test_least_of_is_what_counting_labels_gives() -> None:
    rows, reference = sample_disc(40, RNG), sample_disc(300, RNG)
    parameters = np.array([1.0, 0.0]) + 0.8 * RNG.standard_normal((25, 2))
    changed = (reference @ parameters.T > 0) != (reference[:, :1] > 0)
    flips = (rows @ parameters.T > 0) != (rows[:, :1] > 0)
    expected = np.where(flips, changed.mean(axis=0)[None, :], 1.0).min(axis=1)
    ordered = np.sort(row_angles(reference))
    assert disagreement_shares(rotation_angles(parameters), ordered) == pytest.approx(
        changed.mean(axis=0)
    )
    assert estimated_ldm(row_angles(rows), rotation_angles(parameters), ordered) == pytest.approx(
        expected
    )


@pytest.mark.slow
def test_the_illustration_holds_for_the_truth_alone() -> None:
    rows, reference = sample_disc(30, RNG), sample_disc(1000, RNG)
    true = exact_ldm(row_angles(rows))
    right = {RAYS: true, SHORT: true + 0.3, LONG: true}
    assert judge_illustration(rows, reference, right).verdict == HOLDS
    assert (
        judge_illustration(rows, reference, {**right, LONG: true + 2 * allowed_error(1000)}).verdict
        == IN_PART
    )
    assert judge_illustration(rows, reference, dict.fromkeys(right, 1 - true)).verdict == NOT


@pytest.mark.slow
def test_the_chance_of_a_flip_is_that_of_the_logit() -> None:
    """A row straight across: its logit is N(1, sigma^2), so at sigma 1 it flips with the chance of N(0, 1) < -1."""
    assert np.exp(flip_log_probability(np.array([0.0, 0.5]), [1.0])) == pytest.approx(
        np.array([[0.5, 0.158655]]), abs=1e-6
    )


def judged_flips(chances: np.ndarray, counts: np.ndarray) -> str:
    true = np.array([0.1, 0.2, 0.3])
    return judge_flips(
        true, np.log(chances), counts, draws_count=1000, sigmas=[1.0], estimated=true
    ).verdict


@pytest.mark.slow
def test_proposition_1_turns_with_the_numbers() -> None:
    falling, counts = np.array([[0.5, 0.3, 0.1]]), np.array([[500, 300, 100]])
    assert judged_flips(falling, counts) == HOLDS
    assert judged_flips(falling, counts[:, ::-1]) == IN_PART
    assert judged_flips(falling[:, ::-1], counts) == NOT


@pytest.mark.slow
def test_the_mean_disagreement_has_its_known_limits() -> None:
    assert mean_disagreement(1e-3) == pytest.approx(1e-3 * np.sqrt(2 / np.pi) / np.pi, rel=1e-4)
    assert mean_disagreement(1e4) == pytest.approx(0.5, abs=1e-4)
    noise = RNG.standard_normal((200_000, 2))
    assert mean_disagreement(0.7) == pytest.approx(
        np.abs(rotation_angles([1.0, 0.0] + 0.7 * noise)).mean() / np.pi, abs=2e-3
    )


@pytest.mark.slow
def test_proposition_2_turns_with_the_numbers() -> None:
    sigmas, rising = np.array([0.1, 1.0, 10.0]), np.array([0.1, 0.2, 0.3])
    errors = np.full(3, 0.01)
    assert judge_disagreement(sigmas, rising, rising, errors).verdict == HOLDS
    assert judge_disagreement(sigmas, rising, rising + 0.1, errors).verdict == IN_PART
    assert judge_disagreement(sigmas, rising[::-1], rising, errors).verdict == NOT


@pytest.mark.slow
def test_distances_to_the_wedge() -> None:
    """The row at 45 degrees, the wedge up to 90: inside, beside, behind, and one that does not flip the row."""
    places = np.array([[0.1, 1.0], [-0.3, 2.0], [-0.4, -0.3], [1.0, 0.0]])
    assert distances(places, angle=np.pi / 4, near=0.25) == pytest.approx([0, 0.3, 0.5, np.inf])


@pytest.mark.slow
def test_never_covered_is_what_simulation_finds() -> None:
    generator = rng(1, "test")
    near = distances(np.array([1.0, 0.0]) + 0.5 * generator.standard_normal((20_000, 8, 2))).min(
        axis=1
    )
    assert never_covered(8, 0.3) == pytest.approx((near > 0.3).mean(), abs=0.02)


@pytest.mark.slow
def test_proposition_3_turns_with_the_numbers() -> None:
    counts = [1, 4, 16]
    fast, slow = [0.5, 0.1, 0.01], [0.5, 0.45, 0.4]
    assert judge_coverage(counts, fast, [500, 100, 10], 1000).verdict == HOLDS
    assert judge_coverage(counts, slow, [500, 450, 400], 1000).verdict == IN_PART
    assert judge_coverage(counts, slow, [900, 900, 900], 1000).verdict == NOT


@pytest.mark.slow
def test_the_theorem_asks_for_so_many_rows() -> None:
    assert needed_rows(16, delta=0.1) == int(800 * np.log(32)) + 1


def falling(sizes: tuple[int, ...], power: float) -> np.ndarray:
    return np.array(sizes, dtype=float)[:, None] ** power * RNG.uniform(0.9, 1.1, (len(sizes), 40))


@pytest.mark.slow
def test_theorem_1_turns_with_the_numbers() -> None:
    middle, lowest = slope(HYPOTHESES, falling(HYPOTHESES, -1.0))
    assert middle == pytest.approx(-1, abs=0.02)
    assert lowest < middle
    good = {
        "against_n": falling(HYPOTHESES, -0.8),
        "against_m": falling(ROWS, -0.5),
        "paired": np.zeros((len(HYPOTHESES), 40)),
        "few_rows": falling(HYPOTHESES, -0.5),
    }
    assert judge_errors(**good).verdict == HOLDS
    assert judge_errors(**{**good, "paired": np.ones((len(HYPOTHESES), 40))}).verdict == IN_PART
    assert judge_errors(**{**good, "against_m": falling(ROWS, -0.2)}).verdict == IN_PART
    bad = {
        "against_n": falling(HYPOTHESES, -0.1),
        "against_m": falling(ROWS, -0.2),
        "paired": good["paired"] + 1,
    }
    assert judge_errors(**{**good, **bad}).verdict == NOT


def test_inverted_pairs_are_counted() -> None:
    true = np.array([0.1, 0.2, 0.3])
    assert inverted(true, true, 0.0) == 0
    assert inverted(true, true[::-1], 0.0) == 1
    assert inverted(true, np.array([0.1, 0.301, 0.3]), 0.0) == pytest.approx(1 / 3)
    assert inverted(true, np.array([0.1, 0.301, 0.3]), APART) == 0


@pytest.mark.slow
def test_corollary_1_turns_with_the_numbers() -> None:
    falls = np.linspace(0.2, 0, len(SIZES))[None, :, None].repeat(2, axis=0)
    assert judge_order({"a": falls, "b": falls}).verdict == HOLDS
    assert judge_order({"a": falls, "b": falls[:, ::-1]}).verdict == IN_PART
    assert judge_order({"a": falls + 2 * RARE}).verdict == NOT


@pytest.mark.slow
@pytest.mark.parametrize(
    "compute",
    [measure_flips, measure_disagreement, measure_coverage, measure_errors, measure_order],
    ids=lambda compute: compute.__name__,
)
def test_what_is_proved_is_found(compute: object) -> None:
    assert compute(StudyConfig(seed=1)).verdict == HOLDS  # type: ignore[operator]
