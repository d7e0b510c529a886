"""Flips, stop conditions and choices: pieces against what they mean, tiny sizes, and verdicts that turn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from reproduction import figure_05_uncertainty, figure_11_stop_condition, figure_15_variants
from reproduction.disc import rng
from reproduction.figure_05_uncertainty import (
    flip_counts,
    judge_orders,
    judge_strengths,
    measure_orders,
    measure_strengths,
)
from reproduction.figure_11_stop_condition import (
    judge_rays,
    judge_stops,
    measure_rays,
    measure_stops,
    plane_search,
)
from reproduction.figure_15_variants import judge_choices, measure_choices, spaced, variants
from reproduction.item import HOLDS, IN_PART, NOT, Item, Measurement, StudyConfig, to_json_value
from reproduction.shared_runs import digits_setting
from teeter.kernels.ldm import paper_sigmas
from teeter.models.outputs import Outputs
from teeter.seeds import normal, stream

RNG = np.random.default_rng(2)


def drawable(item: Item, found: Measurement) -> None:
    drawings = item.draw(Measurement(to_json_value(found.numbers), found.verdict, found.reason))
    assert drawings
    assert all(one.caption.endswith(".") for one in drawings)


@pytest.mark.slow
def test_flips_are_counted_draw_by_draw() -> None:
    features, weight, bias = torch.randn(7, 3), torch.randn(4, 3), torch.randn(4)
    counts, shares = flip_counts(Outputs(features=features, weight=weight, bias=bias), 0.7, 60, 5)
    generator, expected, of_draws = stream(5, "flips", "0.7"), np.zeros(7), []
    for block in (50, 10):
        moves = normal((block, 4, 3), generator, torch.device("cpu"))
        shifts = normal((block, 4), generator, torch.device("cpu"))
        for move, shift in zip(moves, shifts, strict=True):
            flipped = [
                int((weight @ z + bias).argmax())
                != int(((weight + 0.7 * move) @ z + bias + 0.7 * shift).argmax())
                for z in features
            ]
            expected += flipped
            of_draws.append(np.mean(flipped))
    assert counts.tolist() == expected.tolist()
    assert shares.numpy() == pytest.approx(np.array(of_draws))


def orders(noise: float) -> dict[str, object]:
    values = np.linspace(0, 1, 200)
    return {
        "sigma": 0.1,
        "disagreement": 0.05,
        "ldm": values,
        "frequency": -values + noise * RNG.standard_normal(200),
    }


def test_orders_turn_with_the_numbers() -> None:
    assert judge_orders({"a": orders(0.01), "b": orders(0.1)}).verdict == HOLDS
    assert judge_orders({"a": orders(0.01), "b": orders(10.0)}).verdict == IN_PART
    found = judge_orders({"b": orders(10.0)})
    assert found.verdict == NOT
    assert "0 of 1" in found.notes[0]


@pytest.mark.slow
def test_strengths_turn_with_the_numbers() -> None:
    sigmas, rising = np.logspace(-5, 1, 11), np.linspace(0, 0.9, 11)
    error, dip = np.full(11, 0.001), np.where(np.arange(11) == 5, 0.1, np.linspace(0, 0.9, 11))
    assert judge_strengths(sigmas, {"a": rising}, {"a": error}).verdict == HOLDS
    assert (
        judge_strengths(sigmas, {"a": rising, "b": dip}, {"a": error, "b": error}).verdict
        == IN_PART
    )
    assert judge_strengths(sigmas, {"b": dip}, {"b": error}).verdict == NOT
    assert (
        judge_strengths(sigmas, {"b": dip}, {"b": np.full(11, 1.0)}).verdict == HOLDS
    )  # within chance


@pytest.mark.slow
def test_uncertainty_on_tiny_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_05_uncertainty, "FEW", 30)
    monkeypatch.setattr(figure_05_uncertainty, "MANY", 40)
    for item, measure in (
        (figure_05_uncertainty.FIGURE_5, measure_orders),
        (figure_05_uncertainty.FIGURE_7, measure_strengths),
    ):
        drawable(item, measure(StudyConfig(device="cpu")))


@pytest.mark.slow
def test_the_search_in_the_plane_is_algorithm_1() -> None:
    """One row, one hypothesis at a time, the disagreement being the angle between the lines."""
    generator = rng(0, "stop test")
    least, taken = 1.0, 0
    for sigma in paper_sigmas():
        c = 0
        while c < 3:
            w = np.array([1.0, 0.0]) + sigma * generator.standard_normal((1, 2))[0]
            taken += 1
            c += 1
            row = np.array(
                [-np.sin(np.pi * 0.01), np.cos(np.pi * 0.01)]
            )  # turned by 0.01 pi from g's boundary
            rho = abs(np.arctan2(w[1], w[0])) / np.pi
            if (row @ w > 0) != (row[0] > 0) and rho < least:
                least, c = rho, 0
    found, count = plane_search(3, 1, rng(0, "stop test"))
    assert found[0] == pytest.approx(least)
    assert count[0] == taken


SIZES = (1, 10, 20, 100)


def search(noise: float) -> dict[str, object]:
    true = np.linspace(0.1, 0.5, 100)
    values = np.array(
        [true * (1 + 1 / s) + (noise if s < 100 else 0) * RNG.random(100) for s in SIZES]
    )
    return {
        "values": values,
        "taken": [50 * s for s in SIZES],
        "seconds": [0.1 * s + 0.2 for s in SIZES],
        "told": ".",
    }


@pytest.mark.slow
def test_stops_turn_with_the_numbers() -> None:
    near, far = [0.01, 5e-4, 1e-4, 1e-5], [0.01, 5e-4, 1e-3, 1e-5]
    found = judge_stops(SIZES, near, search(0.0))
    assert found.verdict == HOLDS
    drawable(figure_11_stop_condition.FIGURE_11, found)
    assert "Not found: truth reached in the plane." in judge_stops(SIZES, far, search(0.0)).reason
    assert "order kept" in judge_stops(SIZES, near, search(5.0)).reason.split("Not found")[1]
    bad = {**search(5.0), "taken": [9, 1, 8, 2], "seconds": [9, 1, 8, 2]}
    bad["values"] = np.asarray(bad["values"])[::-1]
    assert judge_stops(SIZES, far, bad).verdict == NOT


@pytest.mark.slow
def test_rays_turn_with_the_numbers() -> None:
    found = judge_rays(SIZES, 20, search(0.0))
    assert found.verdict == HOLDS
    drawable(figure_11_stop_condition.FIGURE_11_RAYS, found)
    assert judge_rays(SIZES, 20, search(5.0)).verdict == IN_PART
    bad = {**search(5.0), "seconds": [9, 1, 8, 2]}
    bad["values"] = np.asarray(bad["values"])[::-1]
    assert judge_rays(SIZES, 20, bad).verdict == NOT


@pytest.mark.slow
def test_stops_and_rays_on_a_small_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        figure_11_stop_condition,
        "plane_search",
        lambda size, count, generator: (np.full(3, 0.011), np.ones(3)),
    )
    monkeypatch.setattr(figure_11_stop_condition, "paper_sigmas", lambda: [0.01, 0.1, 1.0])
    assert (
        np.shape(measure_stops(StudyConfig(device="cpu")).numbers["values"])[1]
        == figure_11_stop_condition.SHOWN
    )
    found = measure_rays(StudyConfig(device="cpu"))
    assert "512 rays" in found.reason


def test_the_variants_are_the_paper_s() -> None:
    found = variants(quick=False)
    assert [name for name in found if name.startswith("s=")] == [
        "s=10",
        "s=1",
        "s=5",
        "s=100",
        "s=1000",
    ]
    assert [name for name in found if name.startswith("M=")] == [
        "M=10",
        "M=100",
        "M=1000",
        "M=10000",
    ]
    assert {"beta=0.01", "beta=0.05", "beta=0.5", "beta=1"} < set(found)
    assert spaced(0.1) == pytest.approx(paper_sigmas())
    assert len(spaced(0.01)) == 501
    assert spaced(1.0) == pytest.approx([1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1])
    for quick in (True, False):
        settings = figure_15_variants.settings_of(StudyConfig(quick=quick))
        assert all(setting.strategies[0] == figure_15_variants.BASE for setting in settings)
        assert {name for setting in settings for name in setting.strategies} == set(
            variants(quick=quick)
        )
        for setting in settings:
            for name in setting.strategies:
                setting.strategy(name)


@pytest.mark.slow
def test_choices_turn_with_the_numbers() -> None:
    def runs(mean: float) -> np.ndarray:
        return mean + 0.002 * RNG.standard_normal((5, 6))

    names = ("s=1", "M=100", "beta=1", "rays=64")
    alike = {"s=10": runs(0.9)}
    alike |= {name: alike["s=10"] + 1e-4 * RNG.standard_normal((5, 6)) for name in names}
    found = judge_choices({"one": {**alike, "M=10": runs(0.8)}})
    assert found.verdict == HOLDS
    drawable(figure_15_variants.FIGURE_15, found)
    assert judge_choices({"one": {**alike, "M=10": alike["s=10"].copy()}}).verdict == IN_PART
    assert judge_choices({"one": {**alike, "s=1": runs(0.7), "M=10": runs(0.8)}}).verdict == IN_PART
    apart = {name: runs(0.7) for name in names}
    assert judge_choices({"one": {"s=10": runs(0.9), **apart, "M=10": runs(0.95)}}).verdict == NOT
    lower = {name: values - 0.2 for name, values in alike.items()}
    parted = judge_choices(
        {
            "one": alike,
            "two": {"s=10": lower["s=10"], "beta=0.5": lower["beta=1"], "M=10": runs(0.5)},
        }
    )
    assert parted.verdict == HOLDS  # each against the base of its own run
    drawable(figure_15_variants.FIGURE_15, parted)


@pytest.mark.slow
def test_choices_on_a_tiny_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_15_variants, "STOPS", (1,))
    monkeypatch.setattr(figure_15_variants, "SPACINGS", (1.0,))
    tiny = {"initial": 20, "final": 40, "query": 20, "epochs": 3, "repetitions": 2, "pool": 40}
    monkeypatch.setattr(
        figure_15_variants,
        "digits_setting",
        lambda name, **values: digits_setting(name, **{**values, **tiny}),
    )
    drawable(
        figure_15_variants.FIGURE_15, measure_choices(StudyConfig(runs=tmp_path, device="cpu"))
    )
