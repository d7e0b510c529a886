"""Directions in random subspaces: their factors, their law and their streams."""

from __future__ import annotations

import pytest
import torch

from teeter.base.seeds import portable, stream
from teeter.kernels import directions as directions_module
from teeter.kernels.directions import (
    BLOCK,
    SubspaceDirections,
    draw_directions,
    subspace_directions,
)

WEIGHT = torch.zeros(3, 40)
BIAS = torch.zeros(3)


def test_a_block_lies_in_one_subspace_and_the_next_in_another() -> None:
    (directions,) = subspace_directions(0, 32, WEIGHT, BIAS, subspace=5)
    first, second = directions.cut(1)
    for block in (first, second):
        weight_noise, bias_noise = block.expand()
        assert weight_noise.shape == (BLOCK, 3, 40)
        assert bias_noise is not None
        with_bias = torch.cat([weight_noise, bias_noise[:, :, None]], dim=2).flatten(0, 1)
        assert int(torch.linalg.matrix_rank(with_bias, rtol=1e-4)) == 5

    together = torch.cat([first.bases[0], second.bases[0]], dim=1)
    assert int(torch.linalg.matrix_rank(together)) == 10


@pytest.mark.parametrize("subspace", [1, 4, 16])
def test_entries_have_mean_0_and_variance_1(subspace: int) -> None:
    weight, bias = torch.zeros(5, 60), torch.zeros(5)
    parts = subspace_directions(1, 1600, weight, bias, subspace=subspace)
    noise = [part.expand() for part in parts]
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
    parts = subspace_directions(2, 16 * 200, weight, None, subspace=4)
    weight_noise = torch.cat([part.expand()[0] for part in parts])
    moves = weight_noise[::BLOCK, 0]  # one class of one direction of each block
    covariance = moves.T @ moves / len(moves)
    off_diagonal = covariance - torch.diag(covariance.diagonal())
    assert off_diagonal.abs().max() < 0.5
    assert covariance.diagonal().mean() == pytest.approx(1, abs=0.15)


def test_blocks_come_from_streams_of_their_own() -> None:
    parts = list(subspace_directions(7, 150, WEIGHT, BIAS, subspace=8))
    assert [(part.blocks, len(part)) for part in parts] == [(8, 128), (2, 22)]

    for k, block in ((1, parts[0]), (9, parts[1])):
        draws = torch.randn(41 + 16 * 3, 8, generator=stream(7, "subspace ray", k))
        assert torch.equal(block.bases[1], draws[:40] * 8**-0.5)
        assert block.bias_bases is not None
        assert torch.equal(block.bias_bases[1], draws[40] * 8**-0.5)
        assert torch.equal(block.coefficients[1].flatten(0, 1), draws[41:])


def test_the_first_directions_stay_the_same_when_there_are_more() -> None:
    (few,) = subspace_directions(5, 20, WEIGHT, None, subspace=8)
    many, _ = subspace_directions(5, 140, WEIGHT, None, subspace=8)
    assert torch.equal(few.bases, many.bases[:2])
    assert torch.equal(few.coefficients, many.coefficients[:2])


def test_parts_of_directions_are_the_directions_in_their_order() -> None:
    (directions,) = subspace_directions(3, 74, WEIGHT, BIAS, subspace=8)
    parts = list(directions.cut(2))
    assert [(part.blocks, len(part)) for part in parts] == [(2, 32), (2, 32), (1, 10)]

    weight_noise, bias_noise = directions.expand()
    expanded = [part.expand() for part in parts]
    assert torch.equal(torch.cat([weights for weights, _ in expanded]), weight_noise)
    assert bias_noise is not None
    biases = [part_biases for _, part_biases in expanded if part_biases is not None]
    assert torch.equal(torch.cat(biases), bias_noise)


@pytest.mark.gpu
def test_on_a_gpu_the_number_of_directions_does_not_change_what_is_drawn() -> None:
    weight = WEIGHT.cuda()
    (few,) = subspace_directions(5, 20, weight, None, subspace=8)
    many, rest = subspace_directions(5, 600, weight, None, subspace=8)
    assert (few.blocks, many.blocks, len(rest)) == (2, 32, 600 - 512)
    assert torch.equal(few.bases, many.bases[:2])
    assert torch.equal(few.coefficients, many.coefficients[:2])
    assert not torch.equal(rest.bases, many.bases[: rest.blocks])

    with portable():
        (on_gpu,) = subspace_directions(5, 20, weight, None, subspace=8)
    (on_cpu,) = subspace_directions(5, 20, WEIGHT, None, subspace=8)
    assert torch.equal(on_gpu.bases.cpu(), on_cpu.bases)


def test_many_classes_are_drawn_in_smaller_groups() -> None:
    assert directions_module._gpu_group(1 << 20) == 32
    assert directions_module._gpu_group((1 << 20) + 1) == 16
    assert directions_module._gpu_group(1 << 30) == 1


@pytest.mark.parametrize(("subspace", "is_subspace"), [(None, False), (41, False), (40, True)])
def test_a_subspace_as_wide_as_the_features_is_left_out(
    subspace: int | None, is_subspace: bool
) -> None:
    first = next(iter(draw_directions(0, 16, WEIGHT, BIAS, subspace=subspace)))
    assert isinstance(first, SubspaceDirections) == is_subspace
