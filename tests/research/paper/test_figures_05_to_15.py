"""Figures 5, 7, 11 and 15: their parts, their verdicts on made-up numbers, tiny computations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from paper_items import assert_drawable
from research.paper import figure_05_uncertainty, figure_11_stop_condition, figure_15_variants
from research.paper.disc import rng
from research.paper.figure_05_uncertainty import (
    FlipFrequencies,
    count_flips,
    judge_disagreement_curves,
    judge_flip_frequencies,
    measure_disagreement_curves,
    measure_flip_frequencies,
)
from research.paper.figure_11_stop_condition import (
    SearchResults,
    judge_ray_counts,
    judge_stop_conditions,
    measure_ray_counts,
    measure_stop_conditions,
    search_plane,
)
from research.paper.figure_15_variants import (
    judge_variants,
    make_sigmas,
    make_variants,
    measure_variants,
)
from research.paper.item import HOLDS, IN_PART, NOT, StudyConfig
from research.paper.shared_runs import make_digits_setting
from teeter.base.seeds import normal, stream
from teeter.kernels.ldm import paper_sigmas
from teeter.models.outputs import Outputs

RNG = np.random.default_rng(2)


# Figures 5 and 7


@pytest.mark.slow
def test_count_flips_agrees_with_counting_one_by_one() -> None:
    features = torch.randn(7, 3)
    weight = torch.randn(4, 3)
    bias = torch.randn(4)
    outputs = Outputs(features=features, weight=weight, bias=bias)
    counts, disagreements = count_flips(outputs, 0.7, 60, 5)

    # The noise comes in blocks of 50 draws.
    generator = stream(5, "flips", "0.7")
    expected_counts = np.zeros(7)
    expected_disagreements = []
    for block in (50, 10):
        weight_noise = normal((block, 4, 3), generator, torch.device("cpu"))
        bias_noise = normal((block, 4), generator, torch.device("cpu"))
        for k in range(block):
            moved_weight = weight + 0.7 * weight_noise[k]
            moved_bias = bias + 0.7 * bias_noise[k]
            flips = []
            for row in features:
                before = int((weight @ row + bias).argmax())
                after = int((moved_weight @ row + moved_bias).argmax())
                flips.append(before != after)
            expected_counts += flips
            expected_disagreements.append(np.mean(flips))

    assert counts.tolist() == expected_counts.tolist()
    assert disagreements.numpy() == pytest.approx(np.array(expected_disagreements))


def make_flip_frequencies(noise: float) -> FlipFrequencies:
    """Return frequencies that fall with the LDM, up to noise."""
    ldm = np.linspace(0, 1, 200)
    frequency = -ldm + noise * RNG.standard_normal(200)
    return FlipFrequencies(sigma=0.1, disagreement=0.05, ldm=ldm, frequency=frequency)


def test_flip_frequencies_verdict_follows_the_correlation() -> None:
    clear = make_flip_frequencies(0.01)
    noisy = make_flip_frequencies(0.1)
    random = make_flip_frequencies(10.0)

    assert judge_flip_frequencies({"a": clear, "b": noisy}).verdict == HOLDS
    assert judge_flip_frequencies({"a": clear, "b": random}).verdict == IN_PART

    measurement = judge_flip_frequencies({"b": random})
    assert measurement.verdict == NOT
    assert "0 of 1" in measurement.notes[0]


@pytest.mark.slow
def test_disagreement_verdict_allows_falls_by_chance() -> None:
    sigmas = np.logspace(-5, 1, 11)
    rising = np.linspace(0, 0.9, 11)
    falling_once = np.where(np.arange(11) == 5, 0.1, rising)
    small_errors = np.full(11, 0.001)
    large_errors = np.full(11, 1.0)

    def judge(means: dict[str, np.ndarray], errors: np.ndarray) -> str:
        return judge_disagreement_curves(sigmas, means, dict.fromkeys(means, errors)).verdict

    assert judge({"a": rising}, small_errors) == HOLDS
    assert judge({"a": rising, "b": falling_once}, small_errors) == IN_PART
    assert judge({"b": falling_once}, small_errors) == NOT
    assert judge({"b": falling_once}, large_errors) == HOLDS


@pytest.mark.slow
def test_uncertainty_at_tiny_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_05_uncertainty, "QUICK_LABEL_COUNTS", (30, 40))
    config = StudyConfig(device="cpu")

    assert_drawable(figure_05_uncertainty.FIGURE_5, measure_flip_frequencies(config))
    assert_drawable(figure_05_uncertainty.FIGURE_7, measure_disagreement_curves(config))


# Figure 11

SIZES = (1, 10, 20, 100)


def make_search_results(noise: float) -> SearchResults:
    """Return values that fall with the size, with noise at all sizes but the last."""
    exact = np.linspace(0.1, 0.5, 100)
    values = []
    for size in SIZES:
        size_noise = 0.0 if size == SIZES[-1] else noise
        values.append(exact * (1 + 1 / size) + size_noise * RNG.random(100))

    return SearchResults(
        values=np.array(values),
        hypothesis_counts=[50 * size for size in SIZES],
        seconds=[0.1 * size + 0.2 for size in SIZES],
        description="Made up.",
    )


def make_bad_search_results() -> SearchResults:
    """Return values that rise with the size, and costs that do not."""
    results = make_search_results(5.0)
    return replace(
        results, values=results.values[::-1], hypothesis_counts=[9, 1, 8, 2], seconds=[9, 1, 8, 2]
    )


@pytest.mark.slow
def test_search_plane_is_algorithm_1() -> None:
    """One row, one hypothesis at a time; the disagreement is the angle between the lines."""
    angle = 0.01 * np.pi  # from the boundary of g to the row
    row = np.array([-np.sin(angle), np.cos(angle)])
    generator = rng(0, "stop test")

    least = 1.0
    draw_count = 0
    for sigma in paper_sigmas():
        idle = 0
        while idle < 3:
            hypothesis = np.array([1.0, 0.0]) + sigma * generator.standard_normal((1, 2))[0]
            disagreement = abs(np.arctan2(hypothesis[1], hypothesis[0])) / np.pi
            draw_count += 1
            idle += 1
            if (row @ hypothesis > 0) != (row[0] > 0) and disagreement < least:
                least = disagreement
                idle = 0

    found_least, found_draw_counts = search_plane(3, 1, rng(0, "stop test"))
    assert found_least[0] == pytest.approx(least)
    assert found_draw_counts[0] == draw_count


@pytest.mark.slow
def test_stop_conditions_verdict_follows_the_numbers() -> None:
    small_gaps = [0.01, 5e-4, 1e-4, 1e-5]
    large_gaps = [0.01, 5e-4, 1e-3, 1e-5]
    good = make_search_results(0.0)
    noisy = make_search_results(5.0)

    measurement = judge_stop_conditions(SIZES, small_gaps, good)
    assert measurement.verdict == HOLDS
    assert_drawable(figure_11_stop_condition.FIGURE_11, measurement)

    reason = judge_stop_conditions(SIZES, large_gaps, good).reason
    assert "Failed checks: the exact LDM is reached in the plane." in reason

    _, failed_checks = judge_stop_conditions(SIZES, small_gaps, noisy).reason.split("Failed checks")
    assert "the order is the same" in failed_checks

    assert judge_stop_conditions(SIZES, large_gaps, make_bad_search_results()).verdict == NOT


@pytest.mark.slow
def test_ray_counts_verdict_follows_the_numbers() -> None:
    measurement = judge_ray_counts(SIZES, 20, make_search_results(0.0))
    assert measurement.verdict == HOLDS
    assert_drawable(figure_11_stop_condition.FIGURE_11_RAYS, measurement)

    assert judge_ray_counts(SIZES, 20, make_search_results(5.0)).verdict == IN_PART
    assert judge_ray_counts(SIZES, 20, make_bad_search_results()).verdict == NOT


@pytest.mark.slow
def test_searches_on_a_small_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        figure_11_stop_condition,
        "search_plane",
        lambda size, count, generator: (np.full(3, 0.011), np.ones(3)),
    )
    monkeypatch.setattr(figure_11_stop_condition, "paper_sigmas", lambda: [0.01, 0.1, 1.0])
    config = StudyConfig(device="cpu")

    values = measure_stop_conditions(config).numbers["values"]
    assert np.shape(values)[1] == figure_11_stop_condition.DRAWN_ROWS
    assert "512 rays" in measure_ray_counts(config).reason


# Figure 15


def test_variants_are_those_of_the_paper() -> None:
    variants = make_variants(quick=False)
    stops = [name for name in variants if name.startswith("s=")]
    references = [name for name in variants if name.startswith("M=")]
    assert stops == ["s=10", "s=1", "s=5", "s=100", "s=1000"]
    assert references == ["M=10", "M=100", "M=1000", "M=10000"]
    assert {"beta=0.01", "beta=0.05", "beta=0.5", "beta=1"} < set(variants)

    assert make_sigmas(0.1) == pytest.approx(paper_sigmas())
    assert len(make_sigmas(0.01)) == 501
    assert make_sigmas(1.0) == pytest.approx([1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1])


@pytest.mark.parametrize("quick", [True, False])
def test_variant_settings_have_valid_strategies(quick: bool) -> None:
    settings = figure_15_variants.make_variant_settings(StudyConfig(quick=quick))
    names = {name for setting in settings for name in setting.strategies}

    assert names == set(make_variants(quick=quick))
    for setting in settings:
        assert setting.strategies[0] == figure_15_variants.BASE
        for name in setting.strategies:
            setting.strategy(name)


def make_variant_accuracies(mean: float) -> np.ndarray:
    return mean + 0.002 * RNG.standard_normal((5, 6))


@pytest.mark.slow
def test_variants_verdict_follows_the_accuracies() -> None:
    names = ("s=1", "M=100", "beta=1", "rays=64")
    alike = {"s=10": make_variant_accuracies(0.9)}
    for name in names:
        alike[name] = alike["s=10"] + 1e-4 * RNG.standard_normal((5, 6))
    worse = make_variant_accuracies(0.8)

    measurement = judge_variants({"one": {**alike, "M=10": worse}})
    assert measurement.verdict == HOLDS
    assert_drawable(figure_15_variants.FIGURE_15, measurement)

    not_worse = {**alike, "M=10": alike["s=10"].copy()}
    assert judge_variants({"one": not_worse}).verdict == IN_PART

    one_differs = {**alike, "s=1": make_variant_accuracies(0.7), "M=10": worse}
    assert judge_variants({"one": one_differs}).verdict == IN_PART

    all_differ = {"s=10": make_variant_accuracies(0.9), "M=10": make_variant_accuracies(0.95)}
    for name in names:
        all_differ[name] = make_variant_accuracies(0.7)
    assert judge_variants({"one": all_differ}).verdict == NOT


@pytest.mark.slow
def test_variants_are_compared_within_their_run() -> None:
    base = make_variant_accuracies(0.9)
    alike = base + 1e-4 * RNG.standard_normal((5, 6))
    runs = {
        "one": {"s=10": base, "s=1": alike, "rays=64": alike},
        "two": {"s=10": base - 0.2, "beta=0.5": alike - 0.2, "M=10": make_variant_accuracies(0.5)},
    }

    measurement = judge_variants(runs)
    assert measurement.verdict == HOLDS
    assert_drawable(figure_15_variants.FIGURE_15, measurement)


@pytest.mark.slow
def test_variants_at_a_tiny_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = {"initial": 20, "final": 40, "query": 20, "epochs": 3, "repetitions": 2, "pool": 40}
    monkeypatch.setattr(figure_15_variants, "STOPS", (1,))
    monkeypatch.setattr(figure_15_variants, "SPACINGS", (1.0,))
    monkeypatch.setattr(
        figure_15_variants,
        "make_digits_setting",
        lambda name, **values: make_digits_setting(name, **{**values, **tiny}),
    )

    measurement = measure_variants(StudyConfig(runs=tmp_path, device="cpu"))
    assert_drawable(figure_15_variants.FIGURE_15, measurement)
