"""Theorem 1 and corollary 1: the estimated LDM tends to the exact one, shown on the disc.

The paper's estimator L_NM of a row is the smallest disagreement among the N drawn hypotheses that
flip the row, measured on M reference rows. On the disc the exact LDM L is known.

Theorem 1
    If M > 8 log(CN) / delta^2, with C classes, then |L_NM - L| <= 2 delta + alpha(N) + epsilon,
    except with a probability of 1 / (CN) + beta(N). Proposition 3 gives alpha(N) = 1 / sqrt(N) and
    beta(N), the probability that no hypothesis comes within alpha(N) of those that attain the LDM.
    We count how often the error stays within the bound, and fit how fast it falls in N and in M.

Corollary 1
    As N and M grow, pairs of rows are no longer estimated in the wrong order. We count such pairs
    for the plain estimator, for Algorithm 1 and for rays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from research.paper.disc import (
    WEIGHT,
    Array,
    estimated_ldm,
    exact_ldm,
    rng,
    rotation_angles,
    row_angles,
    sample_disc,
)
from research.paper.item import Drawing, Item, Measurement, StudyConfig, decide_verdict, make_table
from research.paper.propositions import FALSE_ALARM, bound_miss_probability
from teeter.bench.analysis.plots import new_figure, style_axes
from teeter.bench.analysis.table_formats import ReportTable, format_number
from teeter.strategies.api import ldm

__all__ = ["COROLLARY_1", "THEOREM_1"]

CLASSES = 2
TRUE_LDM = 0.2
"""The exact LDM of the row whose estimate is studied."""
SIGMA = 0.5
"""The strength of the Gaussian that hypotheses are drawn from."""
EPSILON = 0.05
"""The epsilon of the theorem."""
DELTA = 0.05
"""The delta of the theorem."""

HYPOTHESES = (16, 64, 256, 1024, 4096)
"""Values of N."""
ROWS = (100, 400, 1600, 6400, 25_600)
"""Values of M."""
FEW_ROWS = 400
"""An M that does not grow with N, for comparison: then the error stops falling."""

COUNT_FORMATS = {"N": ",d", "M": ",d"}
"""How tables show columns of counts."""


# Theorem 1


def compute_needed_rows(hypothesis_count: int, delta: float = DELTA) -> int:
    """Return the smallest M that the theorem allows: the first above 8 log(CN) / delta^2."""
    limit = 8 * np.log(CLASSES * hypothesis_count) / delta**2
    return int(np.floor(limit)) + 1


def _sample_rotations(count: int, generator: np.random.Generator) -> Array:
    """Return the rotations of hypotheses drawn from the Gaussian around g: (count,)."""
    noise = generator.standard_normal((count, 2))
    return rotation_angles(np.array([1.0, 0.0]) + SIGMA * noise)


def _sample_reference(count: int, generator: np.random.Generator) -> Array:
    """Return the sorted angles of reference rows: (count,)."""
    return np.sort(row_angles(sample_disc(count, generator)))


def _measure_error(
    hypothesis_count: int | None, row_count: int | None, generator: np.random.Generator
) -> float:
    """Return |L_NM - L| of one draw, for the row with the exact LDM ``TRUE_LDM``.

    Args:
        hypothesis_count: N; None for all hypotheses, of which the one that just flips the row
            decides.
        row_count: M; None for all rows, so that the disagreement is exact.
        generator: the source of all draws.
    """
    angle = np.pi * TRUE_LDM
    row = np.array([angle])
    if hypothesis_count is None:
        # Just past the row: the limit of infinitely many hypotheses.
        rotations: Array = row + 1e-12
    else:
        rotations = _sample_rotations(hypothesis_count, generator)

    if row_count is None:
        # A hypothesis rotated by t disagrees with g on the share |t| / pi of the disc.
        flips_row = (rotations > angle) | (rotations < angle - np.pi)
        disagreement = np.abs(rotations[flips_row]) / np.pi
        estimate = float(disagreement.min(initial=1.0))
        return estimate - TRUE_LDM  # never negative: the estimate is an upper bound

    estimates = estimated_ldm(row, rotations, _sample_reference(row_count, generator))
    return float(abs(estimates[0] - TRUE_LDM))


def measure_errors(config: StudyConfig) -> Measurement:
    """Measure the error of the estimator against N, against M, and with M as the theorem asks."""
    repetitions = 200 if config.quick else 2000

    def repeat(name: str, sizes: Sequence[tuple[int | None, int | None]]) -> Array:
        """Return the errors (sizes, repetitions) for pairs of N and M.

        A repetition has one stream of draws, which goes on from one size to the next.
        """
        generators = [rng(config.seed, "theorem 1", name, k) for k in range(repetitions)]
        errors = np.zeros((len(sizes), repetitions))
        for i, (hypothesis_count, row_count) in enumerate(sizes):
            for k, generator in enumerate(generators):
                errors[i, k] = _measure_error(hypothesis_count, row_count, generator)
        return errors

    return judge_errors(
        by_hypotheses=repeat("N", [(n, None) for n in HYPOTHESES]),
        by_rows=repeat("M", [(None, m) for m in ROWS]),
        by_both=repeat("both", [(n, compute_needed_rows(n)) for n in HYPOTHESES]),
        with_few_rows=repeat("few", [(n, FEW_ROWS) for n in HYPOTHESES]),
        estimators=_measure_estimators(config),
    )


def _measure_estimators(config: StudyConfig) -> list[dict[str, Any]]:
    """Return the mean error of Algorithm 1 and of rays, by what they may spend."""
    reference_count = 5000 if config.quick else 50_000
    rows = sample_disc(50, rng(config.seed, "theorem 1", "rows"))
    reference = sample_disc(reference_count, rng(config.seed, "theorem 1", "reference"))
    exact = exact_ldm(row_angles(rows))

    budgets: dict[str, dict[str, Any]] = {}
    for patience in (1, 3, 10, 30):
        name = f"Algorithm 1, s = {patience}"
        budgets[name] = {"method": "gaussian", "patience": patience}
    for rays in (2, 8, 32, 128):
        budgets[f"{rays} rays"] = {"rays": rays}

    data = []
    for name, options in budgets.items():
        estimates = ldm(
            rows, WEIGHT, reference=reference, seed=config.seed, device=config.device, **options
        )
        mean_error = float(np.abs(estimates - exact).mean())
        data.append({"estimator": name, "mean error": mean_error})
    return data


def judge_errors(
    *,
    by_hypotheses: Array,
    by_rows: Array,
    by_both: Array,
    with_few_rows: Array,
    estimators: Sequence[Mapping[str, Any]] = (),
) -> Measurement:
    """Check the bound of the theorem, and how fast the error falls with N and with M.

    Args:
        by_hypotheses: errors for ``HYPOTHESES`` and all rows: (sizes, repetitions), as the others.
        by_rows: errors for all hypotheses and ``ROWS``.
        by_both: errors for ``HYPOTHESES``, with as many rows as the theorem asks for.
        with_few_rows: errors for ``HYPOTHESES`` and ``FEW_ROWS``.
        estimators: the mean errors of teeter's estimators, for a table.
    """
    from scipy.stats import binom

    # The bound 2 delta + alpha(N) + epsilon, and how often it is promised to hold.
    bounds = np.array([2 * DELTA + n**-0.5 + EPSILON for n in HYPOTHESES])
    promised = np.array([_promised_share(n) for n in HYPOTHESES])
    repetitions = by_both.shape[1]
    within = (by_both <= bounds[:, None]).sum(axis=1)

    # Bonferroni: the sizes share the probability of a false alarm.
    needed = binom.ppf(FALSE_ALARM / len(within), repetitions, promised)
    slopes = {
        "N": fit_slope(HYPOTHESES, by_hypotheses),
        "M": fit_slope(ROWS, by_rows),
    }
    checks = {"bound": bool((within >= needed).all())}
    for name, (_, lower_limit) in slopes.items():
        # The rate fails if the slope is significantly above that of 1 / sqrt(size).
        checks[f"rate in {name}"] = not lower_limit > -0.5

    phrases = [f"{format_number(mean)} in {name}" for name, (mean, _) in slopes.items()]
    tables = [_make_bound_table(bounds, promised, within / repetitions)]
    if estimators:
        tables.append(_make_estimators_table(estimators))
    return Measurement(
        numbers={
            "N": HYPOTHESES,
            "M": ROWS,
            "needed": [compute_needed_rows(n) for n in HYPOTHESES],
            # Means over repetitions, for each N or each M.
            "error by N": by_hypotheses.mean(axis=1),
            "error by M": by_rows.mean(axis=1),
            "error by both": by_both.mean(axis=1),
            "error by N, few rows": with_few_rows.mean(axis=1),
            "slopes": {name: mean for name, (mean, _) in slopes.items()},
        },
        verdict=decide_verdict(checks),
        reason=f"With M as the theorem asks, {within.min() / repetitions:.1%} or more of "
        f"{repetitions:,} errors stay within its bound; on a double logarithmic scale the mean "
        f"error falls with a slope of {' and '.join(phrases)}.",
        tables=tuple(tables),
        notes=(
            "The Lipschitz constant of the theorem's second assumption is taken as 1, so that "
            "α(N) = 1 / √N.",
            "The bound is far from sharp here: with one Gaussian in the plane the error falls as "
            "1 / N, and the bound's 1 / √N is an upper limit.",
        ),
    )


def _promised_share(hypothesis_count: int) -> float:
    """Return how often the theorem promises its bound at least: 1 - 1 / (CN) - beta(N)."""
    beta = bound_miss_probability(
        hypothesis_count,
        hypothesis_count**-0.5,
        angle=np.pi * TRUE_LDM,
        near=EPSILON,
        sigma=SIGMA,
    )
    # For small N the two probabilities may sum to more than 1, which promises nothing.
    return max(0.0, 1 - 1 / (CLASSES * hypothesis_count) - beta)


def fit_slope(sizes: Sequence[int], errors: Array, groups: int = 10) -> tuple[float, float]:
    """Fit the slope of the log mean error against the log size.

    The slopes of groups of repetitions are independent, so their spread gives the uncertainty.

    Args:
        sizes: the sizes: (S,).
        errors: the errors: (S, repetitions).
        groups: how many groups the repetitions are divided into.

    Returns:
        The mean slope, and its lower limit at 99.9 %.
    """
    from scipy.stats import t

    slopes = []
    for group in np.array_split(errors, groups, axis=1):
        # A power law is a line on a double logarithmic scale.
        slope, _ = np.polyfit(np.log(sizes), np.log(group.mean(axis=1)), 1)
        slopes.append(slope)

    # Ten slopes are few: Student's t, not the normal distribution.
    mean = float(np.mean(slopes))
    standard_error = float(np.std(slopes, ddof=1)) / np.sqrt(groups)
    return mean, float(mean - t.ppf(1 - FALSE_ALARM, groups - 1) * standard_error)


def _make_bound_table(bounds: Array, promised: Array, measured: Array) -> ReportTable:
    data = []
    for k, n in enumerate(HYPOTHESES):
        data.append(
            {
                "N": n,
                "M": compute_needed_rows(n),
                "allowed error": float(bounds[k]),
                "promised": float(promised[k]),
                "measured": float(measured[k]),
            }
        )

    caption = (
        f"How often the error stays within 2δ + α + ε, with α = 1 / √N, δ = {DELTA} and ε = "
        f"{EPSILON}, as promised and as measured; M is the smallest above 8 log(CN) / δ²."
    )
    return make_table("bound", caption, data, COUNT_FORMATS, ".4f")


def _make_estimators_table(data: Sequence[Mapping[str, Any]]) -> ReportTable:
    caption = (
        "Mean error of teeter's estimators over 50 rows, by what they may spend, on one reference "
        "sample."
    )
    return make_table("estimators", caption, data, default_format=".5f")


def draw_errors(measurement: Measurement) -> list[Drawing]:
    """Draw the mean error against N and against M."""
    numbers = measurement.numbers
    n = np.array(numbers["N"], dtype=float)
    m = np.array(numbers["M"], dtype=float)
    # The rates of the bound, through the first error.
    rate_in_n = numbers["error by N"][0] * np.sqrt(n[0] / n)
    rate_in_m = numbers["error by M"][0] * np.sqrt(m[0] / m)

    figure = new_figure(9.5, 4.2)
    left, right = figure.subplots(1, 2, sharey=True)

    left.plot(n, numbers["error by N"], "o-", color="#d55e00", label="all rows (M → ∞)")
    left.plot(n, numbers["error by both"], "s-", color="#0072b2", label="M = 8 log(CN) / δ²")
    left.plot(n, numbers["error by N, few rows"], "^-", color="#009e73", label=f"M = {FEW_ROWS}")
    left.plot(n, rate_in_n, "--", color="#555555", label="1 / √N")
    left.set(xscale="log", yscale="log", xlabel="hypotheses N")
    left.set(ylabel="mean error of the estimated LDM")

    right.plot(m, numbers["error by M"], "o-", color="#d55e00", label="all hypotheses (N → ∞)")
    right.plot(m, rate_in_m, "--", color="#555555", label="1 / √M")
    right.set(xscale="log", xlabel="reference rows M")

    for axes in (left, right):
        axes.legend(frameon=False, fontsize=9)
        style_axes(axes)
    caption = (
        f"The estimator's mean error for a row of LDM {TRUE_LDM}, with the rates of the bound "
        "dashed."
    )
    return [Drawing(figure, caption)]


THEOREM_1 = Item(
    name="theorem-1",
    title="The estimator tends to the LDM",
    location="theorem 1",
    claim="With N hypotheses and M > 8 log(CN) / δ² rows the estimate is within 2δ + α(N) + ε of "
    "the LDM, but for a chance of 1 / (CN) + β(N).",
    test="Holds if, with M at the theorem's limit and α and β of proposition 3, the error stays "
    "within the bound as often as promised (binomial, 99.9 % for all N together), and the mean "
    "error falls no slower than 1 / √N and 1 / √M (slopes of ten groups of repetitions, one-sided "
    "t-test, 99.9 %); in part if some of the three are so.",
    compute=measure_errors,
    draw=draw_errors,
)


# Corollary 1

SIZES = (16, 64, 256, 1024, 4096)
"""N, and a quarter of M: both grow together."""
STOPS = (1, 2, 5, 10, 20)
"""The stop condition s of Algorithm 1 at each size."""
RAYS = (2, 4, 8, 16, 32)
"""The number of rays at each size."""

TOLERANCE = 0.01
"""The epsilon of the corollary: pairs inverted by less do not count."""
NEGLIGIBLE_SHARE = 0.001
"""The largest share of inverted pairs that passes at the largest size."""

Estimator = Callable[[int, Array, np.random.Generator], Array]
"""Takes the number of a size, reference rows (M, 2) and a generator; returns the LDM of the rows.
"""


def measure_orders(config: StudyConfig) -> Measurement:
    """Compute how many pairs of rows three estimators put in the wrong order, as N and M grow."""
    repetitions = 10 if config.quick else 50
    rows = sample_disc(60, rng(config.seed, "corollary 1", "rows"))
    angles = row_angles(rows)
    exact = exact_ldm(angles)
    estimators = _make_estimators(rows, config)

    shares = {name: np.zeros((2, len(SIZES), repetitions)) for name in estimators}
    for k, size in enumerate(SIZES):
        for repetition in range(repetitions):
            generator = rng(config.seed, "corollary 1", k, repetition)
            reference = sample_disc(4 * size, generator)

            # The estimators draw from the same generator, one after the other.
            for name, estimate in estimators.items():
                estimates = estimate(k, reference, generator)
                shares[name][0, k, repetition] = compute_inverted_share(exact, estimates, 0.0)
                shares[name][1, k, repetition] = compute_inverted_share(exact, estimates, TOLERANCE)

    return judge_orders(shares)


def _make_estimators(rows: Array, config: StudyConfig) -> dict[str, Estimator]:
    """Return the estimators of the LDM of rows (N, 2), by name."""

    def estimate_by_draws(k: int, reference: Array, generator: np.random.Generator) -> Array:
        rotations = _sample_rotations(SIZES[k], generator)
        return estimated_ldm(row_angles(rows), rotations, np.sort(row_angles(reference)))

    def estimate_by_algorithm(k: int, reference: Array, generator: np.random.Generator) -> Array:
        return ldm(
            rows,
            WEIGHT,
            reference=reference,
            method="gaussian",
            patience=STOPS[k],
            seed=int(generator.integers(2**31)),
            device=config.device,
        )

    def estimate_by_rays(k: int, reference: Array, generator: np.random.Generator) -> Array:
        return ldm(
            rows,
            WEIGHT,
            reference=reference,
            rays=RAYS[k],
            seed=int(generator.integers(2**31)),
            device=config.device,
        )

    return {
        "N draws": estimate_by_draws,
        "Algorithm 1": estimate_by_algorithm,
        "rays": estimate_by_rays,
    }


def compute_inverted_share(exact: Array, estimates: Array, tolerance: float) -> float:
    """Return the share of pairs with L_i < L_j that estimates invert by more than a tolerance.

    Args:
        exact: the exact LDM of rows: (N,).
        estimates: the estimated LDM of the same rows: (N,).
        tolerance: the difference up to which an inversion does not count.
    """
    # Entry (i, j) compares row i with row j: (N, N).
    is_smaller = exact[:, None] < exact[None, :]
    is_inverted = estimates[:, None] > estimates[None, :] + tolerance
    return float((is_smaller & is_inverted).sum() / is_smaller.sum())


def judge_orders(shares: Mapping[str, Array]) -> Measurement:
    """Check that inverted pairs become rare as N and M grow.

    Args:
        shares: the share of inverted pairs by estimator: (2, sizes, repetitions), for a tolerance
            of 0 and of ``TOLERANCE``.
    """
    means = {name: values.mean(axis=2) for name, values in shares.items()}

    checks = {}
    phrases = []
    for name, (_, mean) in means.items():
        never_rises = bool((np.diff(mean) <= 0).all())
        checks[name] = never_rises and bool(mean[-1] <= NEGLIGIBLE_SHARE)
        phrases.append(f"{mean[0]:.2%} to {mean[-1]:.2%} by {name}")

    stops = ", ".join(map(str, STOPS))
    rays = ", ".join(map(str, RAYS))
    return Measurement(
        numbers={
            "sizes": SIZES,
            "inverted": means,  # by estimator: (2, sizes)
        },
        verdict=decide_verdict(checks),
        reason=f"From the smallest size to the largest, pairs inverted by more than "
        f"{TOLERANCE:g} fall from {', '.join(phrases)}.",
        tables=(_make_orders_table(means),),
        notes=(
            f"N is the number of plain draws. At the same sizes Algorithm 1 has s = {stops}, and "
            f"there are {rays} rays. M is that of all three.",
        ),
    )


def _make_orders_table(means: Mapping[str, Array]) -> ReportTable:
    data = []
    for k, n in enumerate(SIZES):
        row: dict[str, Any] = {"N": n, "M": 4 * n}
        for name, mean in means.items():
            row[f"{name}, ε = 0"] = float(mean[0, k])
            row[f"{name}, ε = {TOLERANCE:g}"] = float(mean[1, k])
        data.append(row)

    caption = "The share of pairs whose order the estimates invert by more than ε."
    return make_table("order", caption, data, COUNT_FORMATS, ".3%")


def draw_orders(measurement: Measurement) -> list[Drawing]:
    """Draw the share of inverted pairs against the size."""
    sizes = measurement.numbers["sizes"]
    inverted: Mapping[str, Any] = measurement.numbers["inverted"]
    colours = ("#009e73", "#0072b2", "#d55e00")

    figure = new_figure(7.5, 4)
    axes = figure.subplots()
    largest = 0.0
    for (name, mean), colour in zip(inverted.items(), colours, strict=False):
        percent = 100 * np.array(mean)
        largest = max(largest, float(percent.max()))
        axes.plot(sizes, percent[0], "o--", color=colour, alpha=0.6, label=f"{name}, ε = 0")
        axes.plot(sizes, percent[1], "o-", color=colour, label=f"{name}, ε = {TOLERANCE:g}")

    axes.set(xscale="log", xlabel="N of the plain draws; M = 4 N for all")
    axes.set(ylabel="inverted pairs (%)")
    # Linear up to 0.1 %, because shares fall to 0.
    axes.set_yscale("symlog", linthresh=0.1)
    axes.set_ylim(0, 1.6 * largest + 0.1)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)
    style_axes(axes)

    caption = (
        "How many pairs of 60 rows the estimates put in the wrong order, by more than ε; from left "
        f"to right Algorithm 1 has s = {STOPS[0]} to {STOPS[-1]}, and there are {RAYS[0]} to "
        f"{RAYS[-1]} rays."
    )
    return [Drawing(figure, caption)]


COROLLARY_1 = Item(
    name="corollary-1",
    title="The order of rows is preserved",
    location="corollary 1",
    claim="As N and M grow, the chance that two rows are estimated in the wrong order, by more "
    "than any ε, goes to zero.",
    test=f"For ε = {TOLERANCE:g}: an estimator passes if the share of inverted pairs never rises "
    f"from one size to the next, and is at most {NEGLIGIBLE_SHARE:.1%} at the largest; holds if "
    "drawn hypotheses, Algorithm 1 and rays all pass, in part if some do.",
    compute=measure_orders,
    draw=draw_orders,
)
