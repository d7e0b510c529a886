"""Labelled items are judged by models that were not trained on them."""

from __future__ import annotations

import numpy as np
import pytest

from campaigns.random_campaigns import draw_features
from teeter.campaigns.learning.classifiers import cross_fit, fit_temperature, out_of_fold


def test_a_row_is_never_judged_by_a_head_that_was_trained_on_it() -> None:
    features = draw_features(60, 200)
    labels = np.random.default_rng(1).integers(2, size=60)

    probabilities = out_of_fold(features, labels)

    # A head that was trained on a row knows its random label: 200 features fit 60 rows exactly.
    accuracy = (probabilities.argmax(axis=1) == labels).mean()
    assert 0.3 < accuracy < 0.7
    assert probabilities.sum(axis=1) == pytest.approx(1)


def test_a_class_of_a_single_row_has_no_probability_there() -> None:
    probabilities = out_of_fold(draw_features(10), np.array([0, 1] * 4 + [0, 2]))

    assert probabilities[9, 2] == 0


def test_only_the_judged_rows_are_held_out() -> None:
    features = draw_features(80, 300)
    labels = np.random.default_rng(2).integers(2, size=80)
    judged = np.arange(40, 80)

    probabilities = cross_fit(features, labels, judged)

    assert probabilities.shape == (40, 2)
    assert probabilities.sum(axis=1) == pytest.approx(1)
    accuracy = (probabilities.argmax(axis=1) == labels[judged]).mean()
    assert 0.25 < accuracy < 0.75, "a head that saw the row would be right"


def test_one_judged_row_equals_leaving_it_out() -> None:
    from teeter.models import ExampleRegression

    features = draw_features(30, 6)
    labels = np.arange(30) % 3
    rest = np.arange(1, 30)

    probabilities = cross_fit(features, labels, np.array([0]))

    expected = ExampleRegression().fit(features[rest], labels[rest]).predict_proba(features[:1])
    np.testing.assert_allclose(probabilities, expected, atol=1e-3)


def test_nothing_to_judge() -> None:
    assert cross_fit(draw_features(10), np.arange(10) % 2, np.zeros(0, np.int64)).shape == (0, 2)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_temperature_of_drawn_labels_is_found(temperature: float) -> None:
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(4000, 4)) * 3
    true = np.exp(logits / temperature)
    true /= true.sum(axis=1, keepdims=True)
    labels = np.array([generator.choice(4, p=row) for row in true])
    claimed = np.exp(logits)
    claimed /= claimed.sum(axis=1, keepdims=True)

    assert fit_temperature(claimed, labels) == pytest.approx(temperature, rel=0.1)


def test_a_class_that_was_never_seen_does_not_change_the_temperature() -> None:
    probabilities = np.array([[1.0, 0.0], [0.9, 0.1]])
    temperature = fit_temperature(probabilities, np.array([1, 0]))
    assert temperature == pytest.approx(fit_temperature(probabilities[1:], np.array([0])))
    assert fit_temperature(probabilities[:1], np.array([1])) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("count", [2, 20])
def test_a_few_rows_that_are_all_right_do_not_make_a_model_certain(count: int) -> None:
    probabilities = np.array([[0.8, 0.1, 0.1]] * count)
    temperature = fit_temperature(probabilities, np.zeros(count, np.int64))

    assert 0.4 < temperature < 1
