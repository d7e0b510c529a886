"""The blocked sampler: the sequential law itself, and what it does where weights vanish."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from reference import seeding as literal
from teeter.base.seeds import stream
from teeter.kernels.distances import Cosine, Distance, Euclidean
from teeter.kernels.seeding import ldm_log_weights, seed_rows

few_or_many_draws = pytest.mark.parametrize(
    "draws", [250, pytest.param(4000, marks=pytest.mark.slow)]
)


def draw(rows: int, width: int, seed: int) -> Tensor:
    return torch.randn(rows, width, generator=stream(seed, "features"), dtype=torch.float64)


def seed_by(
    distance: Distance,
    n: int,
    log_weights: Tensor,
    *,
    seed: int = 0,
    block: int = 256,
    first: int = 0,
) -> list[int]:
    picks = seed_rows(
        distance,
        n,
        first=first,
        log_weights=log_weights,
        preference=-log_weights,
        generator=stream(seed, "picks"),
        block=block,
    )
    answer: list[int] = picks.tolist()
    return answer


def chi_squared(
    counts: Counter[tuple[int, ...]], law: dict[tuple[int, ...], float], draws: int
) -> float:
    """Return the p-value of the counts under the law; rare sequences are pooled."""
    assert set(counts) <= set(law), "a sequence of probability 0 was drawn"
    common = [sequence for sequence in law if law[sequence] * draws >= 5]
    observed = [counts[sequence] for sequence in common]
    expected = [law[sequence] * draws for sequence in common]
    rest = draws - sum(expected)
    if rest > 1e-6:
        observed.append(draws - sum(observed))
        expected.append(rest)
    return float(stats.chisquare(observed, expected).pvalue)


@pytest.mark.checks(
    "ldm-s",
    "entropy-s",
    "margin-s",
    "seeding-cosine",
    against="the exact distribution of sequences of picks (chi-squared test)",
)
@pytest.mark.parametrize(
    ("block", "draws"),
    [
        (1, 250),
        (3, 250),
        (256, 250),
        *(pytest.param(block, 4000, marks=pytest.mark.slow) for block in (1, 2, 3, 8, 256)),
    ],
)
def test_blocks_follow_the_sequential_law(block: int, draws: int) -> None:
    features = draw(5, 2, 3)
    ldm = torch.tensor([0.1, 0.15, 0.3, 0.35, 0.6], dtype=torch.float64)
    log_weights = ldm_log_weights(ldm, 3)
    distance = Cosine(features)
    distances = distance.between(torch.arange(5), torch.arange(5)).numpy()
    law = literal.sequence_law(0, 4, log_weights.exp().numpy(), distances)
    assert len(law) == 24
    counts = Counter(
        tuple(seed_by(distance, 4, log_weights, seed=k, block=block)) for k in range(draws)
    )
    assert chi_squared(counts, law, draws) > 0.001


def test_the_test_of_the_law_can_fail() -> None:
    law = {(0, 1): 0.5, (0, 2): 0.5}
    assert chi_squared(Counter({(0, 1): 2300, (0, 2): 1700}), law, 4000) < 1e-6


def test_one_at_a_time_follows_the_same_law() -> None:
    distances = Cosine(draw(5, 2, 3)).between(torch.arange(5), torch.arange(5)).numpy()
    gamma = np.array([0.3, 0.3, 0.4, 0.6, 0.4])
    rng = np.random.default_rng(0)
    counts = Counter(literal.one_at_a_time(0, 3, gamma, distances, rng) for _ in range(4000))
    assert chi_squared(counts, literal.sequence_law(0, 3, gamma, distances), 4000) > 0.001


@few_or_many_draws
def test_near_copies_follow_the_law_too(draws: int) -> None:
    features = torch.tensor([[1, 0], [0, 1], [0.02, 1], [-0.02, 1], [-1, 0.1]], dtype=torch.float64)
    distance = Cosine(features)
    even = torch.zeros(5, dtype=torch.float64)
    distances = distance.between(torch.arange(5), torch.arange(5)).numpy()
    law = literal.sequence_law(0, 4, even.exp().numpy(), distances)
    counts = Counter(tuple(seed_by(distance, 4, even, seed=k)) for k in range(draws))
    assert chi_squared(counts, law, draws) > 0.001


@pytest.mark.checks("ldm-s", "entropy-s", "margin-s", against="the weights of equation 5")
@given(
    rows=st.integers(1, 40),
    share=st.floats(0, 1),
    levels=st.integers(1, 40),
    seed=st.integers(0, 10**6),
    zeros=st.booleans(),
)
def test_weights_are_equation_4(
    rows: int, share: float, levels: int, seed: int, zeros: bool
) -> None:
    ldm = (
        torch.randint(
            0 if zeros else 1, levels + 1, (rows,), generator=stream(seed, "ldm")
        ).double()
        / levels
    )
    n = max(1, round(share * rows))
    np.testing.assert_allclose(
        ldm_log_weights(ldm, n).exp(), literal.gammas(ldm.numpy(), n), rtol=1e-9, atol=1e-300
    )


def test_both_partitions_weigh_the_same() -> None:
    ldm = torch.rand(50, generator=stream(0, "ldm"), dtype=torch.float64)
    gamma = ldm_log_weights(ldm, 10).exp()
    nearest = ldm.argsort()[:10]
    assert float(gamma[nearest].sum()) == pytest.approx(1)
    assert float(gamma.sum()) == pytest.approx(2)


def test_without_a_positive_ldm_all_weigh_the_same() -> None:
    assert ldm_log_weights(torch.zeros(6), 2).exp().tolist() == pytest.approx(
        [1 / 2, 1 / 2, 1 / 4, 1 / 4, 1 / 4, 1 / 4]
    )


def test_underflow_leaves_an_order() -> None:
    """Squared weights of exp(-2000) are 0 in float64; as logarithms they still rank."""
    features = torch.eye(6, dtype=torch.float64)
    log_weights = torch.tensor([0.0, -1000, -3000, -2000, -5000, -4000], dtype=torch.float64)
    assert seed_by(Cosine(features), 6, log_weights) == [0, 1, 3, 2, 5, 4]


@given(
    rows=st.integers(1, 60),
    width=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    copies=st.integers(1, 4),
)
def test_always_n_different_rows(rows: int, width: int, seed: int, copies: int) -> None:
    features = draw(rows, width, seed).round().repeat(copies, 1)
    for distance in (Cosine(features), Euclidean(features)):
        for n in {1, (rows * copies + 1) // 2, rows * copies}:
            picks = seed_by(distance, n, torch.zeros(rows * copies, dtype=torch.float64), seed=seed)
            assert len(set(picks)) == n
            assert 0 <= min(picks) <= max(picks) < rows * copies


@pytest.mark.parametrize("make", [Cosine, Euclidean])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_copies_are_picked_last_and_by_preference(
    make: type[Cosine] | type[Euclidean], dtype: torch.dtype
) -> None:
    features = draw(50, 64, 0).to(dtype).repeat(2, 1)
    ldm = torch.rand(100, generator=stream(1, "ldm"), dtype=torch.float64)
    picks = seed_by(make(features), 100, -ldm)
    assert len({pick % 50 for pick in picks[:50]}) == 50, "every row once before any copy"
    left = ldm[torch.tensor(picks[50:])]
    assert bool((left.diff() >= 0).all()), "copies in the order of preference"


@pytest.mark.slow
def test_draws_reach_beyond_the_limit_of_multinomial() -> None:
    from teeter.kernels.seeding import _draw_with_replacement

    weights = torch.zeros(2**24 + 10, dtype=torch.float64)
    weights[[3, 2**24 + 5]] = 1
    drawn = _draw_with_replacement(weights, 64, stream(0, "draw"))
    assert set(drawn.tolist()) == {3, 2**24 + 5}


@pytest.mark.gpu
def test_gpu_equals_cpu_on_the_same_draws() -> None:
    features = draw(5000, 32, 0).float()
    log_weights = -torch.rand(5000, generator=stream(0, "ldm"), dtype=torch.float64) * 5
    cpu = seed_by(Cosine(features), 500, log_weights)
    assert seed_by(Cosine(features.cuda()), 500, log_weights.cuda()) == cpu


def test_what_fills_up_is_least_preferred_last_and_lowest_first() -> None:
    features = torch.ones(6, 2)
    even = torch.zeros(6, dtype=torch.float64)

    def fill(preference: Tensor) -> list[int]:
        picks = seed_rows(
            Cosine(features),
            6,
            first=2,
            log_weights=even,
            preference=preference,
            generator=stream(0, "x"),
        )
        return picks.tolist()

    assert fill(even) == [2, 0, 1, 3, 4, 5]
    assert fill(torch.tensor([5.0, 4, 3, 2, 1, 0])) == [2, 5, 4, 3, 1, 0]
