"""What the base class does for every strategy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import teeter
from teeter.checks import example_context
from teeter.errors import InputError, MissingOutputError, StrategyError
from teeter.models.outputs import Outputs
from teeter.strategies import Context, Strategy, TopKStrategy, get


class Fixed(Strategy):
    """Picks the rows it is given."""

    needs = frozenset()

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def choose(self, context: Context, n: int) -> Tensor:
        return self.answer


def test_positions_become_rows() -> None:
    context = replace(example_context(3), candidates=np.array([70, 50, 60]))
    assert Fixed(torch.tensor([2, 0])).select(context, 2).tolist() == [60, 70]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (torch.tensor([0, 0]), "position 0 more than once"),
        (torch.tensor([0, 3]), "outside 0 to 2"),
        (torch.tensor([-1, 1]), "outside 0 to 2"),
        (torch.tensor([0]), "asked for 2"),
        (torch.tensor([0.0, 1.0]), "float32"),
    ],
)
def test_wrong_answers_are_refused(answer: Tensor, message: str) -> None:
    with pytest.raises(StrategyError, match=message):
        Fixed(answer).select(example_context(3), 2)


@pytest.mark.parametrize(
    ("n", "message"),
    [
        (61, "Cannot pick 61 of 60 candidates: ask for 1 to 60"),
        (0, "ask for 1 to 60"),
        (1.5, "whole number"),
        (True, "whole number"),
    ],
)
def test_wrong_requests_are_refused(n: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        get("random")().select(example_context(), n)


def test_numpy_counts_are_whole_numbers() -> None:
    assert len(get("random")().select(example_context(), np.int64(3))) == 3


def test_what_is_missing_is_named() -> None:
    context = replace(example_context(), outputs=Outputs(logits=torch.zeros(60, 4)))
    with pytest.raises(
        MissingOutputError,
        match="ldm-s needs features, the input of the last layer, but there are none",
    ):
        get("ldm-s")().select(context, 3)


def test_logits_follow_from_features_and_head() -> None:
    full = example_context()
    headless = replace(
        full, outputs=Outputs(features=full.features, weight=full.weight, bias=full.bias)
    )
    for name in ("entropy", "margin", "least-confidence"):
        assert (
            get(name)().select(headless, 9).tolist()
            == get(name)().select(example_context(), 9).tolist()
        )


def test_an_empty_pool_has_nothing_to_pick() -> None:
    context = replace(
        example_context(), candidates=np.arange(0), outputs=Outputs(logits=torch.zeros(0, 4))
    )
    with pytest.raises(InputError, match="empty pool"):
        get("random")().select(context, 1)


class Undefined(TopKStrategy):
    """Scores that are no numbers."""

    needs = frozenset({"features"})
    best = "largest"

    def score(self, context: Context) -> torch.Tensor:
        return context.features[:, 0] * torch.nan


def test_scores_that_are_no_numbers_are_refused() -> None:
    outputs = Outputs(features=np.ones((5, 2)))
    with pytest.raises(StrategyError, match="Undefined returned NaN for 5 of 5 rows"):
        teeter.select(Undefined(), outputs, 2)
    with pytest.raises(StrategyError, match="NaN"):
        teeter.scores(Undefined(), outputs)


class InNumPy(TopKStrategy):
    """Scores in an array, as scikit-learn returns them."""

    needs = frozenset({"features"})
    best = "largest"

    def score(self, context: Context) -> torch.Tensor:
        return context.features[:, 0].numpy()  # type: ignore[return-value]


def test_scores_in_an_array_are_refused() -> None:
    outputs = Outputs(features=np.ones((5, 2)))
    for use in (
        lambda: teeter.select(InNumPy(), outputs, 2),
        lambda: teeter.scores(InNumPy(), outputs),
    ):
        with pytest.raises(
            StrategyError, match="InNumPy returned its scores as a ndarray: return a t"
        ):
            use()


@pytest.mark.parametrize(
    "wrong", [{"needs": "features"}, {"best": "Largest"}, {"needs": frozenset({"tea"})}]
)
def test_a_strategy_that_is_declared_wrong_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(StrategyError):
        type("Wrong", (TopKStrategy,), wrong)


@pytest.mark.parametrize(
    ("name", "several", "message"),
    [
        ("bait", True, "bait picks rows that have one label each, .* use badge, coreset, "),
        ("mmc", False, r"mmc picks rows that may have several labels: pass Outputs\(..., several="),
    ],
)
def test_rows_of_another_number_of_labels_are_refused(
    name: str, several: bool, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        get(name)().select(example_context(several=several), 3)


def test_algorithm_1_is_for_rows_of_one_label() -> None:
    with pytest.raises(InputError, match="method='gaussian' is for rows that have one label each"):
        get("ldm")(method="gaussian").select(example_context(several=True), 3)


def test_an_unknown_number_of_labels_is_refused() -> None:
    with pytest.raises(StrategyError, match=r"Odd.labels_per_row is 'two'"):

        class Odd(Fixed):
            labels_per_row = "two"
