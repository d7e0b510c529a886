"""BatchBALD against the joint mutual information of every label tuple, and what sampling does to
it.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from reference import batchbald as literal
from reference.uncertainty import probabilities
from teeter.base.arrays import working_memory
from teeter.base.seeds import stream
from teeter.kernels import bald
from teeter.kernels.bald import Configurations, batch_bald, information_gains, mutual_information

FLOAT64 = torch.float64


def posterior(samples: int, rows: int, classes: int, seed: int = 0, *, width: int = 3) -> Tensor:
    """Heads drawn at random over features of some width: the narrower, the more do rows tell of the
    same things.
    """
    generator = stream(seed, "posterior")
    features = torch.randn(rows, width, generator=generator, dtype=FLOAT64)
    heads = torch.randn(samples, width, classes, generator=generator, dtype=FLOAT64)
    return features @ heads * 3 / width**0.5


def literal_probabilities(logits: Tensor) -> np.ndarray:
    return np.stack([probabilities(sample) for sample in logits.double().numpy()])


def pick_rows(logits: Tensor, n: int, *, seed: int = 0, **options: int) -> list[int]:
    answer: list[int] = batch_bald(logits, n, generator=stream(seed, "draws"), **options).tolist()
    return answer


def enumerate_configurations(logits: Tensor, batch: list[int]) -> Configurations:
    configurations = bald._no_labels(1, logits)
    for row in batch:
        configurations = bald._enumerate_labels(configurations, logits[:, [row]])
    return configurations


def sample_configurations(
    logits: Tensor, batch: list[int], count: int, seed: int
) -> Configurations:
    return bald._sample_labels(
        bald._no_labels(count, logits), logits[:, batch], stream(seed, "draws")
    )


def joint_information(logits: Tensor, rows: list[int]) -> float:
    """The joint information of a batch, by enumeration."""
    before = [enumerate_configurations(logits, rows[:k]) for k in range(len(rows))]
    return sum(
        float(compute_gains(logits, configurations)[row])
        for configurations, row in zip(before, rows, strict=True)
    )


def compute_gains(logits: Tensor, configurations: Configurations) -> Tensor:
    return information_gains(logits, torch.arange(logits.shape[1]), configurations)


@pytest.mark.checks(
    "batchbald", against="plain greedy selection by the joint information of all labels"
)
@given(
    samples=st.integers(1, 4),
    rows=st.integers(1, 6),
    classes=st.integers(2, 3),
    seed=st.integers(0, 10**6),
    copies=st.integers(1, 2),
)
def test_is_plain_greedy_while_all_labels_are_enumerated(
    samples: int, rows: int, classes: int, seed: int, copies: int
) -> None:
    logits = posterior(samples, rows, classes, seed).repeat(1, copies, 1)
    n = min(rows * copies, 4)
    assert pick_rows(logits, n) == literal.greedy(literal_probabilities(logits), n)


def test_the_whole_pool_is_plain_greedy_too() -> None:
    logits = posterior(5, 7, 2)
    assert pick_rows(logits, 7) == literal.greedy(literal_probabilities(logits), 7)


@given(
    samples=st.integers(1, 4),
    classes=st.integers(2, 4),
    seed=st.integers(0, 10**6),
    taken=st.integers(0, 3),
)
def test_a_gain_is_what_a_row_adds_to_the_joint_information(
    samples: int, classes: int, seed: int, taken: int
) -> None:
    logits = posterior(samples, 6, classes, seed)
    batch = [5, 1, 3][:taken]
    gains = compute_gains(logits, enumerate_configurations(logits, batch))
    np.testing.assert_allclose(
        gains, literal.gains(literal_probabilities(logits), batch, range(6)), atol=1e-12
    )


@pytest.mark.parametrize("dtype", [torch.float32, FLOAT64])
def test_one_row_is_bald(dtype: torch.dtype) -> None:
    logits = posterior(8, 400, 5).to(dtype)
    assert pick_rows(logits, 1) == [int(mutual_information(logits).argmax())]
    np.testing.assert_allclose(
        compute_gains(logits, enumerate_configurations(logits, [])),
        mutual_information(logits),
        atol=2e-6,
    )


@given(seed=st.integers(0, 10**6), samples=st.integers(2, 12), classes=st.integers(2, 5))
def test_gains_fall_and_never_below_0(seed: int, samples: int, classes: int) -> None:
    logits = posterior(samples, 20, classes, seed)
    batch = pick_rows(logits, 5)
    before = compute_gains(logits, enumerate_configurations(logits, []))
    for size in range(1, 6):
        now = compute_gains(logits, enumerate_configurations(logits, batch[:size]))
        assert bool((now >= 0).all())
        assert bool((now <= before + 1e-12).all()), "the joint information is submodular"
        before = now


def test_lazy_is_plain_greedy_with_less_work(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = posterior(40, 500, 4, width=30) / 3
    plain: list[int] = []
    for _ in range(6):
        gains = compute_gains(logits, enumerate_configurations(logits, plain))
        gains[plain] = -1
        plain.append(int(gains.argmax()))

    asked = []
    monkeypatch.setattr(
        bald,
        "information_gains",
        lambda *given: asked.append(len(given[1])) or information_gains(*given),
    )

    assert pick_rows(logits, 6) == plain
    assert sum(asked) < 500 * 6 / 2


def test_rows_that_tell_the_same_are_not_picked_together() -> None:
    """BALD takes both copies of the best row; together they tell hardly more than one."""
    logits = 4 * posterior(10, 30, 3).repeat(1, 2, 1)
    bald = mutual_information(logits).argsort(descending=True, stable=True)[:6] % 30
    batch = [row % 30 for row in pick_rows(logits, 6)]
    assert len(set(bald.tolist())) == 3
    assert len(set(batch)) == 6


def test_a_single_sample_leaves_nothing_to_learn() -> None:
    assert pick_rows(posterior(1, 9, 3), 5) == [0, 1, 2, 3, 4]
    assert pick_rows(posterior(1, 9, 3).expand(4, -1, -1), 9) == list(range(9))
    assert pick_rows(posterior(1, 9, 3).float().expand(4, -1, -1), 9, max_configurations=1) == list(
        range(9)
    )


def test_impossible_labels_are_left_out() -> None:
    logits = torch.tensor([[[0.0, -900], [0, 0], [-900, 0]], [[-900, 0.0], [0, 0], [0, -900]]])
    configurations = enumerate_configurations(logits, [0])
    assert configurations.mass.tolist() == [0.5, 0.5]
    assert configurations.posterior.tolist() == [[1, 0], [0, 1]]
    assert pick_rows(logits, 3) == [0, 1, 2], "row 0 holds all the information"
    assert pick_rows(logits, 3, max_configurations=1) == [0, 1, 2]


@pytest.mark.checks(
    "batchbald", against="the exact gains, which the sampled gains must equal on average"
)
def test_sampled_gains_are_unbiased() -> None:
    logits = posterior(6, 15, 3)
    batch = [2, 7, 11, 4]
    exact = compute_gains(logits, enumerate_configurations(logits, batch))
    estimates = torch.stack(
        [
            compute_gains(logits, sample_configurations(logits, batch, 120, seed))
            for seed in range(400)
        ]
    )

    deviation = (estimates.mean(dim=0) - exact) / (estimates.std(dim=0) / 20)
    assert float(deviation.abs().max()) < 3.5
    assert stats.chi2.sf(float(deviation.square().sum()), 15) > 1e-4


def test_more_configurations_bring_sampled_gains_nearer() -> None:
    logits = posterior(6, 15, 3)
    batch = [2, 7, 11, 4]
    exact = compute_gains(logits, enumerate_configurations(logits, batch))

    errors = []
    for count in (60, 600, 6000):
        squares = []
        for seed in range(40):
            gains = compute_gains(logits, sample_configurations(logits, batch, count, seed))
            squares.append(float((gains - exact).square().mean()))
        errors.append(np.mean(squares))

    assert 5 < errors[0] / errors[1] < 20
    assert 5 < errors[1] / errors[2] < 20


def test_the_estimate_is_the_papers_less_an_error_of_mean_0() -> None:
    """The joint entropy weighted by importance, row by row, from the same labels."""
    logits = posterior(4, 9, 3)
    p = literal_probabilities(logits)
    batch = [8, 0, 3]
    labels = np.random.default_rng(0).integers(3, size=(25, 3))

    likelihood = np.array(
        [
            [np.prod([p[s, i, y] for i, y in zip(batch, row, strict=True)]) for s in range(4)]
            for row in labels
        ]
    )
    configurations = Configurations(
        torch.full((25,), 1 / 25, dtype=FLOAT64),
        torch.from_numpy(likelihood / likelihood.sum(axis=1, keepdims=True)),
    )

    of_batch = -np.log(likelihood.mean(axis=1)).mean()
    entropies = -(p * np.log(p)).sum(axis=2)

    for row in range(9):
        within = float(configurations.mean_posterior.numpy() @ entropies[:, row])
        paper = literal.sampled_joint_entropy(p, batch, labels, row) - of_batch - within
        assert float(compute_gains(logits, configurations)[row]) == pytest.approx(paper, abs=1e-12)


def test_labels_are_drawn_by_every_sample_in_turn() -> None:
    p = torch.tensor([[0.0, 0.25], [0.7, 0.25], [0.3, 0.5], [0.0, 0.0]], dtype=FLOAT64)
    labels = bald._draw_labels(p, 20_000, stream(0, "labels")).view(-1, 2)
    for s in range(2):
        counts = np.bincount(labels[:, s], minlength=4)
        possible = p[:, s] > 0
        assert counts[~possible].sum() == 0, "impossible labels are never drawn"
        assert stats.chisquare(counts[possible], p[possible, s] * 10_000).pvalue > 0.001


def test_drawn_posteriors_are_those_of_bayes() -> None:
    logits = posterior(3, 4, 2)
    p = logits.softmax(dim=2)
    configurations = sample_configurations(logits, [1, 2], 30, seed=5)
    rows = {tuple(np.round(row, 12)) for row in configurations.posterior.numpy()}
    bayes = [p[:, 1, first] * p[:, 2, second] for first in range(2) for second in range(2)]
    assert rows <= {tuple(np.round((joint / joint.sum()).numpy(), 12)) for joint in bayes}
    assert float(configurations.mass.sum()) == pytest.approx(1)


def test_sampled_batches_are_about_as_good() -> None:
    logits = posterior(20, 100, 3)
    exact = joint_information(logits, pick_rows(logits, 6))
    assert joint_information(logits, pick_rows(logits, 6, max_configurations=2000)) > 0.99 * exact
    assert joint_information(logits, pick_rows(logits, 6, max_configurations=20)) > 0.9 * exact
    alone = mutual_information(logits).argsort(descending=True)[:6].tolist()
    assert joint_information(logits, alone) < 0.9 * exact, (
        "the best rows, each taken alone, tell less together"
    )


def test_screens_lose_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = posterior(10, 200, 3, width=8)
    screened = pick_rows(logits, 10, max_configurations=15_000)
    monkeypatch.setattr(bald, "SCREENS", ())
    thorough = pick_rows(logits, 10, max_configurations=15_000)
    assert joint_information(logits, screened) > 0.999 * joint_information(logits, thorough)


def test_long_batches_go_on_within_the_same_memory() -> None:
    logits = posterior(8, 90, 3)
    rows = pick_rows(logits, 80, max_configurations=400)
    assert len(set(rows)) == 80
    assert rows == pick_rows(logits, 80, max_configurations=400), "the same draws"
    assert rows[:30] == pick_rows(logits, 30, max_configurations=400), (
        "more picks are the same and some more"
    )
    assert rows != pick_rows(logits, 80, max_configurations=400, seed=1)


@pytest.mark.parametrize("dtype", [torch.float32, FLOAT64])
@pytest.mark.parametrize("size", [1, 200_000])
def test_the_working_memory_changes_nothing(size: int, dtype: torch.dtype) -> None:
    logits = posterior(6, 500, 5).to(dtype)
    expected = pick_rows(logits, 9, max_configurations=3000)
    with working_memory(size):
        assert pick_rows(logits, 9, max_configurations=3000) == expected


def test_both_precisions_agree() -> None:
    logits = posterior(30, 200, 4, width=8) / 2
    assert pick_rows(logits.float(), 8, max_configurations=5000) == pick_rows(
        logits, 8, max_configurations=5000
    )


@pytest.mark.gpu
def test_gpu_equals_cpu_on_the_same_draws() -> None:
    logits = posterior(10, 1000, 5)
    cpu = pick_rows(logits, 20, max_configurations=20_000)
    assert pick_rows(logits.cuda(), 20, max_configurations=20_000) == cpu
