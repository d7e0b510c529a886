"""The contract over every kind of model that ``teeter.observe`` takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import (
    ensemble,
    linear_model,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
)
from sklearn.compose import ColumnTransformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.multiclass import OneVsRestClassifier
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import library_models
import teeter
from teeter import Outputs
from teeter.models.inputs import BatchedInputs, count_rows, take_rows
from teeter.models.networks import mlp

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(48, 6))
MANY = (ROWS @ RNG.normal(size=(6, 4)) + RNG.normal(size=(48, 4))).argmax(axis=1)
TWO = np.array(["no", "yes"])[(MANY > 1).astype(int)]
NAMED = np.array(["west", "north", "east", "south"])[MANY]
TEXTS = [" ".join(RNG.choice(["red", "green", "blue"], size=5)) + f" {name}" for name in NAMED]
IMAGES = 9 * RNG.normal(size=(48, 1, 6, 6)).astype(np.float32)
TOKENS = RNG.integers(0, 20, size=(48, 7))


@dataclass(frozen=True)
class Subject:
    """A model, the data it looks at or how to make them, and its predictions for them: a class
    for each row.
    """

    make: Callable[[], Any]
    data: Any
    predict: Callable[[Any, Any], Any]
    head: bool = True


class Temperate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, 5)
        self.head = nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        return (self.head(self.body(x).tanh()) / 3).softmax(dim=1)


class TokensAndRows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 5)
        self.numbers = nn.Linear(6, 5)
        self.head = nn.Linear(10, 4)

    def forward(self, tokens: Tensor, rows: Tensor) -> dict[str, Tensor]:
        return {
            "logits": self.head(
                torch.cat([self.words(tokens).mean(dim=1), self.numbers(rows).relu()], dim=1)
            )
        }


class OfTheLastWord(nn.Module):
    """A head for every word, of which the last one counts; those after a 0 are padding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 5)
        self.head = nn.Linear(5, 4, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        every = self.head(self.words(tokens).cumsum(dim=1).tanh())
        return every[torch.arange(len(tokens)), (tokens != 0).cumsum(dim=1).argmax(dim=1)]


def convolutional(*ending: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout2d(), *ending)


def torch_subject(make: Callable[[], nn.Module], data: Any = ROWS, *, head: bool = True) -> Subject:
    def make_seeded() -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            return make()

    return Subject(make_seeded, data, predict_with_torch, head)


def predict_with_torch(model: nn.Module, data: Any) -> Tensor:
    model.eval()
    with torch.no_grad():
        if isinstance(data, dict):
            return model(**{name: as_input(part, model) for name, part in data.items()})[
                "logits"
            ].argmax(dim=1)

        rows = data.dataset if isinstance(data, DataLoader) else data
        answer = model(
            as_input(rows.tensors[0] if isinstance(rows, TensorDataset) else rows, model)
        )

    return (
        (answer > 0.5).long().reshape(-1) if answer.numel() == len(answer) else answer.argmax(dim=1)
    )


def as_input(part: Any, model: nn.Module) -> Tensor:
    tensor = torch.as_tensor(part)
    return tensor.to(next(model.parameters()).dtype) if tensor.is_floating_point() else tensor


def sklearn_subject(
    model: Any, labels: Any = NAMED, data: Any = ROWS, *, head: bool = True
) -> Subject:
    return Subject(lambda: model.fit(data, labels), data, predict_with_sklearn, head)


def predict_with_sklearn(model: Any, data: Any) -> Any:
    return np.searchsorted(model.classes_, model.predict(data))


def perceptron(activation: str, labels: Any = NAMED) -> Subject:
    return sklearn_subject(
        neural_network.MLPClassifier(
            (7, 5), activation=activation, solver="lbfgs", max_iter=5000, random_state=0
        ),
        labels,
    )


HELD = TensorDataset(torch.from_numpy(ROWS), torch.from_numpy(MANY))
SCALER = preprocessing.StandardScaler
LOGISTIC = linear_model.LogisticRegression

SUBJECTS = {
    "a linear layer": torch_subject(lambda: nn.Linear(6, 4)),
    "a linear layer without bias": torch_subject(lambda: nn.Linear(6, 4, bias=False)),
    "a multilayer perceptron": torch_subject(lambda: mlp(6, 4, seed=1)),
    "a float64 network": torch_subject(lambda: mlp(6, 4, seed=1).double(), ROWS.astype(np.float32)),
    "a softmax": torch_subject(
        lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.Softmax(dim=1))
    ),
    "a log-softmax": torch_subject(lambda: nn.Sequential(nn.Linear(6, 4), nn.LogSoftmax(dim=1))),
    "a temperature": torch_subject(Temperate),
    "a single logit": torch_subject(lambda: nn.Sequential(nn.Linear(6, 1), nn.Sigmoid())),
    "a convolutional network": torch_subject(
        lambda: convolutional(
            nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)
        ),
        IMAGES,
    ),
    "convolutions alone": torch_subject(
        lambda: convolutional(nn.Conv2d(4, 9, 2), nn.AdaptiveMaxPool2d(1), nn.Flatten()),
        IMAGES,
        head=False,
    ),
    "a dictionary": torch_subject(TokensAndRows, {"tokens": TOKENS, "rows": ROWS}),
    "a head for every word": torch_subject(OfTheLastWord, TOKENS),
    "a dataset": torch_subject(lambda: mlp(6, 4), HELD),
    "a data loader": torch_subject(lambda: mlp(6, 4), DataLoader(HELD, batch_size=7)),
    "logistic regression": sklearn_subject(LOGISTIC()),
    "binary logistic regression": sklearn_subject(LOGISTIC(), TWO),
    "logistic regression of whole numbers": sklearn_subject(
        LOGISTIC(max_iter=1000), MANY, (ROWS * 9).astype(int)
    ),
    "a linear support vector machine": sklearn_subject(
        svm.LinearSVC(random_state=0), NAMED, ROWS.astype(np.float32)
    ),
    "binary linear support vector machine": sklearn_subject(
        svm.LinearSVC(random_state=0, fit_intercept=False), TWO
    ),
    "a support vector machine with a linear kernel": sklearn_subject(svm.SVC(kernel="linear"), TWO),
    "ridge": sklearn_subject(linear_model.RidgeClassifier()),
    "binary ridge": sklearn_subject(linear_model.RidgeClassifier(fit_intercept=False), TWO),
    "stochastic gradient descent": sklearn_subject(linear_model.SGDClassifier(random_state=0)),
    "linear discriminant analysis": sklearn_subject(LinearDiscriminantAnalysis()),
    "binary linear discriminant analysis": sklearn_subject(LinearDiscriminantAnalysis(), TWO),
    **{
        f"scikit-learn's perceptron with {name}": perceptron(name)
        for name in ("relu", "tanh", "logistic", "identity")
    },
    "scikit-learn's binary perceptron": perceptron("relu", TWO),
    "a pipeline": sklearn_subject(pipeline.make_pipeline(SCALER(), LOGISTIC())),
    "a pipeline in a pipeline": sklearn_subject(
        pipeline.make_pipeline(
            SCALER(), "passthrough", pipeline.make_pipeline(SCALER(), LOGISTIC())
        )
    ),
    "a pipeline that is alone in a pipeline": sklearn_subject(
        pipeline.make_pipeline(pipeline.make_pipeline(SCALER(), LOGISTIC()))
    ),
    "a pipeline of one": sklearn_subject(pipeline.make_pipeline(LOGISTIC())),
    "a pipeline of text": sklearn_subject(
        pipeline.make_pipeline(TfidfVectorizer(), LOGISTIC()), NAMED, TEXTS
    ),
    "columns apart": sklearn_subject(
        pipeline.make_pipeline(
            ColumnTransformer([("a", SCALER(), [0, 3]), ("b", "passthrough", [5])]), LOGISTIC()
        )
    ),
    "a forest": sklearn_subject(ensemble.RandomForestClassifier(9, random_state=0), head=False),
    "a forest of extra trees": sklearn_subject(
        ensemble.ExtraTreesClassifier(9, random_state=0), TWO, head=False
    ),
    "a scaled forest": sklearn_subject(
        pipeline.make_pipeline(SCALER(), ensemble.RandomForestClassifier(9, random_state=0)),
        head=False,
    ),
    "a forest of text": sklearn_subject(
        pipeline.make_pipeline(
            TfidfVectorizer(), ensemble.RandomForestClassifier(9, random_state=0)
        ),
        NAMED,
        TEXTS,
        head=False,
    ),
    "bagging": sklearn_subject(
        ensemble.BaggingClassifier(max_features=0.5, random_state=0), head=False
    ),
    "ada boost": sklearn_subject(
        ensemble.AdaBoostClassifier(n_estimators=6, random_state=0), head=False
    ),
    "a vote": sklearn_subject(
        ensemble.VotingClassifier(
            [("a", LOGISTIC()), ("b", naive_bayes.GaussianNB())], voting="soft"
        ),
        head=False,
    ),
    "gradient boosting": sklearn_subject(
        ensemble.GradientBoostingClassifier(n_estimators=4), head=False
    ),
    "naive Bayes": sklearn_subject(naive_bayes.GaussianNB(), head=False),
    "nearest neighbours": sklearn_subject(neighbors.KNeighborsClassifier(), head=False),
    "one class against the rest": sklearn_subject(OneVsRestClassifier(LOGISTIC()), head=False),
    "a callable": Subject(
        lambda: lambda rows: (rows @ ROWS[:4].T, rows),
        ROWS,
        lambda model, rows: model(rows)[0].argmax(axis=1),
        False,
    ),
    **{
        name: Subject(make, data, predict)
        for name, (make, data, predict) in library_models.MODELS.items()
    },
}


@cache
def get_model(name: str) -> Any:
    return SUBJECTS[name].make()


@cache
def data_of(name: str) -> Any:
    data = SUBJECTS[name].data
    return data() if callable(data) else data


@cache
def observed(name: str) -> Outputs:
    return teeter.observe(get_model(name), data_of(name))


def parts(outputs: Outputs) -> dict[str, Tensor]:
    names = ("logits", "features", "weight", "bias", "posterior_logits")
    return {name: getattr(outputs, name) for name in names if getattr(outputs, name) is not None}


def contents(data: Any) -> list[bytes]:
    if isinstance(data, BatchedInputs):
        return contents({name: part.numpy() for name, part in data.as_one_batch().items()})
    if isinstance(data, dict):
        return [content for part in data.values() for content in contents(part)]
    if isinstance(data, DataLoader):
        return contents(data.dataset)
    if isinstance(data, TensorDataset):
        return [content for tensor in data.tensors for content in contents(tensor.numpy())]
    return [np.asarray(data).tobytes()]


every = pytest.mark.parametrize("name", SUBJECTS)
with_head = pytest.mark.parametrize(
    "name", [name for name, subject in SUBJECTS.items() if subject.head]
)


@with_head
def test_the_features_and_the_head_give_the_logits(name: str) -> None:
    outputs = observed(name)
    assert outputs.features is not None
    assert outputs.weight is not None
    computed = outputs.features @ outputs.weight.T + (0 if outputs.bias is None else outputs.bias)
    torch.testing.assert_close(computed, outputs.logits, rtol=1e-5, atol=1e-5)


@every
def test_a_head_is_found_where_there_is_one(name: str) -> None:
    assert observed(name).has("head") == SUBJECTS[name].head


@every
def test_the_largest_logit_is_what_the_model_predicts(name: str) -> None:
    logits = observed(name).logits
    assert logits is not None
    predicted = np.asarray(SUBJECTS[name].predict(get_model(name), data_of(name)))
    assert len(np.unique(predicted)) > 1
    np.testing.assert_array_equal(logits.argmax(dim=1), predicted)


@every
def test_a_row_has_the_same_outputs_in_any_batch(name: str) -> None:
    rows = np.array([31, 2, 17])
    data = data_of(name).dataset if isinstance(data_of(name), DataLoader) else data_of(name)
    outputs = teeter.observe(get_model(name), take_rows(data, rows), batch_size=2)
    for part, value in parts(observed(name).take(rows)).items():
        torch.testing.assert_close(getattr(outputs, part), value, rtol=1e-5, atol=1e-5)


@every
def test_the_batch_size_changes_nothing(name: str) -> None:
    for size in (1, 5, 48, 1000):
        again = teeter.observe(get_model(name), data_of(name), batch_size=size)
        for part, value in parts(observed(name)).items():
            torch.testing.assert_close(getattr(again, part), value, rtol=1e-5, atol=1e-5)


@every
def test_observing_changes_nothing_and_tells_the_same_again(name: str) -> None:
    data = data_of(name)
    before = contents(data)
    observed_parts = parts(teeter.observe(get_model(name), data))
    assert observed_parts.keys() == parts(observed(name)).keys()
    for part, value in parts(observed(name)).items():
        assert torch.equal(observed_parts[part], value)
    assert contents(data) == before


@every
def test_there_is_a_row_for_every_row_and_one_precision(name: str) -> None:
    outputs = observed(name)
    assert len(outputs) == count_rows(data_of(name)) == 48
    assert len({value.dtype for value in parts(outputs).values()}) == 1


@with_head
@pytest.mark.parametrize("strategy", ["ldm-s", "margin"])
def test_strategies_pick_from_what_a_model_with_a_head_tells(name: str, strategy: str) -> None:
    picks = teeter.select(strategy, observed(name), 5)
    assert len(set(picks.tolist())) == 5
