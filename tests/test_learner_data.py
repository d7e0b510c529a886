"""A learner of whatever people keep data in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import teeter
from example_learners import (
    CLASSES,
    LOGISTIC,
    NAMES,
    ROWS,
    TRUTH,
    answer,
    make,
    network,
    taught,
)
from teeter import Outputs, TrainingConfig
from teeter.errors import InputError
from teeter.strategies import Context


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        torch.from_numpy(ROWS),
        ROWS.reshape(60, 2, 2),
        sparse.csr_matrix(ROWS),
        TensorDataset(torch.from_numpy(ROWS)),
    ],
    ids=["array", "tensor", "images", "sparse", "dataset"],
)
def test_a_cold_start_by_features_sees_the_raw_data(data: Any) -> None:
    learner = make(data=data, cold_start="seeding-l2", seed=3)
    context = Context(
        candidates=np.arange(60),
        outputs=Outputs(features=ROWS),
        generator=teeter.seeds.stream(3, "select", 0),
    )
    assert (
        learner.ask(6).tolist() == teeter.strategies.get("seeding-l2")().select(context, 6).tolist()
    )
    assert learner.ask(6).tolist() != make(data=data, seed=3).ask(6).tolist()


def test_words_have_no_features_for_a_cold_start() -> None:
    with pytest.raises(
        InputError, match="cannot use them as features: choose the cold start random"
    ):
        make(data=["a"] * 9, cold_start="seeding-l2").ask(3)


MISSING = ROWS.copy()
MISSING[[3, 40, 41], 1] = [np.nan, np.inf, np.nan]
MIXED = ROWS.astype(object)
MIXED[3, 1] = "red"
GAPS = ROWS.astype(object)
GAPS[3, 1] = None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            MISSING,
            (
                "1 of 12 rows contain missing or infinite values, which LogisticRegression does "
                "not take: fix"
            ),
        ),
        (sparse.csr_matrix(MISSING), "1 of 12 rows contain missing or infinite values"),
        (GAPS, "1 of 12 rows contain missing or infinite values"),
        (MIXED, "The data contain 'red', but LogisticRegression takes only numbers: encode texts"),
        (
            ["it purrs"] * 60,
            "The data contain 'it purrs', but LogisticRegression takes only numbers",
        ),
    ],
    ids=["NaN", "sparse NaN", "None", "a word", "texts"],
)
def test_rows_that_an_estimator_cannot_learn_from_are_explained(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        taught(LogisticRegression(), data=data)


def test_rows_that_an_estimator_cannot_predict_are_explained() -> None:
    learner = taught(LOGISTIC, data=MISSING, rows=[0, 1, 2, 4, 5, 6, 7, 8])
    assert len(learner.predict([0, 1, 2])) == 3
    for rows, message in (([3], "1 of 1 rows"), (None, "3 of 60 rows")):
        with pytest.raises(
            InputError,
            match=f"{message} contain missing or infinite values, which LogisticRegression",
        ):
            learner.predict(rows)
    with pytest.raises(InputError, match="3 of 52 rows contain missing"):
        learner.ask(3)
    with pytest.raises(InputError, match="The data contain 'red'"):
        learner.evaluate(MIXED, TRUTH)


def test_an_error_that_the_rows_do_not_explain_is_passed_on() -> None:
    class Broken(LogisticRegression):
        def fit(self, rows: Any, labels: Any) -> Any:
            raise ValueError("not today")

    with pytest.raises(ValueError, match="not today"):
        taught(Broken())


def test_missing_values_are_left_to_an_estimator_that_takes_them() -> None:
    learner = taught(
        HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=2), "margin", data=MISSING
    )
    assert len(learner.ask(3)) == 3


def test_text_is_learned_through_a_pipeline() -> None:
    animals = {"cat": "purrs sleeps", "dog": "barks runs", "owl": "hoots flies"}
    texts = [f"it {animals[name]} {k % 7}" for k, name in enumerate(TRUTH)]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression())
    learner = make(model, data=texts, validation=(texts[:3], NAMES))
    for _ in range(3):
        answer(learner, 6)
        learner.fit()
    assert learner.predict([0, 1, 2]).tolist() == list(NAMES)
    assert learner.evaluate(["it barks 99"], ["dog"]).accuracy == 1


def test_frames_are_learned_by_place() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, columns=list("abcd"), index=range(500, 560))
    for model in (network, LOGISTIC):
        assert taught(model, data=frame).ask(4).tolist() == taught(model).ask(4).tolist()


@pytest.mark.parametrize(
    "data",
    [
        torch.from_numpy(ROWS),
        ROWS.astype(np.float64),
        ROWS.tolist(),
        TensorDataset(torch.from_numpy(ROWS), torch.zeros(60)),
    ],
    ids=["tensor", "float64", "list", "dataset"],
)
def test_the_kind_of_data_changes_nothing(data: Any) -> None:
    learner, plain = taught(data=data), taught()
    assert learner.ask(6).tolist() == plain.ask(6).tolist()
    assert learner.predict().tolist() == plain.predict().tolist()


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.head(torch.cat([left, right], dim=1))


def test_data_of_several_parts_are_learned() -> None:
    parts = {"left": ROWS[:, :2], "right": torch.from_numpy(ROWS[:, 2:])}
    learner = taught(lambda seed: TwoInputs(), data=parts, validation=(parts, TRUTH))
    answer(learner)
    learner.fit()
    assert learner.predict().shape == (60,)
    with pytest.raises(InputError, match="not numbers"):
        make(data=parts, cold_start="seeding-l2").ask(3)


def test_a_head_can_be_named() -> None:
    class TwoHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.first(x) + self.second(x)

    with pytest.raises(
        InputError, match=r"None of the linear layers of TwoHeads \(first, second\)"
    ):
        taught(lambda seed: TwoHeads()).ask(3)
    assert len(taught(lambda seed: TwoHeads(), head="second").ask(3)) == 3


def test_validation_rows_choose_the_epoch() -> None:
    learner = make(
        training=TrainingConfig(epochs=8, batch_size=4, optimizer="sgd", learning_rate=0.5),
        validation=(ROWS, TRUTH),
    )
    learner.tell(range(12), TRUTH[:12])
    (job,) = learner.prepare_fit()
    assert job.validation is not None
    assert job.validation[1].tolist() == CLASSES.tolist()
    with_rows = taught(training=learner.training, validation=(ROWS, TRUTH))
    without = taught(training=learner.training)
    assert with_rows.evaluate(ROWS, TRUTH).accuracy >= without.evaluate(ROWS, TRUTH).accuracy
    assert not torch.equal(with_rows.models[0][-1].weight, without.models[0][-1].weight)
