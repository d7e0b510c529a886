"""A learner of data of every usual type."""

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
    answer_batch,
    make_fitted_learner,
    make_learner,
    network,
)
from teeter import Outputs, TrainingConfig
from teeter.errors import InputError, MissingOutputError
from teeter.learner.rounds import prepare_fit
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
    learner = make_learner(data=data, cold_start="seeding-l2", seed=3)
    context = Context(
        candidates=np.arange(60),
        outputs=Outputs(features=ROWS),
        generator=teeter.base.seeds.stream(3, "select", 0),
    )
    assert (
        learner.ask(6).tolist() == teeter.strategies.get("seeding-l2")().select(context, 6).tolist()
    )
    assert learner.ask(6).tolist() != make_learner(data=data, seed=3).ask(6).tolist()


def test_words_have_no_features_for_a_cold_start() -> None:
    with pytest.raises(
        InputError, match="cannot use them as features: choose the cold start random"
    ):
        make_learner(data=["a"] * 9, cold_start="seeding-l2").ask(3)


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
        make_fitted_learner(LogisticRegression(), data=data)


def test_rows_that_an_estimator_cannot_predict_are_explained() -> None:
    learner = make_fitted_learner(LOGISTIC, data=MISSING, rows=[0, 1, 2, 4, 5, 6, 7, 8])
    assert len(learner.predict(rows=[0, 1, 2])) == 3

    for rows, message in (([3], "1 of 1 rows"), (None, "3 of 60 rows")):
        with pytest.raises(
            InputError,
            match=f"{message} contain missing or infinite values, which LogisticRegression",
        ):
            learner.predict(rows=rows)

    with pytest.raises(InputError, match="3 of 52 rows contain missing"):
        learner.ask(3)

    with pytest.raises(InputError, match="The data contain 'red'"):
        learner.evaluate(MIXED, TRUTH)


def test_an_error_that_the_rows_do_not_explain_is_passed_on() -> None:
    class BrokenEstimator(LogisticRegression):
        def fit(self, rows: Any, labels: Any) -> Any:
            raise ValueError("not today")

    with pytest.raises(ValueError, match="not today"):
        make_fitted_learner(BrokenEstimator())


def test_missing_values_are_left_to_an_estimator_that_takes_them() -> None:
    learner = make_fitted_learner(
        HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=2), "margin", data=MISSING
    )
    assert len(learner.ask(3)) == 3


def test_text_is_learned_through_a_pipeline() -> None:
    animals = {"cat": "purrs sleeps", "dog": "barks runs", "owl": "hoots flies"}
    texts = [f"it {animals[name]} {k % 7}" for k, name in enumerate(TRUTH)]
    model = make_pipeline(TfidfVectorizer(), LogisticRegression())
    learner = make_learner(model, data=texts, validation=(texts[:3], NAMES))
    for _ in range(3):
        answer_batch(learner, 6)
        learner.fit()
    assert learner.predict(rows=[0, 1, 2]).tolist() == list(NAMES)
    assert learner.evaluate(["it barks 99"], ["dog"]).accuracy == 1


def test_frames_are_learned_by_place() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(ROWS, columns=list("abcd"), index=range(500, 560))
    for model in (network, LOGISTIC):
        assert (
            make_fitted_learner(model, data=frame).ask(4).tolist()
            == make_fitted_learner(model).ask(4).tolist()
        )


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
    learner = make_fitted_learner(data=data)
    plain = make_fitted_learner()
    assert learner.ask(6).tolist() == plain.ask(6).tolist()
    assert learner.predict().tolist() == plain.predict().tolist()


@pytest.mark.parametrize("pool", [ROWS, torch.from_numpy(ROWS), ROWS.tolist()])
@pytest.mark.parametrize("form", [np.asarray, torch.tensor, list])
def test_whole_numbers_are_floats_for_a_network_that_learned_floats(pool: Any, form: Any) -> None:
    learner = make_fitted_learner(data=pool)
    numbers = [[1, 2, 3, 0], [0, 1, 0, 5]]
    expected = learner.predict_proba(np.asarray(numbers, dtype=np.float32))
    assert np.array_equal(learner.predict_proba(form(numbers)), expected)


class TwoInputsModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.head(torch.cat([left, right], dim=1))


def test_data_of_several_parts_are_learned() -> None:
    parts = {"left": ROWS[:, :2], "right": torch.from_numpy(ROWS[:, 2:])}
    learner = make_fitted_learner(
        lambda seed: TwoInputsModule(), data=parts, validation=(parts, TRUTH)
    )
    answer_batch(learner)
    learner.fit()
    assert learner.predict().shape == (60,)
    with pytest.raises(InputError, match="not numbers"):
        make_learner(data=parts, cold_start="seeding-l2").ask(3)


def test_a_network_without_a_linear_end_serves_strategies_that_need_logits() -> None:
    class TwoHeadsModule(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 3)
            self.second = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.first(x) + self.second(x)

    with pytest.raises(MissingOutputError, match=r"ldm-s needs features.*you can use .*entropy"):
        make_fitted_learner(lambda seed: TwoHeadsModule()).ask(3)
    assert len(make_fitted_learner(lambda seed: TwoHeadsModule(), "entropy").ask(3)) == 3
    with pytest.raises(InputError, match="does not return the output of its layer 'second'"):
        make_fitted_learner(lambda seed: TwoHeadsModule(), head="second").ask(3)


def test_a_head_can_be_named() -> None:
    last_layer = str(len(network(0)) - 1)
    picks = make_fitted_learner(head=last_layer).ask(3)
    assert picks.tolist() == make_fitted_learner().ask(3).tolist()


def test_validation_rows_choose_the_epoch() -> None:
    learner = make_learner(
        training=TrainingConfig(epochs=8, batch_size=4, optimizer="sgd", learning_rate=0.5),
        validation=(ROWS, TRUTH),
    )
    learner.tell(range(12), TRUTH[:12])

    (job,) = prepare_fit(learner)
    assert job.validation is not None
    assert job.validation[1].tolist() == CLASSES.tolist()

    with_rows = make_fitted_learner(training=learner.training, validation=(ROWS, TRUTH))
    without = make_fitted_learner(training=learner.training)
    assert with_rows.evaluate(ROWS, TRUTH).accuracy >= without.evaluate(ROWS, TRUTH).accuracy
    assert not torch.equal(with_rows.models[0][-1].weight, without.models[0][-1].weight)
