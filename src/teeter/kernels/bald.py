"""BALD and BatchBALD: rows whose labels tell most about which posterior sample is true.

``mutual_information`` scores each row by itself, and so does ``variation_ratio``. BatchBALD looks
at a batch as a whole.

A row adds ``H(y | labels of the batch) - E H(y | sample)`` to the mutual information of a batch.
The labels of the batch are random; a *configuration* is one way they may turn out. For every
configuration the kernel keeps its probability and the posterior over the S samples given those
labels (``Configurations``), so that a new row's gain is one matrix product.

As long as there are at most ``max_configurations`` of them, all are enumerated, and the picks are
those of plain greedy. After that, configurations are drawn, the same number for every posterior
sample. Gains are then unbiased estimates, and candidates are screened on a part of the
configurations first.

Reference: Kirsch et al., BatchBALD: Efficient and Diverse Batch Acquisition for Deep Bayesian
Active Learning, NeurIPS 2019.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Generator, Tensor

from teeter.base.arrays import TILE, full_precision_matmul, memory_budget, pad_to_tile, tiles
from teeter.base.seeds import uniform
from teeter.kernels.facility_location import ROUNDING, fill_remaining, refresh_bounds, top_rows

__all__ = [
    "CANDIDATES_AT_ONCE",
    "SCREENS",
    "Configurations",
    "batch_bald",
    "information_gains",
    "mutual_information",
    "p_log_p",
    "variation_ratio",
]

SCREENS = ((1_000, 64), (10_000, 8))
"""Screens for drawn configurations: (configurations used, candidates kept for the next screen)."""

CANDIDATES_AT_ONCE = 32
"""Candidates whose gains are computed at once, to begin with."""


@dataclass(frozen=True)
class Configurations:
    """M ways in which the labels of the batch may turn out, and the posterior given each."""

    mass: Tensor
    """(M,) probability of each configuration; they add up to 1."""
    posterior: Tensor
    """(M, S) probability of each posterior sample given the configuration; rows add up to 1."""

    @cached_property
    def mean_posterior(self) -> Tensor:
        """(S,) float64 mean of ``posterior``, weighted by ``mass``: 1 / S up to sampling error."""
        block_sums = [mass @ posterior for mass, posterior in self.blocks()]
        return torch.stack(block_sums).sum(dim=0, dtype=torch.float64)

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ``mass`` and ``posterior`` in blocks, each for one matrix product."""
        size = _configurations_per_product(self.mass)
        return zip(self.mass.split(size), self.posterior.split(size), strict=True)


def batch_bald(
    logits: Tensor,
    n: int,
    *,
    generator: Generator,
    max_configurations: int = 100_000,
) -> Tensor:
    """Pick n rows greedily to maximise the mutual information of their labels and the sample.

    Gains that are equal but for rounding go to the lowest row. When no row gains anything, the
    lowest rows fill up. With sampled configurations the bounds are approximate.

    Args:
        logits: (S, N, C) of S posterior samples. Log-probabilities are fine too.
        n: number of picks, 1 to N.
        generator: source of randomness, used only once configurations are drawn.
        max_configurations: maximum number of configurations to keep. More take longer and
            estimate better.

    Returns:
        (n,) int64 positions in the order of picking.
    """
    S, _, C = logits.shape
    slack = ROUNDING * torch.finfo(logits.dtype).eps

    # (N,) float64, at or above each gain, -inf for picks. Changed in place by _best_row. Before the
    # first pick a gain is the mutual information itself.
    bounds = mutual_information(logits).double()
    configurations = _no_labels(1, logits)
    screens: tuple[tuple[int, int], ...] = ()
    is_sampled = False

    picks: list[Tensor] = []
    while len(picks) < n:
        pick = _best_row(logits, bounds, configurations, screens=screens, slack=slack)
        if bounds[pick] <= slack:
            break
        picks.append(pick)
        bounds[pick] = -torch.inf

        if is_sampled:
            configurations = _sample_labels(configurations, logits[:, pick], generator)
        elif len(configurations.mass) * C**2 <= max_configurations:
            # The new pick's labels, and those of the candidate after it, can still be enumerated.
            configurations = _enumerate_labels(configurations, logits[:, pick])
        else:
            # From now on configurations are drawn, beginning with those of all picks so far.
            is_sampled = True
            screens = SCREENS
            copies_per_sample = max(1, max_configurations // S)
            configurations = _no_labels(copies_per_sample * S, logits)
            logits_of_picks = logits[:, torch.cat(picks)]
            configurations = _sample_labels(configurations, logits_of_picks, generator)

    return fill_remaining(picks, bounds, n)


def information_gains(
    logits: Tensor,
    rows: Tensor,
    configurations: Configurations,
) -> Tensor:
    """Return how much each row's label would add to the mutual information of the batch.

    It is the mean over configurations of ``H(mean of p) - mean of H(p)``, both weighted by the
    posterior. The paper's importance-weighted joint entropy differs by a term that is the same for
    all rows, and weights the second mean by the prior. The expectations are the same, but here the
    sampling errors of the two means cancel in part.

    Args:
        logits: (S, N, C).
        rows: (B,) positions.
        configurations: configurations of the labels of the batch.

    Returns:
        (B,) float64, at least 0.
    """
    gains = logits.new_empty(len(rows), dtype=torch.float64)

    for chunk in _row_chunks(logits, len(rows)):
        # (B, C, S): samples last, because they are summed over by a product.
        p = logits[:, rows[chunk]].permute(1, 2, 0).softmax(dim=1).contiguous()

        # (B,) minus the mean of H(p), and (B, C) the terms of minus H(mean of p).
        negative_entropies = p_log_p(p).sum(dim=1)
        negative_mean_entropy = (negative_entropies * configurations.mean_posterior).sum(dim=1)
        per_class = _p_log_p_of_means(p.flatten(0, 1), configurations).view(len(p), -1)
        gains[chunk] = negative_mean_entropy - per_class.sum(dim=1)

    return gains.clamp_min_(0)


def _best_row(
    logits: Tensor,
    bounds: Tensor,
    configurations: Configurations,
    *,
    screens: tuple[tuple[int, int], ...],
    slack: float,
) -> Tensor:
    """Return the row of largest gain: (1,). Updates the bounds of the rows it looks at, in place.

    Args:
        logits: (S, N, C).
        bounds: (N,) at or above each gain, -inf for picks.
        configurations: configurations of the labels of the batch.
        screens: (configurations to use, candidates to keep) of each screen before the last.
        slack: difference below which gains count as equal.
    """
    # Each stage: configurations to use, and candidates to keep. The last one uses all.
    stages: list[tuple[Configurations, int]] = []
    for size, keep in screens:
        if size < len(configurations.mass):
            # About this many of the drawn configurations, equally many for every sample.
            samples = len(logits)
            copies_per_sample = max(1, size // samples)
            count = copies_per_sample * samples

            # All have the same mass, so that of a part is scaled up to 1.
            scale = len(configurations.mass) / count
            leading = Configurations(
                mass=configurations.mass[:count] * scale,
                posterior=configurations.posterior[:count],
            )
            stages.append((leading, keep))
    stages.append((configurations, 1))

    # The first stage looks at every candidate that its bound does not rule out.
    first_configurations, first_keep = stages[0]
    refreshed = refresh_bounds(
        bounds,
        lambda rows: information_gains(logits, rows, first_configurations),
        batch=CANDIDATES_AT_ONCE,
        keep=first_keep,
        slack=slack,
    )
    rows = top_rows(bounds, refreshed, first_keep, slack=slack)

    # The others look at those that are left.
    for stage_configurations, keep in stages[1:]:
        bounds[rows] = information_gains(logits, rows, stage_configurations)
        rows = top_rows(bounds, rows, keep, slack=slack)
    return rows


def _p_log_p_of_means(p: Tensor, configurations: Configurations) -> Tensor:
    """Return ``sum_m mass_m q_m log q_m`` with ``q = posterior @ p``: (K, S) -> (K,) float64."""
    total = p.new_zeros(len(p), dtype=torch.float64)
    padded = pad_to_tile(p)

    for mass, posterior in configurations.blocks():
        with full_precision_matmul():
            q = padded @ posterior.T  # (padded K, configurations of the block)
        total += p_log_p(q[: len(p)]).mul_(mass).sum(dim=1)
    return total


def _row_chunks(logits: Tensor, row_count: int) -> Iterator[slice]:
    """Yield slices of rows whose probabilities and products fit in the memory budget."""
    # Per row and class: copies of p over the samples, and q over the configurations of a block.
    S, _, C = logits.shape
    numbers_per_class = 4 * S + 3 * _configurations_per_product(logits)
    bytes_per_row = C * logits.element_size() * numbers_per_class

    step = memory_budget(logits.device) // bytes_per_row
    if not logits.is_cuda:
        # A product should stay in the cache for the passes that follow it.
        step = min(step, 2 * TILE // C)
    # At least a full tile: (rows * C) is padded to one anyway.
    step = max(1, step, TILE // C)

    for start in range(0, row_count, step):
        yield slice(start, min(start + step, row_count))


def _configurations_per_product(tensor: Tensor) -> int:
    """Return a constant per device: the memory budget must not change how sums round."""
    if tensor.is_cuda:
        return 16_384
    return 1_024


def _no_labels(copies: int, logits: Tensor) -> Configurations:
    """Return configurations before any label: every posterior sample is equally probable."""
    S = len(logits)
    return Configurations(
        mass=logits.new_full((copies,), 1 / copies),
        posterior=logits.new_full((copies, S), 1 / S),
    )


def _enumerate_labels(configurations: Configurations, logits: Tensor) -> Configurations:
    """Return each configuration with each possible label of one more row (S, 1, C)."""
    p = logits[:, 0].softmax(dim=1).T  # (C, S)
    joint = configurations.posterior[:, None] * p  # (M, C, S) of label and sample
    likelihood = joint.sum(dim=2)  # (M, C) of the label
    mass = configurations.mass[:, None] * likelihood

    # Configurations whose probability underflowed have no posterior.
    is_possible = mass > 0
    return Configurations(
        mass=mass[is_possible],
        posterior=joint[is_possible] / likelihood[is_possible][:, None],
    )


def _sample_labels(
    configurations: Configurations,
    logits: Tensor,
    generator: Generator,
) -> Configurations:
    """Return each configuration with drawn labels of K more rows (S, K, C).

    Configuration m draws its labels from posterior sample ``m % S``. The posterior is changed in
    place, because it is the largest array here. Its rows cannot vanish: the sample that drew a
    label gives it positive probability.
    """
    p = logits.permute(1, 2, 0).softmax(dim=1).contiguous()  # (K, C, S)
    count = len(configurations.mass)
    row_labels = [_draw_labels(row_p, count, generator) for row_p in p]
    labels = torch.stack(row_labels)  # (K, M)

    # In the blocks of `configurations`, so that the temporary arrays stay small.
    label_blocks = labels.split(_configurations_per_product(p), dim=1)
    blocks = configurations.blocks()
    for (_, posterior), block_labels in zip(blocks, label_blocks, strict=True):
        for row_p, block_row_labels in zip(p, block_labels, strict=True):
            posterior *= row_p[block_row_labels]
            posterior /= posterior.sum(dim=1, keepdim=True)

    # A new object, so that the cached mean of the posterior is computed again.
    return Configurations(configurations.mass, configurations.posterior)


def _draw_labels(
    p: Tensor,
    count: int,
    generator: Generator,
) -> Tensor:
    """Return labels of one row, drawn from its posterior samples in turn: (C, S) -> (count,)."""
    S = p.shape[1]
    cumulative = p.T.double().cumsum(dim=1)  # (S, C)
    total = cumulative[:, -1:]  # (S, 1)

    # (S, count / S), strictly below the total: a point at the very end would have no label.
    points = uniform((count // S, S), generator, p.device).T * total
    just_below = torch.nextafter(total, torch.zeros_like(total))
    points = points.minimum(just_below)

    # Transposed again: label m comes from sample m % S.
    labels = torch.searchsorted(cumulative, points.contiguous(), right=True)
    return labels.T.flatten()


def mutual_information(logits: Tensor) -> Tensor:
    """Return BALD: the mutual information between a row's label and the posterior sample.

    It is the entropy of the mean prediction minus the mean entropy of the predictions.
    Probabilities are averaged, never logits.

    Reference: Houlsby et al., Bayesian Active Learning for Classification and Preference Learning,
    2011.

    Args:
        logits: (S, N, C) of S posterior samples.

    Returns:
        (N,) in nats, at least 0.
    """
    S, N, C = logits.shape
    information = logits.new_empty(N)
    bytes_per_row = 4 * S * C * logits.element_size()

    for tile in tiles(N, bytes_per_row, logits.device):
        # (tile, C, S): the axis that is reduced last is contiguous.
        p = logits[:, tile].permute(1, 2, 0).softmax(dim=1).contiguous()

        # (tile,) both, with the sign that p log p has: minus the entropy.
        negative_mean_entropy = p_log_p(p).sum(dim=1).mean(dim=1)
        negative_entropy_of_mean = p_log_p(p.mean(dim=2)).sum(dim=1)
        information[tile] = negative_mean_entropy - negative_entropy_of_mean

    return information.clamp_min_(0)


def variation_ratio(logits: Tensor) -> Tensor:
    """Return the share of posterior samples that do not predict the majority class.

    Args:
        logits: (S, N, C) of S posterior samples.

    Returns:
        (N,) from 0 (all samples agree) to below 1.
    """
    votes = logits.new_zeros(logits.shape[1:])  # (N, C)

    for sample in logits:
        predicted = sample.argmax(dim=1, keepdim=True)
        one_vote = votes.new_ones(predicted.shape)
        votes.scatter_add_(1, predicted, one_vote)

    majority = votes.amax(dim=1)
    return 1 - majority / len(logits)


def p_log_p(p: Tensor) -> Tensor:
    """Return ``p log p`` elementwise, with 0 at p = 0.

    ``torch.xlogy`` gives the same values and takes three times as long.
    """
    # tiny * log(tiny) would not be 0, but p itself is the second factor.
    smallest = torch.finfo(p.dtype).tiny
    return p.clamp_min(smallest).log_().mul_(p)
