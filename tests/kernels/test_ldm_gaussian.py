"""Algorithm 1, to the letter."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import teeter
from ldm_cases import Case, make_case, seed_of_directions
from reference import ldm as literal
from teeter.base.seeds import normal, stream
from teeter.kernels.directions import BLOCK
from teeter.kernels.ldm import paper_sigmas, search_by_gaussian


def supply(seed: int, k: int, case: Case) -> Iterator[literal.Direction]:
    generator = stream(seed, "gaussian", k)
    cpu = torch.device("cpu")
    while True:
        moves = normal((BLOCK, *case.weight.shape), generator, cpu).double().numpy()
        yield from zip(
            moves, normal((BLOCK, len(case.weight)), generator, cpu).double().numpy(), strict=True
        )


@pytest.mark.checks(
    "ldm",
    "ldm-s",
    against="Algorithm 1 for a single row, on the same draws (several rows share one counter)",
)
@pytest.mark.parametrize("seed", range(4))
def test_is_algorithm_1_for_a_single_row(seed: int) -> None:
    case = make_case(50, 4, 3, seed=seed)
    sigmas = [0.01, 0.03, 0.1, 0.3, 1.0]
    features, weight, bias = case.arrays()

    expected = literal.algorithm_1(
        features[0],
        weight,
        bias,
        features,
        draws=[supply(seed_of_directions(seed), k, case) for k in range(5)],
        sigmas=sigmas,
        patience=10,
    )

    values = teeter.ldm(
        case.features[:1],
        *case.head(),
        reference=case.features,
        method="gaussian",
        sigmas=sigmas,
        seed=seed,
    )

    assert float(values[0]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_a_shared_counter_is_tighter_than_one_per_row(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, weight = rng.normal(size=(60, 8)), rng.normal(size=(4, 8))
    shared_counter = teeter.ldm(rows, weight, method="gaussian").mean()
    own_counters = [
        teeter.ldm(rows[[row]], weight, reference=rows, method="gaussian", seed=row)[0]
        for row in range(len(rows))
    ]
    assert 1.1 < np.mean(own_counters) / shared_counter < 2


def test_rows_share_the_draws() -> None:
    case = make_case(40, 4, 3)
    values = torch.as_tensor(
        teeter.ldm(case.features, *case.head(), method="gaussian", sigmas=[0.5], patience=3)
    )

    flipped_together = values[values < 1]
    assert len(flipped_together) > 0
    assert bool((flipped_together * 40 >= 1).all())

    own_draws = teeter.ldm(
        case.features,
        *case.head(),
        method="gaussian",
        sigmas=[0.5],
        patience=3,
        reference=case.features,
    )
    assert torch.equal(values, torch.as_tensor(own_draws))


def test_the_paper_s_grid() -> None:
    sigmas = paper_sigmas()
    assert len(sigmas) == 51
    assert sigmas[0] == pytest.approx(1e-5)
    assert sigmas[-1] == pytest.approx(1)
    assert np.diff(np.log10(sigmas)) == pytest.approx(np.full(50, 0.1))


def test_the_head_s_scale_matters_to_algorithm_1() -> None:
    case = make_case(100, 4, 3)
    assert case.bias is not None
    plain = torch.as_tensor(
        teeter.ldm(case.features, *case.head(), method="gaussian", sigmas=[0.1])
    )
    scaled = torch.as_tensor(
        teeter.ldm(
            case.features, case.weight * 100, case.bias * 100, method="gaussian", sigmas=[0.1]
        )
    )
    assert float(plain.mean()) < float(scaled.mean())


def test_rays_are_at_least_as_tight() -> None:
    case = make_case(300, 16, 5)
    gaussian = torch.as_tensor(teeter.ldm(case.features, *case.head(), method="gaussian"))
    assert float(torch.as_tensor(teeter.ldm(case.features, *case.head())).mean()) <= float(
        gaussian.mean()
    )


def test_more_patience_is_tighter_on_average() -> None:
    case = make_case(200, 8, 4)
    means = [
        float(
            torch.as_tensor(
                teeter.ldm(case.features, *case.head(), method="gaussian", patience=p)
            ).mean()
        )
        for p in (1, 5, 30)
    ]
    assert means[0] > means[1] > means[2]


@pytest.mark.parametrize("size", [1, 1 << 30])
def test_chunk_size_changes_nothing(size: int) -> None:
    case = make_case(500, 8, 4)
    plain = teeter.ldm(case.features, *case.head(), method="gaussian", sigmas=[0.01, 0.1])
    with teeter.config.working_memory(size):
        chunked = teeter.ldm(case.features, *case.head(), method="gaussian", sigmas=[0.01, 0.1])
    assert torch.equal(torch.as_tensor(plain), torch.as_tensor(chunked))


@pytest.mark.gpu
def test_gpu_equals_cpu_on_the_same_draws() -> None:
    case = make_case(400, 16, 5)
    with teeter.config.portable():
        cpu = torch.as_tensor(teeter.ldm(case.features, *case.head(), method="gaussian"))
        gpu = torch.as_tensor(
            teeter.ldm(case.features.cuda(), *case.head(), method="gaussian", device="cuda")
        )
    assert float((cpu - gpu.cpu()).abs().max()) <= 2.5 / 400


@pytest.mark.parametrize("bias", [True, False])
def test_how_many_hypotheses_are_looked_at_together_changes_nothing(bias: bool) -> None:
    case = make_case(60, 5, 4, bias=bias)
    for patience in (3, 16, 50):
        values = [
            search_by_gaussian(
                case.features,
                *case.head(),
                sigmas=[0.01, 0.1, 1.0],
                patience=patience,
                seed=2,
                batch=together,
            )
            for together in (None, 1, 5)
        ]

        for least, taken in values[1:]:
            assert torch.equal(least, values[0][0])
            assert taken == values[0][1]


@pytest.mark.parametrize("patience", [4, 40])
def test_algorithm_1_goes_on_while_any_row_is_lowered(patience: int) -> None:
    """A literal loop over all rows with one counter, on the same draws, which come in
    blocks of 16.
    """
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.normal(size=(30, 3)))
    weight = torch.from_numpy(rng.normal(size=(3, 3)))

    predicted = (rows @ weight.T).argmax(dim=1)
    least = np.full(30, 1.0)
    generator = stream(seed_of_directions(5), "gaussian", 0)
    idle = 0
    drawn = iter(())

    while idle < patience:
        move = next(drawn, None)
        if move is None:
            drawn = iter(torch.randn(16, 3, 3, generator=generator))
            move = next(drawn)
        moved = weight + 0.4 * move.double()
        flipped = ((rows @ moved.T).argmax(dim=1) != predicted).numpy()
        lowered = flipped & (flipped.mean() < least)
        least[lowered] = flipped.mean()
        idle = 0 if lowered.any() else idle + 1

    values = teeter.ldm(rows, weight, method="gaussian", sigmas=[0.4], patience=patience, seed=5)
    np.testing.assert_allclose(values, least)


def test_strengths_are_tried_in_rising_order() -> None:
    rng = np.random.default_rng(0)
    rows, weight = rng.normal(size=(50, 3)), rng.normal(size=(3, 3))
    mixed = teeter.ldm(rows, weight, method="gaussian", sigmas=[1.0, 0.01, 0.1])
    np.testing.assert_array_equal(
        mixed, teeter.ldm(rows, weight, method="gaussian", sigmas=[0.01, 0.1, 1.0])
    )
