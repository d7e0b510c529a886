"""Random directions in which the head of a model is moved, for the rays of ``kernels.ldm``.

Isotropic directions have independent N(0, 1) entries: ``E`` (C, D) for the weight and ``e`` (C,)
for the bias. *Subspace* directions are products of two such matrices,

    (E, e) = G A' / sqrt(r),    G (C, r) for every direction, A (D + 1, r) for a block of them,

so all directions of a block lie in the same random subspace of r dimensions, which the columns of A
span. The change of the logits along a direction, ``v = Z E' + e``, is then a product of r numbers
per row:

    v = (Z_1 A / sqrt(r)) G',    with Z_1 the features and a column of ones for the bias.

The projection in brackets is computed once for a block. After that, a direction costs N r C
operations instead of N D C. These directions are as valid as any others, because nothing but ``v``
depends on them. Their entries have variance 1, and each class by itself moves in any direction with
the same probability.

The subspace is drawn again for every block. One subspace for all directions, such as that of the
principal directions of the features, would miss the changes outside of it. The length of a row's
projection varies from block to block, so in some blocks a row moves more than the others and flips
before them. That is why estimates of the LDM are a little lower, that is tighter, than with
isotropic rays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from teeter.base.seeds import is_portable, normal, stream

__all__ = [
    "BLOCK",
    "DEFAULT_SUBSPACE",
    "Directions",
    "Noise",
    "SubspaceDirections",
    "default_rays",
    "draw_directions",
    "ray_directions",
    "split_heads",
    "subspace_directions",
]

BLOCK = 16
"""Directions in a block of the random stream. Changing it changes every random direction."""

DEFAULT_SUBSPACE = 16
"""Dimensions of the subspace of a block. ``research/rays`` has the measurements behind it."""

_CPU_GROUP = 8
"""Blocks in subspaces that are drawn and followed at once on a CPU: they share the features."""

_GPU_GROUP = 32
"""Blocks from one random stream on a GPU. With the next constant, it decides what is drawn."""

_MAX_GROUP_NUMBERS = 1 << 25
"""Random numbers of a group: 128 MB. Blocks of many classes come in smaller groups."""

Noise: TypeAlias = tuple[Tensor, Tensor | None]
"""Weight noise E (B, C, D) and bias noise e (B, C), or None for a head without a bias."""


@dataclass(frozen=True, eq=False)
class SubspaceDirections:
    """Directions of K blocks, each block in a subspace of its own of r dimensions, as factors."""

    bases: Tensor
    """(K, D, r) of the weight, ``A / sqrt(r)`` of each block without its last row."""
    bias_bases: Tensor | None
    """(K, r) of the bias, the last row of ``A / sqrt(r)``. None for a head without a bias."""
    coefficients: Tensor
    """(K, 16, C, r), the ``G`` of each direction."""
    count: int
    """Number of directions, at most 16 K: the last block may have more coefficients than that."""

    def __len__(self) -> int:
        """Return the number of directions."""
        return self.count

    @property
    def blocks(self) -> int:
        """The number of blocks, K."""
        return len(self.bases)

    def cut(self, blocks: int) -> Iterator[SubspaceDirections]:
        """Yield the directions of at most so many blocks at a time, as views."""
        for first in range(0, self.blocks, blocks):
            bias_bases = None
            if self.bias_bases is not None:
                bias_bases = self.bias_bases[first : first + blocks]
            yield SubspaceDirections(
                bases=self.bases[first : first + blocks],
                bias_bases=bias_bases,
                coefficients=self.coefficients[first : first + blocks],
                count=min(blocks * BLOCK, self.count - first * BLOCK),
            )

    def expand(self) -> Noise:
        """Return the same directions as weight noise (B, C, D) and bias noise (B, C)."""
        # A block has 16 directions of C classes each: (K, 16 C, r).
        coefficients = self.coefficients.flatten(1, 2)
        _, _, C, _ = self.coefficients.shape
        n_directions = self.blocks * BLOCK
        weight_noise = (coefficients @ self.bases.mT).view(n_directions, C, -1)
        if self.bias_bases is None:
            return weight_noise[: self.count], None

        bias_noise = (coefficients @ self.bias_bases[:, :, None]).view(n_directions, C)
        return weight_noise[: self.count], bias_noise[: self.count]


Directions: TypeAlias = Iterable[Noise | SubspaceDirections]
"""Directions in parts of one kind, in the order in which they are followed."""


def default_rays(classes: int, width: int) -> int:
    """Return the number of rays to use by default, for C classes and D features."""
    if classes * width > 20_000:
        return 1024
    return 512


def draw_directions(
    seed: int,
    count: int,
    weight: Tensor,
    bias: Tensor | None,
    *,
    subspace: int | None,
) -> Directions:
    """Return directions in random subspaces, or isotropic ones.

    Args:
        seed: seed of the random streams.
        count: number of directions; each gives two rays.
        weight: (C, D) of the head, for the shape, the device and the precision.
        bias: (C,) of the head, or None.
        subspace: r, the dimensions of each subspace. None: isotropic directions. They are also used
            if the features have no more than r dimensions: a subspace would save nothing.
    """
    dimensions = weight.shape[1]
    if bias is not None:
        dimensions += 1

    if subspace is None or subspace >= dimensions:
        return ray_directions(seed, count, weight, bias)
    return subspace_directions(seed, count, weight, bias, subspace=subspace)


def ray_directions(
    seed: int,
    count: int,
    weight: Tensor,
    bias: Tensor | None,
) -> Iterator[Noise]:
    """Yield isotropic directions for a head; block k comes from the random stream (seed, "ray", k).

    Args:
        seed: seed of the random streams.
        count: number of directions; each gives two rays.
        weight: (C, D) of the head, for the shape, the device and the precision.
        bias: (C,) of the head, or None.

    Yields:
        Blocks of weight noise (B, C, D) and bias noise (B, C), drawn in float32, with B = 16 except
        in the last block.
    """
    for k, start in enumerate(range(0, count, BLOCK)):
        generator = stream(seed, "ray", k, device=weight.device)
        size = min(BLOCK, count - start)

        # Whole blocks are drawn, so that `count` does not change the draws of a block.
        weight_noise = normal((BLOCK, *weight.shape), generator, weight.device)
        weight_noise = weight_noise[:size].to(weight.dtype)
        if bias is None:
            yield weight_noise, None
            continue

        bias_noise = normal((BLOCK, len(bias)), generator, weight.device)
        bias_noise = bias_noise[:size].to(weight.dtype)
        yield weight_noise, bias_noise


def subspace_directions(
    seed: int,
    count: int,
    weight: Tensor,
    bias: Tensor | None,
    *,
    subspace: int,
) -> Iterator[SubspaceDirections]:
    """Yield directions in random subspaces, several blocks at a time.

    On a CPU, block k comes from the random stream (seed, "subspace ray", k). On a GPU, drawing a
    block takes as long as drawing many, so one stream serves a group of blocks.

    Args:
        seed: seed of the random streams.
        count: number of directions; each gives two rays.
        weight: (C, D) of the head, for the shape, the device and the precision.
        bias: (C,) of the head, or None.
        subspace: r, the dimensions of the subspace of each block.

    Yields:
        The directions of up to 8 blocks on a CPU and 32 on a GPU, drawn in float32.

    Example:
        >>> weight, bias = torch.zeros(3, 40), torch.zeros(3)
        >>> (block,) = subspace_directions(0, 16, weight, bias, subspace=8)
        >>> weight_noise, _ = block.expand()
        >>> weight_noise.shape, int(torch.linalg.matrix_rank(weight_noise.flatten(0, 1)))
        (torch.Size([16, 3, 40]), 8)
    """
    C, D = weight.shape
    basis_rows = D
    if bias is not None:
        basis_rows += 1

    # Both factors of a block are drawn at once: the rows of A, then those of each G.
    block_rows = basis_rows + BLOCK * C
    draw_on_gpu = weight.is_cuda and not is_portable()
    group = _CPU_GROUP
    if draw_on_gpu:
        group = _gpu_group(block_rows * subspace)

    for first in range(0, count, group * BLOCK):
        group_count = min(group * BLOCK, count - first)
        blocks = -(-group_count // BLOCK)

        # Whole groups and blocks are drawn, so that `count` does not change what is drawn.
        if draw_on_gpu:
            generator = stream(seed, "subspace rays", first // BLOCK, device=weight.device)
            draws = normal((group, block_rows, subspace), generator, weight.device)
            draws = draws[:blocks]
        else:
            draws = _draw_blocks(seed, first // BLOCK, (blocks, block_rows, subspace))
        draws = draws.to(weight)

        bases = draws[:, :basis_rows].mul_(subspace**-0.5)
        bias_bases = None
        if bias is not None:
            bias_bases = bases[:, D]
        yield SubspaceDirections(
            bases=bases[:, :D],
            bias_bases=bias_bases,
            coefficients=draws[:, basis_rows:].unflatten(1, (BLOCK, C)),
            count=group_count,
        )


def _gpu_group(numbers_per_block: int) -> int:
    """Return how many blocks a stream serves on a GPU: a power of 2, by the size of a block."""
    group = _GPU_GROUP
    while group > 1 and group * numbers_per_block > _MAX_GROUP_NUMBERS:
        group //= 2
    return group


def _draw_blocks(seed: int, first: int, shape: tuple[int, int, int]) -> Tensor:
    """Draw blocks on the CPU, each from its own stream, beginning with block ``first``."""
    draws = torch.empty(shape)
    for k, block in enumerate(draws, start=first):
        block.normal_(generator=stream(seed, "subspace ray", k))
    return draws


def split_heads(
    weights: Tensor,
    biases: Tensor | None,
    size: int,
) -> Iterator[Noise]:
    """Yield weights (B, C, D) and biases (B, C) in chunks of at most ``size``, as views."""
    for start in range(0, len(weights), size):
        chunk = slice(start, start + size)
        if biases is None:
            yield weights[chunk], None
        else:
            yield weights[chunk], biases[chunk]
