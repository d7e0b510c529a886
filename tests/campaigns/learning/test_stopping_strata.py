"""Accuracy by strata of confidence: as a literal transcription, unbiased, covered and narrower."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teeter.base.array_types import Booleans, Floats, Integers
from teeter.campaigns.learning.stopping import (
    FEWEST_PER_STRATUM,
    MANY_DRAWN,
    Stratum,
    estimate_accuracy,
    estimate_by_strata,
    estimate_model_accuracy,
    stratify,
)


def make_population(
    generator: np.random.Generator, size: int, n_drawn: int, *, informative: bool = True
) -> tuple[Floats, Booleans, Integers]:
    confidences = generator.beta(3.0, 1.2, size)
    chances = confidences if informative else np.full(size, 0.7)
    is_right = generator.random(size) < chances
    return confidences, is_right, generator.choice(size, n_drawn, replace=False)


def transcribe(strata: list[Stratum], share_judged: float) -> tuple[float, float, float]:
    """Wilson's interval of the weighted mean, step by step as the docstring says."""
    total = sum(n for _, _, n in strata)
    pooled = sum(right for _, right, _ in strata) / total
    mean = 0.0
    variance = 0.0
    for weight, right, n in strata:
        mean = mean + weight * (right / n)
        chance = (right + pooled + pooled) / (n + 1 + 1)
        variance = variance + weight * weight * chance * (1 - chance) / n
    n = mean * (1 - mean) / variance / (1 + share_judged) if variance and 0 < mean < 1 else total
    if mean in (0.0, 1.0) or not variance:
        n = total / (1 + share_judged)
    z = 1.959963984540054
    middle = (mean + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(mean * (1 - mean) / n + z * z / (4 * n * n))
    return mean, middle - half, middle + half


@pytest.mark.parametrize("n_drawn", [40, 120, 260])
@pytest.mark.parametrize("share_judged", [0.0, 0.4])
def test_the_estimate_is_its_transcription(n_drawn: int, share_judged: float) -> None:
    confidences, is_right, drawn = make_population(np.random.default_rng(n_drawn), 900, n_drawn)
    strata = stratify(confidences, drawn, is_right[drawn])
    estimate = estimate_by_strata(strata, share_judged=share_judged)
    assert estimate is not None
    expected = transcribe(strata, share_judged)
    assert (estimate.share, estimate.low, estimate.high) == pytest.approx(expected, abs=1e-12)
    assert (estimate.right, estimate.total) == (int(is_right[drawn].sum()), n_drawn)


@given(st.integers(1, 400), st.integers(0, 10_000), st.sampled_from([0.0, 0.5, 1.0]), st.booleans())
def test_strata_hold_every_item_once_and_enough_draws(
    n_drawn: int, seed: int, ties: float, informative: bool
) -> None:
    generator = np.random.default_rng(seed)
    confidences, is_right, drawn = make_population(
        generator, 500, min(n_drawn, 500), informative=informative
    )
    # Confidences may be equal, even all of them.
    confidences = np.where(generator.random(500) < ties, 1.0, confidences)
    strata = stratify(confidences, drawn, is_right[drawn])
    assert math.isclose(sum(share for share, _, _ in strata), 1.0)
    assert sum(total for _, _, total in strata) == len(drawn)
    assert sum(right for _, right, _ in strata) == int(is_right[drawn].sum())
    if len(strata) > 1:
        assert min(total for _, _, total in strata) >= FEWEST_PER_STRATUM
    assert len(strata) <= (8 if len(drawn) >= MANY_DRAWN else 4)

    estimate = estimate_by_strata(strata)
    assert estimate is not None
    assert 0 <= estimate.low <= estimate.share <= estimate.high <= 1


def test_one_stratum_is_the_plain_estimate() -> None:
    assert estimate_by_strata([(1.0, 47, 50)], share_judged=0.2) == estimate_accuracy(
        47, 50, share_judged=0.2
    )
    assert estimate_by_strata([(1.0, 0, 0)]) is None
    facts = {"holdout": [0, 0], "control": [47, 50], "labels": 100}
    assert estimate_model_accuracy(facts) == estimate_accuracy(47, 50, share_judged=0.5)
    facts["strata"] = [(0.6, 20, 20), (0.4, 27, 30)]
    estimate = estimate_model_accuracy(facts)
    assert estimate is not None
    assert estimate.share == pytest.approx(0.6 + 0.4 * 0.9)


@pytest.mark.parametrize(
    ("informative", "narrowest", "widest"), [(True, 0.8, 0.95), (False, 0.97, 1.03)]
)
def test_the_interval_covers_the_truth_and_is_narrower_where_the_model_knows_itself(
    informative: bool, narrowest: float, widest: float
) -> None:
    generator = np.random.default_rng(1)
    n_runs = 600
    covered = 0
    errors = []
    widths = []
    for _ in range(n_runs):
        confidences, is_right, drawn = make_population(
            generator, 2_000, 120, informative=informative
        )
        estimate = estimate_by_strata(stratify(confidences, drawn, is_right[drawn]))
        plain = estimate_accuracy(int(is_right[drawn].sum()), 120)
        assert estimate is not None
        assert plain is not None
        truth = is_right.mean()
        covered += estimate.low <= truth <= estimate.high
        errors.append(estimate.share - truth)
        widths.append((estimate.high - estimate.low) / (plain.high - plain.low))

    # 95 % less three standard errors of 600 runs.
    assert covered / n_runs > 0.95 - 3 * math.sqrt(0.95 * 0.05 / n_runs)
    assert abs(np.mean(errors)) < 3.3 * np.std(errors) / math.sqrt(n_runs)
    assert narrowest < np.mean(widths) < widest
