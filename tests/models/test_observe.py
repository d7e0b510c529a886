"""observe: plain callables, what is refused, and the errors for a model that returns too little."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.naive_bayes import GaussianNB
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import teeter
from teeter import Outputs
from teeter.errors import InputError, MissingOutputError
from teeter.models.observe import is_estimator

RNG = np.random.default_rng(0)
ROWS, WEIGHT, BIAS = RNG.normal(size=(20, 4)), RNG.normal(size=(3, 4)), RNG.normal(size=3)
LOGITS = ROWS @ WEIGHT.T + BIAS
NAIVE_BAYES = GaussianNB().fit(ROWS, LOGITS.argmax(axis=1))


def logits(rows: Any) -> Any:
    return np.asarray(rows) @ WEIGHT.T + BIAS


CALLABLES: dict[str, tuple[Callable[[Any], Any], set[str]]] = {
    "logits": (logits, {"logits"}),
    "a tensor that wants gradients": (
        lambda rows: torch.from_numpy(logits(rows)).requires_grad_(),
        {"logits"},
    ),
    "a pair": (lambda rows: (logits(rows), rows), {"logits", "features"}),
    "a listed pair": (lambda rows: [logits(rows), rows], {"logits", "features"}),
    "a dictionary": (
        lambda rows: {"features": rows, "weight": WEIGHT, "bias": BIAS},
        {"features", "weight", "bias"},
    ),
    "a dictionary with nothing in places": (
        lambda rows: {"logits": logits(rows), "features": None, "bias": None},
        {"logits"},
    ),
    "outputs": (
        lambda rows: Outputs(logits(rows), rows, WEIGHT, BIAS, np.stack([logits(rows)] * 5)),
        {"logits", "features", "weight", "bias", "posterior_logits"},
    ),
    "a posterior": (
        lambda rows: {"posterior_logits": np.stack([logits(rows)] * 5)},
        {"posterior_logits"},
    ),
}
EXPECTED = {
    "logits": LOGITS,
    "features": ROWS,
    "weight": WEIGHT,
    "bias": BIAS,
    "posterior_logits": np.stack([LOGITS] * 5),
}


@pytest.mark.parametrize("batch_size", [1, 7, 20, 1024])
@pytest.mark.parametrize("kind", CALLABLES)
def test_a_callable_may_answer_in_many_ways(kind: str, batch_size: int) -> None:
    model, names = CALLABLES[kind]
    outputs = teeter.observe(model, ROWS, batch_size=batch_size)
    for name, expected in EXPECTED.items():
        if name in names:
            np.testing.assert_allclose(getattr(outputs, name), expected)
        else:
            assert getattr(outputs, name) is None


def test_a_callable_gets_the_batches_of_a_loader_without_labels() -> None:
    held = TensorDataset(torch.from_numpy(ROWS), torch.arange(20))
    for data in (held, DataLoader(held, batch_size=6)):
        np.testing.assert_allclose(teeter.observe(logits, data).logits, LOGITS)


def test_a_callable_may_take_words() -> None:
    words = ["a", "bb", "ccc"]
    outputs = teeter.observe(
        lambda batch: np.array([[len(word), 0.0] for word in batch]), words, batch_size=2
    )
    assert outputs.logits.tolist() == [[1, 0], [2, 0], [3, 0]]


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (logits, ROWS[:0], "Cannot observe an empty pool"),
        (lambda rows: (1, 2, 3), ROWS, "returned 3 values: return logits, or a pair"),
        (lambda rows: {"logit": rows}, ROWS, r"The model returned \['logit'\]: use names from"),
        (lambda rows: {}, ROWS, "use names from"),
        (lambda rows: logits(rows)[:3], ROWS, "The model returned 3 rows, but the data has 20"),
        (lambda rows: logits(rows)[:, 0], ROWS, "logits has shape"),
        (NAIVE_BAYES.predict_proba, ROWS, r'return \{"probabilities": p\} instead'),
        (lambda rows: np.eye(3)[[0] * len(rows)], ROWS, "as probabilities do"),
        (GaussianNB, ROWS, "The model is the class GaussianNB: give a fitted instance"),
        (3, ROWS, "Cannot observe an object of type int: give a torch module"),
        ("resnet", ROWS, "Cannot observe an object of type str"),
        (None, ROWS, "Cannot observe an object of type NoneType"),
        (logits, 3, "Cannot count the rows of an object of type int"),
    ],
)
def test_what_does_not_fit_is_refused(model: Any, data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        teeter.observe(model, data)


@pytest.mark.parametrize("needs", [("gradients",), ("labelled",), "logits"])
def test_needs_that_no_model_can_fill_are_refused(needs: Any) -> None:
    with pytest.raises(
        InputError,
        match=r"Unknown outputs requested: .* Choose from \['dropout_logits', 'ensemble_logits'",
    ):
        teeter.observe(logits, ROWS, needs)


@pytest.mark.parametrize(
    "model",
    [
        logits,
        nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 4), nn.Flatten()),
        nn.Sequential(nn.Linear(4, 3), nn.Unflatten(1, (3, 1)), nn.Conv1d(3, 3, 1), nn.Flatten()),
        NAIVE_BAYES,
    ],
    ids=["a callable", "convolutions", "no linear layer at its end", "naive Bayes"],
)
def test_the_error_for_a_model_with_logits_alone_lists_what_it_can_use(model: Any) -> None:
    outputs = teeter.observe(model, ROWS)
    with pytest.raises(
        MissingOutputError, match="ldm-s needs features, the input of the last layer, but there are"
    ) as error:
        teeter.select("ldm-s", outputs, 3)
    usable = str(error.value).partition("you can use ")[2].rstrip(".").split(", ")
    assert {"entropy", "margin", "random"} <= set(usable)
    assert "ldm" not in usable
    for name in usable:
        assert len(teeter.select(name, outputs, 3)) == 3


def test_a_callable_may_return_probabilities_by_name() -> None:
    outputs = teeter.observe(
        lambda rows: {"probabilities": NAIVE_BAYES.predict_proba(rows)}, ROWS, batch_size=7
    )
    expected = teeter.observe(NAIVE_BAYES, ROWS)
    picks = teeter.select("entropy", outputs, 10)
    assert picks.tolist() == teeter.select("entropy", expected, 10).tolist()


class Scorer:
    """A classifier of no library, with one of the two methods that scikit-learn's have."""

    def decision_function(self, rows: Any) -> Any:
        return logits(rows)


class Forecaster:
    def predict_proba(self, rows: Any) -> list[list[float]]:
        return NAIVE_BAYES.predict_proba(rows).tolist()


def test_an_object_needs_only_one_method_of_scikit_learn() -> None:
    np.testing.assert_allclose(teeter.observe(Scorer(), ROWS).logits, LOGITS)
    forecast = teeter.observe(Forecaster(), ROWS).logits
    assert forecast is not None
    np.testing.assert_allclose(forecast.softmax(dim=1), NAIVE_BAYES.predict_proba(ROWS), atol=1e-9)

    flat = Forecaster()
    flat.predict_proba = lambda rows: [0.5] * len(rows)  # type: ignore[method-assign, assignment]
    with pytest.raises(InputError, match=r"predict_proba of this Forecaster .* shape \(20,\)"):
        teeter.observe(flat, ROWS)


@pytest.mark.parametrize(
    ("strategy", "advice"),
    [
        ("dbal", r'observe\(model, data, needs=\("dropout_logits",\)\)'),
        ("ensemble", r"observe\(\[model, other_model\], data\)"),
    ],
)
def test_a_posterior_that_is_missing_is_explained(strategy: str, advice: str) -> None:
    dropout = nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 3))
    with pytest.raises(MissingOutputError, match=f"{strategy} needs .* compute them with {advice}"):
        teeter.select(strategy, teeter.observe(dropout, ROWS), 3)


def test_estimators_are_known_by_their_class() -> None:
    assert is_estimator(GaussianNB())
    assert not is_estimator(GaussianNB)
    assert not is_estimator(nn.Linear(2, 2))
    assert not is_estimator(logits)
