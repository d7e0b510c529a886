"""Advice on stopping: intervals that cover, and sentences for what is known and what is not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teeter.campaigns.learning import stopping
from teeter.campaigns.learning.stopping import (
    AccuracyEstimate,
    Progress,
    estimate_accuracy,
    give_advice,
)


def test_rounding_does_not_put_the_share_outside_the_interval() -> None:
    estimate = estimate_accuracy(25, 25)
    assert estimate is not None
    assert estimate.high == 1.0


@given(total=st.integers(1, 2000), data=st.data())
def test_the_interval_is_wilson_s(total: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, total))

    estimate = estimate_accuracy(right, total)

    # Wilson 1927: (p + z^2 / 2n ± z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)
    z = 1.959963984540054
    share = right / total
    centre = (share + z**2 / (2 * total)) / (1 + z**2 / total)
    half = z * math.sqrt(share * (1 - share) / total + z**2 / (4 * total**2)) / (1 + z**2 / total)
    assert estimate is not None
    assert (estimate.low, estimate.high) == pytest.approx((centre - half, centre + half), abs=1e-9)
    assert 0 <= estimate.low <= estimate.share <= estimate.high <= 1


def test_the_interval_covers_the_truth_in_19_of_20_cases() -> None:
    counts = np.random.default_rng(0).binomial(80, 0.9, size=4000)

    covered = 0
    for right in counts:
        estimate = estimate_accuracy(int(right), 80)
        covered += estimate is not None and estimate.low <= 0.9 <= estimate.high

    assert 0.93 <= covered / len(counts) <= 0.97


def test_without_random_items_there_is_no_estimate() -> None:
    assert estimate_accuracy(0, 0) is None


def advise(**changes: object) -> str:
    values: dict[str, object] = {
        "labels": 40,
        "accuracy": estimate_accuracy(9, 10),
        "accuracies": (),
        "kappa": None,
        "changed": None,
    }
    return " ".join(give_advice(Progress(**{**values, **changes})))  # type: ignore[arg-type]


def test_the_advice_says_what_is_not_known_yet() -> None:
    text = advise(accuracy=None)

    assert "The accuracy is not known yet, because no random item has been labelled." in text
    assert "It is not known yet how much the predictions change" in text
    assert "It is not known yet whether the accuracy is still rising" in text
    assert "stopping" not in text


def test_the_accuracy_is_given_with_its_interval() -> None:
    assert (
        "The accuracy is about 90%, between 60% and 98% with 95% confidence: 9 of 10 random items "
        "are predicted correctly."
    ) in advise()


def estimates(*counts: tuple[int, int]) -> tuple[AccuracyEstimate, ...]:
    accuracies = [estimate_accuracy(right, total) for right, total in counts]
    return tuple(estimate for estimate in accuracies if estimate is not None)


FLAT = estimates((180, 200), (183, 203), (185, 206), (188, 208))
RISING = estimates((120, 200), (140, 200), (150, 200), (180, 200))
FALLING = estimates((190, 200), (160, 200), (170, 200), (100, 200))
NINE_ITEMS = estimates((4, 9), (4, 9), (5, 9), (3, 9))


def test_stopping_takes_stable_predictions_and_a_flat_accuracy() -> None:
    assert "consider stopping" in advise(kappa=0.995, changed=0.004, accuracies=FLAT)
    assert "keep labelling" in advise(kappa=0.9, changed=0.08, accuracies=FLAT)
    for accuracies in (RISING, FALLING, ()):
        text = advise(kappa=0.995, changed=0.004, accuracies=accuracies)
        assert "not clear yet" in text
        assert "The model is still changing" not in text
        assert "stopping" not in text


@pytest.mark.parametrize(
    ("accuracies", "sentence"),
    [
        (RISING, "The accuracy rose over the last three models: the change is between +22 and +38"),
        (
            FALLING,
            "The accuracy fell over the last three models: the change is between -52 and -37",
        ),
        (FLAT, "too few random items to tell whether the accuracy changed"),
        (NINE_ITEMS, "the change is between -47 and +29 points with 95% confidence"),
    ],
)
def test_a_change_is_given_with_its_interval(
    accuracies: tuple[AccuracyEstimate, ...], sentence: str
) -> None:
    assert sentence in advise(accuracies=accuracies)


def test_the_interval_of_a_change_covers_the_truth() -> None:
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        before = estimates((int(generator.binomial(60, 0.7)), 60))
        after = estimates((int(generator.binomial(80, 0.85)), 80))
        change = stopping._change_over_three_models(before * 3 + after)
        covered += change is not None and change[1] <= 0.15 <= change[2]

    assert 0.93 <= covered / 1000 <= 0.98


def test_a_campaign_without_random_items_never_knows_its_accuracy() -> None:
    text = advise(accuracy=None, measurable=False)

    assert "The accuracy cannot be measured" in text
    assert "It cannot be measured whether the accuracy is still rising." in text
    assert "The accuracy is not known yet" not in text


def test_the_budget_is_reported() -> None:
    assert "It is not known how much of the budget is spent: set the cost" in advise(budget=100.0)
    assert "25 of the budget of 100 is left." in advise(cost=75.0, budget=100.0)
    assert "The budget of 100 is used up: the answers have cost 120." in advise(
        cost=120.0, budget=100.0
    )
