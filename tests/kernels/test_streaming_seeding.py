"""Seeding over rows that are fetched: the sequential law itself, what is fetched, and weights that
vanish.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from kernels.test_seeding import chi_squared, draw
from reference import seeding as literal
from teeter.base.seeds import stream
from teeter.kernels import streaming_seeding
from teeter.kernels.distances import Cosine
from teeter.kernels.seeding import ldm_log_weights, ldm_seeding
from teeter.kernels.streaming_seeding import seed_streaming


def seed_from(
    features: Tensor, n: int, log_weights: Tensor, *, seed: int = 0, **options: Any
) -> list[int]:
    picks = seed_streaming(
        lambda rows: features[torch.from_numpy(rows)],
        n,
        **{
            "first": 0,
            "log_weights": log_weights.numpy(),
            "preference": -log_weights.numpy(),
            "farthest": 2.0,
            "ahead": 1000,
            "generator": stream(seed, "picks"),
            **options,
        },
    )

    rows: list[int] = picks.tolist()
    return rows


@pytest.mark.parametrize(
    ("block", "ahead", "draws"),
    [
        (1, 5, 150),
        (3, 2, 150),
        (256, 1, 150),
        *(
            pytest.param(block, ahead, 1500, marks=pytest.mark.slow)
            for block in (1, 3, 256)
            for ahead in (1, 2, 5)
        ),
    ],
)
def test_it_follows_the_sequential_law(
    block: int, ahead: int, draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming_seeding, "BLOCK", block)
    features = draw(5, 2, 3)
    log_weights = ldm_log_weights(torch.tensor([0.1, 0.15, 0.3, 0.35, 0.6], dtype=torch.float64), 3)
    distances = Cosine(features).between(torch.arange(5), torch.arange(5)).numpy()
    law = literal.sequence_law(0, 4, log_weights.exp().numpy(), distances)
    counts = Counter(
        tuple(seed_from(features, 4, log_weights, seed=k, ahead=ahead)) for k in range(draws)
    )
    assert chi_squared(counts, law, draws) > 0.001


def test_only_rows_that_may_be_picked_are_fetched() -> None:
    features = torch.randn(20_000, 8, generator=stream(0, "rows"))
    values = torch.rand(20_000, generator=stream(1, "values"), dtype=torch.float64)
    asked: list[int] = []

    def fetch(rows: Any) -> Tensor:
        asked.extend(rows.tolist())
        return features[torch.from_numpy(rows)]

    picks = seed_streaming(
        fetch,
        100,
        first=int(values.argmin()),
        log_weights=ldm_log_weights(values, 100).numpy(),
        preference=values.numpy(),
        farthest=2.0,
        ahead=400,
        generator=stream(0, "picks"),
    )
    assert len(set(picks.tolist())) == 100
    assert picks[0] == int(values.argmin())
    assert len(asked) < 2000
    plain = ldm_seeding(values, features, 100, generator=stream(0, "others"))
    assert 0.5 < float(values[picks].mean() / values[plain].mean()) < 2


def test_copies_are_not_picked_twice_and_least_values_fill_up() -> None:
    features = torch.zeros(40, 3)
    features[:20, 0] = 1
    features[20:30, 1] = 1  # the last ten are zero rows, at 1 from all others
    log_weights = torch.linspace(0, -3, 40).double()
    picks = seed_from(features, 6, log_weights, ahead=7)
    assert {0 if row < 20 else 1 if row < 30 else 2 for row in picks[:3]} == {0, 1, 2}
    rest = [row for row in range(40) if row not in picks[:3]]
    assert picks[3:] == rest[:3]


def test_weights_far_below_what_a_float_holds_still_have_an_order() -> None:
    features = torch.eye(6)
    log_weights = torch.tensor(
        [0.0, -1000.0, -2000.0, -3000.0, -4000.0, -np.inf], dtype=torch.float64
    )
    assert seed_from(features, 6, log_weights, ahead=2) == [0, 1, 2, 3, 4, 5]


def test_same_seed_same_picks() -> None:
    features = torch.randn(500, 6, generator=stream(3, "rows"))
    log_weights = -torch.rand(500, generator=stream(4, "weights"), dtype=torch.float64)
    assert seed_from(features, 50, log_weights) == seed_from(features, 50, log_weights)
    assert seed_from(features, 50, log_weights, seed=1) != seed_from(features, 50, log_weights)
