"""The outputs of a scikit-learn classifier, and the errors for one that has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn import (
    ensemble,
    linear_model,
    multioutput,
    naive_bayes,
    neighbors,
    neural_network,
    svm,
    tree,
)
from sklearn.cluster import KMeans
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

import teeter
from teeter.errors import InputError
from teeter.models import sklearn_model

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(60, 4))
CLASSES = (ROWS @ RNG.normal(size=(4, 3))).argmax(axis=1)
NAMES = np.array(["pear", "apple", "fig"])[CLASSES]
SIGNS = np.where(CLASSES > 0, 1, -1)
FOUR_CLASSES = (ROWS, np.arange(60) % 4)


def member_probabilities(model: Any, data: Any = ROWS) -> Tensor:
    posterior = teeter.observe(model, data).posterior_logits
    assert posterior is not None
    return posterior.softmax(dim=2)


def test_a_binary_head_of_one_row_gets_a_row_of_zeros() -> None:
    model = linear_model.LogisticRegression().fit(ROWS, SIGNS)
    outputs = teeter.observe(model, ROWS)
    np.testing.assert_array_equal(outputs.weight, np.vstack([np.zeros(4), model.coef_]))
    np.testing.assert_array_equal(outputs.bias, [0, *model.intercept_])
    np.testing.assert_allclose(outputs.logits.softmax(dim=1), model.predict_proba(ROWS))


@pytest.mark.parametrize("labels", [CLASSES, NAMES, CLASSES * 10 - 10])
def test_columns_are_in_the_order_of_the_classes(labels: Any) -> None:
    model = linear_model.LogisticRegression().fit(ROWS, labels)
    np.testing.assert_allclose(
        teeter.observe(model, ROWS).logits.softmax(dim=1), model.predict_proba(ROWS)
    )
    assert sklearn_model.classes_of(model).tolist() == sorted(set(labels.tolist()))


@pytest.mark.parametrize("labels", [NAMES, SIGNS])
@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "identity"])
def test_a_perceptrons_last_hidden_layer_are_its_features(activation: str, labels: Any) -> None:
    model = neural_network.MLPClassifier(
        (6, 5), activation=activation, solver="lbfgs", max_iter=5000, random_state=0
    )
    outputs = teeter.observe(model.fit(ROWS, labels), ROWS)
    assert outputs.features is not None
    assert outputs.features.shape == (60, 5)
    np.testing.assert_allclose(outputs.logits.softmax(dim=1), model.predict_proba(ROWS), atol=1e-9)


def test_a_perceptron_of_large_numbers_does_not_overflow() -> None:
    model = neural_network.MLPClassifier(
        (6,), activation="logistic", solver="lbfgs", max_iter=5000, random_state=0
    )
    outputs = teeter.observe(model.fit(ROWS, NAMES), ROWS * 1e6)
    np.testing.assert_allclose(
        outputs.logits.softmax(dim=1), model.predict_proba(ROWS * 1e6), atol=1e-9
    )


@pytest.mark.parametrize("trained", [np.float32, np.float64])
@pytest.mark.parametrize("shown", [np.float32, np.float64, np.int64])
def test_precisions_may_differ_between_training_and_use(trained: Any, shown: Any) -> None:
    rows = (ROWS * 3).astype(shown)
    for model in (
        linear_model.LogisticRegression(),
        svm.LinearSVC(random_state=0),
        neural_network.MLPClassifier((5,), solver="lbfgs", max_iter=5000, random_state=0),
    ):
        model.fit(ROWS.astype(trained), CLASSES)
        logits = teeter.observe(model, rows).logits
        assert logits is not None
        assert (logits.argmax(dim=1).numpy() == model.predict(rows)).all()


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array])
def test_sparse_rows_and_sparse_coefficients_are_unfolded(kind: Any) -> None:
    model = linear_model.SGDClassifier(random_state=0).fit(kind(ROWS), CLASSES).sparsify()
    outputs = teeter.observe(model, kind(ROWS))
    np.testing.assert_array_equal(outputs.features, ROWS)
    np.testing.assert_allclose(outputs.logits, model.decision_function(ROWS))


def test_text_is_seen_through_its_pipeline() -> None:
    texts = [
        f"{name} {'ripe' if row[0] > 0 else 'green'}" for name, row in zip(NAMES, ROWS, strict=True)
    ]
    model = make_pipeline(TfidfVectorizer(), linear_model.LogisticRegression()).fit(texts, NAMES)
    outputs = teeter.observe(model, texts)
    np.testing.assert_allclose(outputs.features, model[0].transform(texts).toarray())
    np.testing.assert_allclose(outputs.logits.softmax(dim=1), model.predict_proba(texts))


def test_too_many_sparse_columns_are_refused_before_they_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = linear_model.LogisticRegression().fit(sparse.csr_matrix(ROWS), CLASSES)
    monkeypatch.setattr(sklearn_model, "_MAX_DENSE_NUMBERS", 239)
    with pytest.raises(
        InputError, match="sparse, 60 x 4, too many to convert to a dense array: put TruncatedSVD"
    ):
        teeter.observe(model, sparse.csr_matrix(ROWS))


COMMITTEES = {
    "forest": ensemble.RandomForestClassifier(7, random_state=0),
    "shallow forest": ensemble.RandomForestClassifier(7, max_depth=2, random_state=0),
    "extra trees": ensemble.ExtraTreesClassifier(7, random_state=0),
    "bagging": ensemble.BaggingClassifier(n_estimators=7, random_state=0),
    "bagging of some columns": ensemble.BaggingClassifier(
        n_estimators=7, max_features=0.5, random_state=0
    ),
    "bagging of few rows": ensemble.BaggingClassifier(
        n_estimators=7, max_samples=2, random_state=0
    ),
    "bagging of linear models": ensemble.BaggingClassifier(
        linear_model.LogisticRegression(), n_estimators=7, max_features=2, random_state=0
    ),
    "bagging of pipelines": ensemble.BaggingClassifier(
        make_pipeline(StandardScaler(), linear_model.LogisticRegression()),
        n_estimators=7,
        random_state=0,
    ),
    "vote": ensemble.VotingClassifier(
        [("a", linear_model.LogisticRegression()), ("b", naive_bayes.GaussianNB())], voting="soft"
    ),
}


@pytest.mark.parametrize(
    "labels", [CLASSES, NAMES, CLASSES + 1, SIGNS], ids=["numbers", "names", "from one", "signs"]
)
@pytest.mark.parametrize("name", COMMITTEES)
def test_the_members_of_a_committee_average_to_the_whole(name: str, labels: Any) -> None:
    model = COMMITTEES[name].fit(ROWS, labels)
    member_votes = member_probabilities(model)
    assert len(member_votes) == len(model.estimators_)
    np.testing.assert_allclose(member_votes.mean(dim=0), model.predict_proba(ROWS), atol=1e-9)


@pytest.mark.parametrize("labels", [NAMES, SIGNS, CLASSES + 1])
def test_the_members_of_a_boosted_committee_vote_for_their_own_classes(labels: Any) -> None:
    model = ensemble.AdaBoostClassifier(
        tree.DecisionTreeClassifier(max_depth=2), n_estimators=5, random_state=0
    )
    member_votes = member_probabilities(model.fit(ROWS, labels)).argmax(dim=2)
    for member, vote in zip(model.estimators_, member_votes, strict=True):
        assert (model.classes_[vote] == member.predict(ROWS)).all()


def test_members_that_saw_only_some_classes_give_the_others_nothing() -> None:
    nearest = neighbors.KNeighborsClassifier(1)
    model = ensemble.BaggingClassifier(nearest, n_estimators=20, max_samples=2, random_state=0).fit(
        ROWS, NAMES
    )
    assert {len(member.classes_) for member in model.estimators_} == {1, 2}
    member_votes = member_probabilities(model)
    np.testing.assert_allclose(member_votes.mean(dim=0), model.predict_proba(ROWS), atol=1e-9)
    for member, vote in zip(model.estimators_, member_votes, strict=True):
        unseen = np.setdiff1d(np.arange(3), member.classes_)
        assert vote[:, unseen].max() < 1e-9


def test_a_committee_may_look_at_text() -> None:
    texts = [f"{name} {name}s" for name in NAMES]
    linear = make_pipeline(TfidfVectorizer(), linear_model.LogisticRegression())
    bayes = make_pipeline(CountVectorizer(), naive_bayes.MultinomialNB())
    model = ensemble.VotingClassifier([("a", linear), ("b", bayes)], voting="soft").fit(
        texts, NAMES
    )
    np.testing.assert_allclose(
        member_probabilities(model, texts).mean(dim=0), model.predict_proba(texts), atol=1e-9
    )


@pytest.mark.parametrize(
    "model",
    [
        ensemble.GradientBoostingClassifier(n_estimators=3),
        naive_bayes.GaussianNB(),
        neighbors.KNeighborsClassifier(),
        tree.DecisionTreeClassifier(),
        OneVsRestClassifier(linear_model.LogisticRegression()),
    ],
    ids=lambda model: type(model).__name__,
)
def test_other_classifiers_give_their_log_probabilities_alone(model: Any) -> None:
    outputs = teeter.observe(model.fit(ROWS, NAMES), ROWS)
    np.testing.assert_allclose(outputs.logits.softmax(dim=1), model.predict_proba(ROWS), atol=1e-9)
    assert torch.isfinite(outputs.logits).all()
    assert outputs.features is outputs.weight is outputs.posterior_logits is None


def fit_to_two_outputs(model: Any) -> Any:
    return model.fit(ROWS, np.stack([CLASSES, CLASSES > 1], axis=1).astype(int))


def fit_to_indicators(model: Any) -> Any:
    return model.fit(ROWS, np.eye(3, dtype=int)[CLASSES])


@pytest.mark.checks(against="the mistake of scoring with a model that was never fitted")
@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            linear_model.LogisticRegression(),
            "This LogisticRegression is not fitted yet: fit it to the labelled rows",
        ),
        (
            make_pipeline(StandardScaler(), linear_model.LogisticRegression()),
            "This Pipeline is not fitted yet",
        ),
        (ensemble.RandomForestClassifier(), "This RandomForestClassifier is not fitted yet"),
        (
            linear_model.LinearRegression().fit(ROWS, CLASSES),
            "LinearRegression is not a classifier",
        ),
        (
            make_pipeline(StandardScaler(), linear_model.Ridge()).fit(ROWS, CLASSES),
            "Pipeline is not a classifier",
        ),
        (StandardScaler().fit(ROWS), "StandardScaler is not a classifier"),
        (KMeans(2, n_init=1).fit(ROWS), "KMeans is not a classifier"),
        (
            fit_to_two_outputs(ensemble.RandomForestClassifier(2)),
            "RandomForestClassifier predicts several labels per row",
        ),
        (
            fit_to_two_outputs(neighbors.KNeighborsClassifier()),
            "KNeighborsClassifier predicts several labels per row",
        ),
        (
            fit_to_two_outputs(
                multioutput.MultiOutputClassifier(linear_model.LogisticRegression())
            ),
            "MultiOutputClassifier predicts several labels per row",
        ),
        (
            fit_to_indicators(linear_model.RidgeClassifier()),
            "RidgeClassifier predicts several labels per row",
        ),
        (
            fit_to_indicators(
                neural_network.MLPClassifier((3,), solver="lbfgs", max_iter=5000, random_state=0)
            ),
            "MLPClassifier predicts several labels per row: teeter needs one class per row",
        ),
        (
            svm.SVC(decision_function_shape="ovo").fit(*FOUR_CLASSES),
            "has 6 columns for 4 classes: create it with decision_function_shape='ovr'",
        ),
        (
            ensemble.VotingClassifier([("a", linear_model.LogisticRegression())]).fit(ROWS, NAMES),
            "This VotingClassifier has no coefficients, no probabilities and no decision function",
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_what_cannot_be_observed_is_refused_with_the_reason(model: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        teeter.observe(model, ROWS)


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_a_support_vector_machine_is_observed_by_its_decision_function(kernel: str) -> None:
    model = svm.SVC(kernel=kernel).fit(ROWS, NAMES)
    outputs = teeter.observe(model, ROWS)
    np.testing.assert_allclose(outputs.logits, model.decision_function(ROWS))
    assert outputs.features is None
    assert len(teeter.select("margin", outputs, 5)) == 5

    binary = svm.SVC().fit(ROWS, CLASSES == 0)
    logits = teeter.observe(binary, ROWS).logits
    assert logits is not None
    np.testing.assert_allclose(logits[:, 1] - logits[:, 0], binary.decision_function(ROWS))


@pytest.mark.parametrize(
    "model", [linear_model.LogisticRegression(), ensemble.RandomForestClassifier(2)]
)
def test_an_empty_pool_is_refused(model: Any) -> None:
    with pytest.raises(InputError, match="Cannot observe an empty pool"):
        teeter.observe(model.fit(ROWS, CLASSES), ROWS[:0])


def test_frames_are_observed_without_a_warning() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, columns=list("abcd"))
    for model in (linear_model.LogisticRegression(), *COMMITTEES.values()):
        model.fit(frame, NAMES)
        logits = teeter.observe(model, frame).logits
        assert logits is not None
        assert (model.classes_[logits.argmax(dim=1)] == model.predict(frame)).all()
