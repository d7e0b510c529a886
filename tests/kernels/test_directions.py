"""Directions in random subspaces: their factors, their law and their streams."""

from __future__ import annotations

import pytest
import torch

from teeter.kernels.directions import (
    BLOCK,
    SubspaceBlock,
    draw_directions,
    subspace_directions,
)
from teeter.seeds import stream

WEIGHT = torch.zeros(3, 40)
BIAS = torch.zeros(3)


def test_a_block_lies_in_one_subspace_and_the_next_in_another() -> None:
    first, second = subspace_directions(0, 32, WEIGHT, BIAS, subspace=5)
    for block in (first, second):
        weight_noise, bias_noise = block.expand()
        assert weight_noise.shape == (BLOCK, 3, 40)
        assert bias_noise is not None
        with_bias = torch.cat([weight_noise, bias_noise[:, :, None]], dim=2).flatten(0, 1)
        assert int(torch.linalg.matrix_rank(with_bias, rtol=1e-4)) == 5

    together = torch.cat([first.basis, second.basis], dim=1)
    assert int(torch.linalg.matrix_rank(together)) == 10


@pytest.mark.parametrize("subspace", [1, 4, 16])
def test_entries_have_mean_0_and_variance_1(subspace: int) -> None:
    weight, bias = torch.zeros(5, 60), torch.zeros(5)
    noise = [b.expand() for b in subspace_directions(1, 1600, weight, bias, subspace=subspace)]
    weights = torch.cat([weight_noise for weight_noise, _ in noise])
    biases = torch.cat([bias_noise for _, bias_noise in noise if bias_noise is not None])

    # Entries of a block depend on each other; blocks do not: 100 of them.
    by_block = weights.view(100, -1)
    tolerance = 4 * by_block.square().mean(dim=1).std() / 10
    assert abs(by_block.square().mean() - 1) < tolerance
    assert abs(by_block.mean()) < 4 * by_block.mean(dim=1).std() / 10
    assert biases.var() == pytest.approx(1, abs=0.4)


def test_every_class_moves_in_any_direction_with_the_same_probability() -> None:
    weight = torch.zeros(2, 30)
    blocks = subspace_directions(2, 16 * 200, weight, None, subspace=4)
    moves = torch.stack([block.expand()[0][0, 0] for block in blocks])  # one class of each block
    covariance = moves.T @ moves / len(moves)
    off_diagonal = covariance - torch.diag(covariance.diagonal())
    assert off_diagonal.abs().max() < 0.5
    assert covariance.diagonal().mean() == pytest.approx(1, abs=0.15)


def test_blocks_come_from_streams_of_their_own() -> None:
    blocks = list(subspace_directions(7, 40, WEIGHT, BIAS, subspace=8))
    assert [len(block) for block in blocks] == [16, 16, 8]

    draws = torch.randn(41 + 16 * 3, 8, generator=stream(7, "subspace ray", 1))
    assert torch.equal(blocks[1].basis, draws[:40] * 8**-0.5)
    assert blocks[1].bias_basis is not None
    assert torch.equal(blocks[1].bias_basis, draws[40] * 8**-0.5)
    assert torch.equal(blocks[1].coefficients.flatten(0, 1), draws[41:])


def test_the_first_directions_stay_the_same_when_there_are_more() -> None:
    few = list(subspace_directions(5, 20, WEIGHT, None, subspace=8))
    many = list(subspace_directions(5, 40, WEIGHT, None, subspace=8))
    for short, long in zip(few, many, strict=False):
        assert torch.equal(short.basis, long.basis)
        assert torch.equal(short.coefficients, long.coefficients[: len(short)])


@pytest.mark.parametrize(("subspace", "is_subspace"), [(None, False), (41, False), (40, True)])
def test_a_subspace_as_wide_as_the_features_is_left_out(
    subspace: int | None, is_subspace: bool
) -> None:
    first = next(iter(draw_directions(0, 16, WEIGHT, BIAS, subspace=subspace)))
    assert isinstance(first, SubspaceBlock) == is_subspace
