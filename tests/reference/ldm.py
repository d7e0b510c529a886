"""The least disagree metric as the paper writes it: a classifier, a disagreement, an infimum."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Classes = npt.NDArray[np.int64]
Direction = tuple[Array, Array]


def classify(features: Array, weight: Array, bias: Array) -> Classes:
    """h(x) = argmax over c of w_c . x + b_c, for every row."""
    answer: Classes = np.argmax(features @ weight.T + bias, axis=1)
    return answer


def disagreement(h: Classes, g: Classes) -> float:
    """rho_M(h, g): the share of the reference rows on which h and g differ."""
    return float(np.mean(h != g))


def along_directions(
    features: Array,
    weight: Array,
    bias: Array,
    directions: Iterable[Direction],
    *,
    reference: Array,
    sigma_max: float = np.inf,
) -> Array:
    """inf of rho(h, g) over h = g + sigma * direction with sigma <= sigma_max and h(x) != g(x).

    Along a direction the classifier's answers change only where two classes' logits cross for some
    row, so between two neighbouring crossings rho is constant: trying one strength in every gap
    tries them all.
    """
    g_candidates = classify(features, weight, bias)
    g_reference = classify(reference, weight, bias)

    rows = np.concatenate([features, reference])
    least = np.ones(len(features))

    for move, shift in directions:
        for sigma in strengths_between_crossings(
            rows, weight, bias, move, shift, sigma_max=sigma_max
        ):
            moved = weight + sigma * move
            shifted = bias + sigma * shift
            rho = disagreement(classify(reference, moved, shifted), g_reference)
            flipped = classify(features, moved, shifted) != g_candidates
            least[flipped] = np.minimum(least[flipped], rho)

    return least


def strengths_between_crossings(
    rows: Array, weight: Array, bias: Array, move: Array, shift: Array, *, sigma_max: float
) -> Array:
    logits = rows @ weight.T + bias
    change = rows @ move.T + shift
    crossings = {0.0}
    for i in range(len(rows)):
        for a in range(len(weight)):
            for c in range(len(weight)):
                closing = change[i, c] - change[i, a]
                if closing > 0 and logits[i, a] >= logits[i, c]:
                    crossings.add((logits[i, a] - logits[i, c]) / closing)

    last = max(crossings) * 2 + 1 if np.isinf(sigma_max) else sigma_max
    edges = np.array([*sorted(c for c in crossings if c < last), last])
    return (edges[1:] + edges[:-1]) / 2


def on_a_grid(
    features: Array,
    weight: Array,
    bias: Array,
    directions: Iterable[Direction],
    sigmas: Sequence[float],
) -> Array:
    """The least rho that flips each row among the hypotheses g + sigma * direction."""
    g = classify(features, weight, bias)
    least = np.ones(len(features))
    for move, shift in directions:
        for sigma in sigmas:
            h = classify(features, weight + sigma * move, bias + sigma * shift)
            least[h != g] = np.minimum(least[h != g], disagreement(h, g))
    return least


def algorithm_1(
    x: Array,
    weight: Array,
    bias: Array,
    reference: Array,
    *,
    draws: Iterable[Iterable[Direction]],
    sigmas: Sequence[float],
    patience: int,
) -> float:
    """Algorithm 1 for one target row; ``draws`` has enough directions for every sigma."""
    g_x = classify(x[None], weight, bias)[0]
    g = classify(reference, weight, bias)
    least = 1.0

    for sigma, directions in zip(sigmas, draws, strict=True):
        c = 0
        supply = iter(directions)
        while c < patience:
            move, shift = next(supply)
            moved = weight + sigma * move
            shifted = bias + sigma * shift
            c = c + 1
            rho = disagreement(classify(reference, moved, shifted), g)
            if classify(x[None], moved, shifted)[0] != g_x and least > rho:
                least = rho
                c = 0

    return least
