"""The least disagree metric of rows under a linear head: by rays, exact along every direction, and by Algorithm 1.

The head ``l = Z W' + b`` is moved to ``(W + sigma E, b + sigma e)``. Along one direction ``(E, e)`` a row that
predicts ``y`` keeps its label iff ``sigma (v_c - v_y) <= l_y - l_c`` for every class c, with ``v = Z E' + e``. So it
flips once, at ``1 / sigma* = max over c of (v_c - v_y) / (l_y - l_c)``, and the rows flipped at a strength are nested
sets: the least disagreement that flips a row is its rank among the reference rows. The opposite direction is the
minimum in the place of the maximum.

Reference: Cho et al., Querying Easily Flip-flopped Samples for Deep Active Learning, ICLR 2024.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import torch
from torch import Tensor

from teeter.arrays import full_precision_matmul, memory_budget, pad_to_tile, tiles
from teeter.kernels.fused import use_fused_kernel
from teeter.kernels.ranks import lower_among_sorted, lower_by_own_ranks, lower_by_reference_ranks
from teeter.seeds import is_portable, normal, stream

__all__ = [
    "BLOCK",
    "Directions",
    "default_rays",
    "flip_rates",
    "ldm_against_reference",
    "ldm_by_gaussian",
    "ldm_by_rays",
    "paper_sigmas",
    "ray_directions",
    "search_by_gaussian",
]

BLOCK = 16
"""Directions a block of the random stream holds."""

_TIE = 16
"""Logits this many roundings apart are tied: two equal rows of a weight do not always give equal logits."""

Directions: TypeAlias = Iterable[tuple[Tensor, Tensor | None]]
"""Blocks of directions: E (B, C, D) with e (B, C), or None for a head without a bias."""


def default_rays(classes: int, width: int) -> int:
    """Return how many rays to follow when the caller does not say."""
    return 1024 if classes * width > 20_000 else 512


def paper_sigmas() -> list[float]:
    """Return the paper's 51 strengths: 1e-5 to 1, equally spaced in the exponent."""
    return [10.0 ** (k / 10 - 5) for k in range(51)]


def ray_directions(
    seed: int, count: int, weight: Tensor, bias: Tensor | None
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield ``count`` isotropic directions for a head, block k from the stream (seed, "ray", k).

    weight (C, D), bias (C,) or None -> blocks of E (B, C, D) and e (B, C), float32 draws in the head's precision.
    """
    for k, start in enumerate(range(0, count, BLOCK)):
        generator = stream(seed, "ray", k, device=weight.device)
        kept = min(BLOCK, count - start)
        moves = normal((BLOCK, *weight.shape), generator, weight.device)[:kept].to(weight.dtype)
        if bias is None:
            yield moves, None
        else:
            yield (
                moves,
                normal((BLOCK, len(bias)), generator, weight.device)[:kept].to(weight.dtype),
            )


def ldm_by_rays(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    directions: Directions,
    rays: int | None = None,
    reference: Tensor | None = None,
    sigma_max: float | None = None,
) -> Tensor:
    """Return the least disagreement that flips each row on any of the rays.

    features (N, D), weight (C, D), bias (C,) or None, reference (M, D) or None for the candidates -> (N,) in [0, 1].
    Every direction is two rays, itself and its mirror; ``rays`` cuts the last mirror off when it is odd.
    """
    candidates = _Rows(features, weight, bias)
    others = None if reference is None else _Rows(reference, weight, bias)
    size = len(features) if reference is None else len(reference)
    least = torch.full((len(features),), size, dtype=torch.int32, device=features.device)
    followed = 0
    for moves, shifts in _passes(directions, max(len(features), size)):
        kept = 2 * len(moves) if rays is None else min(2 * len(moves), rays - followed)
        followed += kept
        rates = _limited(candidates.flip_rates(moves, shifts)[:kept], sigma_max)
        if others is None:
            lower_by_own_ranks(least, rates)
        else:
            lower_by_reference_ranks(least, rates, others.flip_rates(moves, shifts)[:kept])
    return least.to(features.dtype) / size


def ldm_against_reference(
    features: Tensor, weight: Tensor, bias: Tensor | None, *, directions: Directions, ranks: Tensor
) -> Tensor:
    """Return the least disagreement among reference rows whose flip rates are known, in rising order a ray.

    features (N, D), weight (C, D), bias (C,) or None, ranks (R, M) for the R rays of ``directions`` -> (N,) in [0, 1].
    It is what ``ldm_by_rays`` says for these reference rows, whatever part of the candidates is asked for at a time.
    """
    rows, size = _Rows(features, weight, bias), ranks.shape[1]
    least = torch.full((len(features),), size, dtype=torch.int32, device=features.device)
    followed = 0
    for moves, shifts in _passes(directions, max(len(features), size)):
        rates = rows.flip_rates(moves, shifts)[: len(ranks) - followed]
        lower_among_sorted(least, rates, ranks[followed : followed + len(rates)])
        followed += len(rates)
    return least.to(features.dtype) / size


def flip_rates(
    features: Tensor, weight: Tensor, bias: Tensor | None, directions: Directions
) -> Tensor:
    """Return ``1 / sigma*`` of each row on each ray: 0 where the row never flips, infinite where it sits on a boundary.

    features (N, D), weight (C, D), bias (C,) or None -> (R, N), rays in the order E1, -E1, E2, ...
    """
    rows = _Rows(features, weight, bias)
    return torch.cat([rows.flip_rates(moves, shifts) for moves, shifts in directions])


def _limited(rates: Tensor, sigma_max: float | None) -> Tensor:
    return rates if sigma_max is None else rates.where(rates >= 1 / sigma_max, 0)


def _passes(directions: Directions, rows: int) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Join blocks on a GPU as far as their products and ranks fit in the working memory; on a CPU one is enough."""
    blocks = iter(directions)
    first = next(blocks, None)
    if first is None:
        return
    moves = first[0]
    fits = BLOCK
    if moves.is_cuda:
        room, ranking, products = (
            memory_budget(moves.device),
            2 * rows * 8 * moves.element_size(),
            moves.shape[1] * rows * 8,
        )
        if _is_fused(rows, moves[0]):
            products = 2 * moves[0].numel() * moves.element_size()
        fits = max(1, min(room // 2 // ranking, room // products) // BLOCK) * BLOCK
    yield from _regrouped(chain([first], blocks), fits)


def _regrouped(blocks: Directions, size: int) -> Iterator[tuple[Tensor, Tensor | None]]:
    held: list[tuple[Tensor, Tensor | None]] = []
    count = 0
    for block in blocks:
        held.append(block)
        count += len(block[0])
        if count >= size:
            yield from _split(held, size)
            held, count = [], 0
    if held:
        yield from _split(held, size)


def _split(
    blocks: Sequence[tuple[Tensor, Tensor | None]], size: int
) -> Iterator[tuple[Tensor, Tensor | None]]:
    moves = torch.cat([block[0] for block in blocks]) if len(blocks) > 1 else blocks[0][0]
    some = [block[1] for block in blocks if block[1] is not None]
    shifts = torch.cat(some) if some else None
    for start in range(0, len(moves), size):
        cut = slice(start, start + size)
        yield moves[cut], None if shifts is None else shifts[cut]


@dataclass(frozen=True)
class _Tile:
    """Some rows, transposed: their features for the noise, and what their predictions need to flip."""

    where: slice
    features: Tensor  # (D, n)
    predicted: Tensor  # (n,)
    inverse_gaps: Tensor  # (C, n): 1 / (l_y - l_c), 0 at y
    tied: bool


def _is_fused(rows: int, weight: Tensor) -> bool:
    """Tell whether the flip rates of so many rows under a head are worth a fused kernel, for as many rays as usual."""
    return use_fused_kernel(weight, default_rays(*weight.shape) * rows * weight.numel())


class _Rows:
    """Rows under a head, cut into tiles; the tiles are kept where they fit and made anew where they do not."""

    def __init__(self, features: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        self.features, self.weight, self.bias = features, weight, bias
        on_gpu = features.is_cuda
        self.noise = (
            torch.bfloat16
            if on_gpu and features.dtype == torch.float32 and not is_portable()
            else features.dtype
        )
        self.fused = self.noise == torch.bfloat16 and _is_fused(len(features), weight)
        kept = len(features) * (
            len(weight) * features.element_size() + (features.shape[1] * 2 if on_gpu else 0)
        )
        self._kept = list(self._make()) if kept <= memory_budget(features.device) // 2 else None

    def _make(self) -> Iterator[_Tile]:
        per_row = (1 if self.fused else BLOCK) * len(self.weight) * self.features.element_size() * 2
        # On the CPU a tile's product should stay in the cache for the three passes that follow it.
        in_cache = None if self.features.is_cuda else (1 << 20) // (BLOCK * len(self.weight))
        for where in tiles(len(self.features), per_row, self.features.device, at_most=in_cache):
            yield self._tile(where)

    def _tile(self, where: slice) -> _Tile:
        features = pad_to_tile(self.features[where]).T
        with full_precision_matmul():
            logits = self.weight @ features
        if self.bias is not None:
            logits += self.bias[:, None]
        gaps = logits.amax(dim=0) - logits
        gaps.masked_fill_(gaps <= _TIE * torch.finfo(gaps.dtype).eps * logits.abs().amax(dim=0), 0)
        lowest_first = torch.arange(len(gaps), 0, -1, device=gaps.device)
        predicted = ((gaps == 0) * lowest_first[:, None]).argmax(dim=0)
        inverse = gaps.reciprocal_()
        inverse.scatter_(0, predicted[None], 0)
        inverse[:, where.stop - where.start :] = 0
        return _Tile(
            where, features.to(self.noise), predicted, inverse, bool(inverse.isinf().any())
        )

    def flip_rates(self, moves: Tensor, shifts: Tensor | None) -> Tensor:
        """moves (B, C, D), shifts (B, C) -> (2B, N), each direction followed by its mirror."""
        count, missing = len(moves), -len(moves) % BLOCK
        if missing:  # whole blocks, so that the rays asked for do not decide how products round
            moves = torch.nn.functional.pad(moves, (0, 0, 0, 0, 0, missing))
            shifts = None if shifts is None else torch.nn.functional.pad(shifts, (0, 0, 0, missing))
        rates = self.features.new_empty((len(moves), 2, len(self.features)))
        noise = moves.to(self.noise)
        for tile in self._kept if self._kept is not None else self._make():
            self._fill(rates[:, :, tile.where], tile, noise, shifts)
        return rates[:count].flatten(0, 1)

    def _fill(self, rates: Tensor, tile: _Tile, noise: Tensor, shifts: Tensor | None) -> None:
        if self.fused:
            from teeter.kernels.fused.flip_rates import fill_flip_rates

            fill_flip_rates(
                rates,
                tile.features.T,
                tile.predicted,
                tile.inverse_gaps.T,
                noise,
                shifts,
                tied=tile.tied,
            )
            return
        change = _product(noise.flatten(0, 1), tile.features, self.features.dtype).view(
            *noise.shape[:2], -1
        )
        if shifts is not None:
            change += shifts[:, :, None]
        change -= change.gather(1, tile.predicted.expand(len(noise), 1, -1))
        change *= tile.inverse_gaps
        if tile.tied:
            change.nan_to_num_(
                nan=0.0, posinf=torch.inf, neginf=-torch.inf
            )  # 0 * inf: a tied class that does not move
        rates[:, 0] = change.amax(dim=1)[:, : rates.shape[2]]
        rates[:, 1] = change.amin(dim=1)[:, : rates.shape[2]].abs_()


def _product(left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    if left.dtype == dtype:
        with full_precision_matmul():
            return left @ right
    return torch.mm(left, right, out_dtype=dtype)


def ldm_by_gaussian(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    sigmas: Sequence[float],
    patience: int,
    seed: int,
    reference: Tensor | None = None,
    together: int | None = None,
) -> Tensor:
    """Return the LDM by the paper's Algorithm 1, all rows sharing draws and counter.

    features (N, D), weight (C, D), bias (C,) or None, reference (M, D) or None for the candidates -> (N,) in [0, 1].
    ``together`` is how many hypotheses are looked at at once, 1 as the paper's authors do; the answer is the same.
    """
    return search_by_gaussian(
        features,
        weight,
        bias,
        sigmas=sigmas,
        patience=patience,
        seed=seed,
        reference=reference,
        together=together,
    )[0]


def search_by_gaussian(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    sigmas: Sequence[float],
    patience: int,
    seed: int,
    reference: Tensor | None = None,
    together: int | None = None,
) -> tuple[Tensor, int]:
    """Return what ``ldm_by_gaussian`` does, and how many hypotheses it took.

    They are drawn in blocks of 16; those past the end of a strength's turn do not count.
    """
    predicted = _predictions(features, weight[None], _one(bias))
    others = None if reference is None else _predictions(reference, weight[None], _one(bias))
    size = len(features) if reference is None else len(reference)
    least = torch.full((len(features),), size, dtype=torch.int32, device=features.device)
    taken, blocks = 0, 1 if together == 1 else min(-(-patience // BLOCK), BLOCK)
    for k, sigma in enumerate(sigmas):
        generator = stream(seed, "gaussian", k, device=features.device)
        idle = 0
        hypotheses = _drawn(
            weight, bias, sigma, generator, blocks=blocks, together=together or blocks * BLOCK
        )
        while idle < patience:
            moved, shifted = next(hypotheses)
            flipped = _predictions(features, moved, shifted) != predicted
            if reference is None or others is None:
                disagreement = flipped.sum(dim=1, dtype=torch.int32)
            else:
                disagreement = (_predictions(reference, moved, shifted) != others).sum(
                    dim=1, dtype=torch.int32
                )
            values = disagreement[:, None].where(flipped, size)
            before = torch.cat([least[None], values]).cummin(dim=0).values[:-1]
            used, idle = _until_idle((values < before).any(dim=1).tolist(), idle, patience)
            least = torch.minimum(least, values[:used].amin(dim=0))
            taken += used
    return least.to(features.dtype) / size, taken


def _until_idle(lowered: Sequence[bool], idle: int, patience: int) -> tuple[int, int]:
    """Return how many draws count, and how many of them in a row lowered nothing in the end."""
    for used, hit in enumerate(lowered, start=1):
        idle = 0 if hit else idle + 1
        if idle >= patience:
            return used, idle
    return len(lowered), idle


def _one(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else bias[None]


def _drawn(
    weight: Tensor,
    bias: Tensor | None,
    sigma: float,
    generator: torch.Generator,
    *,
    blocks: int,
    together: int,
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield the stream's hypotheses without end, so many at once: weights (B, C, D), biases (B, C)."""
    while True:
        moves, shifts = [], []
        for _ in range(blocks):
            moves.append(normal((BLOCK, *weight.shape), generator, weight.device))
            if bias is not None:
                shifts.append(normal((BLOCK, len(bias)), generator, bias.device))
        moved = weight + sigma * torch.cat(moves)
        shifted = None if bias is None else bias + sigma * torch.cat(shifts)
        for start in range(0, len(moved), together):
            cut = slice(start, start + together)
            yield moved[cut], None if shifted is None else shifted[cut]


def _predictions(features: Tensor, weights: Tensor, biases: Tensor | None) -> Tensor:
    """features (N, D), weights (B, C, D), biases (B, C) -> (B, N)."""
    pieces = []
    with full_precision_matmul():
        for where in tiles(
            len(features), weights[..., 0].numel() * features.element_size() * 2, features.device
        ):
            logits = (weights.flatten(0, 1) @ features[where].T).view(*weights.shape[:2], -1)
            if biases is not None:
                logits += biases[:, :, None]
            pieces.append(
                logits.max(dim=1).indices
            )  # several times faster than argmax across a stride
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)
