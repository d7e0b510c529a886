"""The paper's three propositions, in the plane where every probability they speak of is known exactly."""

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
    """Compute how often rows on the disc flip under Gaussian noise, by the formula and by simulation."""
    from teeter.strategies.api import ldm

    rows_count, draws_count = (200, 100_000) if config.quick else (1000, 1_000_000)
    sigmas = (0.1, 0.3, 1.0, 3.0)
    rows = sample_disc(rows_count, rng(config.seed, "proposition 1", "rows"))
    counts = np.stack([_flips(rows, sigma, draws_count, config.seed) for sigma in sigmas])
    estimated = ldm(rows, WEIGHT, seed=config.seed, device=config.device)
    true = exact_ldm(row_angles(rows))
    chances = flip_log_probability(true, sigmas)
    return judge_flips(
        true, chances, counts, draws_count=draws_count, sigmas=sigmas, estimated=estimated
    )


def flip_log_probability(true: Array, sigmas: Sequence[float]) -> Array:
    """Return the logarithm of the chance that a row of this LDM flips under N(v, sigma^2): (N,) -> (S, N).

    The noise moves the row's logit by N(0, sigma^2 |x|^2), and its logit is |x| sin(pi LDM).
    """
    from scipy.special import log_ndtr

    answer: Array = log_ndtr(-np.sin(np.pi * true)[None, :] / np.array(sigmas)[:, None])
    return answer


def _flips(rows: Array, sigma: float, count: int, seed: int) -> npt.NDArray[np.int64]:
    """Return how many of so many drawn hypotheses flip each row: (N,)."""
    generator = rng(seed, "proposition 1", str(sigma))
    side, flipped = rows[:, 0] > 0, np.zeros(len(rows), dtype=np.int64)
    for start in range(0, count, 10_000):
        noise = generator.standard_normal((min(10_000, count - start), 2))
        flipped += ((rows @ (np.array([1.0, 0.0]) + sigma * noise).T > 0) != side[:, None]).sum(
            axis=1
        )
    return flipped


def judge_flips(
    true: Array,
    log_probability: Array,
    counts: npt.NDArray[np.int64],
    *,
    draws_count: int,
    sigmas: Sequence[float],
    estimated: Array,
) -> Measurement:
    """Check that the chance falls as the LDM rises, and that counts of flips (S, N) agree with the chances (S, N)."""
    from scipy.stats import binom, spearmanr

    order = np.argsort(true)
    falls = (np.diff(log_probability[:, order], axis=1) < 0) | (np.diff(true[order]) == 0)
    chance, each = np.exp(log_probability), SURE / counts.size / 2
    low, high = (binom.ppf(tail, draws_count, chance) for tail in (each, 1 - each))
    outside = int(((counts < low) | (counts > high)).sum())
    alike = [float(spearmanr(estimated, one).statistic) for one in counts]
    pairs = len(true) * (len(true) - 1) // 2
    said = "falls" if falls.all() else "does not always fall"
    return Measurement(
        numbers={
            "sigmas": list(sigmas),
            "ldm": true,
            "probability": chance,
            "frequency": counts / draws_count,
            "estimated": estimated,
            "rank correlation": alike,
        },
        verdict=decide_verdict({"exact": bool(falls.all()), "simulated": outside == 0}),
        reason=f"Over {pairs:,} pairs of rows and {len(sigmas)} strengths the exact chance {said} as the LDM rises; "
        f"{outside} of {counts.size:,} simulated frequencies leave the bounds of chance.",
        tables=(_flips_table(sigmas, alike, counts / draws_count, chance),),
    )


def _flips_table(
    sigmas: Sequence[float], alike: Sequence[float], frequency: Array, chance: Array
) -> ReportTable:
    data = [
        {"σ": sigma, "rank correlation": rho, "largest error": float(np.abs(f - p).max())}
        for sigma, rho, f, p in zip(sigmas, alike, frequency, chance, strict=True)
    ]
    caption = (
        "Rank correlation of the LDM estimated by rays and the simulated frequency of flips, and how far the frequency "
        "lies from the exact chance at the most; under weak noise many rows tie, for they never flip."
    )
    return make_table("flips", caption, data, {"σ": "g"}, ".4f")


def draw_flips(measured: Measurement) -> list[Drawing]:
    """Draw the chance of flipping against the LDM."""
    numbers, figure = measured.numbers, new_figure(7.5, 4.2)
    axes, true = figure.subplots(), np.asarray(measured.numbers["ldm"])
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
    claim="In the plane, one row has a smaller LDM than another exactly if its label flips more often when Gaussian "
    "noise is added to the parameters.",
    test="Holds if the exact chance falls strictly as the LDM rises, over all pairs of rows at every strength, and no "
    "simulated frequency leaves its binomial bounds (99.9 % for all together); in part if one of the two is so.",
    compute=measure_flips,
    draw=draw_flips,
)


# Proposition 2


def measure_disagreement(config: StudyConfig) -> Measurement:
    """Compute the mean disagreement against the strength of the noise, exactly and by simulation."""
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
    end = min(np.pi, 12 * sigma)
    answer = _integral(lambda angle: 2 * angle * turn_density(angle, sigma), 0.0, end)
    if end < np.pi:
        answer += _integral(lambda angle: 2 * angle * turn_density(angle, sigma), end, np.pi)
    return answer / np.pi


def turn_density(angle: Array, sigma: float) -> Array:
    """Return the density of the angle of N((1, 0), sigma^2)."""
    from scipy.special import ndtr

    along = np.cos(angle) / sigma
    bump = along * ndtr(along) * np.exp(-((np.sin(angle) / sigma) ** 2) / 2) / np.sqrt(2 * np.pi)
    answer: Array = np.exp(-1 / (2 * sigma**2)) / (2 * np.pi) + bump
    return answer


def _integral(function: Any, start: float, end: float, nodes: int = 200) -> float:
    places, weights = np.polynomial.legendre.leggauss(nodes)
    middle, half = (start + end) / 2, (end - start) / 2
    return float(half * (weights * function(middle + half * places)).sum())


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
        reason=f"From σ = {sigmas[0]:g} to {sigmas[-1]:g} the exact mean {said}, from {exact[0]:.5f} to "
        f"{exact[-1]:.5f}; {outside} of {len(exact)} simulated means leave the bounds of chance.",
    )


def draw_disagreement(measured: Measurement) -> list[Drawing]:
    """Draw the mean disagreement against the strength."""
    numbers, figure = measured.numbers, new_figure(6.5, 3.8)
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
    claim="In the plane, the mean disagreement with a hypothesis drawn around g rises strictly with the strength of "
    "the noise.",
    test="Holds if the exact mean rises at every step of a fine grid of strengths, and every simulated mean lies "
    "within its normal bounds (99.9 % for all together); in part if one of the two is so.",
    compute=measure_disagreement,
    draw=draw_disagreement,
)


# Proposition 3

ANGLE, NEAR, SIGMA = 0.2 * np.pi, 0.05, 0.5
"""The row's angle, the proposition's epsilon, and the strength of its one Gaussian."""


def never_covered(
    count: int, within: float, *, angle: float = ANGLE, near: float = NEAR, sigma: float = SIGMA
) -> float:
    """Return an upper bound, near the exact value, of the chance that none of ``count`` hypotheses comes so near.

    Near means within a distance of one that flips the row and has at most ``near`` more disagreement than its LDM:
    inside that wedge of parameters, or beside it on the far side; the half-disc around the origin is left out.
    """
    from scipy.special import ndtr

    end = angle + np.pi * near
    wedge = _integral(lambda place: turn_density(place, sigma), angle, end)
    beside = ndtr((within + np.sin(end)) / sigma) - ndtr(np.sin(end) / sigma)
    return float((1 - wedge - ndtr(np.cos(end) / sigma) * beside) ** count)


def distances(parameters: Array, *, angle: float = ANGLE, near: float = NEAR) -> Array:
    """Return how far parameters that flip the row are from the wedge: (..., 2) -> (...), infinite for the others."""
    past, length = (
        np.mod(rotation_angles(parameters) - angle, 2 * np.pi),
        np.linalg.norm(parameters, axis=-1),
    )
    beyond = past - np.pi * near
    beside = np.where(beyond < np.pi / 2, length * np.sin(np.clip(beyond, 0, np.pi / 2)), length)
    answer: Array = np.where(past >= np.pi, np.inf, np.where(beyond <= 0, 0, beside))
    return answer


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
    """Check that the chance of a miss falls as fast as exp(-c sqrt(N)), and that it was missed no more often."""
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
    caption = f"The chance that no hypothesis comes within α of those wanted, and its share of {repetitions:,} repetitions."
    return Measurement(
        numbers={
            "counts": list(counts),
            "exact": list(exact),
            "missed": [m / repetitions for m in missed],
        },
        verdict=decide_verdict({"rate": fast, "simulated": above == 0}),
        reason=f"With α = 1 / √N the chance of a miss is at most exp(−c √N), c from {rates.min():.2f} to "
        f"{rates.max():.2f} for N from {counts[0]} to {counts[-1]:,}; {above} of {len(counts)} simulated shares are "
        "above it.",
        tables=(make_table("coverage", caption, data, {"N": ",d"}, ".3g"),),
        notes=(
            "The chance falls even as exp(−c N): the wedge of wanted hypotheses has a probability of its own.",
        ),
    )


def draw_coverage(measured: Measurement) -> list[Drawing]:
    """Draw the chance of a miss against the square root of N."""
    numbers, figure = measured.numbers, new_figure(6.5, 3.8)
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
    claim="In the plane, N hypotheses drawn from one Gaussian around g come within O(1 / √N) of those that attain the "
    "LDM, but for a chance of O(exp(−√N)).",
    test="Holds if, with α = 1 / √N, the bound computed for the chance of a miss falls at least as fast as exp(−c √N) "
    "from its first value on, and simulated misses are no more frequent than it (binomial, 99.9 % for all together); "
    "in part if one of the two is so.",
    compute=measure_coverage,
    draw=draw_coverage,
)
