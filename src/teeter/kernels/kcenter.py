"""Greedy k-center (core-set): each pick is the row farthest from the centres and earlier picks.

Reference: Sener and Savarese, Active Learning for Convolutional Neural Networks: A Core-Set
Approach, ICLR 2018.

Distances to the nearest centre only fall as picks are added. So among the ``block`` rows of largest
distance, picks can be made one after the other as long as the best of them is farther away than
every row outside the block. They are the picks that the whole pool would give, and one matrix
product updates the distances for all of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teeter.base.arrays import TILE
from teeter.kernels.distances import Euclidean

__all__ = [
    "BLOCK",
    "CENTRES_PER_PRODUCT",
    "k_center",
]

BLOCK = TILE
"""Rows among which picks are made before all distances are updated."""

CENTRES_PER_PRODUCT = 1024
"""Centres in one product. A constant, so that the memory budget does not change rounding."""


def k_center(
    features: Tensor,
    centres: Tensor,
    n: int,
    *,
    block: int = BLOCK,
) -> Tensor:
    """Pick n different rows, each the farthest from the centres and the rows picked before it.

    Equal distances go to the lowest row. Rows at distance 0 come last, the lowest first. Without
    centres the first pick is the row farthest from the mean.

    Args:
        features: (N, D) candidates.
        centres: (L, D) rows that are covered already, for example the labelled ones. L may be 0.
        n: number of picks, 1 to N.
        block: rows among which picks are made before all distances are updated. It changes the
            speed, not the picks.

    Returns:
        (n,) int64 positions in the order of picking.

    Example:
        >>> import torch
        >>> rows = torch.tensor([[0.0], [1.0], [4.0], [10.0]])
        >>> k_center(rows, centres=rows[:1], n=2)
        tensor([3, 2])
    """
    # Candidates at positions 0 to N - 1, then the centres.
    N = len(features)
    distance = Euclidean(torch.cat([features, centres]))
    total = N + len(centres)

    # (N,) each candidate's distance to the nearest centre or pick; -1 for picks.
    nearest = torch.full_like(distance.squares[:N], torch.inf)
    for start in range(N, total, CENTRES_PER_PRODUCT):
        stop = min(start + CENTRES_PER_PRODUCT, total)
        chunk = torch.arange(start, stop, device=features.device)
        to_centres = distance.nearest(chunk)
        nearest = torch.minimum(nearest, to_centres[:N])

    if len(centres):
        new_picks = _pick_farthest(distance, nearest, n, block)
    else:
        # The features are centred: the longest row is the farthest from the mean.
        new_picks = distance.squares.argmax()[None]

    picks = new_picks
    while len(picks) < n:
        to_picks = distance.nearest(new_picks)
        nearest = torch.minimum(nearest, to_picks[:N])
        nearest[new_picks] = -1

        wanted = n - len(picks)
        if not nearest.max() > 0:
            copies = (nearest == 0).nonzero().flatten()
            return torch.cat([picks, copies[:wanted]])

        new_picks = _pick_farthest(distance, nearest, wanted, block)
        picks = torch.cat([picks, new_picks])

    return picks


def _pick_farthest(
    distance: Euclidean,
    nearest: Tensor,
    wanted: int,
    block: int,
) -> Tensor:
    """Return the next picks that a block of rows decides: at least one, at most ``wanted``."""
    rows, largest_outside = _farthest_block(nearest, block)  # (A,) and a distance
    row_count = len(rows)

    # Filled up to full tiles, in which copies get equal distances.
    missing = -row_count % TILE
    padded = torch.nn.functional.pad(rows, (0, missing))
    pairs = distance.between(padded, padded)
    pairs = pairs[:row_count, :row_count]

    chosen = _pick_within_block(
        pairs.cpu().numpy(),
        nearest[rows].cpu().numpy(),
        largest_outside,
        wanted,
    )
    return rows[torch.tensor(chosen, device=rows.device)]


def _farthest_block(nearest: Tensor, size: int) -> tuple[Tensor, float]:
    """Return the ``size`` rows of largest distance, ascending, and the largest distance outside.

    Among equal distances the lowest rows are inside.
    """
    if size >= len(nearest):
        all_rows = torch.arange(len(nearest), device=nearest.device)
        return all_rows, 0.0

    # topk does not say which of equal distances it takes, so it gives the border only.
    largest = nearest.topk(size + 1).values
    border = largest[size - 1]
    is_inside = nearest > border
    tied_at_border = (nearest == border).nonzero().flatten()
    room = size - int(is_inside.sum())
    is_inside[tied_at_border[:room]] = True

    largest_outside = max(0.0, float(largest[size]))
    return is_inside.nonzero().flatten(), largest_outside


def _pick_within_block(
    pairs: npt.NDArray[np.floating],
    nearest: npt.NDArray[np.floating],
    largest_outside: float,
    wanted: int,
) -> list[int]:
    """Return picks by largest distance. All but the first must exceed ``largest_outside``.

    The first need not: it has the largest distance of all rows, inside the block and outside.

    Args:
        pairs: (A, A) distances between the rows of the block.
        nearest: (A,) their distances to the nearest centre or pick, -1 for picks. Not changed.
        largest_outside: largest distance to the nearest centre or pick outside the block.
        wanted: number of picks after which to stop.
    """
    chosen: list[int] = []

    while len(chosen) < wanted:
        best = int(nearest.argmax())
        if chosen and not nearest[best] > largest_outside:
            break

        chosen.append(best)
        nearest = np.minimum(nearest, pairs[best])
        nearest[best] = -1

    return chosen
