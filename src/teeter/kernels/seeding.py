"""Weighted k-means++ seeding, drawn in blocks by the exact sequential law, and the weights of LDM-Seeding."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from teeter.kernels.distances import Cosine, Distance
from teeter.kernels.fused import use_fused_kernel
from teeter.seeds import uniform

__all__ = ["accept_candidates", "ldm_log_weights", "ldm_seeding", "seed_rows"]

BLOCK = 256
"""Candidates drawn from one state of the weights."""

_WORK = 1000
"""Operations of one row's distance to one pick, about."""


def ldm_log_weights(ldm: Tensor, n: int) -> Tensor:
    """Return log gamma of LDM-Seeding, equation 4: the n least rows weigh as much as all the others.

    ldm (N,) -> (N,) float64. Where the n-th least LDM is 0 the least positive one takes its place.
    """
    ldm = ldm.double()
    order = ldm.argsort(stable=True)
    least = ldm[order[n - 1]]
    if least == 0:
        positive = ldm[ldm > 0]
        least = positive.min() if len(positive) else torch.ones_like(least)
    log_weights = -((ldm - least).clamp_min(0) / least)
    for part in (order[:n], order[n:]):
        if len(part):
            log_weights[part] -= log_weights[part].logsumexp(dim=0)
    return log_weights


def ldm_seeding(ldm: Tensor, features: Tensor, n: int, *, generator: Generator) -> Tensor:
    """Return n rows by LDM-Seeding: the least LDM first, then small LDMs that are far apart, equation 5.

    ldm (N,), or any value in its place that is small for the rows wanted; features (N, D) -> (n,).
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
    """Return n different rows, each drawn by ``(weight * distance to the nearest pick)^2``, beginning with ``first``.

    log_weights (N,) float64, preference (N,) -> (n,) int64 in the order of picking. When every remaining weight is 0,
    the rows of least preference fill up. A block of candidates is drawn with replacement from the weights as they
    stand; a candidate is then accepted with probability ``its weight now / its weight then``. Weights only fall, so
    this is rejection sampling from the sequential law, exact for any ``block``.
    """
    if use_fused_kernel(log_weights, _WORK * n * len(log_weights)):
        from teeter.kernels.fused.seeding import seed_on_gpu

        picks = seed_on_gpu(
            distance, n, first=first, log_weights=log_weights, generator=generator, block=block
        )
        taken = torch.zeros(len(log_weights), dtype=torch.bool, device=log_weights.device)
        taken[picks] = True
        return torch.cat([picks, _fill(preference, taken, n - len(picks))])
    picks = torch.tensor([first], device=log_weights.device)
    taken = torch.zeros(len(log_weights), dtype=torch.bool, device=log_weights.device)
    nearest = torch.full_like(log_weights, torch.inf)
    fresh = picks
    while len(picks) < n:
        taken[fresh] = True
        nearest = torch.minimum(nearest, distance.nearest(fresh).double())
        doubled = (2 * (log_weights + nearest.log())).masked_fill_(taken, -torch.inf)
        peak = doubled.max()
        if peak == -torch.inf:
            return torch.cat([picks, _fill(preference, taken, n - len(picks))])
        candidates = _draw((doubled - peak).exp_(), min(block, max(16, n)), generator)
        fresh = _accept(distance, candidates, nearest[candidates], n - len(picks), generator)
        picks = torch.cat([picks, fresh])
    return picks


def _draw(weights: Tensor, count: int, generator: Generator) -> Tensor:
    """Return rows drawn with replacement; torch.multinomial would end at 2^24 rows."""
    cumulative = weights.cumsum(dim=0)
    total = cumulative[-1]
    points = uniform((count,), generator, weights.device) * total
    points = points.clamp_max(torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, points, right=True)


def _accept(
    distance: Distance, candidates: Tensor, then: Tensor, wanted: int, generator: Generator
) -> Tensor:
    """Return the candidates that the sequential law accepts, at most ``wanted``, in order."""
    pairs = distance.between(candidates, candidates).double().cpu().numpy()
    chances = uniform((len(candidates),), generator, torch.device("cpu")).numpy()
    before = then.cpu().numpy()
    accepted = accept_candidates(
        candidates.cpu().numpy(), pairs, now=before, bars=np.sqrt(chances) * before, wanted=wanted
    )
    return candidates[torch.tensor(accepted, dtype=torch.int64, device=candidates.device)]


def accept_candidates(
    rows: npt.NDArray[np.int64],
    pairs: npt.NDArray[np.float64],
    *,
    now: npt.NDArray[np.float64],
    bars: npt.NDArray[np.float64],
    wanted: int,
) -> list[int]:
    """Return which candidates are accepted, one after the other: those whose distance by then is above their bar.

    rows (B,), pairs (B, B) distances between them, now (B,) distances to what is picked already, bars (B,).
    """
    now = now.copy()
    seen: set[int] = set()
    accepted: list[int] = []
    for j, row in enumerate(rows.tolist()):
        if bars[j] < now[j] and row not in seen:
            seen.add(row)
            accepted.append(j)
            if len(accepted) == wanted:
                break
            np.minimum(now, pairs[j], out=now)
    return accepted


def _fill(preference: Tensor, taken: Tensor, count: int) -> Tensor:
    order = preference.argsort(stable=True)
    return order[~taken[order]][:count]
