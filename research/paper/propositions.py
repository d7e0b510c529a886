"""Propositions 1 to 3, on the disc, where their probabilities are known exactly.

Hypotheses are drawn from a Gaussian around the parameter (1, 0) of g. Each proposition is checked
twice: its statement by a formula, which needs no simulation, and the formula by a simulation.

Proposition 1
    A row has a smaller LDM than another exactly if its label flips with a larger probability.

Proposition 2
    The mean disagreement with g rises with the strength of the Gaussian.

Proposition 3
    N hypotheses come within O(1 / sqrt(N)) of those that attain the LDM of a row, except with a
    probability of O(exp(-sqrt(N))).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from research.paper.disc import (
    WEIGHT,
    Array,
    exact_ldm,
    rng,
    rotation_angles,
    row_angles,
    sample_disc,
)
from research.paper.item import Drawing, Item, Measurement, StudyConfig, decide_verdict, make_table
from teeter.bench.analysis.plots import new_figure, style_axes
from teeter.bench.analysis.table_formats import ReportTable

__all__ = ["PROPOSITION_1", "PROPOSITION_2", "PROPOSITION_3", "bound_miss_probability"]

COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7")

FALSE_ALARM = 0.001
"""How often all simulated numbers together may leave their bounds by chance."""


# Proposition 1


def measure_flips(config: StudyConfig) -> Measurement:
    """Compute how often rows flip under Gaussian noise, by the formula and by simulation."""
    from teeter.strategies.api import ldm

    row_count = 200 if config.quick else 1000
    draw_count = 100_000 if config.quick else 1_000_000
    sigmas = (0.1, 0.3, 1.0, 3.0)

    rows = sample_disc(row_count, rng(config.seed, "proposition 1", "rows"))
    exact = exact_ldm(row_angles(rows))
    counts = np.stack([_count_flips(rows, sigma, draw_count, config.seed) for sigma in sigmas])

    return judge_flips(
        exact,
        flip_log_probability(exact, sigmas),
        counts,
        draw_count=draw_count,
        sigmas=sigmas,
        estimated=ldm(rows, WEIGHT, seed=config.seed, device=config.device),
    )


def flip_log_probability(exact: Array, sigmas: Sequence[float]) -> Array:
    """Return the log probability that rows flip under noise on the parameter of g.

    The logit of a row x is |x| sin(pi LDM), and the noise moves it by N(0, sigma^2 |x|^2). So the
    row flips with the probability Phi(-sin(pi LDM) / sigma), whatever its length.

    Args:
        exact: the exact LDM of the rows: (N,).
        sigmas: the strengths of the noise: (S,).

    Returns:
        Log probabilities: (S, N). Probabilities themselves would underflow under weak noise.
    """
    from scipy.special import log_ndtr

    logits = np.sin(np.pi * exact)
    log_probability: Array = log_ndtr(-logits[None, :] / np.array(sigmas)[:, None])
    return log_probability


def _count_flips(rows: Array, sigma: float, count: int, seed: int) -> npt.NDArray[np.int64]:
    """Return how many of ``count`` drawn hypotheses flip each row: (N,)."""
    generator = rng(seed, "proposition 1", str(sigma))
    is_positive = rows[:, 0] > 0
    flips = np.zeros(len(rows), dtype=np.int64)

    # In blocks, so that the matrix of rows by hypotheses fits in memory.
    for start in range(0, count, 10_000):
        noise = generator.standard_normal((min(10_000, count - start), 2))
        parameters = np.array([1.0, 0.0]) + sigma * noise
        is_flipped = (rows @ parameters.T > 0) != is_positive[:, None]
        flips += is_flipped.sum(axis=1)
    return flips


def judge_flips(
    exact: Array,
    log_probability: Array,
    counts: npt.NDArray[np.int64],
    *,
    draw_count: int,
    sigmas: Sequence[float],
    estimated: Array,
) -> Measurement:
    """Check that the probability falls as the LDM rises, and that counts of flips agree with it.

    Args:
        exact: the exact LDM of the rows: (N,).
        log_probability: the log probability of a flip: (S, N).
        counts: how many of the drawn hypotheses flip each row: (S, N).
        draw_count: how many hypotheses were drawn.
        sigmas: the strengths of the noise: (S,).
        estimated: the LDM by rays: (N,).
    """
    from scipy.stats import binom, spearmanr

    # Rows of equal LDM have equal probabilities, which need not fall.
    order = np.argsort(exact)
    is_tie = np.diff(exact[order]) == 0
    falls = (np.diff(log_probability[:, order], axis=1) < 0) | is_tie

    # Bonferroni: all counts together leave their bounds with the probability FALSE_ALARM.
    probability = np.exp(log_probability)
    tail = FALSE_ALARM / counts.size / 2
    low = binom.ppf(tail, draw_count, probability)
    high = binom.ppf(1 - tail, draw_count, probability)
    outside = int(((counts < low) | (counts > high)).sum())

    frequency = counts / draw_count
    rank_correlations = [float(spearmanr(estimated, row).statistic) for row in counts]
    pairs = len(exact) * (len(exact) - 1) // 2
    trend = "falls" if falls.all() else "does not always fall"
    return Measurement(
        numbers={
            "sigmas": list(sigmas),  # (S,)
            "ldm": exact,  # (N,)
            "probability": probability,  # (S, N)
            "frequency": frequency,  # (S, N)
            "estimated": estimated,  # (N,)
            "rank correlation": rank_correlations,  # (S,)
        },
        verdict=decide_verdict({"exact": bool(falls.all()), "simulated": outside == 0}),
        reason=f"Over {pairs:,} pairs of rows and {len(sigmas)} strengths the exact chance {trend} "
        f"as the LDM rises; {outside} of {counts.size:,} simulated frequencies leave the bounds "
        "of chance.",
        tables=(_make_flips_table(sigmas, rank_correlations, frequency, probability),),
    )


def _make_flips_table(
    sigmas: Sequence[float],
    rank_correlations: Sequence[float],
    frequency: Array,
    probability: Array,
) -> ReportTable:
    largest_errors = np.abs(frequency - probability).max(axis=1).tolist()
    data = []
    for sigma, rho, error in zip(sigmas, rank_correlations, largest_errors, strict=True):
        data.append({"σ": sigma, "rank correlation": rho, "largest error": error})

    caption = (
        "Rank correlation of the LDM estimated by rays and the simulated frequency of flips, and "
        "the largest distance of a frequency to the exact chance; under weak noise many rows tie, "
        "for they never flip."
    )
    return make_table("flips", caption, data, {"σ": "g"}, ".4f")


def draw_flips(measurement: Measurement) -> list[Drawing]:
    """Draw the chance of flipping against the LDM."""
    numbers = measurement.numbers
    exact = np.asarray(numbers["ldm"])
    order = np.argsort(exact)

    figure = new_figure(7.5, 4.2)
    axes = figure.subplots()
    for k, sigma in enumerate(numbers["sigmas"]):
        probability = np.asarray(numbers["probability"][k])[order]
        frequency = np.asarray(numbers["frequency"][k])[order]
        axes.plot(
            exact[order], probability, color=COLOURS[k], linewidth=1.5, label=f"σ = {sigma:g}"
        )
        axes.plot(exact[order], frequency, ".", color=COLOURS[k], markersize=4)

    axes.set(xlabel="LDM", ylabel="chance of flipping", xlim=(0, 0.5), ylim=(0, 0.52))
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    style_axes(axes)
    caption = "How often a row flips under Gaussian noise: exact (lines) and simulated (dots)."
    return [Drawing(figure, caption)]


PROPOSITION_1 = Item(
    name="proposition-1",
    title="A smaller LDM is a larger chance of flipping",
    location="proposition 1",
    claim="In the plane, one row has a smaller LDM than another exactly if its label flips more "
    "often when Gaussian noise is added to the parameters.",
    test="Holds if the exact chance falls strictly as the LDM rises, over all pairs of rows at "
    "every strength, and no simulated frequency leaves its binomial bounds (99.9 % for all "
    "together); in part if one of the two is so.",
    compute=measure_flips,
    draw=draw_flips,
)


# Proposition 2


def measure_disagreement(config: StudyConfig) -> Measurement:
    """Compute the mean disagreement by the strength of the noise, exactly and by simulation."""
    draw_count = 20_000 if config.quick else 200_000
    sigmas = np.logspace(-3, 2, 41)
    exact = np.array([mean_disagreement(float(sigma)) for sigma in sigmas])

    simulated = np.zeros(len(sigmas))
    errors = np.zeros(len(sigmas))
    for k, sigma in enumerate(sigmas):
        noise = rng(config.seed, "proposition 2", k).standard_normal((draw_count, 2))
        rotations = rotation_angles(np.array([1.0, 0.0]) + sigma * noise)
        # A hypothesis rotated by t disagrees with g on the share |t| / pi of the disc.
        disagreement = np.abs(rotations) / np.pi
        simulated[k] = disagreement.mean()
        errors[k] = disagreement.std(ddof=1) / np.sqrt(draw_count)

    return judge_disagreement(sigmas, exact, simulated, errors)


def mean_disagreement(sigma: float) -> float:
    """Return the mean disagreement with g of a parameter drawn from N((1, 0), sigma^2).

    The disagreement at the angle t is |t| / pi, and the density is symmetric, so the mean is the
    integral of 2 t p(t) / pi over t from 0 to pi.
    """

    def integrand(angle: Array) -> Array:
        return 2 * angle * angle_density(angle, sigma)

    # Weak noise has almost all its mass at small angles: they get a quadrature of their own.
    end = min(np.pi, 12 * sigma)
    integral = _integrate(integrand, 0.0, end)
    if end < np.pi:
        integral += _integrate(integrand, end, np.pi)
    return integral / np.pi


def angle_density(angle: Array, sigma: float) -> Array:
    """Return the density p(t) of the angle of a point drawn from N((1, 0), sigma^2).

    With a = cos(t) / sigma and b = sin(t) / sigma, integrating over the radius gives

        p(t) = exp(-1 / (2 sigma^2)) / (2 pi) + a Phi(a) exp(-b^2 / 2) / sqrt(2 pi).

    Args:
        angle: angles t in [-pi, pi], of any shape.
        sigma: the strength of the Gaussian.
    """
    from scipy.special import ndtr

    along = np.cos(angle) / sigma
    across = np.sin(angle) / sigma
    uniform = np.exp(-1 / (2 * sigma**2)) / (2 * np.pi)
    bump = along * ndtr(along) * np.exp(-(across**2) / 2) / np.sqrt(2 * np.pi)
    density: Array = uniform + bump
    return density


def _integrate(function: Any, start: float, end: float, nodes: int = 200) -> float:
    """Integrate a function by Gauss-Legendre quadrature."""
    # The nodes are those of [-1, 1], mapped to [start, end].
    positions, weights = np.polynomial.legendre.leggauss(nodes)
    middle = (start + end) / 2
    half = (end - start) / 2
    return float(half * (weights * function(middle + half * positions)).sum())


def judge_disagreement(sigmas: Array, exact: Array, simulated: Array, errors: Array) -> Measurement:
    """Check that the exact means rise, and that the simulated ones agree with them.

    Args:
        sigmas: the strengths of the noise in rising order: (S,).
        exact: the exact mean disagreement: (S,).
        simulated: the simulated mean disagreement: (S,).
        errors: the standard errors of the simulated means: (S,).
    """
    from statistics import NormalDist

    rises = np.diff(exact) > 0
    # Bonferroni: the strengths share the probability of a false alarm.
    limit = NormalDist().inv_cdf(1 - FALSE_ALARM / len(exact) / 2)
    outside = int((np.abs(simulated - exact) > limit * errors).sum())

    trend = f"rises at {rises.sum()} of {len(rises)} steps"
    if rises.all():
        trend = f"rises at all {len(rises)} steps"
    return Measurement(
        numbers={"sigmas": sigmas, "exact": exact, "simulated": simulated},
        verdict=decide_verdict({"exact": bool(rises.all()), "simulated": outside == 0}),
        reason=f"From σ = {sigmas[0]:g} to {sigmas[-1]:g} the exact mean {trend}, from "
        f"{exact[0]:.5f} to {exact[-1]:.5f}; {outside} of {len(exact)} simulated means leave the "
        "bounds of chance.",
    )


def draw_disagreement(measurement: Measurement) -> list[Drawing]:
    """Draw the mean disagreement against the strength of the noise."""
    numbers = measurement.numbers
    sigmas = numbers["sigmas"]

    figure = new_figure(6.5, 3.8)
    axes = figure.subplots()
    axes.plot(sigmas, numbers["exact"], color=COLOURS[0], linewidth=1.5, label="exact")
    axes.plot(sigmas, numbers["simulated"], ".", color="#222222", markersize=4, label="simulated")

    axes.set(xscale="log", xlabel="strength σ of the noise, with |v| = 1")
    axes.set(ylabel="mean disagreement ρ", ylim=(0, 0.52))
    axes.legend(frameon=False)
    style_axes(axes)
    caption = "The mean share of rows that change label against the strength of the noise."
    return [Drawing(figure, caption)]


PROPOSITION_2 = Item(
    name="proposition-2",
    title="Stronger noise, more disagreement",
    location="proposition 2",
    claim="In the plane, the mean disagreement with a hypothesis drawn around g rises strictly "
    "with the strength of the noise.",
    test="Holds if the exact mean rises at every step of a fine grid of strengths, and every "
    "simulated mean lies within its normal bounds (99.9 % for all together); in part if one of "
    "the two is so.",
    compute=measure_disagreement,
    draw=draw_disagreement,
)


# Proposition 3

ANGLE = 0.2 * np.pi
"""The angle of the row."""
NEAR = 0.05
"""The epsilon of the proposition."""
SIGMA = 0.5
"""The strength of its one Gaussian."""


def bound_miss_probability(
    count: int, within: float, *, angle: float = ANGLE, near: float = NEAR, sigma: float = SIGMA
) -> float:
    """Return a tight upper bound of the probability that no hypothesis comes near enough.

    The wanted hypotheses flip the row and have at most ``near`` more disagreement than its LDM:
    they form a wedge of parameters. A draw is near enough if it is in the wedge, or at most
    ``within`` beside it on the far side. The half-disc around the origin is left out, which is why
    this is a bound.

    Args:
        count: how many hypotheses are drawn.
        within: the distance from the wedge that is near enough.
        angle: the angle of the row.
        near: the disagreement in addition to the LDM, the epsilon of the proposition.
        sigma: the strength of the Gaussian.
    """
    from scipy.special import ndtr

    end = angle + np.pi * near
    in_wedge = _integrate(lambda angles: angle_density(angles, sigma), angle, end)

    # The strip beside the far edge: its coordinates along and across the edge are independent.
    along = ndtr(np.cos(end) / sigma)
    across = ndtr((within + np.sin(end)) / sigma) - ndtr(np.sin(end) / sigma)
    return float((1 - in_wedge - along * across) ** count)


def compute_wedge_distances(
    parameters: Array, *, angle: float = ANGLE, near: float = NEAR
) -> Array:
    """Return the distance of parameters to the wedge of wanted hypotheses.

    Args:
        parameters: parameters of hypotheses: (..., 2).
        angle: the angle of the row.
        near: the disagreement in addition to the LDM, the epsilon of the proposition.

    Returns:
        Distances (...); infinite for hypotheses that do not flip the row.
    """
    # The angle past the near edge of the wedge, and past its far edge.
    past_near = np.mod(rotation_angles(parameters) - angle, 2 * np.pi)
    past_far = past_near - np.pi * near
    length = np.linalg.norm(parameters, axis=-1)

    # Up to a right angle past it, the nearest point is on the far edge; then it is the origin.
    to_edge = length * np.sin(np.clip(past_far, 0, np.pi / 2))
    outside = np.where(past_far < np.pi / 2, to_edge, length)
    inside_or_outside = np.where(past_far <= 0, 0, outside)
    values: Array = np.where(past_near >= np.pi, np.inf, inside_or_outside)
    return values


def measure_coverage(config: StudyConfig) -> Measurement:
    """Compute how often none of N drawn hypotheses comes near enough to the wanted ones."""
    repetitions = 2000 if config.quick else 20_000
    counts = [4**k for k in range(6)]
    exact = [bound_miss_probability(count, count**-0.5) for count in counts]

    misses = []
    for count in counts:
        generator = rng(config.seed, "proposition 3", count)
        missed = 0
        # In blocks of 100 repetitions, which fit in memory at every N.
        for _ in range(repetitions // 100):
            noise = generator.standard_normal((100, count, 2))
            distances = compute_wedge_distances(np.array([1.0, 0.0]) + SIGMA * noise)
            missed += int((distances.min(axis=1) > count**-0.5).sum())
        misses.append(missed)

    return judge_coverage(counts, exact, misses, repetitions)


def judge_coverage(
    counts: Sequence[int], exact: Sequence[float], misses: Sequence[int], repetitions: int
) -> Measurement:
    """Check that misses are as rare as exp(-c sqrt(N)), by the bound and by simulation.

    Args:
        counts: the numbers N of hypotheses in rising order.
        exact: the bound of the probability of a miss, for each N.
        misses: in how many repetitions all hypotheses missed, for each N.
        repetitions: how many repetitions were simulated.
    """
    from scipy.stats import binom

    # The c of exp(-c sqrt(N)) at each N: it must not fall below the first.
    rates = -np.log(np.array(exact)) / np.sqrt(np.array(counts, dtype=float))
    is_fast = bool((rates >= rates[0] * (1 - 1e-9)).all())

    allowed = binom.ppf(1 - FALSE_ALARM / len(counts), repetitions, exact)
    above = int((np.array(misses) > allowed).sum())
    miss_shares = [missed / repetitions for missed in misses]
    return Measurement(
        numbers={"counts": list(counts), "exact": list(exact), "missed": miss_shares},
        verdict=decide_verdict({"rate": is_fast, "simulated": above == 0}),
        reason="With α = 1 / √N the chance of a miss is at most exp(−c √N), c from "
        f"{rates.min():.2f} to {rates.max():.2f} for N from {counts[0]} to {counts[-1]:,}; "
        f"{above} of {len(counts)} simulated shares are above it.",
        tables=(_make_coverage_table(counts, exact, miss_shares, rates, repetitions),),
        notes=(
            "The chance falls even as exp(−c N): the wedge of wanted hypotheses has a probability "
            "of its own.",
        ),
    )


def _make_coverage_table(
    counts: Sequence[int],
    exact: Sequence[float],
    miss_shares: Sequence[float],
    rates: Array,
    repetitions: int,
) -> ReportTable:
    data = []
    for n, bound, share, rate in zip(counts, exact, miss_shares, rates.tolist(), strict=True):
        data.append(
            {
                "N": n,
                "α = 1 / √N": n**-0.5,
                "bound": bound,
                "simulated": share,
                "−log of the bound / √N": rate,
            }
        )

    caption = (
        "The chance that no hypothesis comes within α of those wanted, and its share of "
        f"{repetitions:,} repetitions."
    )
    return make_table("coverage", caption, data, {"N": ",d"}, ".3g")


def draw_coverage(measurement: Measurement) -> list[Drawing]:
    """Draw the chance of a miss against the square root of N."""
    numbers = measurement.numbers
    roots = np.sqrt(np.array(numbers["counts"], dtype=float))
    exact = np.array(numbers["exact"])
    missed = np.array(numbers["missed"])
    slowest = exact[0] ** (roots / roots[0])
    has_misses = missed > 0  # the scale is logarithmic

    figure = new_figure(6.5, 3.8)
    axes = figure.subplots()
    axes.plot(roots, exact, "o-", color=COLOURS[0], label="bound by the formula")
    axes.plot(roots, slowest, "--", color="#555555", label="exp(−c √N), c from the first")
    axes.plot(
        roots[has_misses],
        missed[has_misses],
        "x",
        color="#222222",
        label="simulated (where any)",
        zorder=4,
    )

    axes.set(yscale="log", ylim=(max(float(exact.min()), 1e-12) / 3, 2))
    axes.set(xlabel="√N", ylabel="chance of a miss")
    axes.legend(frameon=False)
    style_axes(axes)
    caption = "How often none of N hypotheses comes within 1 / √N of those that give the LDM."
    return [Drawing(figure, caption)]


PROPOSITION_3 = Item(
    name="proposition-3",
    title="Gaussian draws cover the hypotheses that matter",
    location="proposition 3",
    claim="In the plane, N hypotheses drawn from one Gaussian around g come within O(1 / √N) of "
    "those that attain the LDM, but for a chance of O(exp(−√N)).",
    test="Holds if, with α = 1 / √N, the bound computed for the chance of a miss falls at least "
    "as fast as exp(−c √N) from its first value on, and simulated misses are no more frequent "
    "than it (binomial, 99.9 % for all together); in part if one of the two is so.",
    compute=measure_coverage,
    draw=draw_coverage,
)
