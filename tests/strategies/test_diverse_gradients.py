"""BADGE and BAIT: what they hand to their kernels, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from reference import bait as literal
from teeter.checks import example_context
from teeter.errors import InputError, MissingOutputError
from teeter.kernels.badge import seed_gradients
from teeter.models.outputs import Outputs
from teeter.strategies import Context, get


def test_badge_reads_logits_and_features() -> None:
    picks = get("badge")().select(example_context(), 9)
    context = example_context()
    assert (
        picks.tolist()
        == seed_gradients(context.logits, context.features, 9, generator=context.generator).tolist()
    )


def pick_literally(context: Context, n: int, **options: object) -> list[int]:
    labelled = context.labelled
    tensors = [context.logits, context.features, labelled.logits, labelled.features]
    logits, features, labelled_logits, labelled_features = (part.numpy() for part in tensors)
    return literal.bait(
        logits,
        features,
        n,
        labelled_logits=labelled_logits,
        labelled_features=labelled_features,
        **options,
    )


OPTIONS = [
    {},
    {"form": "top"},
    {"form": "top", "top": 3},
    {"form": "binary"},
    {"regularisation": 0.01},
    {"form": "binary", "regularisation": 30.0},
]


@pytest.mark.checks(
    "bait", against="the usual formulation, with every option and the labelled rows"
)
@pytest.mark.parametrize("options", OPTIONS)
def test_bait_hands_its_options_and_the_labelled_rows_on(options: dict[str, object]) -> None:
    context = example_context(14, dtype=torch.float64)
    assert get("bait")(**options).select(context, 4).tolist() == pick_literally(
        context, 4, **options
    )


def test_the_options_of_bait_make_a_difference() -> None:
    picks = [
        tuple(get("bait")(**options).select(example_context(), 9).tolist()) for options in OPTIONS
    ]
    assert len(set(picks)) == len(OPTIONS)
    empty = replace(example_context(), labelled=example_context().outputs.take(np.arange(0)))
    assert get("bait")().select(empty, 9).tolist() != list(picks[0])


def test_bait_takes_the_labelled_rows_logits_from_their_head() -> None:
    labelled = example_context().labelled
    headed = replace(
        example_context(),
        labelled=Outputs(features=labelled.features, weight=labelled.weight, bias=labelled.bias),
    )
    assert (
        get("bait")().select(headed, 9).tolist()
        == get("bait")().select(example_context(), 9).tolist()
    )


@pytest.mark.parametrize(
    ("labelled", "missing"),
    [({"features": torch.zeros(3, 8)}, "logits"), ({"logits": torch.zeros(3, 4)}, "features")],
)
def test_labelled_rows_that_tell_too_little_are_refused(
    labelled: dict[str, torch.Tensor], missing: str
) -> None:
    context = replace(example_context(), labelled=Outputs(**labelled))
    with pytest.raises(
        MissingOutputError, match=f"candidates have {missing}, but the labelled rows have none"
    ):
        get("bait")().select(context, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "fast"}, "bait has no form 'fast': choose 'exact', 'top' or 'binary'"),
        ({"top": 0}, "top is 0: it must be a whole number of 1 or more"),
        ({"top": 1.5}, "top is 1.5"),
        ({"regularisation": 0}, "regularisation is 0: it must be a positive number"),
        ({"regularisation": float("nan")}, "regularisation is nan"),
        ({"regularisation": "1"}, "regularisation is '1'"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        get("bait")(**options)
