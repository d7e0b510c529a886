"""Random directions in which the head of a model is moved, for the rays of ``kernels.ldm``.

Isotropic directions have independent N(0, 1) entries: ``E`` (C, D) for the weight and ``e`` (C,)
for the bias. *Subspace* directions are products of two such matrices,

    (E, e) = G A' / sqrt(r),    G (C, r) for every direction, A (D + 1, r) for a block of them,

so all directions of a block lie in the same random subspace of r dimensions, the columns of A. The
change of the logits along a direction, ``v = Z E' + e``, is then a product of r numbers per row:

    v = (Z_1 A / sqrt(r)) G',    with Z_1 the features and a column of ones for the bias.

The projection in brackets is computed once for a block. That is why they are cheap: a direction
costs N r C operations instead of N D C. They are as valid as any other directions, because nothing
but ``v`` depends on them. Their entries have variance 1, too, and each class by itself moves in any
direction with the same probability. What differs is that the classes of a direction share a
subspace, and that each block looks at the rows from another side. Both make extreme rows more
extreme, so that estimates of the LDM are a little lower, that is tighter, than with isotropic rays.

The subspace is drawn again for every block. One subspace for all directions, such as the principal
directions of the features, misses the changes outside of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from teeter.seeds import normal, stream

__all__ = [
    "BLOCK",
    "DEFAULT_SUBSPACE",
    "Directions",
    "Noise",
    "SubspaceBlock",
    "draw_directions",
    "ray_directions",
    "subspace_directions",
]

BLOCK = 16
"""Directions in a block of the random stream. Changing it changes every random direction."""

DEFAULT_SUBSPACE = 16
"""Dimensions of the subspace of a block. ``benchmarks/rays`` has the measurements behind it."""

Noise: TypeAlias = tuple[Tensor, Tensor | None]
"""Weight noise E (B, C, D) and bias noise e (B, C), or None for a head without a bias."""


@dataclass(frozen=True, eq=False)
class SubspaceBlock:
    """A block of directions in a subspace of r dimensions, as two factors."""

    basis: Tensor
    """(D, r) of the weight, ``A / sqrt(r)`` without its last row."""
    bias_basis: Tensor | None
    """(r,) of the bias, the last row of ``A / sqrt(r)``. None for a head without a bias."""
    coefficients: Tensor
    """(B, C, r), the ``G`` of each direction."""

    def __len__(self) -> int:
        """Return the number of directions."""
        return len(self.coefficients)

    def padded_coefficients(self) -> Tensor:
        """Return the coefficients with directions of zeros up to a whole block: (16, C, r)."""
        missing = BLOCK - len(self)
        if not missing:
            return self.coefficients
        return torch.nn.functional.pad(self.coefficients, (0, 0, 0, 0, 0, missing))

    def expand(self) -> Noise:
        """Return the same directions as weight noise (B, C, D) and bias noise (B, C)."""
        weight_noise = self.coefficients @ self.basis.T
        if self.bias_basis is None:
            return weight_noise, None
        return weight_noise, self.coefficients @ self.bias_basis


Directions: TypeAlias = Iterable[Noise | SubspaceBlock]
"""Blocks of directions, all of one kind."""


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
) -> Iterator[SubspaceBlock]:
    """Yield directions in random subspaces; block k is from the stream (seed, "subspace ray", k).

    Args:
        seed: seed of the random streams.
        count: number of directions; each gives two rays.
        weight: (C, D) of the head, for the shape, the device and the precision.
        bias: (C,) of the head, or None.
        subspace: r, the dimensions of the subspace of each block.

    Yields:
        Blocks of B = 16 directions, fewer in the last block, drawn in float32.

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

    for k, start in enumerate(range(0, count, BLOCK)):
        generator = stream(seed, "subspace ray", k, device=weight.device)
        size = min(BLOCK, count - start)

        # One draw for both factors, and always for a whole block: see ray_directions.
        draws = normal((basis_rows + BLOCK * C, subspace), generator, weight.device)
        draws = draws.to(weight.dtype)
        basis = draws[:basis_rows].mul_(subspace**-0.5)
        coefficients = draws[basis_rows:].view(BLOCK, C, subspace)

        bias_basis = None
        if bias is not None:
            bias_basis = basis[D]
        yield SubspaceBlock(
            basis=basis[:D],
            bias_basis=bias_basis,
            coefficients=coefficients[:size],
        )
