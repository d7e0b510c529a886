"""Rows whose predicted class changes when their features do: ALFA-Mix and DropQuery.

References: Parvaneh et al., Active Learning by Feature Mixing, CVPR 2022 (ALFA-Mix). Gupte et al.,
Revisiting Active Learning in the Era of Vision Foundation Models, TMLR 2024 (DropQuery).
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from teeter.base.arrays import full_precision_matmul, tiles
from teeter.base.seeds import uniform
from teeter.kernels.distances import Cosine
from teeter.kernels.kmeans import k_means

__all__ = [
    "central_rows",
    "dropout_disagreement",
    "mixing_needed",
]

_ROWS_PER_MASK = 4096
"""Rows whose masks are drawn at once: a constant, so that masks never depend on the memory."""


def mixing_needed(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    anchors: Tensor,
) -> Tensor:
    """Return how much of an anchor each row takes before its predicted class changes.

    The closed form of ALFA-Mix mixes row z with anchor a by ``alpha = eps |a - z| g / (|g| (a -
    z))``, element by element, with g the gradient of the loss of the predicted class. The
    differences cancel in ``z + alpha (a - z)``: it is ``z`` moved by ``eps |a - z|`` along ``g``.
    So a row changes its class for an anchor if eps is above a threshold, which is smallest for the
    farthest anchor.

    Args:
        features: (N, D).
        weight: (C, D) of the head.
        bias: (C,) of the head, or None.
        anchors: (K, D), for example the mean of each class.

    Returns:
        (N,) the smallest eps at which the class changes for an anchor, inf for never.
    """
    thresholds = []
    for tile in tiles(len(features), 8 * max(weight.shape) * 8, features.device):
        rows = features[tile]
        with full_precision_matmul():
            logits = rows @ weight.T
            if bias is not None:
                logits = logits + bias
            predicted = logits.argmax(dim=1, keepdim=True)  # (A, 1)

            # The gradient of the cross-entropy: W' (p - onehot(predicted)).
            errors = logits.softmax(dim=1)
            errors.scatter_add_(1, predicted, torch.full_like(logits, -1))
            direction = torch.nn.functional.normalize(errors @ weight, dim=1)

            # Moving by t along it changes the logits by t times these.
            slopes = direction @ weight.T  # (A, C)

        lead = logits.gather(1, predicted) - logits
        gain = slopes - slopes.gather(1, predicted)
        moves = torch.where(gain > 0, lead / gain, torch.inf)
        farthest = torch.cdist(rows, anchors).amax(dim=1)
        thresholds.append(moves.amin(dim=1) / farthest)
    return torch.cat(thresholds)


def dropout_disagreement(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    rate: float,
    passes: int,
    generator: Generator,
) -> Tensor:
    """Return in how many passes with dropout on the features the predicted class differs.

    Args:
        features: (N, D).
        weight: (C, D) of the head.
        bias: (C,) of the head, or None.
        rate: share of the features that become 0; the others grow so that their mean stays.
        passes: number of passes.
        generator: source of the masks, of which each row has its own.

    Returns:
        (N,) from 0 to ``passes``.
    """

    def predict(rows: Tensor) -> Tensor:
        with full_precision_matmul():
            logits = rows @ weight.T
        if bias is not None:
            logits = logits + bias
        return logits.argmax(dim=1)

    counts = []
    for rows in features.split(_ROWS_PER_MASK):
        predicted = predict(rows)
        disagreements = torch.zeros_like(predicted)
        for _ in range(passes):
            is_kept = uniform(tuple(rows.shape), generator, rows.device) >= rate
            thinned = rows * is_kept / (1 - rate)
            disagreements += predict(thinned) != predicted
        counts.append(disagreements)
    return torch.cat(counts)


def central_rows(features: Tensor, n: int, *, generator: Generator) -> Tensor:
    """Return the row nearest the centre of each of n k-means clusters of directions.

    Args:
        features: (N, D), of which only the directions count.
        n: number of rows, 1 to N.
        generator: source of the first centres.

    Returns:
        (n,) different positions, those of large clusters first. If there are fewer than n different
        directions, the lowest rows fill up.
    """
    units = Cosine(features).units
    clusters, centres, _ = k_means(units, n, generator=generator)
    own_distances = (units - centres[clusters]).square().sum(dim=1)

    # Of equal distances the lowest row is first.
    order = own_distances.argsort(stable=True)
    by_cluster = clusters[order].argsort(stable=True)
    order = order[by_cluster]
    is_first = torch.ones_like(order, dtype=torch.bool)
    is_first[1:] = clusters[order][1:] != clusters[order][:-1]
    nearest = order[is_first]

    sizes = torch.bincount(clusters, minlength=n)[clusters[nearest]]
    nearest = nearest[sizes.argsort(descending=True, stable=True)]
    is_left = torch.ones(len(features), dtype=torch.bool, device=features.device)
    is_left[nearest] = False
    return torch.cat([nearest, is_left.nonzero()[:, 0]])[:n]
