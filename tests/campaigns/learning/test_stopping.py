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
    recent_kappas,
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
        "kappas": (),
        "changed": None,
    }
    return " ".join(give_advice(Progress(**{**values, **changes})))  # type: ignore[arg-type]


def test_the_advice_says_what_is_not_known_yet() -> None:
    text = advise(accuracy=None)

    assert "The accuracy is not known yet, because no random item has been labelled." in text
    assert "It is not known yet how much the predictions change" in text
    assert "It is not known yet whether the accuracy is still rising" in text
    assert text.startswith("Keep labelling: there are too few models")


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


STABLE = (0.9897, 0.988, 0.985)


def test_stopping_takes_stable_predictions_and_an_accuracy_that_does_not_clearly_change() -> None:
    for accuracies in (FLAT, ()):
        assert "consider stopping" in advise(kappas=STABLE, changed=0.007, accuracies=accuracies)
    for kappas in ((0.9, 0.92, 0.88), (0.99, 0.98, 0.96), STABLE[:2]):
        text = advise(kappas=kappas, changed=0.08, accuracies=FLAT)
        assert text.startswith("Keep labelling")
        assert "stopping" not in text
    assert advise(kappas=STABLE, changed=0.007, accuracies=RISING).startswith(
        "Keep labelling: the accuracy is still rising."
    )
    assert advise(kappas=STABLE, changed=0.007, accuracies=FALLING).startswith("Review the labels")


def test_an_accurate_model_that_hardly_changes_is_not_told_to_go_on() -> None:
    """97 % right, 0.7 % changed: kappa was 0.9897, which the page rounds to 0.990."""
    accuracies = estimates((115, 120), (118, 123), (120, 125), (125, 129))

    text = advise(kappas=STABLE, changed=0.007, accuracies=accuracies, accuracy=accuracies[-1])

    assert text.startswith(
        "You can consider stopping: more labels will probably improve the model very little. The "
        "accuracy is about 97%"
    )
    assert "kappa 0.990" in text


def test_a_rough_accuracy_is_named_with_the_advice_to_stop() -> None:
    text = advise(kappas=STABLE, changed=0.007)
    assert "its accuracy is known only roughly, 60% to 98%: if it matters, label more" in text
    text = advise(kappas=STABLE, changed=0.007, accuracy=None)
    assert "However, nobody knows how accurate it is." in text


def test_training_after_every_label_does_not_look_like_a_stable_model() -> None:
    models = [{"labels": 10, "kappa": None}]
    models += [{"labels": labels, "kappa": 0.998} for labels in range(11, 100)]

    kappas = recent_kappas(models)
    assert len(kappas) == 50
    assert advise(kappas=kappas, changed=0.001).startswith("Keep labelling: more labels still")
    assert len(recent_kappas(models[:40])) < stopping.STABLE_MODELS
    assert recent_kappas(models[:1]) == recent_kappas([]) == ()


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
    text = advise(cost=120.0, budget=100.0)
    assert text.startswith("Stop, or raise the budget: it is used up.")
    assert "The budget of 100 is used up: the answers have cost 120." in text
