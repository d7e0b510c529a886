"""What the strategies over several samples of a model pick, and mistakes of released libraries they
do not make.
"""

from __future__ import annotations

import numpy as np
import pytest

import teeter
from reference import bald as literal
from teeter.checks import example_context
from teeter.errors import InputError, MissingOutputError
from teeter.strategies import get

SPREAD = teeter.Outputs(
    posterior_logits=np.array(
        [
            [[4.0, 0.0], [1.0, 0.0], [0.0, 0.0], [2.0, 0.0]],
            [[-4.0, 0.0], [-1.0, 0.0], [0.0, 0.0], [2.0, 0.0]],
            [[4.0, 0.0], [1.0, 0.0], [0.0, 0.0], [2.0, 0.0]],
        ]
    )
)
"""Row 0: certain and contradictory.

Row 1: the same, less certain. Row 2: unsure in every sample. Row 3: all agree.
"""


def test_dbal_prefers_contradiction_to_doubt() -> None:
    assert teeter.select("dbal", SPREAD, 4).tolist() == [0, 1, 2, 3]
    scores = teeter.scores("dbal", SPREAD)
    np.testing.assert_allclose(
        scores, literal.mutual_information(SPREAD.posterior_logits.numpy()), atol=1e-12
    )
    assert scores[2] == pytest.approx(0), (
        "doubt that all samples share would not be lifted by the label"
    )


def test_ensemble_counts_votes() -> None:
    np.testing.assert_allclose(teeter.scores("ensemble", SPREAD), [1 / 3, 1 / 3, 0, 0])
    assert teeter.select("ensemble", SPREAD, 4).tolist() == [0, 1, 2, 3]


@pytest.mark.checks(
    "dbal", "batchbald", against="the mistake of averaging logits instead of probabilities"
)
@pytest.mark.parametrize("name", ["dbal", "batchbald"])
def test_probabilities_are_averaged_and_not_logits(name: str) -> None:
    """In row 0 one sample shouts: the mean logit says certain, the mean probability does not."""
    logits = np.array([[[10.0, 0.0], [1.0, 0.0]], [[-1.0, 0.0], [-1.0, 0.0]]])
    outputs = teeter.Outputs(posterior_logits=logits)
    p = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    within = [np.mean([literal.entropy(sample[i]) for sample in p]) for i in range(2)]
    shouted = np.exp(logits.mean(axis=0)) / np.exp(logits.mean(axis=0)).sum(axis=1, keepdims=True)
    mistaken = [literal.entropy(shouted[i]) - within[i] for i in range(2)]
    right = [literal.entropy(p.mean(axis=0)[i]) - within[i] for i in range(2)]
    assert mistaken[0] < mistaken[1], "the mistake would pick row 1"
    np.testing.assert_allclose(teeter.scores(name, outputs), right, atol=1e-12)
    assert teeter.select(name, outputs, 1).tolist() == [0]


@pytest.mark.checks("dbal", "batchbald", against="the mistake of computing p log p at p = 0")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["dbal", "batchbald"])
def test_probabilities_of_0_have_no_entropy_and_no_nan(name: str, dtype: type) -> None:
    logits = np.array(
        [[[1e4, 0.0], [1e4, 0.0], [0.0, 0.0]], [[1e4, 0.0], [0.0, 1e4], [0.0, 0.0]]], dtype=dtype
    )
    outputs = teeter.Outputs(posterior_logits=logits)
    np.testing.assert_allclose(teeter.scores(name, outputs), [0, np.log(2), 0], atol=1e-6)
    assert teeter.select(name, outputs, 3).tolist() == [1, 0, 2]


def test_batchbald_begins_like_dbal_and_then_looks_for_more() -> None:
    outputs = example_context(40, copies=2).outputs
    alone, together = teeter.select("dbal", outputs, 3), teeter.select("batchbald", outputs, 3)
    assert together[0] == alone[0]
    assert len(set(alone % 40)) == 2, "a copy has the same score"
    assert len(set(together % 40)) == 3
    np.testing.assert_array_equal(
        teeter.scores("batchbald", outputs), teeter.scores("dbal", outputs)
    )


def test_the_number_of_configurations_reaches_the_kernel() -> None:
    outputs = example_context(200).outputs
    many = teeter.select("batchbald", outputs, 12)
    few = teeter.select("batchbald", outputs, 12, options={"configurations": 5})
    assert many[0] == few[0]
    assert many.tolist() != few.tolist()
    assert (
        few.tolist()
        != teeter.select("batchbald", outputs, 12, options={"configurations": 5}, seed=1).tolist()
    )


@pytest.mark.parametrize("count", [0, -3, 2.5, True, "many", None])
def test_configurations_are_checked_at_the_door(count: object) -> None:
    with pytest.raises(
        InputError, match=r"configurations is .*: it must be a whole number of 1 or more"
    ):
        teeter.select("batchbald", SPREAD, 1, options={"configurations": count})


def test_scores_are_left_in_the_notes() -> None:
    for name in ("dbal", "ensemble", "batchbald"):
        context = example_context()
        get(name)().select(context, 5)
        np.testing.assert_array_equal(context.notes["score"], teeter.scores(name, context.outputs))


def test_without_samples_the_need_is_named() -> None:
    outputs = teeter.Outputs(logits=np.zeros((5, 3)))
    with pytest.raises(
        MissingOutputError, match="batchbald needs the logits of several dropout passes"
    ):
        teeter.select("batchbald", outputs, 2)
    with pytest.raises(MissingOutputError, match="ensemble needs the logits of several networks"):
        teeter.select("ensemble", outputs, 2)
