"""ALFA-Mix and DropQuery: their candidates, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from reference import perturbation as literal
from teeter import Outputs
from teeter.checks import example_context
from teeter.errors import InputError, MissingOutputError
from teeter.strategies import Context, get


def mixing_candidates(context: Context, n: int) -> set[int]:
    """Return the candidates of ALFA-Mix by the paper, with the cap of the authors' code."""
    features = context.features.numpy()
    labelled = context.labelled.features.numpy()
    labels = context.labels.numpy()
    anchors = [labelled[labels == k].mean(axis=0) for k in range(4)]
    for cap in (0.2, 0.4, 0.6, 0.8, 1.0):
        candidates = {
            row
            for row in range(len(features))
            if any(
                literal.changes_by_mixing(
                    features[row],
                    anchor,
                    context.weight.numpy(),
                    context.bias.numpy(),
                    cap / np.sqrt(features.shape[1]),
                )
                for anchor in anchors
            )
        }
        if len(candidates) > n:
            break
    return candidates


@pytest.mark.checks("alfa-mix", against="the candidates of the paper, with the authors' caps")
@pytest.mark.parametrize("n", [1, 5, 20])
def test_alfa_mix_picks_rows_that_change_their_class(n: int) -> None:
    context = example_context(60, dtype=torch.float64)
    candidates = mixing_candidates(context, n)
    picks = set(get("alfa-mix")().select(context, n).tolist())
    assert len(candidates) >= n
    assert picks <= candidates


def test_alfa_mix_fills_up_at_random() -> None:
    """Rows far from every boundary do not change their class."""
    context = example_context(40)
    sure = Outputs(features=context.features, weight=context.weight, bias=100 * context.bias)
    picks = {
        tuple(get("alfa-mix")().select(replace(example_context(40, seed=0), outputs=sure), 9))
        for _ in range(2)
    }
    assert len(picks) == 1
    assert len(set(picks.pop())) == 9


def test_alfa_mix_mixes_with_the_mean_where_a_class_has_no_label() -> None:
    context = example_context(40)
    few = replace(context, labels=torch.zeros_like(context.labels))
    assert len(get("alfa-mix")().select(few, 9)) == 9


def test_alfa_mix_needs_labels() -> None:
    context = example_context(9)
    with pytest.raises(MissingOutputError, match="pass labels= beside labelled="):
        get("alfa-mix")().select(replace(context, labels=None), 2)
    none = context.outputs.take(np.arange(0))
    with pytest.raises(MissingOutputError, match="there are none"):
        get("alfa-mix")().select(replace(context, labelled=none, labels=context.labels[:0]), 2)


def test_dropquery_picks_rows_that_change_their_class_in_most_passes() -> None:
    context = example_context(60)
    picks = get("dropquery")().select(context, 5)
    assert (context.notes["score"][picks] >= 2).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"passes": 0}, "passes is 0"), ({"rate": 1}, "rate is 1: it must be between 0 and 1")],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        get("dropquery")(**options)
