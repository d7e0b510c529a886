"""Seeding by distance alone, and with another uncertainty instead of LDM:
entropy-s and margin-s.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import teeter
from reference import uncertainty as literal
from teeter.checks import example_context
from teeter.kernels.seeding import ldm_seeding
from teeter.models.outputs import Outputs
from teeter.strategies import get


@pytest.mark.checks("entropy-s", against="the formula 1 - H / log C, row by row")
def test_entropy_s_scores_by_what_is_missing_to_the_largest_entropy() -> None:
    context = example_context()
    expected = 1 - literal.entropy(context.logits.double().numpy()) / math.log(4)
    np.testing.assert_allclose(get("entropy-s")().scores(context), expected, atol=1e-6)


@pytest.mark.checks("margin-s", against="the textbook formula, row by row")
def test_margin_s_scores_by_the_margin() -> None:
    context = example_context()
    expected = literal.margin(context.logits.double().numpy())
    np.testing.assert_allclose(get("margin-s")().scores(context), expected, atol=1e-6)


@pytest.mark.parametrize("name", ["entropy-s", "margin-s"])
def test_the_score_takes_the_place_of_ldm(name: str) -> None:
    noted = example_context()
    picks = get(name)().select(noted, 12)
    context = example_context()
    scores = get(name)().scores(context)
    assert torch.equal(noted.notes["score"], scores)
    assert (
        picks.tolist()
        == ldm_seeding(scores, context.features, 12, generator=context.generator).tolist()
    )
    assert picks[0] == int(scores.argmin())


@pytest.mark.parametrize("name", ["entropy-s", "margin-s"])
def test_scores_lie_between_0_and_1(name: str) -> None:
    logits = np.array([[0, 0, 0], [1e4, 0, 0], [1e-9, 0, 0]], dtype=np.float32)
    context = example_context(3)
    scores = get(name)().scores(
        replace(context, outputs=Outputs(logits, np.eye(3, dtype=np.float32)))
    )
    assert scores.tolist() == pytest.approx([0, 1, 0], abs=1e-6)
    assert float(scores.min()) >= 0


def test_seeding_picks_far_rows() -> None:
    angles = np.deg2rad([0, 1, 2, 90, 91, 180, 181])
    features = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    groups = np.array([0, 0, 0, 1, 1, 2, 2])
    for name in ("seeding-cosine", "seeding-l2"):
        spread = [
            len(set(groups[teeter.select(name, teeter.Outputs(features=features), 3, seed=s)]))
            for s in range(50)
        ]
        assert np.mean([groups == 3 for groups in spread]) > 0.9
