"""nanoteeter, the file that newcomers read first: its parts are the library's, and its figures the
README's.
"""

from __future__ import annotations

import importlib.util
import json
import math
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from reference import ldm as literal_ldm
from reference.seeding import cosine_distance, gammas
from teeter.bench.datasets import find_spec, load_dataset, locate_dataset
from teeter.campaigns.finish.bounds import ErrorPrior, anytime_p_value

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "research/nanoteeter/results/letter.json"

needs_result = pytest.mark.skipif(
    not RESULT.exists(), reason="research/nanoteeter/README.md says how the result is computed"
)


def load_nanoteeter() -> ModuleType:
    spec = importlib.util.spec_from_file_location("nanoteeter", ROOT / "examples/nanoteeter.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


nano: Any = load_nanoteeter()


def test_ldm_is_the_literal_infimum_along_the_same_directions() -> None:
    rng = np.random.default_rng(0)
    features, weight, bias = rng.normal(size=(9, 4)), rng.normal(size=(3, 4)), rng.normal(size=3)
    blocks = nano.draw_directions(rng, 3, 4, 16)
    directions = [
        (sign * move, sign * shift)
        for moves, shifts in blocks
        for move, shift in zip(moves, shifts, strict=True)
        for sign in (1, -1)
    ]
    expected = literal_ldm.along_directions(features, weight, bias, directions, reference=features)
    assert nano.ldm(features, weight, bias, blocks) == pytest.approx(expected)


@pytest.mark.parametrize("zeros", [0, 6])
def test_ldm_s_draws_by_the_paper_s_equations(zeros: int) -> None:
    rng = np.random.default_rng(1)
    scores = rng.uniform(0.05, 0.5, size=12)
    scores[:zeros] = 0
    features = rng.normal(size=(12, 3))
    drawn: list[Any] = []

    class Choices:
        def choice(self, count: int, p: Any) -> int:
            drawn.append(p)
            return int(np.argmax(p))

    picks = nano.ldm_s(scores, features, 4, Choices())
    assert picks[0] == np.argmin(scores)
    gamma = gammas(scores, 4)
    for number, chances in enumerate(drawn, start=1):
        distance = [
            0.0
            if row in picks[:number]
            else min(cosine_distance(features[row], features[pick]) for pick in picks[:number])
            for row in range(12)
        ]
        weights = (gamma * np.array(distance)) ** 2
        np.testing.assert_allclose(chances, weights / weights.sum(), atol=1e-12)


def test_copies_fill_up_a_batch() -> None:
    picks = nano.ldm_s(np.array([0.3, 0.1, 0.2]), np.ones((3, 2)), 3, np.random.default_rng(0))
    assert picks.tolist() == [1, 2, 0]


@given(st.integers(1, 400), st.data())
def test_the_p_value_is_that_of_the_library(size: int, data: Any) -> None:
    drawn = data.draw(st.integers(0, size))
    wrong = data.draw(st.integers(0, drawn))
    limit = data.draw(st.integers(0, size))
    error = data.draw(st.sampled_from([0.01, 0.05, 0.2]))
    expected = anytime_p_value(size, drawn, wrong, limit, ErrorPrior.for_error(error))
    assert nano.p_value(size, drawn, wrong, limit, error) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("error", "least_share"), [(0.02, 0.3), (0.05, 0.0)])
def test_a_promise_is_rarely_broken_and_often_made(error: float, least_share: float) -> None:
    """Expected beforehand: broken in at most 5 %, so in at most 8 of 40 (p < 0.001)."""
    broken = 0
    shares = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        confidence = rng.uniform(size=1000)
        # Most of the wrong labels are where the model is unsure.
        is_wrong = rng.uniform(size=1000) < 2 * error * (1 - confidence)
        draws = rng.permutation(1000)[:200]
        share = nano.promise(confidence, draws, is_wrong[draws])
        labelled = np.argsort(-confidence, kind="stable")[: int(1000 * share)]
        broken += int(is_wrong[labelled].sum() > 0.05 * len(labelled))
        shares.append(share)
    assert broken <= 8
    assert np.mean(shares) >= least_share


def test_a_promise_is_made_if_all_draws_are_right_and_not_if_all_are_wrong() -> None:
    confidence = np.linspace(0, 1, 1000)
    draws = np.random.default_rng(0).permutation(1000)[:200]
    assert nano.promise(confidence, draws, np.zeros(200, dtype=bool)) == 1
    assert nano.promise(confidence, draws, np.ones(200, dtype=bool)) == 0


def test_a_network_learns_and_the_seed_decides() -> None:
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    networks = [nano.train(x[:300], y[:300], 10, np.random.default_rng(3), 40) for _ in range(2)]
    assert all(np.array_equal(a, b) for a, b in zip(networks[0][0], networks[1][0], strict=True))
    probabilities = nano.predict(networks[0], x[300:])
    assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert (probabilities.argmax(axis=1) == y[300:]).mean() > 0.85


@needs_result
def test_it_reproduces_two_figures_of_the_readme() -> None:
    result = json.loads(RESULT.read_text())
    (row,) = re.findall(r"^\| openml-6 \| (.*) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    gain, _, _, saved, *_ = row.split(" | ")
    mean, deviation = map(float, gain.split(" ± "))
    assert abs(result["gain"] - mean) <= deviation
    # A repetition of the committed run saves 1,872 ± 160 of 4,000 labels: an error of 4 points.
    assert abs(result["labels_saved"] - float(saved.rstrip("%")) / 100) <= 0.04

    computed = nano.compare(result["curves"])
    assert computed["gain"] == pytest.approx(result["gain"])
    assert computed["labels_saved"] == pytest.approx(result["labels_saved"])
    assert [len(curve) for curve in result["curves"]["ldm-s"]] == [20] * 5


def test_labels_are_read_off_straight_lines() -> None:
    labels, curve = np.array([20.0, 40, 60]), np.array([0.5, 0.75, 1.0])
    assert nano.labels_to_reach(labels, curve, 0.875) == 50
    assert nano.labels_to_reach(labels, curve, 0.4) == 20
    assert math.isclose(nano.labels_to_reach(labels, curve, 1.0), 60)


@pytest.mark.slow
@needs_result
@pytest.mark.skipif(locate_dataset(find_spec("openml-6")) is None, reason="letter is not there")
def test_the_committed_result_is_computed_again() -> None:
    result = json.loads(RESULT.read_text())
    split = load_dataset("openml-6")
    data = (
        split.train.inputs.numpy(),
        split.train.labels,
        split.test.inputs.numpy(),
        split.test.labels,
    )
    for strategy in ("ldm-s", "random"):
        accuracies, _, _ = nano.run(data, strategy, 0)
        # Sums of float32 differ between machines, and training makes much of it.
        assert np.mean(accuracies) == pytest.approx(
            np.mean(result["curves"][strategy][0]), abs=0.01
        )
