"""What a learner gives its strategy: as much as it needs, and never a label of a candidate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from torch import Generator, Tensor, nn

import teeter
from example_learners import (
    CLASSES,
    LOGISTIC,
    NAMES,
    ROWS,
    THOROUGH,
    TRUTH,
    Probe,
    Remembering,
    make_fitted_learner,
    make_learner,
    make_probe,
    network,
    with_both_models,
)
from teeter import Outputs, TrainingConfig
from teeter.errors import InputError, MissingOutputError
from teeter.strategies import Context


def test_asked_twice_it_answers_the_same_whatever_the_strategy_remembers() -> None:
    learner = make_fitted_learner(strategy=Remembering())
    first = learner.ask(4).tolist()
    assert learner.ask(4).tolist() == first
    learner.fit()
    assert learner.state.memory["starts"] == [0]
    assert learner.ask(4).tolist() != first


def test_a_part_of_the_pool_is_drawn_again_each_round() -> None:
    seen: list[list[int]] = []
    learner = make_learner(
        strategy=make_probe(lambda context: seen.append(context.candidates.tolist()), "logits"),
        pool_size=10,
    )

    learner.tell(range(12), TRUTH[:12])
    for _ in range(2):
        learner.fit()
        learner.ask(2)
        learner.ask(2)

    assert [len(set(rows)) for rows in seen] == [10] * 4
    assert seen[0] == seen[1] != seen[2] == seen[3]
    assert all(min(rows) >= 12 and rows == sorted(rows) for rows in seen)

    learner.ask(2, exclude=range(20, 60))
    assert seen[-1] == list(range(12, 20))


def test_classes_that_were_never_seen_do_not_trouble_a_vote() -> None:
    seen = [row for row in range(60) if CLASSES[row] != 0]
    learner = make_fitted_learner(
        LOGISTIC, make_probe(lambda context: None, "ensemble_logits"), rows=seen, members=3
    )
    judged = learner.evaluate(ROWS, TRUTH)
    assert judged.ensemble_accuracy is not None
    assert 0.5 < judged.ensemble_accuracy <= 2 / 3


def test_the_error_for_an_estimator_without_a_head_lists_what_it_can_use() -> None:
    with pytest.raises(
        MissingOutputError,
        match=r"ldm-s needs features, the input of the last layer, but .* none\.",
    ) as error:
        make_fitted_learner(GaussianNB()).ask(3)
    assert {"entropy", "margin", "random"} <= set(
        str(error.value).rstrip(".").replace(",", "").split()
    )


def count_models(learner_options: dict[str, Any]) -> int:
    seeds: list[int] = []
    make_fitted_learner(lambda seed: seeds.append(seed) or network(seed), **learner_options)
    return len(seeds)


def test_the_networks_of_an_ensemble_are_trained_only_for_a_strategy_that_needs_them() -> None:
    needing = make_probe(lambda context: None, "ensemble_logits")
    assert count_models({"strategy": "ldm-s", "members": 3}) == 1
    assert count_models({"strategy": needing, "members": 3}) == 3


@with_both_models
def test_an_ensemble_strategy_sees_networks_that_differ(model: Any) -> None:
    seen: list[Tensor] = []
    varied = model if model is network else SGDClassifier(loss="log_loss")

    learner = make_fitted_learner(
        varied,
        make_probe(lambda context: seen.append(context.posterior_logits), "ensemble_logits"),
        members=4,
    )
    learner.ask(3)

    assert seen[0].shape == (4, 48, 3)
    assert len({tuple(member.flatten().tolist()) for member in seen[0]}) == 4

    judged = learner.evaluate(ROWS, TRUTH)
    assert judged.ensemble_accuracy is not None
    first = teeter.observe(learner.models[0], ROWS).logits
    assert judged.accuracy == pytest.approx((first.argmax(dim=1).numpy() == CLASSES).mean())


def test_a_dropout_strategy_sees_as_many_passes_as_asked_for() -> None:
    seen: list[Tensor] = []
    strategy = make_probe(lambda context: seen.append(context.posterior_logits), "dropout_logits")
    still = TrainingConfig(epochs=1, learning_rate=1e-12)

    learner = make_fitted_learner(lambda seed: network(0), strategy, passes=7, training=still)
    learner.ask(3)
    learner.ask(3)
    learner.fit()
    learner.ask(3)

    assert [tuple(passes.shape) for passes in seen] == [(7, 48, 3)] * 3
    assert torch.equal(seen[0], seen[1])
    assert not torch.allclose(seen[0], seen[2], atol=1e-3), "each round drops units of its own"
    assert learner.evaluate(ROWS, TRUTH).ensemble_accuracy is None


def test_a_dropout_strategy_refuses_models_without_dropout() -> None:
    strategy = make_probe(lambda context: None, "dropout_logits")
    with pytest.raises(InputError, match="Linear has no dropout layer"):
        make_fitted_learner(lambda seed: nn.Linear(4, 3), strategy).ask(3)
    with pytest.raises(
        MissingOutputError,
        match="needs the logits of several dropout passes, which a network with dropout has",
    ):
        make_fitted_learner(LOGISTIC, strategy).ask(3)


@with_both_models
@pytest.mark.parametrize("unseen", [0, 1, 2])
def test_labels_line_up_with_the_outputs_of_the_labelled_rows(model: Any, unseen: int) -> None:
    looked: list[Context] = []
    learner = make_learner(
        model, make_probe(looked.append, "logits", "features", "labelled"), training=THOROUGH
    )
    rows = [row for row in range(30) if CLASSES[row] != unseen]
    learner.tell(rows[::-1], TRUTH[rows[::-1]])
    learner.fit()
    learner.ask(2)

    context = looked[0]
    assert context.labelled is not None
    assert context.labels is not None
    assert len(context.labelled) == len(context.labels) == len(rows)

    expected = teeter.observe(learner.models[0], ROWS[rows])
    torch.testing.assert_close(context.labelled.features, expected.features)
    assert int(context.labels.max()) < context.n_classes == context.outputs.n_classes
    right = (context.labelled.logits.argmax(dim=1) == context.labels).double().mean()
    assert right > 0.9


@with_both_models
def test_a_label_of_a_new_class_told_after_the_fit_does_not_confuse_the_columns(model: Any) -> None:
    looked: list[Context] = []
    first_rows = [row for row in range(30) if CLASSES[row] != 1]
    learner = make_fitted_learner(
        model, make_probe(looked.append, "logits", "labelled"), rows=first_rows
    )
    learner.tell([1, 3], ["dog", "cat"])
    learner.ask(2)

    labels = looked[0].labels
    assert labels is not None
    assert len(labels) == len(looked[0].labelled)
    assert int(labels.max()) < looked[0].labelled.n_classes

    columns = np.array(NAMES) if model is network else np.array(["cat", "owl"])
    answered_rows = [row for row in sorted({*first_rows, 1, 3}) if TRUTH[row] in columns]
    assert columns[labels].tolist() == TRUTH[answered_rows].tolist()


def leaves(value: Any, path: str = "context") -> Iterator[tuple[str, Any]]:
    """Everything that can be reached from a value, by name."""
    if is_dataclass(value):
        for part in fields(value):
            yield from leaves(getattr(value, part.name), f"{path}.{part.name}")
    elif isinstance(value, Outputs):
        for name, part in vars(value).items():
            yield from leaves(part, f"{path}.{name}")
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from leaves(part, f"{path}[{name!r}]")
    elif isinstance(value, list | tuple | set):
        for place, part in enumerate(value):
            yield from leaves(part, f"{path}[{place}]")
    else:
        yield path, value


@with_both_models
def test_a_strategy_is_never_handed_the_labels_of_candidates(model: Any) -> None:
    looked: list[Context] = []
    learner = make_fitted_learner(
        model, make_probe(looked.append, "logits", "features", "head", "labelled")
    )
    learner.ask(3)

    reachable = dict(leaves(looked[0]))
    for value in reachable.values():
        assert value is None or isinstance(value, bool | int | Tensor | np.ndarray | Generator)

    vectors = {
        path: value.tolist()
        for path, value in reachable.items()
        if isinstance(value, Tensor | np.ndarray) and value.ndim == 1 and "bias" not in path
    }

    assert vectors == {
        "context.candidates": list(range(12, 60)),
        "context.labels": CLASSES[:12].tolist(),
    }
    assert len(looked[0].labelled) == 12


def test_what_the_strategy_noted_is_kept_by_row() -> None:
    class Noting(Probe):
        def choose(self, context: Context, n: int) -> Tensor:
            context.notes["row"] = torch.from_numpy(context.candidates).double()
            return torch.arange(n).flip(0)

    learner = make_fitted_learner(strategy=Noting())
    rows = learner.ask(3)
    assert learner.state.notes == {row: {"row": float(row)} for row in rows.tolist()}


@pytest.mark.parametrize("name", ["probcover", "typiclust"])
def test_strategies_that_only_use_labelled_rows_are_given_them(name: str) -> None:
    seen: list[Context] = []
    strategy_class = teeter.strategies.get(name)

    class Watched(strategy_class):
        def choose(self, context: Context, n: int) -> Tensor:
            seen.append(context)
            return strategy_class().choose(context, n)

    rows = np.random.default_rng(0).normal(size=(60, 4))
    learner = teeter.Learner(LogisticRegression(), rows, Watched(), classes=2)
    learner.tell(range(10), [0, 1] * 5)
    learner.fit()
    learner.ask(3)
    assert seen[0].labelled is not None
    assert len(seen[0].labelled) == 10
    assert seen[0].labels is not None


def test_a_cold_start_knows_the_number_of_classes() -> None:
    rows = np.random.default_rng(0).normal(size=(60, 4))
    learner = teeter.Learner(LogisticRegression(), rows, classes=3, cold_start="probcover")
    assert len(set(learner.ask(5).tolist())) == 5
