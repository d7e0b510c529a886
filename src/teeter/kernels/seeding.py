"""Weighted k-means++ seeding and the weights of LDM-Seeding (equations 5 and 6 of the paper).

Each pick is drawn with probability proportional to ``(weight * distance to the nearest pick)^2``.
Drawing one pick at a time needs all distances after each of them. Weights only fall as picks are
added, so a block of candidates can be drawn with replacement from the weights as they are, and each
candidate is then accepted with probability ``weight now / weight when drawn``. This is rejection
sampling from the sequential law: exact for any block size, at the speed of matrix products.
(Drawing the block *without* replacement would be wrong.)

Reference: Cho et al., Querying Easily Flip-flopped Samples for Deep Active Learning, ICLR 2024;
Arthur and Vassilvitskii, k-means++: The Advantages of Careful Seeding, SODA 2007.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from teeter.base.seeds import uniform
from teeter.kernels.distances import Cosine, Distance
from teeter.kernels.fused import use_fused_kernel

__all__ = [
    "BLOCK",
    "accept_candidates",
    "ldm_log_weights",
    "ldm_seeding",
    "seed_rows",
]

BLOCK = 256
"""Candidates drawn before the weights are updated."""

_OPERATIONS_PER_DISTANCE = 1000
"""Rough cost of one row's distance to one pick, to decide whether a fused kernel pays off."""


def ldm_log_weights(ldm: Tensor, n: int) -> Tensor:
    """Return log gamma of LDM-Seeding (equation 5).

    The n rows of smallest LDM and all other rows have the same total weight. If the n-th smallest
    LDM is 0, the smallest positive LDM replaces it.

    Args:
        ldm: (N,) least disagree metric.
        n: number of picks, 1 to N.

    Returns:
        (N,) float64. Logarithms, because the weights themselves underflow.
    """
    ldm = ldm.double()
    order = ldm.argsort(stable=True)

    # L_q, the paper's name: the n-th smallest LDM, or what replaces it.
    L_q = ldm[order[n - 1]]
    if L_q == 0:
        positive = ldm[ldm > 0]
        if len(positive):
            L_q = positive.min()
        else:
            L_q = torch.ones_like(L_q)

    # The exponent of equation 5: 0 up to L_q, then falling with the excess over it.
    excess = (ldm - L_q).clamp_min(0)
    log_weights = -(excess / L_q)

    # Dividing by the sum gives both parts the total weight 1.
    for partition in (order[:n], order[n:]):
        if len(partition):
            log_weights[partition] -= log_weights[partition].logsumexp(dim=0)
    return log_weights


def ldm_seeding(
    ldm: Tensor,
    features: Tensor,
    n: int,
    *,
    generator: Generator,
) -> Tensor:
    """Pick n rows by LDM-Seeding: small LDMs that are far apart in cosine distance (equation 6).

    The first pick is the row of smallest LDM.

    Args:
        ldm: (N,) least disagree metric, or any other score that is small for the rows wanted.
        features: (N, D).
        n: number of picks, 1 to N.
        generator: source of randomness.

    Returns:
        (n,) int64 positions in the order of picking.

    Example:
        >>> import torch
        >>> features = torch.eye(3).repeat(2, 1)
        >>> ldm = torch.tensor([0.3, 0.1, 0.2, 0.3, 0.1, 0.2])
        >>> picks = ldm_seeding(ldm, features, 3, generator=torch.Generator().manual_seed(0))
        >>> int(picks[0]), len(set((picks % 3).tolist()))
        (1, 3)
    """
    return seed_rows(
        Cosine(features),
        n,
        first=int(ldm.argsort(stable=True)[0]),
        log_weights=ldm_log_weights(ldm, n),
        preference=ldm,
        generator=generator,
    )


def seed_rows(
    distance: Distance,
    n: int,
    *,
    first: int,
    log_weights: Tensor,
    preference: Tensor,
    generator: Generator,
    block: int = BLOCK,
) -> Tensor:
    """Pick n different rows, each drawn by ``(weight * distance to the nearest pick)^2``.

    When every remaining weight is 0, the rows of smallest ``preference`` fill up.

    Args:
        distance: distance over the N rows.
        n: number of picks, 1 to N.
        first: position of the first pick.
        log_weights: (N,) float64; -inf for rows that must not be drawn.
        preference: (N,).
        generator: source of randomness.
        block: candidates drawn before the weights are updated. The law of the picks does not depend
            on it.

    Returns:
        (n,) int64 positions in the order of picking.
    """
    N = len(log_weights)
    is_taken = log_weights.new_zeros(N, dtype=torch.bool)

    if use_fused_kernel(log_weights, _OPERATIONS_PER_DISTANCE * n * N):
        from teeter.kernels.fused.seeding import seed_on_gpu

        picks = seed_on_gpu(
            distance,
            n,
            first=first,
            log_weights=log_weights,
            generator=generator,
            block=block,
        )
        is_taken[picks] = True
        return _fill_up(picks, preference, is_taken, n)

    # (N,) distance of every row to the nearest pick.
    nearest = torch.full_like(log_weights, torch.inf)
    picks = torch.tensor([first], device=log_weights.device)
    new_picks = picks
    while len(picks) < n:
        is_taken[new_picks] = True
        nearest = torch.minimum(nearest, distance.nearest(new_picks).double())

        # (N,) logarithm of (weight * distance)^2, -inf for picks and their copies.
        log_squares = 2 * (log_weights + nearest.log())
        log_squares.masked_fill_(is_taken, -torch.inf)
        peak = log_squares.max()
        if peak == -torch.inf:
            return _fill_up(picks, preference, is_taken, n)

        # By weights relative to the largest, so that not all of them underflow.
        block_size = min(block, max(16, n))
        candidates = _draw_with_replacement((log_squares - peak).exp_(), block_size, generator)
        new_picks = _accept(
            distance,
            candidates,
            nearest[candidates],
            wanted=n - len(picks),
            generator=generator,
        )
        picks = torch.cat([picks, new_picks])

    return picks


def accept_candidates(
    rows: npt.NDArray[np.int64],
    pairs: npt.NDArray[np.float64],
    *,
    nearest: npt.NDArray[np.float64],
    thresholds: npt.NDArray[np.float64],
    wanted: int,
) -> list[int]:
    """Walk through drawn candidates and return those that the sequential law accepts.

    A candidate is accepted if its distance to the nearest pick, including those accepted before it,
    is still above its threshold. With threshold ``sqrt(u) * distance when drawn`` and u uniform,
    that has probability ``weight now / weight when drawn``.

    Args:
        rows: (B,) candidates in the order in which they were drawn; a row may appear several times.
        pairs: (B, B) distances between them.
        nearest: (B,) distances to the picks before this block.
        thresholds: (B,).
        wanted: number of candidates after which to stop.

    Returns:
        Positions in ``rows``, ascending.
    """
    nearest = nearest.copy()  # lowered in place below; the caller's array stays as it is
    accepted_rows: set[int] = set()
    accepted: list[int] = []

    for j, row in enumerate(rows.tolist()):
        # The set: a row drawn twice may have a distance to itself that rounds to above 0.
        if thresholds[j] < nearest[j] and row not in accepted_rows:
            accepted_rows.add(row)
            accepted.append(j)
            if len(accepted) == wanted:
                break
            np.minimum(nearest, pairs[j], out=nearest)

    return accepted


def _draw_with_replacement(
    weights: Tensor,
    count: int,
    generator: Generator,
) -> Tensor:
    """Return rows drawn by weight: (N,) -> (count,). ``torch.multinomial`` ends at 2^24 rows."""
    cumulative = weights.cumsum(dim=0)
    total = cumulative[-1]
    points = uniform((count,), generator, weights.device) * total

    # Strictly below the total: a point at the very end would lie in no row.
    just_below = torch.nextafter(total, torch.zeros_like(total))
    points = points.clamp_max(just_below)
    return torch.searchsorted(cumulative, points, right=True)


def _accept(
    distance: Distance,
    candidates: Tensor,
    nearest: Tensor,
    *,
    wanted: int,
    generator: Generator,
) -> Tensor:
    """Return the candidates that the sequential law accepts, at most ``wanted``, in order.

    Args:
        distance: distance over the N rows.
        candidates: (B,) rows as drawn, on any device.
        nearest: (B,) their distances to the nearest pick when they were drawn.
        wanted: number of candidates after which to stop.
        generator: source of randomness.
    """
    # The walk takes one candidate at a time, which NumPy does faster than torch.
    distances = distance.between(candidates, candidates)  # (B, B)
    pairs = distances.double().cpu().numpy()
    chances = uniform((len(candidates),), generator, torch.device("cpu")).numpy()
    when_drawn = nearest.cpu().numpy()

    accepted = accept_candidates(
        candidates.cpu().numpy(),
        pairs,
        nearest=when_drawn,
        thresholds=np.sqrt(chances) * when_drawn,
        wanted=wanted,
    )
    positions = torch.tensor(accepted, dtype=torch.int64, device=candidates.device)
    return candidates[positions]


def _fill_up(
    picks: Tensor,
    preference: Tensor,
    is_taken: Tensor,
    n: int,
) -> Tensor:
    """Return the picks, filled up to n with the rows of smallest preference that are not taken."""
    order = preference.argsort(stable=True)
    free_in_order = order[~is_taken[order]]
    missing = n - len(picks)
    return torch.cat([picks, free_in_order[:missing]])
