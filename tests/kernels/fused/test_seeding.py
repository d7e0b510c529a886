"""Seeding by fused kernels: its law, its draws, and weights that vanish; interpreted where there is
no GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from teeter.base.arrays import working_memory
from teeter.base.seeds import stream, uniform
from teeter.kernels.distances import Cosine, Euclidean
from teeter.kernels.seeding import accept_candidates, ldm_log_weights

pytest.importorskip("triton", reason="needs Triton")
seeding: Any = pytest.importorskip("teeter.kernels.fused.seeding")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def pick_by_seeding(
    features: Tensor, n: int, *, seed: int = 0, block: int = 16, far: bool = False
) -> list[int]:
    values = torch.rand(len(features), generator=stream(5, "values")).to(features.device)
    picks = seeding.seed_on_gpu(
        Euclidean(features) if far else Cosine(features),
        n,
        first=int(values.argmin()),
        log_weights=ldm_log_weights(values, n),
        generator=stream(seed, "picks", device=features.device),
        block=block,
    )
    rows: list[int] = picks.tolist()
    return rows


@pytest.mark.parametrize(("rows", "n"), [(100, 12), pytest.param(400, 40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("far", [False, True])
def test_picks_are_different_rows_and_repeat(far: bool, rows: int, n: int) -> None:
    features = torch.randn(rows, 12, generator=stream(0, "rows")).to(DEVICE)
    picks = pick_by_seeding(features, n, far=far)
    assert len(set(picks)) == n
    assert pick_by_seeding(features, n, far=far) == picks
    assert pick_by_seeding(features, n, seed=1, far=far) != picks


def test_where_all_weights_are_gone_it_ends() -> None:
    features = torch.zeros(40, 8, device=DEVICE)
    features[:5, 0], features[5:9, 1] = 1, 1
    picks = pick_by_seeding(features, 30)
    kinds = [0 if row < 5 else 1 if row < 9 else 2 for row in picks]
    assert sorted(kinds) == [0, 1, 2]


@pytest.mark.parametrize(
    ("rows", "width"),
    [
        (1, 3),
        (2, 1),
        (20, 3),
        pytest.param(40, 3, marks=pytest.mark.slow),
        pytest.param(129, 70, marks=pytest.mark.slow),
    ],
)
def test_every_row_can_be_picked(rows: int, width: int) -> None:
    features = torch.randn(rows, width, generator=stream(2, "rows")).to(DEVICE)
    if width == 1:
        features = torch.tensor([[1.0], [-1.0]], device=DEVICE)
    assert sorted(pick_by_seeding(features, rows)) == list(range(rows))


def test_rows_without_weight_are_never_picked() -> None:
    features = torch.randn(60, 5, generator=stream(2, "rows")).to(DEVICE)
    log_weights = torch.zeros(60, dtype=torch.float64, device=DEVICE)
    log_weights[::3] = -torch.inf

    picks = seeding.seed_on_gpu(
        Cosine(features),
        60,
        first=1,
        log_weights=log_weights,
        generator=stream(0, "picks", device=DEVICE),
        block=16,
    )

    assert sorted(picks.tolist()) == [row for row in range(60) if row % 3]


def test_draws_are_those_of_a_running_sum() -> None:
    features = torch.randn(1000, 4, generator=stream(0, "rows")).to(DEVICE)
    state = seeding._GpuSeeding(
        Cosine(features), 10, 7, torch.linspace(-5, 0, 1000).double().to(DEVICE), 64
    )
    state.update()

    points = uniform((64,), stream(0, "draws", device=DEVICE), DEVICE)
    candidates = state.draw(points)
    weights = (state.log_weights.exp() * state.nearest) ** 2
    ends = weights.cumsum(dim=0)

    assert torch.equal(candidates, torch.searchsorted(ends, points * ends[-1], right=True))
    assert state.nearest[7] == 0
    torch.testing.assert_close(
        state.nearest,
        Cosine(features).nearest(torch.tensor([7], device=DEVICE)).double(),
        rtol=0,
        atol=1e-5,
    )


@pytest.mark.skipif(DEVICE.type != "cpu", reason="tiles of 16 rows are for the interpreter")
@pytest.mark.parametrize(
    ("rows", "groups"), [(600, 3), pytest.param(5000, 20, marks=pytest.mark.slow)]
)
def test_draws_choose_among_many_groups(
    rows: int, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seeding, "ROWS", 16)
    monkeypatch.setattr(seeding, "MAX_DRAWS_TIMES_GROUPS", 64)  # two draws a program
    log_weights = torch.randn(rows, generator=stream(0, "weights")).double()
    log_weights[rows // 5 : rows // 5 * 3] = -torch.inf  # whole groups weigh nothing

    features = torch.randn(rows, 4, generator=stream(0, "rows"))
    state = seeding._GpuSeeding(Cosine(features), 10, 7, log_weights, 64)
    state.update()

    assert len(state.sums) == groups

    points = uniform((64,), stream(0, "draws"), torch.device("cpu"))
    candidates = state.draw(points)
    ends = ((log_weights.exp() * state.nearest) ** 2).cumsum(dim=0)

    assert torch.equal(candidates, torch.searchsorted(ends, points * ends[-1], right=True))


def test_halves_add_up() -> None:
    units = Cosine(torch.randn(1000, 70, generator=stream(0, "rows")).to(DEVICE) ** 3).units
    with working_memory(1 << 17):  # several tiles
        upper, lower = seeding._split_into_halves(units)

    assert upper.shape == lower.shape == (1000, 128)
    assert not upper[:, 70:].any()
    assert not lower[:, 70:].any()

    torch.testing.assert_close(
        (upper.double() + lower.double() / seeding.LOWER_SCALE)[:, :70],
        units.double(),
        rtol=0,
        atol=1e-7,
    )


@pytest.mark.parametrize("wanted", [3, 40])
def test_what_is_accepted_is_what_the_plain_walk_accepts(wanted: int) -> None:
    features = torch.randn(30, 3, generator=stream(1, "rows")).to(DEVICE)
    state = seeding._GpuSeeding(
        Cosine(features), wanted, 0, torch.zeros(30, dtype=torch.float64, device=DEVICE), 32
    )
    state.update()

    candidates = torch.randint(30, (32,), generator=stream(1, "drawn")).to(DEVICE)
    then = state.nearest[candidates].cpu().numpy()
    chances = uniform((32,), stream(2, "chances", device=DEVICE), DEVICE)
    pairs = state.distance.between(candidates, candidates).double().cpu().numpy()

    expected = accept_candidates(
        candidates.cpu().numpy(),
        pairs,
        nearest=then,
        thresholds=np.sqrt(chances.cpu().numpy()) * then,
        wanted=wanted - 1,
    )

    state.accept(candidates, chances)
    assert int(state.count) == 1 + len(expected)
    assert state.picks[1 : int(state.count)].tolist() == candidates[expected].tolist()
    assert state.fresh[: len(expected)].tolist() == candidates[expected].tolist()
    assert set(state.fresh[len(expected) :].tolist()) == {0}


@pytest.mark.gpu
def test_the_law_is_the_sequential_one() -> None:
    """Second and third picks of five rows against their exact chances."""
    features = torch.tensor(
        [[1.0, 0.0], [0.9, 0.3], [0.2, 1.0], [-0.5, 0.8], [-1.0, 0.1]], device=DEVICE
    )
    log_weights = torch.tensor([0.0, -0.3, -0.6, -0.2, -1.0], dtype=torch.float64, device=DEVICE)
    away = (
        Cosine(features)
        .between(torch.arange(5, device=DEVICE), torch.arange(5, device=DEVICE))
        .double()
        .cpu()
    )
    weights = log_weights.exp().cpu()

    exact = np.zeros((5, 5))
    second_weights = (weights * away[0]) ** 2
    for second in range(1, 5):
        third_weights = (weights * torch.minimum(away[0], away[second])) ** 2
        exact[second] = (
            second_weights[second] / second_weights.sum() * third_weights / third_weights.sum()
        ).numpy()

    distance = Cosine(features)
    generator = stream(0, "law", device=DEVICE)
    draws = 20_000
    counts = np.zeros((5, 5))
    for _ in range(draws):
        picks = seeding.seed_on_gpu(
            distance, 3, first=0, log_weights=log_weights, generator=generator, block=16
        )
        counts[tuple(picks.tolist()[1:])] += 1

    possible = exact > 0
    assert counts[~possible].sum() == 0
    assert chisquare(counts[possible], draws * exact[possible]).pvalue > 1e-3
