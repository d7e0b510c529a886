"""Greedy k-center: each pick is the row farthest from the centres and from the picks before it.

Reference: Sener and Savarese, Active Learning for Convolutional Neural Networks: A Core-Set Approach, ICLR 2018.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teeter.arrays import TILE
from teeter.kernels.distances import Euclidean

__all__ = ["k_center"]

BLOCK = TILE
"""Rows among which picks are made before all distances are brought up to date."""

CENTRES = 1024
"""Centres measured at a time: a fixed number, so that the working memory does not decide how products round."""


def k_center(features: Tensor, centres: Tensor, n: int, *, block: int = BLOCK) -> Tensor:
    """Return n different rows, each the farthest from the centres and from the rows picked before it.

    features (N, D), centres (L, D) -> (n,) int64 in the order of picking; equal distances go to the lowest row. Rows at
    distance 0 come last, the lowest first. Without centres the first pick is the row farthest from the mean.

    Distances only fall as picks are added. So among the ``block`` rows of largest distance one pick after the other can
    be made while the best is farther away than every row outside: these are the picks of the whole pool, at one
    product for all of them.
    """
    rows = len(features)
    distance = Euclidean(torch.cat([features, centres]))
    nearest = torch.full_like(distance.squares[:rows], torch.inf)
    for start in range(rows, rows + len(centres), CENTRES):
        some = torch.arange(
            start, min(start + CENTRES, rows + len(centres)), device=features.device
        )
        nearest = torch.minimum(nearest, distance.nearest(some)[:rows])
    picks = fresh = (
        _farthest(distance, nearest, n, block) if len(centres) else distance.squares.argmax()[None]
    )
    while len(picks) < n:
        nearest = torch.minimum(nearest, distance.nearest(fresh)[:rows])
        nearest[fresh] = -1
        if not nearest.max() > 0:
            return torch.cat([picks, (nearest == 0).nonzero().flatten()[: n - len(picks)]])
        fresh = _farthest(distance, nearest, n - len(picks), block)
        picks = torch.cat([picks, fresh])
    return picks


def _farthest(distance: Euclidean, nearest: Tensor, wanted: int, size: int) -> Tensor:
    """Return the next picks that a block of ``size`` rows decides: at least one, at most ``wanted``."""
    rows, beyond = _block(nearest, size)
    even = torch.nn.functional.pad(
        rows, (0, -len(rows) % TILE)
    )  # to full tiles, where copies get equal distances
    pairs = distance.between(even, even)[: len(rows), : len(rows)]
    chosen = _walk(pairs.cpu().numpy(), nearest[rows].cpu().numpy(), beyond, wanted)
    return rows[torch.tensor(chosen, device=rows.device)]


def _block(nearest: Tensor, size: int) -> tuple[Tensor, float]:
    """Return the ``size`` rows of largest distance in ascending order, and the largest distance outside.

    Among equal distances the lowest rows get in.
    """
    if size >= len(nearest):
        return torch.arange(len(nearest), device=nearest.device), 0.0
    largest = nearest.topk(size + 1).values
    inside = nearest > largest[size - 1]
    level = (nearest == largest[size - 1]).nonzero().flatten()
    inside[level[: size - int(inside.sum())]] = True
    return inside.nonzero().flatten(), max(0.0, float(largest[size]))


def _walk(
    pairs: npt.NDArray[np.floating], now: npt.NDArray[np.floating], beyond: float, wanted: int
) -> list[int]:
    """Return picks by the largest distance; all but the first must be farther away than ``beyond``."""
    chosen: list[int] = []
    while len(chosen) < wanted:
        best = int(now.argmax())
        if chosen and not now[best] > beyond:
            break
        chosen.append(best)
        now = np.minimum(now, pairs[best])
        now[best] = -1
    return chosen
