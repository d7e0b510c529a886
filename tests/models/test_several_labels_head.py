"""The head for several labels: its regressions, its cuts, its calibration, and odd labels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import teeter
from reference.several_labels import best_cuts
from teeter.errors import InputError
from teeter.models import SeveralLabelsHead
from teeter.models import several_labels_head as module

Floats = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]


def draw(rows: int, *, seed: int = 0, width: int = 6, labels: int = 4) -> tuple[Floats, Marks]:
    """Return rows and labels that depend on them; later labels are rarer."""
    generator = np.random.default_rng(seed)
    weight = np.random.default_rng(100).normal(size=(width, labels))
    features = generator.normal(size=(rows, width))
    noise = generator.logistic(size=(rows, labels))
    shift = np.linspace(0, 4, labels)
    return features, features @ weight + 0.5 * noise > shift


@pytest.mark.parametrize("rows", [5, 80])
def test_each_label_is_a_balanced_regression(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fewer rows than features as well as with more."""
    monkeypatch.setattr(module, "_TOLERANCE", 1e-14)
    features, marks = draw(rows, width=8)
    marks[0] = True
    marks[1] = False
    head = SeveralLabelsHead(C=0.3, max_iter=2000)

    weight, bias = head._fit_balanced(features, marks)

    for k in range(marks.shape[1]):
        plain = LogisticRegression(C=0.3, class_weight="balanced", max_iter=5000, tol=1e-10)
        plain.fit(features, marks[:, k])
        np.testing.assert_allclose(weight[:, k], plain.coef_[0], atol=2e-3)
        np.testing.assert_allclose(bias[k], plain.intercept_[0], atol=5e-3)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_cuts_are_those_that_enumeration_finds(seed: int) -> None:
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(12, 3))
    marks = generator.random((12, 3)) < [0.5, 0.2, 0.02]
    cuts = module.choose_cuts(logits, marks)
    if not marks.any():
        assert cuts.tolist() == [0, 0, 0]
        return

    shares = 1 - np.geomspace(1 / logits.size, 1, 80)
    candidates = np.unique(np.quantile(logits, shares))
    candidates = np.concatenate([[candidates[0] - 1], candidates])
    expected = best_cuts(logits, marks, candidates, prior=40)
    np.testing.assert_allclose(cuts, expected)


def test_probabilities_are_calibrated_for_frequent_and_rare_labels() -> None:
    features, marks = draw(600)
    unseen, unseen_marks = draw(6000, seed=1)
    head = SeveralLabelsHead().fit(features, marks)
    probabilities = head.predict_proba(unseen)

    assert marks.mean(axis=0).min() < 0.1
    # Five standard errors of a share of 600 rows are 0.1 at most; the rarest label has 0.06.
    np.testing.assert_allclose(probabilities.mean(axis=0), unseen_marks.mean(axis=0), atol=0.05)
    order = probabilities.ravel().argsort()
    for tenth in np.array_split(order, 10):
        share = unseen_marks.ravel()[tenth].mean()
        assert probabilities.ravel()[tenth].mean() == pytest.approx(share, abs=0.08)


def test_cuts_raise_the_mean_f1_of_labels_that_are_rare_and_hard_to_tell() -> None:
    """Their probabilities are hardly ever above one half."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(3500, 6))
    weight = generator.normal(size=(6, 8)) / 2
    marks = features @ weight + generator.logistic(size=(3500, 8)) > 3
    unseen, unseen_marks = features[500:], marks[500:]
    head = SeveralLabelsHead().fit(features[:500], marks[:500])

    def mean_f1(predicted: Marks) -> float:
        hits = (predicted & unseen_marks).sum(axis=0)
        return float(np.mean(2 * hits / (predicted.sum(axis=0) + unseen_marks.sum(axis=0))))

    at_one_half = mean_f1(head.predict_proba(unseen) > 0.5)
    assert mean_f1(head.predict(unseen)) > at_one_half + 0.1


def test_names_stand_for_labels_that_no_row_has() -> None:
    features, marks = draw(30)
    marks[:, 3] = False
    names = np.zeros((4, 6))
    names[3, 5] = 9.0
    head = SeveralLabelsHead((names, np.eye(4, dtype=bool))).fit(features, marks)
    like_the_name = head.decision_function([[0, 0, 0, 0, 0, 3.0]])[0, 3]
    unlike = head.decision_function([[0, 0, 0, 0, 0, -3.0]])[0, 3]
    assert like_the_name > unlike

    # Examples may be all there is.
    untrained = SeveralLabelsHead((names, np.eye(4, dtype=bool)))
    untrained.fit(np.zeros((0, 6)), np.zeros((0, 4)))
    assert np.isfinite(untrained.predict_proba(features)).all()


@settings(max_examples=10, deadline=None)
@given(rows=st.integers(1, 12), seed=st.integers(0, 1000), labels=st.integers(1, 5))
def test_odd_labels_give_finite_probabilities(rows: int, seed: int, labels: int) -> None:
    """Labels that no row has, or every row, and as few as one row."""
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(rows, 4))
    marks = generator.random((rows, labels)) < generator.choice([0.0, 0.5, 1.0], labels)
    head = SeveralLabelsHead().fit(features, marks)
    probabilities = head.predict_proba(features)
    assert np.isfinite(probabilities).all()
    assert head.predict(features).shape == (rows, labels)


def test_a_label_that_every_row_has_is_predicted_and_one_that_none_has_is_not() -> None:
    features, marks = draw(60)
    marks[:, 0] = True
    marks[:, 1] = False
    head = SeveralLabelsHead().fit(features, marks)
    unseen, _ = draw(300, seed=3)
    shares = head.predict(unseen).mean(axis=0)
    probabilities = head.predict_proba(unseen).mean(axis=0)
    assert shares[0] > 0.95
    assert shares[1] < 0.05
    assert probabilities[0] > 0.9
    assert probabilities[1] < 0.1


def test_the_outputs_are_above_0_for_predicted_labels() -> None:
    features, marks = draw(100)
    head = SeveralLabelsHead().fit(features, marks)
    outputs = teeter.observe(head, features)
    assert outputs.several
    logits = outputs.with_logits().logits
    assert logits is not None
    np.testing.assert_array_equal(logits.numpy() > 0, head.predict(features))
    picks = teeter.select("mmc", outputs, 5, labelled=outputs, labels=marks.astype(int))
    assert len(set(picks.tolist())) == 5


def test_the_order_of_labels_does_not_matter() -> None:
    features, marks = draw(80)
    head = SeveralLabelsHead().fit(features, marks)
    turned = SeveralLabelsHead().fit(features, marks[:, ::-1])
    np.testing.assert_allclose(
        head.predict_proba(features), turned.predict_proba(features)[:, ::-1], atol=2e-2
    )


def test_it_is_an_estimator_of_scikit_learn() -> None:
    head = SeveralLabelsHead(C=0.2)
    assert clone(head).get_params() == head.get_params()


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        (np.full((8, 2), 2), "marks must be 0 or 1"),
        (np.zeros((7, 2)), "There are 8 rows and 7 rows of marks"),
    ],
)
def test_marks_that_do_not_fit_are_refused(marks: Floats, message: str) -> None:
    with pytest.raises(InputError, match=message):
        SeveralLabelsHead().fit(np.random.default_rng(0).normal(size=(8, 3)), marks)


def test_examples_of_other_labels_are_refused() -> None:
    examples = (np.zeros((3, 3)), np.eye(3, dtype=bool))
    with pytest.raises(InputError, match=r"marks have 2 columns, but those of the examples 3"):
        SeveralLabelsHead(examples).fit(np.eye(3), np.zeros((3, 2)))
