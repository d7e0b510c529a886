from __future__ import annotations

import numpy as np
import pytest

from teeter.campaigns.finish.estimates import estimate_class_shares
from teeter.campaigns.records import ClassShare

CLASSES = ("no", "yes")
NOTHING = np.zeros(0, dtype=np.int64)


def simulate_shares(
    generator: np.random.Generator, share: float, error: float, draws: int
) -> tuple[float, ClassShare]:
    """Return the true share of a class and its estimate, with a model that errs at random."""
    truth = (generator.random(2000) < share).astype(np.int64)
    is_wrong = generator.random(2000) < error
    predicted = np.where(is_wrong, 1 - truth, truth)
    drawn = generator.permutation(2000)[:draws]
    estimates = estimate_class_shares(CLASSES, predicted, drawn, truth[drawn], NOTHING)
    return float(truth.mean()), estimates[1]


@pytest.mark.parametrize(("share", "error"), [(0.3, 0.05), (0.3, 0.4), (0.02, 0.01)])
def test_intervals_contain_the_truth_in_19_of_20_cases(share: float, error: float) -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        truth, estimate = simulate_shares(generator, share, error, 100)
        covered += estimate.low <= truth <= estimate.high

    assert covered / 400 >= 0.94


def test_errors_of_the_model_are_corrected() -> None:
    # The model takes a fifth of the class for the other one.
    generator = np.random.default_rng(1)
    truth = (generator.random(20_000) < 0.5).astype(np.int64)
    predicted = np.where(generator.random(20_000) < 0.2, 0, truth)
    drawn = np.arange(2000)

    estimate = estimate_class_shares(CLASSES, predicted, drawn, truth[drawn], NOTHING)[1]

    assert estimate.predicted == pytest.approx(0.4, abs=0.02)
    assert estimate.share == pytest.approx(truth.mean(), abs=0.02)
    assert estimate.low <= truth.mean() <= estimate.high


def test_a_good_model_makes_intervals_narrower() -> None:
    _, with_model = simulate_shares(np.random.default_rng(0), 0.4, 0.02, 200)
    _, without_model = simulate_shares(np.random.default_rng(0), 0.4, 0.5, 200)

    width = with_model.high - with_model.low
    assert width < 0.6 * (without_model.high - without_model.low)


def test_known_labels_are_counted_exactly() -> None:
    labels = np.ones(1000, dtype=np.int64)
    predicted = np.zeros(1000, dtype=np.int64)

    estimate = estimate_class_shares(CLASSES, predicted, np.arange(100), predicted[:100], labels)[1]

    assert estimate.share == 0.5
    assert estimate.low == 0.5


def test_all_items_drawn_leave_nothing_to_chance() -> None:
    labels = np.arange(100) % 2

    estimate = estimate_class_shares(CLASSES, labels, np.arange(100), labels, NOTHING)[0]

    assert (estimate.low, estimate.share, estimate.high) == pytest.approx((0.5, 0.5, 0.5))


def test_few_draws_estimate_nothing() -> None:
    labels = np.zeros(100, dtype=np.int64)

    assert estimate_class_shares(CLASSES, labels, np.arange(19), labels[:19], NOTHING) == []
