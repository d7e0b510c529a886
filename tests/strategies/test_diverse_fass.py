"""FASS and LDM-FASS: the filter, and what represents what it lets through."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import teeter
from reference import facility_location as literal
from teeter.checks import example_context
from teeter.errors import InputError
from teeter.models.outputs import Outputs
from teeter.strategies import get

NAMES = ["fass", "ldm-fass"]


def most_uncertain(name: str, outputs: teeter.Outputs, count: int) -> np.ndarray:
    scores = teeter.scores(name, outputs)
    order = np.argsort(-scores if name == "fass" else scores, kind="stable")
    return np.sort(order[:count])


@pytest.mark.checks(
    "fass", "ldm-fass", against="filtering by score, then facility location by its definition"
)
@pytest.mark.parametrize("per_pick", [1, 2, 5])
@pytest.mark.parametrize("name", NAMES)
def test_filters_and_then_represents(name: str, per_pick: int) -> None:
    outputs = example_context(50, dtype=torch.float64).outputs
    rows = most_uncertain(name, outputs, 6 * per_pick)
    expected = rows[literal.greedy(outputs.features.numpy()[rows], 6)]
    assert (
        teeter.select(name, outputs, 6, options={"candidates_per_pick": per_pick}).tolist()
        == expected.tolist()
    )


@pytest.mark.parametrize("name", NAMES)
def test_five_candidates_a_pick_by_default(name: str) -> None:
    outputs = example_context(90).outputs
    picks = teeter.select(name, outputs, 4)
    assert (
        picks.tolist()
        == teeter.select(name, outputs, 4, options={"candidates_per_pick": 5}).tolist()
    )
    assert set(picks) <= set(most_uncertain(name, outputs, 20))


@pytest.mark.parametrize("name", NAMES)
def test_a_wide_filter_lets_everything_through(name: str) -> None:
    outputs = example_context(30, dtype=torch.float64).outputs
    everything = literal.greedy(outputs.features.numpy(), 7)
    assert (
        teeter.select(name, outputs, 7, options={"candidates_per_pick": 1000}).tolist()
        == everything
    )


def test_fass_scores_by_entropy_and_ldm_fass_by_ldm() -> None:
    outputs = example_context().outputs
    np.testing.assert_array_equal(teeter.scores("fass", outputs), teeter.scores("entropy", outputs))
    np.testing.assert_array_equal(teeter.scores("ldm-fass", outputs), teeter.scores("ldm", outputs))
    context = example_context()
    get("fass")().select(context, 3)
    get("ldm-fass")().select(context, 3)
    assert {"score", "ldm"} <= set(context.notes)


def test_the_estimators_options_are_options_of_ldm_fass() -> None:
    outputs = example_context().outputs
    assert (
        teeter.scores("ldm-fass", outputs, options={"rays": 2}).mean()
        > teeter.scores("ldm-fass", outputs, options={"rays": 256}).mean()
    )
    with pytest.raises(InputError, match="rays is 0"):
        teeter.select("ldm-fass", outputs, 3, options={"rays": 0})


def test_fass_takes_logits_from_the_head() -> None:
    full = example_context()
    headless = replace(
        full, outputs=Outputs(features=full.features, weight=full.weight, bias=full.bias)
    )
    assert (
        get("fass")().select(headless, 9).tolist()
        == get("fass")().select(example_context(), 9).tolist()
    )


@pytest.mark.parametrize("count", [0, -1, 1.5, False, "5", None])
@pytest.mark.parametrize("name", NAMES)
def test_the_width_of_the_filter_is_checked_at_the_door(name: str, count: object) -> None:
    with pytest.raises(
        InputError, match=r"candidates_per_pick is .*: it must be a whole number of 1 or more"
    ):
        teeter.select(name, example_context().outputs, 3, options={"candidates_per_pick": count})
