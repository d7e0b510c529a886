"""The learner: which rows it asks about, which labels it gets, and what it learns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from example_learners import (
    CLASSES,
    LOGISTIC,
    NAMES,
    ROWS,
    THOROUGH,
    TRUTH,
    answer_batch,
    make_fitted_learner,
    make_learner,
    network,
    with_both_models,
)
from teeter import Learner, TrainingConfig
from teeter.errors import InputError, MissingOutputError, TrainingError, UnknownNameError
from teeter.learner.rounds import fit_learners, resume
from teeter.models.networks import mlp


@with_both_models
def test_a_learner_learns_by_asking(model: Any) -> None:
    learner = make_learner(model, training=THOROUGH)
    for _ in range(5):
        answer_batch(learner, 6)
        learner.fit()
    assert learner.rounds == 5
    assert len(learner.pool.labelled) == 30
    assert learner.evaluate(ROWS, TRUTH).accuracy > 0.8
    assert (learner.predict() == TRUTH).mean() > 0.8
    learner.ask(1)
    assert set(learner.history[-1].seconds) == {
        "training",
        "validation",
        "evaluation",
        "outputs",
        "selection",
    }


@with_both_models
@pytest.mark.parametrize("strategy", ["ldm-s", "entropy", "random", "seeding-cosine"])
def test_only_rows_without_a_label_are_asked_about_and_each_once(model: Any, strategy: str) -> None:
    learner = make_learner(model, strategy)
    asked: list[int] = []
    for _ in range(6):
        asked += answer_batch(learner, 10)
        learner.fit()
    assert sorted(asked) == list(range(60))
    with pytest.raises(InputError, match="No rows are left to ask about: 60 of 60 are labelled"):
        learner.ask(1)


@with_both_models
def test_asked_twice_it_answers_the_same(model: Any) -> None:
    learner = make_fitted_learner(model)
    assert learner.ask(5).tolist() == learner.ask(5).tolist()
    cold = make_learner(model)
    assert cold.ask(5).tolist() == cold.ask(5).tolist()


class Scaled(nn.Module):
    """A linear head with a constant factor, or another function, after it."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.head = nn.Linear(ROWS.shape[1], 3)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.head(x))


@pytest.mark.parametrize("scale", [30, 100])
def test_predictions_and_loss_are_those_of_the_module_with_its_scale(scale: int) -> None:
    learner = make_fitted_learner(lambda seed: Scaled(lambda z: scale * z))
    with torch.no_grad():
        logits = learner.models[0](torch.as_tensor(ROWS, dtype=torch.float32)).double()
    np.testing.assert_allclose(learner.predict_proba(), logits.softmax(dim=1), atol=1e-4)
    classes = torch.tensor([NAMES.index(name) for name in TRUTH])
    expected = nn.functional.cross_entropy(logits, classes)
    assert learner.evaluate(ROWS, TRUTH).loss == pytest.approx(float(expected), rel=1e-3)


@pytest.mark.parametrize("strategy", ["coreset", "typiclust", "seeding-l2"])
def test_a_strategy_of_features_works_though_the_last_layer_is_no_head(strategy: str) -> None:
    learner = make_fitted_learner(lambda seed: Scaled(torch.tanh), strategy)
    assert len(learner.ask(4)) == 4


def test_a_strategy_of_a_head_refuses_a_last_layer_that_is_none() -> None:
    learner = make_fitted_learner(lambda seed: Scaled(torch.tanh), "ldm-s")
    with pytest.raises(MissingOutputError, match="ldm-s needs features, the input of the last l"):
        learner.ask(4)


@with_both_models
def test_another_seed_asks_about_other_rows(model: Any) -> None:
    picks = {tuple(make_fitted_learner(model, seed=seed).ask(8).tolist()) for seed in range(3)}
    assert len(picks) == 3
    assert (
        make_fitted_learner(model, seed=np.int64(1)).ask(8).tolist()
        == make_fitted_learner(model, seed=1).ask(8).tolist()
    )


def test_the_global_stream_neither_matters_nor_moves() -> None:
    def make_unseeded(seed: int) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 3))

    before = torch.get_rng_state()
    first = make_fitted_learner(make_unseeded).ask(8).tolist()
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    assert make_fitted_learner(make_unseeded).ask(8).tolist() == first
    assert make_fitted_learner(make_unseeded, seed=1).ask(8).tolist() != first


def test_before_any_label_rows_are_drawn_at_random() -> None:
    asked = make_learner().ask(30)
    assert len(set(asked.tolist())) == 30
    assert (
        asked.tolist()
        == make_learner(strategy="margin").ask(30).tolist()
        == make_learner(strategy="random").ask(30).tolist()
    )


def test_a_cold_start_that_needs_a_model_is_refused() -> None:
    with pytest.raises(
        MissingOutputError, match=r"margin needs logits, but there are none.*random"
    ):
        make_learner(cold_start="margin").ask(3)


def test_labels_without_a_fit_are_not_passed_over() -> None:
    learner = make_learner()
    learner.tell([1, 2], ["cat", "dog"])
    with pytest.raises(
        InputError, match="There are 2 labels but no model yet: call fit before ask"
    ):
        learner.ask(3)
    patient = make_learner(strategy="random")
    patient.tell([1, 2], ["cat", "dog"])
    assert len(patient.ask(3)) == 3


@pytest.mark.parametrize("call", [Learner.predict, lambda learner: learner.evaluate(ROWS, TRUTH)])
def test_without_a_model_nothing_is_predicted(call: Any) -> None:
    with pytest.raises(
        InputError,
        match="There is no model yet: call tell with labels of at least two classes, then fit",
    ):
        call(make_learner())


def test_without_labels_there_is_nothing_to_fit() -> None:
    with pytest.raises(
        InputError, match="There is nothing to fit: call tell with some labels first"
    ):
        make_learner().fit()


@pytest.mark.parametrize(
    "exclude", [range(12, 50), set(range(12, 50)), np.arange(12, 50), iter(range(12, 50))]
)
def test_excluded_rows_are_passed_over(exclude: Any) -> None:
    assert sorted(make_fitted_learner().ask(10, exclude=exclude).tolist()) == list(range(50, 60))


@pytest.mark.parametrize(
    ("exclude", "message"),
    [
        ([60], "The pool has no row 60: its rows are 0 to 59"),
        ([-1], "The pool has no row -1"),
        ([1.5], "Rows must be whole numbers, but these are float64"),
        (np.zeros(60, dtype=bool), "Rows must be whole numbers, but these are bool"),
    ],
)
def test_what_cannot_be_excluded_is_refused(exclude: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_learner().ask(3, exclude=exclude)


def test_more_than_there_is_cannot_be_asked_for() -> None:
    with pytest.raises(InputError, match="Cannot pick 49 of 48 candidates: ask for 1 to 48"):
        make_fitted_learner().ask(49)
    with pytest.raises(InputError, match="Cannot pick 3 of 2 candidates"):
        make_fitted_learner(pool_size=2).ask(3)


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        ([3, 5], ["owl", "cat"]),
        (np.array([3, 5]), np.array(["owl", "cat"])),
        (torch.tensor([3, 5]), ("owl", "cat")),
        ({3: 0, 5: 0}.keys(), {3: "owl", 5: "cat"}.values()),
        ((row for row in (3, 5)), (name for name in ("owl", "cat"))),
    ],
    ids=["lists", "arrays", "a tensor", "views", "generators"],
)
def test_labels_are_told_in_any_kind_of_list(rows: Any, labels: Any) -> None:
    learner = make_learner()
    learner.tell(rows, labels)
    assert learner.pool.labelled.tolist() == [3, 5]
    assert learner.pool.labels.tolist() == [2, 0]


def test_one_row_may_be_told_alone() -> None:
    learner = make_learner()
    learner.tell(7, "owl")
    learner.tell(np.int64(8), np.str_("dog"))
    learner.tell(torch.tensor(9), "cat")
    assert learner.pool.labels.tolist() == [2, 1, 0]
    numbered = make_learner(classes=3)
    numbered.tell(torch.arange(3), torch.tensor([2, 0, 1]))
    assert numbered.pool.labels.tolist() == [2, 0, 1]


def test_a_wrong_label_is_named_with_its_argument_and_row() -> None:
    learner = make_learner(classes=3)
    with pytest.raises(
        InputError, match=r"labels\[1\] for row 7: No class is called 4\. Known: 0, 1, 2\."
    ):
        learner.tell([5, 7], [0, 4])


def test_an_estimator_that_is_no_classifier_is_refused_at_once() -> None:
    for model in (Ridge(), make_pipeline(StandardScaler(), Ridge())):
        with pytest.raises(InputError, match=" is not a classifier, but teeter needs one"):
            make_learner(model)


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "rmsprop"])
@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("build_network", [network, lambda seed: Scaled(lambda z: 2 * z)])
def test_training_that_diverges_says_so_at_once(
    build_network: Any, epochs: int, optimizer: Any
) -> None:
    training = TrainingConfig(optimizer=optimizer, learning_rate=1e10, epochs=epochs, batch_size=64)
    learner = make_learner(build_network, training=training)
    learner.tell(range(30), TRUTH[:30])
    with pytest.raises(TrainingError, match=r"The loss .* learning rate from 10000000000"):
        learner.fit()
    assert learner.models == []


def test_telling_again_changes_the_label() -> None:
    learner = make_learner()
    learner.tell([3, 4], ["owl", "cat"])
    learner.tell([4], ["dog"])
    assert learner.pool.labels.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        ([1], ["dgo"], r"No class is called 'dgo'\. Did you mean 'dog'\?"),
        ([1], ["zebra"], r"No class is called 'zebra'\. Known: cat, dog, owl"),
        ([1], [0], r"No class is called 0"),
        ([1], [None], "No class is called None"),
        ([1], [True], "No class is called True"),
        ([1, 2], np.eye(2), "No class is called array"),
        ([1], [["cat"]], r"No class is called \['cat'\]"),
        ([1, 2], ["cat"], "There are 2 rows and 1 labels: give one label per row"),
        ([1], "cats", "Did you mean 'cat'"),
        # Its column names are classes, but not the labels of the rows.
        ([1, 2], pyarrow.table({"cat": [1, 0], "dog": [0, 1]}), "This is a Table: give one column"),
        ([1, 2, 1], ["cat", "cat", "dog"], "A row occurs twice in this call"),
        ([60], ["cat"], "The pool has no row 60: its rows are 0 to 59"),
        ([-1], ["cat"], "The pool has no row -1"),
        ([1.0], ["cat"], "Rows must be whole numbers, but these are float64"),
        (["1"], ["cat"], "Rows must be whole numbers, but these are texts"),
        ([True], ["cat"], "Rows must be whole numbers, but these are bool"),
        ([[1, 2]], ["cat"], "Rows must be a list of whole numbers"),
    ],
)
def test_what_cannot_be_told_is_refused_and_nothing_is_recorded(
    rows: Any, labels: Any, message: str
) -> None:
    learner = make_learner()
    with pytest.raises(InputError, match=message):
        learner.tell(rows, labels)
    assert len(learner.pool.labelled) == 0


def test_one_class_alone_trains_a_network() -> None:
    learner = make_fitted_learner(rows=range(0, 12, 3), training=THOROUGH)
    assert len(learner.models) == 1
    assert set(learner.predict()) == {"cat"}
    assert len(answer_batch(learner)) == 5


def test_one_class_alone_leaves_an_estimator_to_the_cold_start_until_there_are_two(
    caplog: Any,
) -> None:
    caplog.set_level("INFO", "teeter")
    learner = make_fitted_learner(LOGISTIC, rows=range(0, 12, 3), cold_start="seeding-cosine")

    assert learner.models == []
    (record,) = [record for record in caplog.records if "Only one class" in record.message]
    assert record.levelname == "WARNING"
    assert record.message == (
        "Only one class is labelled, so no model was trained: seeding-cosine picks rows until "
        "there are two."
    )

    with pytest.raises(InputError, match="There is no model yet"):
        learner.predict()

    answer_batch(learner, 9)
    answer_batch(learner, 1)
    learner.fit()
    assert len(learner.models) == 1
    assert len(learner.ask(3)) == 3

    learner.tell(learner.pool.labelled, ["cat"] * 14)
    learner.fit()
    assert learner.models == []
    assert len(learner.ask(3)) == 3


@with_both_models
def test_a_class_that_was_never_seen_is_never_predicted_and_costs_accuracy(model: Any) -> None:
    seen = [row for row in range(60) if CLASSES[row] != 1]
    learner = make_fitted_learner(model, rows=seen, training=THOROUGH)
    assert set(learner.predict()) == {"cat", "owl"}
    assert learner.predict(rows=[0, 2]).tolist() == ["cat", "owl"]
    judged = learner.evaluate(ROWS, TRUTH)
    assert 0.5 < judged.accuracy <= 2 / 3
    assert np.isfinite(judged.loss)
    assert judged.rows == 60
    assert sorted(learner.ask(20).tolist()) == list(range(1, 60, 3))


@pytest.mark.parametrize(
    "classes",
    [NAMES, 3, (0.5, 1.5, 2.5), (True, False, "unsure"), np.array(["x", "y", "z"]), range(3)],
)
@with_both_models
def test_what_is_predicted_can_be_told(model: Any, classes: Any) -> None:
    learner = make_learner(model, classes=classes, training=THOROUGH)
    names = list(learner.classes)
    learner.tell(range(30), [names[k] for k in CLASSES[:30]])
    learner.fit()
    predicted = learner.predict(rows=[0, 4, 8])
    assert predicted.tolist() == names
    learner.tell([0, 4, 8], predicted)
    assert learner.evaluate(ROWS[:30], [names[k] for k in CLASSES[:30]]).accuracy > 0.9


@pytest.mark.parametrize(
    ("classes", "label", "message"),
    [
        (3, "2", "No class is called '2', a text: the class is 2, a number"),
        (["1", "2"], 2, "No class is called 2, a number: the class is '2', a text"),
        ([True, False], "True", "No class is called 'True', a text: the class is True, a boolean"),
    ],
)
def test_the_error_for_a_label_of_another_type_names_the_class(
    classes: Any, label: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        make_learner(classes=classes).tell([1], [label])


@with_both_models
def test_new_data_is_predicted_like_rows_of_the_pool(model: Any) -> None:
    learner = make_fitted_learner(model, training=THOROUGH)
    rows = np.array([5, 40, 7])

    expected = learner.predict(rows=rows).tolist()
    assert learner.predict(ROWS[rows]).tolist() == expected
    probabilities = learner.predict_proba(ROWS[rows])
    np.testing.assert_allclose(probabilities, learner.predict_proba(rows=rows), atol=1e-6)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert np.array(NAMES)[probabilities.argmax(axis=1)].tolist() == expected
    assert learner.predict_proba().shape == (60, 3)

    by_rows = learner.evaluate(rows=rows, labels=TRUTH[rows])
    assert by_rows.accuracy == learner.evaluate(ROWS[rows], TRUTH[rows]).accuracy
    assert by_rows.rows == 3


def test_one_row_is_predicted_alone() -> None:
    learner = make_fitted_learner(LOGISTIC)
    expected = [learner.predict()[5]]
    assert learner.predict(rows=5).tolist() == learner.predict(rows=[5]).tolist() == expected
    with pytest.raises(InputError, match="The pool has no row 99"):
        learner.predict(rows=[99])


class ByNumber(ClassifierMixin, BaseEstimator):
    """A classifier of whole numbers: class 1 from 100 on."""

    def fit(self, X: Any, y: Any) -> ByNumber:
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X: Any) -> Any:
        is_large = np.asarray(X, dtype=float) >= 100
        return np.stack([~is_large, is_large], axis=1).astype(float)

    def predict(self, X: Any) -> Any:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def test_whole_numbers_are_data_of_a_pool_of_whole_numbers() -> None:
    pool = np.arange(98, 110)
    learner = Learner(ByNumber(), pool, "random", classes=2)
    learner.tell([0, 11], [0, 1])
    learner.fit()
    assert learner.predict(np.array([3, 5])).tolist() == [0, 0]
    assert learner.predict(rows=np.array([3, 5])).tolist() == [1, 1]
    assert learner.evaluate(np.array([3, 5]), [0, 0]).accuracy == 1


@pytest.mark.parametrize("numbers", [5, [3, 5], np.array([3, 5]), range(2)])
def test_row_numbers_where_data_are_expected_are_refused(numbers: Any) -> None:
    learner = make_fitted_learner(LOGISTIC)
    for use in (learner.predict, learner.predict_proba, lambda data: learner.evaluate(data, NAMES)):
        with pytest.raises(InputError, match=r"The data are whole numbers, but .* give rows="):
            use(numbers)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1, 2]], r"Rows must be a list of whole numbers, but these have the shape \(1, 2\)"),
        ([], "Cannot predict the classes of 0 rows: give at least one row number"),
    ],
)
def test_rows_that_are_no_list_of_numbers_are_refused(rows: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_fitted_learner(LOGISTIC).predict(rows=rows)


def test_data_and_rows_exclude_each_other() -> None:
    learner = make_fitted_learner(LOGISTIC)
    with pytest.raises(InputError, match="Both data and rows are given: give one of them"):
        learner.predict(ROWS, rows=[1])
    with pytest.raises(InputError, match="without labels: give one label per row"):
        learner.evaluate(ROWS)


@pytest.mark.parametrize(
    ("data", "labels", "message"),
    [
        (ROWS, TRUTH[:9], "There are 60 rows and 9 labels: give one label per row"),
        (ROWS[:0], [], "Cannot evaluate a model on 0 rows"),
        (ROWS[:1], ["oowl"], "Did you mean 'owl'"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(data: Any, labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_fitted_learner().evaluate(data, labels)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": ["cat"]}, r"The classes are \['cat'\]: give two or more different names"),
        ({"classes": 1}, r"The classes are \[0\]"),
        ({"classes": "cat,dog,owl"}, "The classes are the string 'cat,dog,owl': give a list"),
        ({"classes": ["cat", "cat", "dog"]}, "two or more different names"),
        ({"strategy": "lmd-s"}, r"No strategy is called 'lmd-s'\. Did you mean 'ldm-s'"),
        ({"cold_start": "randon"}, "Did you mean 'random'"),
        ({"validation": (ROWS, TRUTH[:3])}, "There are 60 validation rows and 3 labels"),
        ({"validation": (ROWS[:0], [])}, "There are 0 validation rows and 0 labels"),
        ({"validation": (ROWS[:1], ["bird"])}, "No class is called 'bird'"),
        ({"data": 3}, "Cannot count the rows of an object of type int"),
        (
            {"data": DataLoader(TensorDataset(torch.from_numpy(ROWS)))},
            "The pool is a data loader.*pass its dataset",
        ),
        ({"pool_size": 0}, "pool_size is 0: it must be 1 or more"),
        ({"members": 1}, "members is 1: it must be 2 or more"),
        ({"passes": 0}, "passes is 0: it must be 1 or more"),
        ({"batch_size": 0}, "batch_size is 0: it must be 1 or more"),
        ({"seed": 1.5}, "seed is 1.5: it must be a whole number"),
        ({"device": "abacus"}, "No device is called 'abacus'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_learner(**options)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            network(0),
            "model is a Sequential: give a function that takes a seed and returns a new model",
        ),
        (None, "model is a NoneType"),
        (
            RandomForestClassifier,
            r"model is the class RandomForestClassifier: give an instance, Ra.*\(\.\.\.\)",
        ),
        (
            lambda seed: None,
            "model returned a NoneType: return a torch module or a scikit-learn classifier",
        ),
        (lambda seed: 3, "model returned a int"),
    ],
)
def test_what_makes_no_model_is_refused(model: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_fitted_learner(model)


def test_a_network_with_too_few_or_too_many_classes_is_refused() -> None:
    with pytest.raises(TrainingError, match="returns 2 classes, but the labels have 3"):
        make_fitted_learner(lambda seed: mlp(4, 2))
    learner = make_fitted_learner(lambda seed: mlp(4, 5))
    with pytest.raises(InputError, match="The network has 5 outputs, but there are 3 classes"):
        learner.predict()


def test_a_failed_fit_leaves_the_last_model_and_round() -> None:
    learner = make_fitted_learner()
    before = learner.predict().tolist(), learner.ask(5).tolist()
    learner.tell([40], ["dog"])
    learner.training = TrainingConfig(optimizer="sgd", learning_rate=1e18, epochs=20)
    with pytest.raises(TrainingError, match="The loss became"):
        learner.fit()
    assert learner.rounds == 1
    assert learner.history[-1].rows.tolist() == list(range(12))
    assert learner.predict().tolist() == before[0]
    learner.pool = make_fitted_learner().pool
    assert learner.ask(5).tolist() == before[1]


def test_the_history_has_a_record_of_each_fit() -> None:
    learner = make_learner()
    assert learner.history == []
    assert repr(learner) == "<Learner: ldm-s, 0 of 60 rows labelled, 0 rounds>"
    for rows in (range(12), range(12, 20)):
        learner.tell(rows, TRUTH[rows.start : rows.stop])
        learner.fit()
        picks = learner.ask(3)
        accuracy = learner.evaluate(ROWS, TRUTH).accuracy

    assert [record.round for record in learner.history] == [1, 2]
    assert [len(record.rows) for record in learner.history] == [12, 20]
    last = learner.history[-1]
    assert last.picks is not None
    assert last.picks.tolist() == picks.tolist()
    assert last.accuracy == accuracy
    assert repr(learner) == "<Learner: ldm-s, 20 of 60 rows labelled, 2 rounds>"


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_the_history_is_a_data_frame_too(kind: str) -> None:
    pytest.importorskip(kind)
    learner = make_learner(seed=7)
    assert len(learner.to_frame(kind)) == 0
    for rows in (range(12), range(12, 20)):
        learner.tell(rows, TRUTH[rows.start : rows.stop])
        learner.fit()
    evaluation = learner.evaluate(ROWS, TRUTH)

    frame = learner.to_frame(kind)
    assert type(frame).__module__.startswith(kind)
    assert list(frame.columns)[:6] == ["strategy", "seed", "round", "labels", "accuracy", "loss"]
    assert list(frame["seed"]) == [7, 7]
    assert list(frame["round"]) == [0, 1]
    assert list(frame["labels"]) == [12, 20]
    assert list(frame["accuracy"])[1] == evaluation.accuracy
    assert min(frame["training_seconds"]) > 0
    first_loss, last_loss = frame["loss"]
    assert first_loss is None or np.isnan(first_loss)
    assert last_loss == evaluation.loss
    with pytest.raises(UnknownNameError, match="No kind of data frame is called 'arrow'"):
        learner.to_frame("arrow")


def test_options_of_the_strategy_are_given_as_everywhere() -> None:
    learner = make_learner(strategy="ldm-s", options={"rays": 32})
    assert learner.strategy.rays == 32  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="ldm-s has no option 'ray'"):
        make_learner(strategy="ldm-s", options={"ray": 32})
    with pytest.raises(InputError, match="ldm-s is already an instance"):
        make_learner(strategy=learner.strategy, options={"rays": 32})


def test_asking_with_new_labels_and_the_old_model_is_logged_once_a_round(
    caplog: pytest.LogCaptureFixture,
) -> None:
    learner = make_fitted_learner()
    learner.ask(3)
    assert not caplog.messages
    for row in (40, 41):
        learner.tell([row], TRUTH[[row]])
        learner.ask(3)
    assert caplog.messages == [
        "1 labels were told since the last fit, and the picks do not depend on them: call fit "
        "before ask."
    ]

    learner.fit()
    learner.ask(3)
    assert len(caplog.messages) == 1


def test_no_model_is_old_for_a_strategy_that_needs_none(caplog: pytest.LogCaptureFixture) -> None:
    learner = make_fitted_learner(strategy="random")
    learner.tell([40], TRUTH[[40]])
    learner.ask(3)
    assert not caplog.messages


def test_a_warm_start_continues_from_the_last_weights() -> None:
    def weights(learner: Learner) -> Tensor:
        return nn.utils.parameters_to_vector(learner.models[0].parameters()).detach()

    # A rate at which nothing moves: what a fit begins with is what it ends with.
    still = TrainingConfig(epochs=1, optimizer="sgd", learning_rate=1e-12)
    moved = TrainingConfig(epochs=5, learning_rate=0.01)
    for warm_start in (True, False):
        learner = make_fitted_learner(training=moved)
        before = weights(learner)
        learner.training = replace(still, warm_start=warm_start)
        learner.tell([40], TRUTH[[40]])
        learner.fit()
        assert torch.allclose(weights(learner), before, atol=1e-9) == warm_start


def test_every_member_of_an_ensemble_continues_from_its_own_weights() -> None:
    still = TrainingConfig(epochs=1, optimizer="sgd", learning_rate=1e-12, warm_start=True)
    learner = make_fitted_learner(strategy="ensemble", members=3)
    before = [member.state_dict()["1.weight"].clone() for member in learner.models]
    learner.training = still
    learner.fit()
    after = [member.state_dict()["1.weight"] for member in learner.models]
    for weight_before, weight_after in zip(before, after, strict=True):
        torch.testing.assert_close(weight_before, weight_after, rtol=0, atol=1e-9)
    assert not torch.allclose(after[0], after[1])


def test_learners_are_fitted_together_and_one_that_fails_leaves_the_others_be() -> None:
    learners = [
        make_learner(seed=0),
        make_learner(seed=1),
        make_learner(seed=2),
        make_learner(LOGISTIC),
    ]
    for learner in (learners[0], learners[2], learners[3]):
        learner.tell(range(12), TRUTH[:12])

    errors = fit_learners(learners)

    assert list(errors) == [1]
    assert "There is nothing to fit" in str(errors[1])
    assert [learner.rounds for learner in learners] == [1, 0, 1, 1]
    assert learners[2].predict().tolist() == make_fitted_learner(seed=2).predict().tolist()


@pytest.mark.parametrize("name", ["models", "rounds", "history"])
def test_the_state_of_a_learner_is_only_read(name: str) -> None:
    learner = make_fitted_learner()
    with pytest.raises(AttributeError):
        setattr(learner, name, None)
    learner.models.clear()
    assert len(learner.models) == 1


def test_a_learner_resumes_with_models_of_an_earlier_one() -> None:
    learner = make_fitted_learner()
    learner.fit()
    again = make_learner()
    again.tell(range(12), TRUTH[:12])
    resume(again, 2, {}, models=learner.models)
    assert again.predict().tolist() == learner.predict().tolist()
    assert again.ask(5).tolist() == learner.ask(5).tolist()


def test_every_fit_starts_from_a_new_model_of_another_seed() -> None:
    seeds: list[int] = []
    learner = make_learner(lambda seed: seeds.append(seed) or network(seed))
    learner.tell(range(12), TRUTH[:12])
    learner.fit()
    first = learner.models[0]
    learner.fit()
    assert len(set(seeds)) == 2
    assert learner.models[0] is not first


def test_an_estimator_is_cloned_and_its_seeds_are_set() -> None:
    forest = make_pipeline(StandardScaler(), RandomForestClassifier(5))
    first, same, other = (make_fitted_learner(forest, "margin", seed=seed) for seed in (0, 0, 1))
    states = [learner.models[0][-1].random_state for learner in (first, same, other)]
    assert states[0] == states[1] != states[2]
    assert not hasattr(forest, "classes_")
    assert forest[-1].random_state is None
    assert first.ask(4).tolist() == same.ask(4).tolist()
