"""Picks in the plane and among digits, on tiny sizes; and verdicts that turn when numbers do."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reproduction import (
    figure_02ab_selection,
    figure_02c_batches,
    figure_03_diversity,
    figure_10_clusters,
    study_data,
)
from reproduction.disc import fit_line, line_accuracy, rng, sample_disc
from reproduction.figure_02ab_selection import judge_plane, learn_line, measure_plane
from reproduction.figure_02c_batches import (
    boundary_distance,
    judge_batches,
    mean_distance,
    measure_batches,
)
from reproduction.figure_03_diversity import judge_gains, measure_gains
from reproduction.figure_10_clusters import TRUTHS, draw_world, judge_groups, measure_groups
from reproduction.item import HOLDS, IN_PART, NOT, Measurement, StudyConfig, to_json_value
from teeter.models.outputs import Outputs

RNG = np.random.default_rng(0)


def drawable(item: object, found: Measurement) -> None:
    """An item draws from what its file has."""
    drawings = item.draw(Measurement(to_json_value(found.numbers), found.verdict, found.reason))  # type: ignore[attr-defined]
    assert drawings
    assert all(one.caption.endswith(".") for one in drawings)


@pytest.mark.slow
def test_a_line_is_what_scikit_learn_finds() -> None:
    from sklearn.linear_model import LogisticRegression

    rows = sample_disc(30, RNG)
    labels = (rows @ [1.0, 2.0] + 0.3 * RNG.standard_normal(30) > 0).astype(float)
    model = LogisticRegression(C=1 / 0.01, fit_intercept=False, tol=1e-10, max_iter=1000).fit(
        rows, labels
    )
    assert fit_line(rows, labels) == pytest.approx(model.coef_[0], rel=1e-4)


def test_agreement_of_two_lines_is_the_angle_between_them() -> None:
    assert line_accuracy(np.array([2.0, 0.0]), np.array([0.0, 1.0])) == pytest.approx(0.5)
    assert line_accuracy(np.array([1.0, 1.0]), np.array([1.0, 0.0])) == pytest.approx(0.75)
    assert line_accuracy(np.array([-1.0, 0.0]), np.array([1.0, 0.0])) == pytest.approx(0)


def test_ldm_picks_the_row_at_the_smallest_angle_and_entropy_the_nearest() -> None:
    """One row is near the boundary for it is near the origin; another is at a smaller angle to it."""
    pool = np.array(
        [[0.9, 0.0], [-0.9, 0.0], [0.8, 0.5], [0.02, 0.02], [0.1, 0.99], [-0.7, -0.6], [-0.6, 0.7]]
    )
    truth = np.array([1.0, 0.0])
    for strategy, expected in (("ldm", 4), ("entropy", 3)):
        picks, lines, near = learn_line(pool, truth, [0, 1], strategy, 1, seed=0)
        assert picks == [expected]
        assert len(lines) == 2
        assert near[0] < 1


def runs(gain: float) -> np.ndarray:
    return 0.9 + gain + 0.001 * RNG.standard_normal((50, 4))


@pytest.mark.slow
def test_the_plane_turns_with_the_numbers() -> None:
    apart = {
        "ldm": RNG.uniform(0, 0.1, 50),
        "entropy": RNG.uniform(0, 0.1, 50),
        "random": RNG.uniform(0.9, 1.1, 50),
    }
    like = {"ldm": runs(0.02), "entropy": runs(0.02), "random": runs(0.0)}
    assert judge_plane(like, apart).verdict == HOLDS
    assert judge_plane({**like, "ldm": runs(0.04)}, apart).verdict == IN_PART
    far = dict.fromkeys(apart, apart["random"])
    assert (
        judge_plane({"ldm": runs(-0.02), "entropy": runs(0.0), "random": runs(0.0)}, far).verdict
        == NOT
    )


@pytest.mark.slow
def test_the_plane_on_a_tiny_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_02ab_selection, "STEPS", 3)
    monkeypatch.setattr(figure_02ab_selection, "REPETITIONS", 4)
    found = measure_plane(StudyConfig())
    assert np.shape(found.numbers["accuracy"]["ldm"]) == (4, 4)
    assert np.shape(found.numbers["shown"]["ldm"]["picks"]) == (3,)
    drawable(figure_02ab_selection.FIGURE_2AB, found)


@pytest.mark.slow
def test_the_distance_to_a_boundary_is_euclidean() -> None:
    """Two classes split at x = 0 in the plane, the weights two apart."""
    features, weight = (
        torch.tensor([[0.5, 7.0], [-2.0, 0.0]]),
        torch.tensor([[1.0, 0.0], [-1.0, 0.0]]),
    )
    assert boundary_distance(
        Outputs(features=features, weight=weight).with_logits()
    ) == pytest.approx([0.5, 2.0])


def test_the_mean_distance_of_a_batch() -> None:
    assert mean_distance(np.array([[1.0, 0.0], [3.0, 0.0]])) == pytest.approx(0)
    assert mean_distance(np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 0.0]])) == pytest.approx(
        (1 + 1 + 2) / 3
    )


@pytest.mark.slow
def test_batches_turn_with_the_numbers() -> None:
    low, high = RNG.uniform(0, 0.1, 9), RNG.uniform(0.5, 0.6, 9)
    near = {"ldm": low, "entropy": low, "coreset": high, "random": high}
    spread = {"ldm": low, "entropy": low, "coreset": high, "random": high}
    assert judge_batches(near, spread).verdict == HOLDS
    assert judge_batches(near, {**spread, "coreset": low / 2}).verdict == IN_PART
    assert judge_batches(dict.fromkeys(near, high), dict.fromkeys(near, low)).verdict == NOT


@pytest.fixture
def quickly_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks learn for three epochs."""
    real = study_data.setting_named
    monkeypatch.setattr(
        study_data, "setting_named", lambda name: study_data.replace(real(name), epochs=3)
    )


@pytest.mark.slow
@pytest.mark.usefixtures("quickly_trained")
def test_batches_on_a_tiny_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_02c_batches, "REPETITIONS", (2, 2))
    found = measure_batches(StudyConfig(device="cpu"))
    assert {name: len(rows) for name, rows in found.numbers["picks"].items()} == dict.fromkeys(
        ("ldm", "entropy", "coreset", "random"), figure_02c_batches.BATCH
    )
    assert len(found.numbers["map"]) == found.numbers["pool"] + figure_02c_batches.LABELS
    drawable(figure_02c_batches.FIGURE_2C, found)


@pytest.mark.slow
def test_three_classes_are_numbered_anew() -> None:
    found = study_data.load_study_data(
        StudyConfig(device="cpu"), "mnist", classes=(3, 5, 8), rows=100
    )
    assert found.class_count == 3
    assert len(found.train) == 100
    assert set(found.test.labels.tolist()) == {0, 1, 2}


def gains(first: float, rest: float) -> np.ndarray:
    return np.array([first] + 7 * [rest]) + 0.1 * RNG.standard_normal((10, 8))


@pytest.mark.slow
def test_figure_3_turns_with_the_numbers() -> None:
    close, wide = (
        np.linspace(0.2, 0.5, 8) + 0.01 * RNG.standard_normal((10, 8)),
        RNG.uniform(0.4, 0.5, (10, 8)),
    )
    good = {100: gains(3, 2), 300: gains(1, 1.5)}
    assert judge_gains(good, {100: wide, 300: close}).verdict == HOLDS
    assert judge_gains(good, {100: wide, 300: close[:, ::-1]}).verdict == IN_PART
    assert (
        judge_gains({100: gains(1, 2), 300: gains(3, 1)}, {100: wide, 300: close[:, ::-1]}).verdict
        == NOT
    )


@pytest.mark.slow
@pytest.mark.usefixtures("quickly_trained")
def test_figure_3_on_a_tiny_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_03_diversity, "REPETITIONS", (2, 2))
    monkeypatch.setattr(figure_03_diversity, "tsne_2d", lambda features, seed: features[:, :2])
    found = measure_gains(StudyConfig(device="cpu"))
    assert {labels: np.shape(values) for labels, values in found.numbers["gains"].items()} == {
        "100": (2, 8),
        "300": (2, 8),
    }
    assert len(found.numbers["maps"]["100"]["first"]) == 20
    drawable(figure_03_diversity.FIGURE_3, found)


@pytest.mark.slow
def test_the_groups_lie_as_told_and_every_truth_has_them_right() -> None:
    pool, names, told, classes = draw_world(rng(0, "test"))
    line = fit_line(told, classes)
    assert line[1] == pytest.approx(0, abs=1e-6)
    for angle in np.radians(TRUTHS):
        truth = np.array([np.cos(angle), np.sin(angle)])
        assert ((told @ truth > 0) == (classes == 1)).all()
        for group, right in (("A", True), ("B", False), ("C", True), ("D", False)):
            assert ((pool[names == group] @ truth > 0) == right).all()
    assert (pool[names == "C"] @ line < 0).all()


@pytest.mark.slow
def test_the_groups_turn_with_the_numbers() -> None:
    noise = RNG.uniform(0, 0.01, 40)
    angles = RNG.uniform(*TRUTHS, 40)
    accuracy = {
        "before": noise,
        "ldm": noise,
        "ldm-s": 0.2 + noise[::-1],
        "A and B": noise,
        "C and D": 0.3 + noise[::-1],
    }
    far = {"ldm": np.zeros(40), "ldm-s": np.ones(40)}
    values = {"A": noise, "B": noise, "C": noise + 1, "D": noise + 1}
    assert judge_groups(accuracy, far, values, angles).verdict == HOLDS
    assert judge_groups(accuracy, {**far, "ldm": np.ones(40)}, values, angles).verdict == IN_PART
    worse = {**accuracy, "ldm-s": noise[::-1] - 1, "C and D": noise[::-1] - 1}
    swapped = {"A": noise + 1, "B": noise + 1, "C": noise, "D": noise}
    assert (
        judge_groups(worse, {"ldm": np.ones(40), "ldm-s": np.zeros(40)}, swapped, angles).verdict
        == NOT
    )


@pytest.mark.slow
def test_the_groups_on_a_tiny_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_10_clusters, "REPETITIONS", (5, 5))
    found = measure_groups(StudyConfig())
    assert (found.numbers["picked in C or D"]["ldm"] == 0).all()
    drawable(figure_10_clusters.FIGURE_10, found)
