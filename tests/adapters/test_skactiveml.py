"""teeter's strategies under scikit-activeml's contract, with the package itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import teeter
from teeter.errors import InputError, MissingOutputError
from teeter.models.sklearn_model import clone_with_seed

skactiveml = pytest.importorskip(
    "skactiveml", reason="scikit-activeml is not installed: the extra skactiveml"
)

from skactiveml.classifier import ParzenWindowClassifier, SklearnClassifier  # noqa: E402
from skactiveml.pool import SubSamplingWrapper, UncertaintySampling  # noqa: E402

from teeter.adapters.skactiveml import TeeterStrategy  # noqa: E402

NAMES = teeter.strategies.names()
DROPOUT = [name for name in NAMES if "dropout_logits" in teeter.strategies.get(name).needs]


def make_problem(rows: int = 80, labelled: int = 12) -> tuple[Any, Any]:
    """Three clouds in the plane; the first rows have labels, of all three classes."""
    rng = np.random.default_rng(0)
    classes = np.arange(rows) % 3
    X = rng.normal(size=(rows, 4)) + 1.5 * np.eye(3, 4)[classes]
    return X, np.where(np.arange(rows) < labelled, classes, np.nan)


def linear(**options: Any) -> SklearnClassifier:
    return SklearnClassifier(LogisticRegression(), classes=[0, 1, 2], random_state=0, **options)


def forest() -> SklearnClassifier:
    return SklearnClassifier(
        RandomForestClassifier(5, random_state=0), classes=[0, 1, 2], random_state=0
    )


def classifier_for(name: str) -> SklearnClassifier:
    # Trees are the only posterior that scikit-learn has.
    return forest() if name in DROPOUT else linear()


@pytest.mark.parametrize("name", NAMES)
def test_every_strategy_answers_different_unlabelled_samples_and_utilities(name: str) -> None:
    X, y = make_problem()
    strategy = TeeterStrategy(name, random_state=0)
    picks, utilities = strategy.query(
        X, y, classifier_for(name), batch_size=5, return_utilities=True
    )

    assert picks.shape == (5,)
    assert len(set(picks.tolist())) == 5
    assert np.isnan(y[picks]).all()
    assert utilities.shape == (5, 80)

    unavailable = np.isfinite(y)
    for pick in range(5):
        assert (np.isnan(utilities[pick]) == unavailable).all(), (
            "only labelled and picked samples have none"
        )
        unavailable[picks[pick]] = True

    again = strategy.query(X, y, classifier_for(name), batch_size=5)
    assert (picks == again).all(), "a query leaves no state behind"


@pytest.mark.parametrize("name", ["ldm-s", "badge", "margin", "coreset", "ensemble"])
@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        MLPClassifier((8,), solver="lbfgs", max_iter=3000, random_state=0),
    ],
    ids=["linear", "pipeline", "mlp"],
)
def test_it_picks_what_teeter_picks(name: str, model: Any) -> None:
    X, y = make_problem()
    labelled = np.isfinite(y)
    clf = SklearnClassifier(model, classes=[0, 1, 2], random_state=0)
    strategy = TeeterStrategy(name, random_state=3, members=2)
    picks = strategy.query(X, y, clf, batch_size=4)
    drawn = np.random.RandomState(_state(strategy, y)).randint(2**31 - 1)

    models = [clone(model).fit(X[labelled], y[labelled])]
    if name == "ensemble":
        models.append(clone_with_seed(model, drawn).fit(X[labelled], y[labelled]))
    expected = teeter.select(
        name,
        teeter.observe(models, X[~labelled]),
        4,
        labelled=teeter.observe(models, X[labelled]),
        labels=y[labelled].astype(int),
        seed=drawn,
    )

    assert (picks == np.flatnonzero(~labelled)[expected]).all()


def _state(strategy: TeeterStrategy, y: Any) -> int:
    """The seed that scikit-activeml makes of an integer state and the number of
    unlabelled samples.
    """
    drawn = np.random.RandomState(strategy.random_state).randint(1, 2**31)
    return int(drawn * (int(np.isnan(y).sum()) + 1) % 2**31)


def test_margin_agrees_with_their_own() -> None:
    X, y = make_problem()
    theirs = UncertaintySampling("margin_sampling", random_state=0)
    ours = TeeterStrategy("margin", random_state=0)
    for weight in (None, np.linspace(0.1, 3, 80)):
        expected = theirs.query(X, y, linear(), sample_weight=weight, batch_size=6)
        assert (ours.query(X, y, linear(), sample_weight=weight, batch_size=6) == expected).all()


@pytest.mark.parametrize("name", ["margin", "ldm"])
def test_the_best_scores_have_the_largest_utilities(name: str) -> None:
    X, y = make_problem()
    picks, utilities = TeeterStrategy(name, random_state=0).query(
        X, y, linear(), batch_size=4, return_utilities=True
    )
    assert (np.nanargmax(utilities, axis=1) == picks).all()


def test_candidates_may_be_indices_or_samples() -> None:
    X, y = make_problem()
    strategy = TeeterStrategy("ldm-s", random_state=0)
    free = np.arange(12, 80)

    plain, utilities = strategy.query(X, y, linear(), batch_size=3, return_utilities=True)
    by_index, index_utilities = strategy.query(
        X, y, linear(), candidates=free, batch_size=3, return_utilities=True
    )
    by_sample, candidate_utilities = strategy.query(
        X, y, linear(), candidates=X[free], batch_size=3, return_utilities=True
    )

    assert (plain == by_index).all()
    assert (plain == free[by_sample]).all()
    assert np.array_equal(utilities, index_utilities, equal_nan=True)
    assert candidate_utilities.shape == (3, 68)
    assert np.array_equal(candidate_utilities, utilities[:, free], equal_nan=True)

    few = strategy.query(X, y, linear(), candidates=[70, 20, 33], batch_size=2)
    assert set(few.tolist()) <= {70, 20, 33}


def test_another_random_state_gives_other_picks() -> None:
    X, y = make_problem()
    picks = [
        TeeterStrategy("random", random_state=state).query(X, y, batch_size=9).tolist()
        for state in (0, 0, 1)
    ]
    assert picks[0] == picks[1] != picks[2]


@pytest.mark.parametrize(
    ("missing", "kind"), [(np.nan, float), (-1, int), (None, object), ("", "U3")]
)
def test_labels_and_missing_labels_of_every_kind(missing: Any, kind: Any) -> None:
    X, numbers = make_problem()
    names = ["ant", "bee", "cat"] if kind in (object, "U3") else [4, 5, 6]
    y = np.array(
        [missing if np.isnan(number) else names[int(number)] for number in numbers], dtype=kind
    )
    clf = SklearnClassifier(
        LogisticRegression(), classes=names, missing_label=missing, random_state=0
    )

    for name in ("ldm-s", "bait", "typiclust"):
        picks = TeeterStrategy(name, missing_label=missing, random_state=0).query(
            X, y, clf, batch_size=3
        )
        expected = TeeterStrategy(name, random_state=0).query(X, numbers, linear(), batch_size=3)
        assert (picks == expected).all()


@pytest.mark.parametrize("labelled", [0, 1, 2])
def test_a_cold_start_picks_until_two_classes_are_labelled(labelled: int) -> None:
    X, y = make_problem(labelled=labelled)
    picks = TeeterStrategy("ldm-s", random_state=0).query(X, y, linear(), batch_size=4)
    assert np.isnan(y[picks]).all()
    random = TeeterStrategy("random", random_state=0).query(X, y, batch_size=4)
    assert (picks == random).all() == (labelled < 2)

    spread = TeeterStrategy("ldm-s", cold_start="typiclust", random_state=0).query(
        X, y, linear(), batch_size=4
    )
    if labelled < 2:
        assert (
            spread == TeeterStrategy("typiclust", random_state=0).query(X, y, batch_size=4)
        ).all()


def test_strategies_that_look_at_features_alone_need_no_classifier() -> None:
    X, y = make_problem()
    for name in ("coreset", "typiclust"):
        picks = TeeterStrategy(name, random_state=0).query(X, y, batch_size=4)
        assert np.isnan(y[picks]).all()
    nothing = np.full(80, np.nan)
    random = TeeterStrategy("random", random_state=0).query(X, nothing, batch_size=4)
    assert (
        TeeterStrategy("coreset", random_state=0).query(X, nothing, batch_size=4) == random
    ).all()


def test_a_classifier_that_is_not_to_be_fitted_is_used_as_it_is() -> None:
    X, y = make_problem()
    strategy = TeeterStrategy("ldm-s", random_state=0)
    fitted = linear().fit(X, y)
    before = fitted.estimator_.coef_.copy()

    expected = strategy.query(X, y, linear(), batch_size=3)
    assert (strategy.query(X, y, fitted, fit_clf=False, batch_size=3) == expected).all()
    assert (
        strategy.query(X, np.full(80, np.nan), fitted, fit_clf=False, candidates=np.arange(12, 80))
        >= 12
    ).all()
    assert (fitted.estimator_.coef_ == before).all()

    with pytest.raises(InputError, match="not fitted yet"):
        strategy.query(X, y, linear(), fit_clf=False)


def test_the_classifier_given_is_not_fitted() -> None:
    X, y = make_problem()
    clf = linear()
    TeeterStrategy("ensemble", members=2, random_state=0).query(X, y, clf, batch_size=2)
    assert "estimator_" not in vars(clf)


def test_probabilities_alone_serve_the_strategies_that_need_no_more() -> None:
    X, y = make_problem()
    clf = ParzenWindowClassifier(classes=[0, 1, 2], random_state=0)
    theirs = UncertaintySampling("entropy", random_state=0).query(X, y, clf, batch_size=3)
    assert (
        TeeterStrategy("entropy", random_state=0).query(X, y, clf, batch_size=3) == theirs
    ).all()
    with pytest.raises(
        MissingOutputError, match=r"ldm-s needs .*With the available outputs you can use"
    ):
        TeeterStrategy("ldm-s", random_state=0).query(X, y, clf)


@pytest.mark.parametrize("name", ["ldm-s", "badge", "bait", "dbal", "ensemble"])
def test_torch_modules_in_their_wrapper_show_their_head(name: str) -> None:
    pytest.importorskip("skorch", reason="skorch is not installed: the extra skorch")
    from skactiveml.classifier import SkorchClassifier

    X, y = make_problem()
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    training = {"max_epochs": 3, "verbose": 0, "train_split": None}
    clf = SkorchClassifier(
        network, classes=[0, 1, 2], neural_net_param_dict=training, random_state=0
    )
    strategy = TeeterStrategy(name, members=2, random_state=0)

    picks = strategy.query(X, y, clf, batch_size=4)
    assert np.isnan(y[picks]).all()
    torch.rand(3)
    assert (strategy.query(X, y, clf, batch_size=4) == picks).all(), (
        "the global stream decides nothing"
    )

    if name in ("ldm-s", "badge"):
        fitted = clf.fit(X, y)
        outputs = teeter.observe(fitted.neural_net_.module_, X[12:].astype(np.float32))
        drawn = np.random.RandomState(_state(strategy, y)).randint(2**31 - 1)
        expected = 12 + teeter.select(name, outputs, 4, seed=drawn)
        assert (strategy.query(X, y, fitted, fit_clf=False, batch_size=4) == expected).all()


def test_it_clones_and_works_in_their_wrappers() -> None:
    X, y = make_problem()
    strategy = TeeterStrategy("ldm-s", options={"rays": 64}, random_state=0)
    copy = clone(strategy)
    assert copy.get_params()["options"] == {"rays": 64}
    assert (
        copy.query(X, y, linear(), batch_size=3) == strategy.query(X, y, linear(), batch_size=3)
    ).all()
    few = SubSamplingWrapper(strategy, max_candidates=10, random_state=0)
    picks = few.query(X, y, clf=linear(), batch_size=3)
    assert len(set(picks.tolist())) == 3


def test_too_large_a_batch_is_cut_with_their_warning() -> None:
    X, y = make_problem(rows=20)
    with pytest.warns(UserWarning, match="batch_size=99"):
        picks = TeeterStrategy("ldm-s", random_state=0).query(X, y, linear(), batch_size=99)
    assert sorted(picks.tolist()) == list(range(12, 20))


def test_mistakes_are_reported_in_a_sentence() -> None:
    X, y = make_problem()
    with pytest.raises(InputError, match="ldm-s needs a classifier"):
        TeeterStrategy("ldm-s").query(X, y)

    with pytest.raises(InputError, match="Did you mean 'badge'"):
        TeeterStrategy("bagde").query(X, y, linear())

    with pytest.raises(InputError, match="has no option"):
        TeeterStrategy("margin", options={"rays": 3}).query(X, y, linear())

    with pytest.raises(InputError, match="members is 1"):
        TeeterStrategy("ensemble", members=1).query(X, y, linear())

    with (
        pytest.warns(UserWarning, match="batch_size"),
        pytest.raises(InputError, match="no candidate"),
    ):
        TeeterStrategy("ldm-s").query(X, np.zeros(80), linear())

    with pytest.raises(TypeError, match="clf"):
        TeeterStrategy("ldm-s").query(X, y, LogisticRegression())
    with pytest.raises(ValueError, match="missing_label"):
        TeeterStrategy("ldm-s").query(X, y, linear(missing_label=-1))
