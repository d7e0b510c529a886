"""BatchBALD: rows whose labels would, together, tell the most of which sample of the model is right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Generator, Tensor

from teeter.arrays import TILE, full_precision_matmul, memory_budget, pad_to_tile
from teeter.kernels.bald import mutual_information, p_log_p
from teeter.kernels.facility_location import ROUNDING, fill_remaining, refresh_bounds, top_rows
from teeter.seeds import uniform

__all__ = ["Configurations", "batch_bald", "information_gains"]

SCREENS = ((1_000, 64), (10_000, 8))
"""On so many of the drawn configurations, keep so many candidates for the next screen."""

BATCH = 32
"""Candidates whose gains are computed at once, to begin with."""


@dataclass(frozen=True)
class Configurations:
    """Labels that the rows picked so far may turn out to have, and what each such outcome would tell of the samples."""

    mass: Tensor
    """(M,) how probable each configuration is; they add up to 1."""
    posterior: Tensor
    """(M, S) how probable each sample is under it; rows add up to 1."""

    @cached_property
    def average(self) -> Tensor:
        """(S,) float64: the posterior's mean, 1 / S but for the error of drawing."""
        return torch.stack([mass @ posterior for mass, posterior in self.blocks()]).sum(
            dim=0, dtype=torch.float64
        )

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield them in blocks, each for one product."""
        size = _block(self.mass)
        return zip(self.mass.split(size), self.posterior.split(size), strict=True)


def batch_bald(
    logits: Tensor, n: int, *, generator: Generator, configurations: int = 100_000
) -> Tensor:
    """Return the n rows picked greedily to maximise the mutual information of their labels and the sample.

    logits (S, N, C), of which log-probabilities are a case -> (n,) int64 in the order of picking; gains that are equal
    but for rounding go to the lowest row, and so does what is left when no gain is.

    A row adds ``H(y | labels of the batch) - E H(y | sample)``. As long as the labels of the batch and the row have at
    most ``configurations`` outcomes, these are all enumerated, and the picks are those of plain greedy. After that as
    many are drawn, for every sample equally often. The gains are then unbiased estimates; candidates are screened on
    some of the outcomes first; and a gain found earlier, which bounds it from above, does so only up to the error of
    the estimates.

    Reference: Kirsch et al., BatchBALD: Efficient and Diverse Batch Acquisition for Deep Bayesian Active Learning,
    NeurIPS 2019.
    """
    samples, _, classes = logits.shape
    slack = ROUNDING * torch.finfo(logits.dtype).eps
    bounds = mutual_information(logits).double()
    outcomes, drawn = _one_outcome(1, logits), False
    picks: list[Tensor] = []
    while len(picks) < n:
        pick = _best(logits, bounds, outcomes, screens=SCREENS if drawn else (), slack=slack)
        if bounds[pick] <= slack:
            break
        picks.append(pick)
        bounds[pick] = -torch.inf
        if drawn:
            outcomes = _draw_labels(outcomes, logits[:, pick], generator)
        elif len(outcomes.mass) * classes**2 <= configurations:
            outcomes = _every_label(outcomes, logits[:, pick])
        else:
            outcomes, drawn = (
                _one_outcome(max(1, configurations // samples) * samples, logits),
                True,
            )
            outcomes = _draw_labels(outcomes, logits[:, torch.cat(picks)], generator)
    return fill_remaining(picks, bounds, n)


def _best(
    logits: Tensor,
    bounds: Tensor,
    outcomes: Configurations,
    *,
    screens: tuple[tuple[int, int], ...],
    slack: float,
) -> Tensor:
    """Return the row of largest gain; renew the bounds on the way."""
    stages = [
        (_first(outcomes, size, len(logits)), keep)
        for size, keep in screens
        if size < len(outcomes.mass)
    ]
    (first, keep), *later = [*stages, (outcomes, 1)]
    known = refresh_bounds(
        bounds,
        lambda rows: information_gains(logits, rows, first),
        batch=BATCH,
        keep=keep,
        slack=slack,
    )
    rows = top_rows(bounds, known, keep, slack=slack)
    for some, keep in later:
        bounds[rows] = information_gains(logits, rows, some)
        rows = top_rows(bounds, rows, keep, slack=slack)
    return rows


def information_gains(logits: Tensor, rows: Tensor, outcomes: Configurations) -> Tensor:
    """Return what each row's label would tell of the sample beyond the batch's labels: (S, N, C), (B,) -> (B,) float64.

    It is the mean over configurations of ``H(mean of p) - mean of H(p)``, both means by the posterior. The
    importance-weighted joint entropy of the paper differs by a term that is the same for all rows, and by taking the
    second mean by the prior: as its expectation is the same, but not its error, here the two errors cancel in part.
    """
    gains = torch.empty(len(rows), dtype=torch.float64, device=logits.device)
    for where in _batches(logits, len(rows)):
        p = logits[:, rows[where]].permute(1, 2, 0).softmax(dim=1).contiguous()
        of_each = (p_log_p(p).sum(dim=1) * outcomes.average).sum(dim=1)
        gains[where] = of_each - _p_log_p_of_means(p.flatten(0, 1), outcomes).view(len(p), -1).sum(
            dim=1
        )
    return gains.clamp_min_(0)


def _p_log_p_of_means(p: Tensor, outcomes: Configurations) -> Tensor:
    """Return ``sum over m of mass_m q_m log q_m`` with ``q = posterior @ p``: (K, S) -> (K,) float64."""
    total = torch.zeros(len(p), dtype=torch.float64, device=p.device)
    left = pad_to_tile(p)
    for mass, posterior in outcomes.blocks():
        with full_precision_matmul():
            q = left @ posterior.T
        total += p_log_p(q[: len(p)]).mul_(mass).sum(dim=1)
    return total


def _batches(logits: Tensor, rows: int) -> Iterator[slice]:
    samples, _, classes = logits.shape
    per_row = classes * logits.element_size() * (4 * samples + 3 * _block(logits))
    step = memory_budget(logits.device) // per_row
    if not logits.is_cuda:
        step = min(
            step, 2 * TILE // classes
        )  # a product should stay in the cache for the passes that follow it
    step = max(1, step, TILE // classes)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def _block(tensor: Tensor) -> int:
    """Return how many configurations a product takes; it decides how sums round, so memory has no say in it."""
    return 16_384 if tensor.is_cuda else 1_024


def _one_outcome(copies: int, logits: Tensor) -> Configurations:
    """Return what is known before any label: every sample is as probable as another."""
    samples = len(logits)
    return Configurations(
        logits.new_full((copies,), 1 / copies), logits.new_full((copies, samples), 1 / samples)
    )


def _first(outcomes: Configurations, size: int, samples: int) -> Configurations:
    """Return about ``size`` of the drawn configurations, again as many for every sample."""
    count = max(1, size // samples) * samples
    scale = len(outcomes.mass) / count
    return Configurations(outcomes.mass[:count] * scale, outcomes.posterior[:count])


def _every_label(outcomes: Configurations, logits: Tensor) -> Configurations:
    """Return each configuration with each label of one more row, (S, 1, C), but those of probability 0."""
    p = logits[:, 0].softmax(dim=1).T
    joint = outcomes.posterior[:, None] * p
    likelihood = joint.sum(dim=2)
    mass = outcomes.mass[:, None] * likelihood
    possible = mass > 0
    return Configurations(mass[possible], joint[possible] / likelihood[possible][:, None])


def _draw_labels(outcomes: Configurations, logits: Tensor, generator: Generator) -> Configurations:
    """Return each configuration with labels of more rows, (S, K, C), drawn by the sample it belongs to: m modulo S.

    The posterior is changed in place. Its rows cannot vanish: labels drawn by a sample are seldom improbable to it.
    """
    p = logits.permute(1, 2, 0).softmax(dim=1).contiguous()
    labels = torch.stack([_drawn(one, len(outcomes.mass), generator) for one in p])
    blocks = labels.split(_block(p), dim=1)
    for (_, posterior), some in zip(outcomes.blocks(), blocks, strict=True):
        for one, label in zip(p, some, strict=True):
            posterior *= one[label]
            posterior /= posterior.sum(dim=1, keepdim=True)
    return Configurations(outcomes.mass, outcomes.posterior)


def _drawn(p: Tensor, count: int, generator: Generator) -> Tensor:
    """Return ``count`` labels of one row, drawn by its samples in turn: (C, S) -> (count,)."""
    samples = p.shape[1]
    cumulative = p.T.double().cumsum(dim=1)
    total = cumulative[:, -1:]
    points = uniform((count // samples, samples), generator, p.device).T * total
    points = points.minimum(torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(cumulative, points.contiguous(), right=True).T.flatten()
