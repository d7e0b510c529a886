"""Propositions 1 to 3, on the disc, where their probabilities are known exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reproduction.disc import (
    WEIGHT,
    Array,
    exact_ldm,
    rng,
    rotation_angles,
    row_angles,
    sample_disc,
)
from reproduction.item import Drawing, Item, Measurement, StudyConfig, decide_verdict, make_table
from teeter.analysis.plot_style import new_figure, style_axes
from teeter.analysis.table_formats import ReportTable

__all__ = ["PROPOSITION_1", "PROPOSITION_2", "PROPOSITION_3", "never_covered"]

COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7")
SURE = 0.001
"""How often all simulated numbers together may leave their bounds by chance."""


# Proposition 1


def measure_flips(config: StudyConfig) -> Measurement:
    """Compute how often rows flip under Gaussian noise, by the formula and by simulation."""
    from teeter.strategies.api import ldm

    row_count = 200 if config.quick else 1000
    draws_count = 100_000 if config.quick else 1_000_000
    sigmas = (0.1, 0.3, 1.0, 3.0)

    rows = sample_disc(row_count, rng(config.seed, "proposition 1", "rows"))
    counts = np.stack([_count_flips(rows, sigma, draws_count, config.seed) for sigma in sigmas])
    true = exact_ldm(row_angles(rows))
    return judge_flips(
        true,
        flip_log_probability(true, sigmas),
        counts,
        draws_count=draws_count,
        sigmas=sigmas,
        estimated=ldm(rows, WEIGHT, seed=config.seed, device=config.device),
    )


def flip_log_probability(true: Array, sigmas: Sequence[float]) -> Array:
    """Return the log probability (S, N) that rows of a true LDM (N,) flip under N(v, sigma^2).

    The noise moves the row's logit by N(0, sigma^2 |x|^2), and its logit is |x| sin(pi LDM).
    """
    from scipy.special import log_ndtr

    log_probability: Array = log_ndtr(-np.sin(np.pi * true)[None, :] / np.array(sigmas)[:, None])
    return log_probability


def _count_flips(rows: Array, sigma: float, count: int, seed: int) -> npt.NDArray[np.int64]:
    """Return how many of so many drawn hypotheses flip each row: (N,)."""
    generator = rng(seed, "proposition 1", str(sigma))
    is_positive = rows[:, 0] > 0
    flips = np.zeros(len(rows), dtype=np.int64)
    for start in range(0, count, 10_000):
        noise = generator.standard_normal((min(10_000, count - start), 2))
        parameters = np.array([1.0, 0.0]) + sigma * noise
        is_flipped = (rows @ parameters.T > 0) != is_positive[:, None]
        flips += is_flipped.sum(axis=1)
    return flips


def judge_flips(
    true: Array,
    log_probability: Array,
    counts: npt.NDArray[np.int64],
    *,
    draws_count: int,
    sigmas: Sequence[float],
    estimated: Array,
) -> Measurement:
    """Check that the probability falls as the LDM rises, and that counts of flips agree with it.

    Args:
        true: The exact LDM of the rows: (N,).
        log_probability: The log probability of a flip: (S, N).
        counts: How many of the drawn hypotheses flip each row: (S, N).
        draws_count: How many hypotheses were drawn.
        sigmas: The strengths of the noise: (S,).
        estimated: The LDM by rays: (N,).
    """
    from scipy.stats import binom, spearmanr

    order = np.argsort(true)
    is_tie = np.diff(true[order]) == 0
    falls = (np.diff(log_probability[:, order], axis=1) < 0) | is_tie

    # Bonferroni: all counts together leave their bounds with the probability SURE.
    chance = np.exp(log_probability)
    tail = SURE / counts.size / 2
    low = binom.ppf(tail, draws_count, chance)
    high = binom.ppf(1 - tail, draws_count, chance)
    outside = int(((counts < low) | (counts > high)).sum())

    rank_correlations = [float(spearmanr(estimated, row).statistic) for row in counts]
    pairs = len(true) * (len(true) - 1) // 2
    trend = "falls" if falls.all() else "does not always fall"
    return Measurement(
        numbers={
            "sigmas": list(sigmas),
            "ldm": true,
            "probability": chance,
            "frequency": counts / draws_count,
            "estimated": estimated,
            "rank correlation": rank_correlations,
        },
        verdict=decide_verdict({"exact": bool(falls.all()), "simulated": outside == 0}),
        reason=f"Over {pairs:,} pairs of rows and {len(sigmas)} strengths the exact chance {trend} "
        f"as the LDM rises; {outside} of {counts.size:,} simulated frequencies leave the bounds "
        "of chance.",
        tables=(_flips_table(sigmas, rank_correlations, counts / draws_count, chance),),
    )


def _flips_table(
    sigmas: Sequence[float], rank_correlations: Sequence[float], frequency: Array, chance: Array
) -> ReportTable:
    data = [
        {"σ": sigma, "rank correlation": rho, "largest error": float(np.abs(f - p).max())}
        for sigma, rho, f, p in zip(sigmas, rank_correlations, frequency, chance, strict=True)
    ]
    caption = (
        "Rank correlation of the LDM estimated by rays and the simulated frequency of flips, and "
        "how far the frequency lies from the exact chance at the most; under weak noise many rows "
        "tie, for they never flip."
    )
    return make_table("flips", caption, data, {"σ": "g"}, ".4f")


def draw_flips(measurement: Measurement) -> list[Drawing]:
    """Draw the chance of flipping against the LDM."""
    numbers, figure = measurement.numbers, new_figure(7.5, 4.2)
    axes, true = figure.subplots(), np.asarray(measurement.numbers["ldm"])
    order = np.argsort(true)
    for k, sigma in enumerate(numbers["sigmas"]):
        exact, simulated = (
            np.asarray(numbers[name][k])[order] for name in ("probability", "frequency")
        )
        axes.plot(true[order], exact, color=COLOURS[k], linewidth=1.5, label=f"σ = {sigma:g}")
        axes.plot(true[order], simulated, ".", color=COLOURS[k], markersize=4)
    axes.set(xlabel="LDM", ylabel="chance of flipping", xlim=(0, 0.5), ylim=(0, 0.52))
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    style_axes(axes)
    return [
        Drawing(
            figure,
            "How often a row flips under Gaussian noise: exact (lines) and simulated (dots).",
        )
    ]


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
    count = 20_000 if config.quick else 200_000
    sigmas = np.logspace(-3, 2, 41)
    simulated, errors = np.zeros(len(sigmas)), np.zeros(len(sigmas))
    for k, sigma in enumerate(sigmas):
        noise = rng(config.seed, "proposition 2", k).standard_normal((count, 2))
        rho = np.abs(rotation_angles(np.array([1.0, 0.0]) + sigma * noise)) / np.pi
        simulated[k], errors[k] = rho.mean(), rho.std(ddof=1) / np.sqrt(count)
    exact = np.array([mean_disagreement(float(sigma)) for sigma in sigmas])
    return judge_disagreement(sigmas, exact, simulated, errors)


def mean_disagreement(sigma: float) -> float:
    """Return E rho for a parameter drawn from N((1, 0), sigma^2), by quadrature over the angle."""

    def integrand(angle: Array) -> Array:
        return 2 * angle * angle_density(angle, sigma)

    # Weak noise has almost all its mass at small angles: they get a quadrature of their own.
    end = min(np.pi, 12 * sigma)
    integral = _integrate(integrand, 0.0, end)
    if end < np.pi:
        integral += _integrate(integrand, end, np.pi)
    return integral / np.pi


def angle_density(angle: Array, sigma: float) -> Array:
    """Return the density of the angle of N((1, 0), sigma^2)."""
    from scipy.special import ndtr

    along = np.cos(angle) / sigma
    bump = along * ndtr(along) * np.exp(-((np.sin(angle) / sigma) ** 2) / 2) / np.sqrt(2 * np.pi)
    density: Array = np.exp(-1 / (2 * sigma**2)) / (2 * np.pi) + bump
    return density


def _integrate(function: Any, start: float, end: float, nodes: int = 200) -> float:
    """Integrate a function by Gauss-Legendre quadrature."""
    positions, weights = np.polynomial.legendre.leggauss(nodes)
    middle = (start + end) / 2
    half = (end - start) / 2
    return float(half * (weights * function(middle + half * positions)).sum())


def judge_disagreement(sigmas: Array, exact: Array, simulated: Array, errors: Array) -> Measurement:
    """Check that the exact means rise, and that simulated ones agree with them; all (S,)."""
    from statistics import NormalDist

    rises = np.diff(exact) > 0
    limit = NormalDist().inv_cdf(1 - SURE / len(exact) / 2)
    outside = int((np.abs(simulated - exact) > limit * errors).sum())
    said = (
        f"rises at all {len(rises)} steps"
        if rises.all()
        else f"rises at {rises.sum()} of {len(rises)} steps"
    )
    return Measurement(
        numbers={"sigmas": sigmas, "exact": exact, "simulated": simulated},
        verdict=decide_verdict({"exact": bool(rises.all()), "simulated": outside == 0}),
        reason=f"From σ = {sigmas[0]:g} to {sigmas[-1]:g} the exact mean {said}, from "
        f"{exact[0]:.5f} to {exact[-1]:.5f}; {outside} of {len(exact)} simulated means leave the "
        "bounds of chance.",
    )


def draw_disagreement(measurement: Measurement) -> list[Drawing]:
    """Draw the mean disagreement against the strength."""
    numbers, figure = measurement.numbers, new_figure(6.5, 3.8)
    axes = figure.subplots()
    axes.plot(numbers["sigmas"], numbers["exact"], color=COLOURS[0], linewidth=1.5, label="exact")
    axes.plot(
        numbers["sigmas"],
        numbers["simulated"],
        ".",
        color="#222222",
        markersize=4,
        label="simulated",
    )
    axes.set(
        xscale="log",
        xlabel="strength σ of the noise, with |v| = 1",
        ylabel="mean disagreement ρ",
        ylim=(0, 0.52),
    )
    axes.legend(frameon=False)
    style_axes(axes)
    return [
        Drawing(
            figure, "The mean share of rows that change label against the strength of the noise."
        )
    ]


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


def never_covered(
    count: int, within: float, *, angle: float = ANGLE, near: float = NEAR, sigma: float = SIGMA
) -> float:
    """Return a tight upper bound of the probability that no hypothesis comes near enough.

    The wanted hypotheses flip the row and have at most ``near`` more disagreement than its LDM:
    they form a wedge of parameters. One of ``count`` draws is near enough if it is in the wedge,
    or at most ``within`` beside it on the far side. The half-disc around the origin is left out,
    which is why this is a bound.
    """
    from scipy.special import ndtr

    end = angle + np.pi * near
    wedge = _integrate(lambda place: angle_density(place, sigma), angle, end)
    beside = ndtr((within + np.sin(end)) / sigma) - ndtr(np.sin(end) / sigma)
    return float((1 - wedge - ndtr(np.cos(end) / sigma) * beside) ** count)


def distances(parameters: Array, *, angle: float = ANGLE, near: float = NEAR) -> Array:
    """Return the distance (...) of parameters (..., 2) to the wedge; infinite if none flips."""
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
    """Compute how often N drawn hypotheses leave the wanted ones uncovered."""
    repetitions = 2000 if config.quick else 20_000
    counts = [4**k for k in range(6)]
    missed = []
    for count in counts:
        generator = rng(config.seed, "proposition 3", count)
        nearest = [
            distances(
                np.array([1.0, 0.0]) + SIGMA * generator.standard_normal((100, count, 2))
            ).min(axis=1)
            for _ in range(repetitions // 100)
        ]
        missed.append(int((np.concatenate(nearest) > count**-0.5).sum()))
    exact = [never_covered(count, count**-0.5) for count in counts]
    return judge_coverage(counts, exact, missed, repetitions)


def judge_coverage(
    counts: Sequence[int], exact: Sequence[float], missed: Sequence[int], repetitions: int
) -> Measurement:
    """Check that misses are as rare as exp(-c sqrt(N)), by the bound and by simulation."""
    from scipy.stats import binom

    roots = np.sqrt(np.array(counts, dtype=float))
    rates = -np.log(np.array(exact)) / roots
    allowed = binom.ppf(1 - SURE / len(counts), repetitions, exact)
    above = int((np.array(missed) > allowed).sum())
    fast = bool((rates >= rates[0] * (1 - 1e-9)).all())
    data = [
        {
            "N": n,
            "α = 1 / √N": n**-0.5,
            "bound": p,
            "simulated": m / repetitions,
            "−log of the bound / √N": rate,
        }
        for n, p, m, rate in zip(counts, exact, missed, rates.tolist(), strict=True)
    ]
    caption = (
        "The chance that no hypothesis comes within α of those wanted, and its share of "
        f"{repetitions:,} repetitions."
    )
    return Measurement(
        numbers={
            "counts": list(counts),
            "exact": list(exact),
            "missed": [m / repetitions for m in missed],
        },
        verdict=decide_verdict({"rate": fast, "simulated": above == 0}),
        reason="With α = 1 / √N the chance of a miss is at most exp(−c √N), c from "
        f"{rates.min():.2f} to {rates.max():.2f} for N from {counts[0]} to {counts[-1]:,}; "
        f"{above} of {len(counts)} simulated shares are above it.",
        tables=(make_table("coverage", caption, data, {"N": ",d"}, ".3g"),),
        notes=(
            "The chance falls even as exp(−c N): the wedge of wanted hypotheses has a probability "
            "of its own.",
        ),
    )


def draw_coverage(measurement: Measurement) -> list[Drawing]:
    """Draw the chance of a miss against the square root of N."""
    numbers, figure = measurement.numbers, new_figure(6.5, 3.8)
    axes, roots = figure.subplots(), np.sqrt(np.array(numbers["counts"], dtype=float))
    exact, missed = np.array(numbers["exact"]), np.array(numbers["missed"])
    axes.plot(roots, exact, "o-", color=COLOURS[0], label="bound by the formula")
    axes.plot(
        roots,
        exact[0] ** (roots / roots[0]),
        "--",
        color="#555555",
        label="exp(−c √N), c from the first",
    )
    axes.plot(
        roots[missed > 0],
        missed[missed > 0],
        "x",
        color="#222222",
        label="simulated (where any)",
        zorder=4,
    )
    axes.set(
        yscale="log",
        xlabel="√N",
        ylabel="chance of a miss",
        ylim=(max(float(exact.min()), 1e-12) / 3, 2),
    )
    axes.legend(frameon=False)
    style_axes(axes)
    return [
        Drawing(
            figure, "How often none of N hypotheses comes within 1 / √N of those that give the LDM."
        )
    ]


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
