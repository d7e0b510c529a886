"""The least disagree metric (LDM) of rows under a linear head: by rays and by Algorithm 1.

Reference: Cho et al., Querying Easily Flip-flopped Samples for Deep Active Learning, ICLR 2024.

The LDM of a row is the least share of reference rows whose prediction changes under any change of
the head that flips the row's own prediction. Small values mean that the row sits near the decision
boundary.

Rays
----
The head ``l = Z W' + b`` is moved to ``(W + sigma E, b + sigma e)``. Along one direction ``(E, e)``
a row that predicts ``y`` keeps its label iff ``sigma (v_c - v_y) <= l_y - l_c`` for every class c,
with ``v = Z E' + e``. So it flips exactly once, at the strength sigma* with

    1 / sigma* = max over c of (v_c - v_y) / (l_y - l_c),

its *flip rate*. The rows that are flipped at a strength are nested sets, so the least disagreement
that flips a row on this ray is its rank by flip rate among the reference rows (``kernels.ranks``),
and the LDM is the minimum over rays. The opposite direction, a second ray, takes the minimum over c
instead of the maximum. Every value is an upper bound on the true LDM, exact along each ray.

If a row may have several labels, it has those whose logit is above 0. Each is gained or lost once,
at the strength ``-l_c / v_c`` if that is positive, and the row flips at the smallest of them:

    1 / sigma* = max over c of -v_c / l_c, and at least 0.

All else is the same.

How it works
------------
1. ``kernels.directions`` yields directions in blocks of 16 from named random streams. So the first
   directions are the same for any number of rays and any memory budget. By default the 16
   directions of a block share a random subspace, which makes ``v`` a small product.
2. ``kernels.flip_rates`` computes the flip rate of every row on a chunk of rays.
3. ``kernels.ranks`` lowers the least count of each row by its ranks on these rays.

``least`` (N,), the least count of each row so far, is lowered in place chunk by chunk: the rates of
all rays, (R, N), would not fit in memory.

Algorithm 1
-----------
``ldm_by_gaussian`` draws moved heads for a rising sequence of strengths, as the paper does, and
moves to the next strength after ``patience`` draws in a row that lowered no row's value. So all
rows share one counter, as in the code of the paper's authors. The printed algorithm has one per
row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from teeter.base.arrays import full_precision_matmul, tiles
from teeter.base.seeds import normal, stream
from teeter.kernels.directions import BLOCK, Directions, Noise, split_heads
from teeter.kernels.flip_rates import FlipRates, chunk_directions
from teeter.kernels.ranks import lower_among_sorted, lower_by_own_ranks, lower_by_reference_ranks

__all__ = [
    "ldm_against_reference",
    "ldm_by_gaussian",
    "ldm_by_rays",
    "paper_sigmas",
    "search_by_gaussian",
]


def paper_sigmas() -> list[float]:
    """Return the paper's 51 strengths: 1e-5 to 1, equally spaced in the exponent."""
    exponents = [k / 10 - 5 for k in range(51)]
    return [10.0**exponent for exponent in exponents]


def ldm_by_rays(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    directions: Directions,
    rays: int | None = None,
    reference: Tensor | None = None,
    sigma_max: float | None = None,
    several: bool = False,
) -> Tensor:
    """Return the LDM of each row: the least disagreement that flips it on any of the rays.

    Args:
        features: (N, D).
        weight: (C, D).
        bias: (C,) or None.
        directions: directions to follow; each is two rays, itself and its opposite.
        rays: R, the number of rays. None: all. An odd number drops the last opposite ray.
        reference: (M, D) rows to measure the disagreement on. None: the candidates themselves.
        sigma_max: strength beyond which flips are ignored. None: unlimited.
        several: whether a row may have several labels, of which any flips it.

    Returns:
        (N,) from 0 to 1; 1 for rows that never flip.

    Example:
        Four rows on a line with the decision boundary at 0. Moving the boundary flips an inner row
        alone, and an outer row only together with its neighbour.

        >>> import torch
        >>> from teeter.kernels.directions import ray_directions
        >>> features = torch.tensor([[3.0], [1.0], [-0.1], [-2.0]])
        >>> weight, bias = torch.tensor([[1.0], [-1.0]]), torch.zeros(2)
        >>> directions = ray_directions(0, 64, weight, bias)
        >>> ldm_by_rays(features, weight, bias, directions=directions)
        tensor([0.5000, 0.2500, 0.2500, 0.5000])
    """
    candidate_rates = FlipRates(features, weight, bias, several=several)
    reference_rates = None
    M = len(features)
    if reference is not None:
        reference_rates = FlipRates(reference, weight, bias, several=several)
        M = len(reference)
    least = _highest_counts(features, M)

    rays_done = 0
    for chunk in chunk_directions(directions, max(len(features), M)):
        # (chunk_rays, N), without the last mirror if the number of rays is odd.
        rates = candidate_rates.compute(chunk)
        if rays is not None:
            rates = rates[: rays - rays_done]
        chunk_rays = len(rates)
        rays_done += chunk_rays

        # A row that flips only beyond sigma_max counts as one that never flips.
        if sigma_max is not None:
            rates = rates.where(rates >= 1 / sigma_max, 0)

        if reference_rates is None:
            lower_by_own_ranks(least, rates)
        else:
            among = reference_rates.compute(chunk)[:chunk_rays]
            lower_by_reference_ranks(least, rates, among)

    return least.to(features.dtype) / M


def ldm_against_reference(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    directions: Directions,
    ranks: Tensor,
) -> Tensor:
    """Return the LDM of each row among reference rows whose flip rates are sorted already.

    The result is that of ``ldm_by_rays`` with these reference rows, and does not depend on how the
    candidates are split into calls.

    Args:
        features: (N, D).
        weight: (C, D).
        bias: (C,) or None.
        directions: the directions of the R rays.
        ranks: (R, M) flip rates of the reference rows, ascending along each ray.

    Returns:
        (N,) from 0 to 1.
    """
    R, M = ranks.shape
    candidate_rates = FlipRates(features, weight, bias)
    least = _highest_counts(features, M)

    rays_done = 0
    for chunk in chunk_directions(directions, max(len(features), M)):
        rates = candidate_rates.compute(chunk)
        rates = rates[: R - rays_done]  # an odd R has no opposite of its last direction
        chunk_end = rays_done + len(rates)
        lower_among_sorted(least, rates, ranks[rays_done:chunk_end])
        rays_done = chunk_end

    return least.to(features.dtype) / M


def ldm_by_gaussian(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    sigmas: Sequence[float],
    patience: int,
    seed: int,
    reference: Tensor | None = None,
    batch: int | None = None,
) -> Tensor:
    """Return the LDM by the paper's Algorithm 1; all rows share the draws and the counter.

    Args:
        features: (N, D).
        weight: (C, D).
        bias: (C,) or None.
        sigmas: strengths, ascending; the paper's are ``paper_sigmas()``.
        patience: draws in a row that must lower no row's value before the next strength (the
            paper's s).
        seed: seed of the random streams, one per strength.
        reference: (M, D) rows to measure the disagreement on. None: the candidates themselves.
        batch: hypotheses evaluated at once. It changes the speed, not the result. The paper's
            authors use 1.

    Returns:
        (N,) from 0 to 1.
    """
    ldm, _ = search_by_gaussian(
        features,
        weight,
        bias,
        sigmas=sigmas,
        patience=patience,
        seed=seed,
        reference=reference,
        batch=batch,
    )
    return ldm


def search_by_gaussian(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    sigmas: Sequence[float],
    patience: int,
    seed: int,
    reference: Tensor | None = None,
    batch: int | None = None,
) -> tuple[Tensor, int]:
    """Return what ``ldm_by_gaussian`` returns, and the number of hypotheses it used.

    Hypotheses are drawn in blocks of 16. Those drawn after the patience ran out do not count.
    """
    # The head as a batch of one: (1, N) and (1, M) predictions.
    single_bias = None
    if bias is not None:
        single_bias = bias[None]
    predicted = _predict(features, weight[None], single_bias)
    reference_predicted = predicted
    M = len(features)
    if reference is not None:
        reference_predicted = _predict(reference, weight[None], single_bias)
        M = len(reference)

    # As many blocks at once as the patience needs at least.
    blocks = 1
    if batch != 1:
        patience_blocks = -(-patience // BLOCK)
        blocks = min(patience_blocks, BLOCK)

    least = _highest_counts(features, M)
    hypotheses_used = 0
    for k, sigma in enumerate(sigmas):
        generator = stream(seed, "gaussian", k, device=features.device)
        hypotheses = _draw_hypotheses(
            weight,
            bias,
            sigma,
            generator,
            blocks=blocks,
            batch=batch or blocks * BLOCK,
        )
        idle = 0  # draws in a row that lowered nothing

        while idle < patience:
            moved_weight, moved_bias = next(hypotheses)
            is_flipped = _predict(features, moved_weight, moved_bias) != predicted  # (B, N)
            is_different = is_flipped  # (B, M)
            if reference is not None:
                is_different = _predict(reference, moved_weight, moved_bias) != reference_predicted
            disagreement = is_different.sum(dim=1, dtype=torch.int32)  # (B,)

            # (B, N) the disagreement where a draw flips a row, and the most there can be elsewhere.
            values = disagreement[:, None].where(is_flipped, M)

            # Whether each draw lowers any row's value, given all draws before it.
            lows = torch.cat([least[None], values]).cummin(dim=0).values
            least_before = lows[:-1]
            lowers = (values < least_before).any(dim=1).tolist()

            used, idle = _count_until_idle(lowers, idle, patience)
            least = torch.minimum(least, values[:used].amin(dim=0))
            hypotheses_used += used

    return least.to(features.dtype) / M, hypotheses_used


def _highest_counts(features: Tensor, M: int) -> Tensor:
    """Return counts to be lowered ray by ray: (N,) int32, all M, as if no row ever flipped."""
    return features.new_full((len(features),), M, dtype=torch.int32)


def _count_until_idle(
    lowers: Sequence[bool],
    idle: int,
    patience: int,
) -> tuple[int, int]:
    """Return how many draws count, and how many of the last of them in a row lowered nothing.

    Args:
        lowers: whether each draw lowered any row's value.
        idle: draws in a row before these that lowered nothing.
        patience: draws in a row that lower nothing after which the rest does not count.
    """
    for used, lowered in enumerate(lowers, start=1):
        if lowered:
            idle = 0
        else:
            idle += 1
        if idle >= patience:
            return used, idle

    return len(lowers), idle


def _draw_hypotheses(
    weight: Tensor,
    bias: Tensor | None,
    sigma: float,
    generator: torch.Generator,
    *,
    blocks: int,
    batch: int,
) -> Iterator[Noise]:
    """Yield moved heads without end, ``batch`` at a time: weights (B, C, D) and biases (B, C)."""
    while True:
        # Block by block, so that neither `blocks` nor `batch` changes what is drawn.
        weight_noise = []
        bias_noise = []
        for _ in range(blocks):
            weight_noise.append(normal((BLOCK, *weight.shape), generator, weight.device))
            if bias is not None:
                bias_noise.append(normal((BLOCK, len(bias)), generator, bias.device))

        weights = weight + sigma * torch.cat(weight_noise)
        biases = None
        if bias is not None:
            biases = bias + sigma * torch.cat(bias_noise)
        yield from split_heads(weights, biases, batch)


def _predict(
    features: Tensor,
    weights: Tensor,
    biases: Tensor | None,
) -> Tensor:
    """Return predicted classes: features (N, D), weights (B, C, D), biases (B, C) -> (B, N)."""
    B, C, _ = weights.shape
    bytes_per_row = B * C * features.element_size() * 2
    predictions = []

    with full_precision_matmul():
        for tile in tiles(len(features), bytes_per_row, features.device):
            products = weights.flatten(0, 1) @ features[tile].T  # (B * C, tile)
            logits = products.view(B, C, -1)
            if biases is not None:
                logits += biases[:, :, None]
            # Across a stride, max is several times faster than argmax.
            predictions.append(logits.max(dim=1).indices)

    if len(predictions) == 1:
        return predictions[0]
    return torch.cat(predictions, dim=1)
