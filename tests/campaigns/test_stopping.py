"""Advice: intervals that hold, kappa by its definition, and words for what is not known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from teeter.campaigns.stopping import Progress, advice, estimate_accuracy, prediction_agreement


@given(total=st.integers(1, 2000), data=st.data())
def test_the_interval_is_wilson_s(total: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, total))
    found = estimate_accuracy(right, total)
    assert found is not None
    expected = stats.binomtest(right, total).proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert 0 <= found.low <= found.share <= found.high <= 1


def test_the_interval_holds_the_truth_19_times_in_20() -> None:
    drawn = np.random.default_rng(0).binomial(80, 0.9, size=4000)
    held = [
        (one := estimate_accuracy(int(right), 80)) is not None and one.low <= 0.9 <= one.high
        for right in drawn
    ]
    assert 0.93 <= np.mean(held) <= 0.97


def test_nothing_labelled_is_no_estimate() -> None:
    assert estimate_accuracy(0, 0) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=60))
def test_kappa_is_cohen_s(pairs: list[tuple[int, int]]) -> None:
    before, after = (np.array(part) for part in zip(*pairs, strict=True))
    kappa, changed = prediction_agreement(before, after)
    assert changed == pytest.approx(np.mean(before != after))
    if len(set(before) | set(after)) > 1:
        assert kappa == pytest.approx(cohen_kappa_score(before, after))
    else:
        assert kappa == 1


def told(**values: object) -> str:
    known: dict[str, object] = {
        "labels": 40,
        "accuracy": estimate_accuracy(9, 10),
        "accuracies": (),
        "kappa": None,
        "changed": None,
    }
    return " ".join(advice(Progress(**{**known, **values})))  # type: ignore[arg-type]


def test_what_is_not_known_is_said_not_to_be() -> None:
    text = told(accuracy=None)
    assert "Accuracy is not yet known" in text
    assert "How much predictions change is not yet known" in text
    assert "Whether the curve is flat is not yet known" in text
    assert "stopping" not in text


def test_a_steady_model_and_a_flat_curve_speak_for_stopping_and_one_alone_does_not() -> None:
    flat, rising = (0.9, 0.905, 0.903, 0.904), (0.8, 0.85, 0.88, 0.9)
    assert "consider stopping" in told(kappa=0.995, changed=0.004, accuracies=flat)
    falling = (0.95, 0.8, 0.85, 0.5)
    for accuracies in (rising, falling, ()):
        text = told(kappa=0.995, changed=0.004, accuracies=accuracies)
        assert "not yet clear" in text
        assert "still changes" not in text
        assert "stopping" not in text
    assert "going on is worth it" in told(kappa=0.9, changed=0.08, accuracies=flat)


def test_without_random_items_accuracy_is_never_known() -> None:
    text = told(accuracy=None, measurable=False)
    assert "Accuracy will not be known" in text
    assert "flat will not be known either" in text
    assert "Accuracy is not yet known" not in text


def test_the_budget_is_told() -> None:
    assert "How much of the budget is spent is not known" in told(budget=100.0)
    assert "25 of the budget is left: 75 of 100." in told(cost=75.0, budget=100.0)
    assert "The budget is spent: 120 of 100." in told(cost=120.0, budget=100.0)
