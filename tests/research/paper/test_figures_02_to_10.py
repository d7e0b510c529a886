"""Figures 2, 3 and 10: their parts, their verdicts on made-up numbers, and tiny computations."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from paper_items import assert_drawable
from research.paper import (
    figure_02ab_selection,
    figure_02c_batches,
    figure_03_diversity,
    figure_10_clusters,
    study_data,
)
from research.paper.disc import fit_line, line_accuracy, rng, sample_disc
from research.paper.figure_02ab_selection import judge_plane, learn_line, measure_plane
from research.paper.figure_02c_batches import (
    boundary_distance,
    judge_batches,
    mean_distance,
    measure_batches,
)
from research.paper.figure_03_diversity import judge_gains, measure_gains
from research.paper.figure_10_clusters import TRUTHS, judge_groups, measure_groups, sample_example
from research.paper.item import HOLDS, IN_PART, NOT, StudyConfig
from teeter.models.outputs import Outputs

RNG = np.random.default_rng(0)


@pytest.fixture
def three_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train networks for three epochs only."""
    setting_named = study_data.setting_named
    monkeypatch.setattr(
        study_data,
        "setting_named",
        lambda name: study_data.replace(setting_named(name), epochs=3),
    )


# The line that is learned in the plane


@pytest.mark.slow
def test_fit_line_agrees_with_scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression

    rows = sample_disc(30, RNG)
    noise = 0.3 * RNG.standard_normal(30)
    labels = (rows @ [1.0, 2.0] + noise > 0).astype(float)

    model = LogisticRegression(C=1 / 0.01, fit_intercept=False, tol=1e-10, max_iter=1000)
    model.fit(rows, labels)
    assert fit_line(rows, labels) == pytest.approx(model.coef_[0], rel=1e-4)


def test_line_accuracy_depends_on_the_angle_between_lines() -> None:
    assert line_accuracy(np.array([2.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx(0.5)
    assert line_accuracy(np.array([1.0, 1.0]), np.array([1.0, 0.0])) == pytest.approx(0.75)
    assert line_accuracy(np.array([-1.0, 0.0]), np.array([1.0, 0.0])) == pytest.approx(0)


# Figures 2a and 2b


def test_ldm_picks_by_angle_and_entropy_by_distance() -> None:
    """Row 3 is nearest to the boundary, because it is near the origin; row 4 has the
    least angle.
    """
    pool = np.array(
        [
            [0.9, 0.0],
            [-0.9, 0.0],
            [0.8, 0.5],
            [0.02, 0.02],
            [0.1, 0.99],
            [-0.7, -0.6],
            [-0.6, 0.7],
        ]
    )
    truth = np.array([1.0, 0.0])

    for strategy, expected in (("ldm", 4), ("entropy", 3)):
        picks, lines, distances = learn_line(pool, truth, [0, 1], strategy, 1, seed=0)
        assert picks == [expected]
        assert len(lines) == 2
        assert distances[0] < 1


def make_plane_accuracies(gain: float) -> np.ndarray:
    """Return accuracies (50, 4) around 0.9 plus a gain."""
    return 0.9 + gain + 0.001 * RNG.standard_normal((50, 4))


@pytest.mark.slow
def test_plane_verdict_follows_the_numbers() -> None:
    near = {
        "ldm": RNG.uniform(0, 0.1, 50),
        "entropy": RNG.uniform(0, 0.1, 50),
        "random": RNG.uniform(0.9, 1.1, 50),
    }
    far = dict.fromkeys(near, near["random"])
    alike = {
        "ldm": make_plane_accuracies(0.02),
        "entropy": make_plane_accuracies(0.02),
        "random": make_plane_accuracies(0.0),
    }
    useless = {
        "ldm": make_plane_accuracies(-0.02),
        "entropy": make_plane_accuracies(0.0),
        "random": make_plane_accuracies(0.0),
    }

    assert judge_plane(alike, near).verdict == HOLDS
    assert judge_plane({**alike, "ldm": make_plane_accuracies(0.04)}, near).verdict == IN_PART
    assert judge_plane(useless, far).verdict == NOT


@pytest.mark.slow
def test_plane_at_a_tiny_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_02ab_selection, "STEPS", 3)
    monkeypatch.setattr(figure_02ab_selection, "REPETITIONS", 4)

    measurement = measure_plane(StudyConfig())
    assert np.shape(measurement.numbers["accuracy"]["ldm"]) == (4, 4)
    assert np.shape(measurement.numbers["shown"]["ldm"]["picks"]) == (3,)
    assert_drawable(figure_02ab_selection.FIGURE_2AB, measurement)


# Figure 2c


@pytest.mark.slow
def test_boundary_distance_is_euclidean() -> None:
    """Two classes are split at x = 0, and their weights are 2 apart."""
    features = torch.tensor([[0.5, 7.0], [-2.0, 0.0]])
    weight = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])

    outputs = Outputs(features=features, weight=weight).with_logits()
    assert boundary_distance(outputs) == pytest.approx([0.5, 2.0])


def test_mean_distance_leaves_out_the_distance_to_itself() -> None:
    assert mean_distance(np.array([[1.0, 0.0], [3.0, 0.0]])) == pytest.approx(0)

    three_rows = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 0.0]])
    assert mean_distance(three_rows) == pytest.approx((1 + 1 + 2) / 3)


@pytest.mark.slow
def test_batches_verdict_follows_the_numbers() -> None:
    low = RNG.uniform(0, 0.1, 9)
    high = RNG.uniform(0.5, 0.6, 9)
    nearer_share = {"ldm": low, "entropy": low, "coreset": high, "random": high}
    spread = {"ldm": low, "entropy": low, "coreset": high, "random": high}

    assert judge_batches(nearer_share, spread).verdict == HOLDS
    assert judge_batches(nearer_share, {**spread, "coreset": low / 2}).verdict == IN_PART

    all_far = dict.fromkeys(nearer_share, high)
    all_narrow = dict.fromkeys(spread, low)
    assert judge_batches(all_far, all_narrow).verdict == NOT


@pytest.mark.slow
@pytest.mark.usefixtures("three_epochs")
def test_batches_at_a_tiny_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_02c_batches, "QUICK_REPETITIONS", 2)

    measurement = measure_batches(StudyConfig(device="cpu"))
    picks = measurement.numbers["picks"]
    assert set(picks) == {"ldm", "entropy", "coreset", "random"}
    assert all(len(rows) == figure_02c_batches.BATCH_SIZE for rows in picks.values())

    row_count = measurement.numbers["pool"] + figure_02c_batches.LABEL_COUNT
    assert len(measurement.numbers["map"]) == row_count
    assert_drawable(figure_02c_batches.FIGURE_2C, measurement)


@pytest.mark.slow
def test_chosen_classes_are_renumbered() -> None:
    config = StudyConfig(device="cpu")
    data = study_data.load_study_data(config, "mnist", classes=(3, 5, 8), rows=100)

    assert data.class_count == 3
    assert len(data.train) == 100
    assert set(data.test.labels.tolist()) == {0, 1, 2}


# Figure 3


def make_batch_gains(first: float, rest: float) -> np.ndarray:
    """Return gains (10, 8) of a first batch and seven others, with noise."""
    return np.array([first] + 7 * [rest]) + 0.1 * RNG.standard_normal((10, 8))


@pytest.mark.slow
def test_diversity_verdict_follows_the_numbers() -> None:
    rising = np.linspace(0.2, 0.5, 8) + 0.01 * RNG.standard_normal((10, 8))
    level = RNG.uniform(0.4, 0.5, (10, 8))
    expected_gains = {100: make_batch_gains(3, 2), 300: make_batch_gains(1, 1.5)}
    opposite_gains = {100: make_batch_gains(1, 2), 300: make_batch_gains(3, 1)}
    expected_spread = {100: level, 300: rising}
    opposite_spread = {100: level, 300: rising[:, ::-1]}

    assert judge_gains(expected_gains, expected_spread).verdict == HOLDS
    assert judge_gains(expected_gains, opposite_spread).verdict == IN_PART
    assert judge_gains(opposite_gains, opposite_spread).verdict == NOT


@pytest.mark.slow
@pytest.mark.usefixtures("three_epochs")
def test_diversity_at_a_tiny_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_03_diversity, "QUICK_REPETITIONS", 2)
    monkeypatch.setattr(figure_03_diversity, "tsne_2d", lambda features, seed: features[:, :2])

    measurement = measure_gains(StudyConfig(device="cpu"))
    gains = measurement.numbers["gains"]
    assert set(gains) == {"100", "300"}
    assert all(np.shape(values) == (2, 8) for values in gains.values())
    assert len(measurement.numbers["maps"]["100"]["first"]) == 20
    assert_drawable(figure_03_diversity.FIGURE_3, measurement)


# Figure 10


@pytest.mark.slow
def test_groups_lie_where_the_example_has_them() -> None:
    """g is vertical and gets C wrong; every true boundary gets labels and groups right."""
    example = sample_example(rng(0, "test"))
    line = fit_line(example.labelled, example.classes)
    assert line[1] == pytest.approx(0, abs=1e-6)
    assert (example.pool[example.groups == "C"] @ line < 0).all()

    for angle in np.radians(TRUTHS):
        truth = np.array([np.cos(angle), np.sin(angle)])
        assert ((example.labelled @ truth > 0) == (example.classes == 1)).all()
        for group, is_positive in (("A", True), ("B", False), ("C", True), ("D", False)):
            rows = example.pool[example.groups == group]
            assert ((rows @ truth > 0) == is_positive).all()


@pytest.mark.slow
def test_groups_verdict_follows_the_numbers() -> None:
    noise = RNG.uniform(0, 0.01, 40)
    angles = RNG.uniform(*TRUTHS, 40)
    accuracy = {
        "before": noise,
        "ldm": noise,
        "ldm-s": 0.2 + noise[::-1],
        "A and B": noise,
        "C and D": 0.3 + noise[::-1],
    }
    outer_picks = {"ldm": np.zeros(40), "ldm-s": np.ones(40)}
    mean_ldm = {"A": noise, "B": noise, "C": noise + 1, "D": noise + 1}
    assert judge_groups(accuracy, outer_picks, mean_ldm, angles).verdict == HOLDS

    both_reach = {**outer_picks, "ldm": np.ones(40)}
    assert judge_groups(accuracy, both_reach, mean_ldm, angles).verdict == IN_PART

    worse = {**accuracy, "ldm-s": noise[::-1] - 1, "C and D": noise[::-1] - 1}
    swapped_picks = {"ldm": np.ones(40), "ldm-s": np.zeros(40)}
    swapped_ldm = {"A": noise + 1, "B": noise + 1, "C": noise, "D": noise}
    assert judge_groups(worse, swapped_picks, swapped_ldm, angles).verdict == NOT


@pytest.mark.slow
def test_groups_at_a_tiny_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_10_clusters, "QUICK_REPETITIONS", 5)

    measurement = measure_groups(StudyConfig())
    assert (measurement.numbers["picked in C or D"]["ldm"] == 0).all()
    assert_drawable(figure_10_clusters.FIGURE_10, measurement)
