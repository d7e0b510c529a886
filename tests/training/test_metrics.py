"""Metrics beside accuracy: against scikit-learn and a literal formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from example_learners import CLASSES, ROWS, TRUTH, make_fitted_learner
from teeter.errors import InputError, PluginError, UnknownNameError
from teeter.training.metrics import balanced_accuracy, calibration_error, find_metrics, macro_f1


def draw(seed: int, rows: int, classes: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(classes, 0.4), size=rows)
    return rng.integers(0, classes, size=rows), probabilities


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(2, 6))
def test_f1_and_balanced_accuracy_are_those_of_scikit_learn(
    seed: int, rows: int, classes: int
) -> None:
    labels, probabilities = draw(seed, rows, classes)
    predictions = probabilities.argmax(axis=1)
    expected = sklearn_metrics.f1_score(labels, predictions, average="macro", zero_division=0)
    assert macro_f1(labels, probabilities) == pytest.approx(expected)

    recalls = [(predictions[labels == c] == c).mean() for c in np.unique(labels)]
    assert balanced_accuracy(labels, probabilities) == pytest.approx(np.mean(recalls))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(2, 6))
def test_the_calibration_error_is_its_formula(seed: int, rows: int, classes: int) -> None:
    labels, probabilities = draw(seed, rows, classes)
    confidence = probabilities.max(axis=1)
    hits = probabilities.argmax(axis=1) == labels
    expected = 0.0
    for number in range(15):
        is_in_bin = (confidence > number / 15) & (confidence <= (number + 1) / 15)
        if is_in_bin.any():
            distance = abs(hits[is_in_bin].mean() - confidence[is_in_bin].mean())
            expected += is_in_bin.mean() * distance
    assert calibration_error(labels, probabilities) == pytest.approx(expected, abs=1e-12)


def test_a_learner_measures_what_it_is_asked_for() -> None:
    def share_of_cats(labels: Any, probabilities: Any) -> float:
        assert labels.tolist() == CLASSES.tolist()
        assert probabilities.shape == (60, 3)
        return float((probabilities.argmax(axis=1) == 0).mean())

    learner = make_fitted_learner()
    evaluation = learner.evaluate(ROWS, TRUTH, metrics=["accuracy", "macro_f1", share_of_cats])
    assert list(evaluation.metrics) == ["macro_f1", "share_of_cats"]
    expected = macro_f1(CLASSES, learner.predict_proba(ROWS))
    assert evaluation.metrics["macro_f1"] == pytest.approx(expected)
    assert evaluation.metrics["share_of_cats"] == (learner.predict(ROWS) == "cat").mean()
    assert list(learner.to_frame()["share_of_cats"]) == [evaluation.metrics["share_of_cats"]]
    assert learner.evaluate(ROWS, TRUTH).metrics == {}


@pytest.mark.parametrize(
    ("metrics", "error", "message"),
    [
        (["f1"], UnknownNameError, "No metric is called 'f1'. Known: accuracy, loss,"),
        (["macro_f1", "macro_f1"], InputError, "Two metrics are called 'macro_f1'"),
        (["no_such_module:f"], PluginError, "Cannot import the metric no_such_module:f"),
        (["teeter.training.metrics:f"], InputError, "has no function 'f': name a metric as"),
    ],
)
def test_metrics_that_do_not_exist_are_refused(
    metrics: list[str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as refusal:
        find_metrics(metrics)
    assert message in str(refusal.value)
