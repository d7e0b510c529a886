"""The estimator tends to the LDM: the paper's theorem and its corollary, in the plane where the LDM is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from reproduction.disc import (
    WEIGHT,
    Array,
    estimated_ldm,
    exact_ldm,
    rng,
    rotation_angles,
    row_angles,
    sample_disc,
)
from reproduction.item import Drawing, Item, Measurement, StudyConfig, decide_verdict, make_table
from reproduction.propositions import SURE, never_covered
from teeter.analysis.plot_style import new_figure, style_axes
from teeter.analysis.table_formats import ReportTable, format_number
from teeter.strategies.api import ldm

__all__ = ["COROLLARY_1", "THEOREM_1"]

CLASSES = 2
TRUE, SIGMA, NEAR, DELTA = 0.2, 0.5, 0.05, 0.05
"""The LDM of the theorem's row, the strength of its Gaussian, its epsilon and its delta."""

HYPOTHESES = (16, 64, 256, 1024, 4096)
ROWS = (100, 400, 1600, 6400, 25_600)
_COUNTS = {"N": ",d", "M": ",d"}
"""How columns of counts are shown."""


def needed_rows(hypotheses: int, delta: float = DELTA) -> int:
    """Return the least M that the theorem allows for N: more than 8 log(CN) / delta^2."""
    return int(np.floor(8 * np.log(CLASSES * hypotheses) / delta**2)) + 1


def _hypotheses(count: int, generator: np.random.Generator) -> Array:
    return rotation_angles(np.array([1.0, 0.0]) + SIGMA * generator.standard_normal((count, 2)))


def _reference(count: int, generator: np.random.Generator) -> Array:
    return np.sort(row_angles(sample_disc(count, generator)))


def _error(hypotheses: int | None, rows: int | None, generator: np.random.Generator) -> float:
    """Return |L_NM - L| once; None stands for all hypotheses, or for all rows."""
    row = np.array([np.pi * TRUE])
    turned: Array = row + 1e-12 if hypotheses is None else _hypotheses(hypotheses, generator)
    if rows is None:
        past = [*(turned[turned > row] / np.pi), *(-turned[turned < row - np.pi] / np.pi)]
        return float(min(past, default=1.0) - TRUE)
    return float(abs(estimated_ldm(row, turned, _reference(rows, generator))[0] - TRUE))


def measure_errors(config: StudyConfig) -> Measurement:
    """Compute the estimator's error against N alone, against M alone, and with both as the theorem pairs them."""
    repetitions = 200 if config.quick else 2000

    def errors(name: str, pairs: Sequence[tuple[int | None, int | None]]) -> Array:
        generators = [rng(config.seed, "theorem 1", name, k) for k in range(repetitions)]
        return np.array([[_error(n, m, generator) for generator in generators] for n, m in pairs])

    return judge_errors(
        against_n=errors("N", [(n, None) for n in HYPOTHESES]),
        against_m=errors("M", [(None, m) for m in ROWS]),
        paired=errors("both", [(n, needed_rows(n)) for n in HYPOTHESES]),
        few_rows=errors("few", [(n, ROWS[1]) for n in HYPOTHESES]),
        budgets=_budgets(config),
    )


def _budgets(config: StudyConfig) -> list[dict[str, Any]]:
    """Return the mean error of the two estimators of this package by what they may spend, over rows of the disc."""
    rows = sample_disc(50, rng(config.seed, "theorem 1", "rows"))
    reference = sample_disc(
        5000 if config.quick else 50_000, rng(config.seed, "theorem 1", "reference")
    )
    true = exact_ldm(row_angles(rows))
    data = []
    for patience in (1, 3, 10, 30):
        found = ldm(
            rows,
            WEIGHT,
            reference=reference,
            method="gaussian",
            patience=patience,
            seed=config.seed,
            device=config.device,
        )
        data.append(
            {
                "estimator": f"Algorithm 1, s = {patience}",
                "mean error": float(np.abs(found - true).mean()),
            }
        )
    for rays in (2, 8, 32, 128):
        found = ldm(
            rows, WEIGHT, reference=reference, rays=rays, seed=config.seed, device=config.device
        )
        data.append({"estimator": f"{rays} rays", "mean error": float(np.abs(found - true).mean())})
    return data


def judge_errors(
    *,
    against_n: Array,
    against_m: Array,
    paired: Array,
    few_rows: Array,
    budgets: Sequence[Mapping[str, Any]] = (),
) -> Measurement:
    """Check the theorem's bound on paired errors, and the rates against N and M; all (sizes, repetitions)."""
    from scipy.stats import binom

    repetitions = paired.shape[1]
    allowed = np.array([2 * DELTA + n**-0.5 + NEAR for n in HYPOTHESES])
    within = (paired <= allowed[:, None]).sum(axis=1)
    promised = np.array([_promised(n) for n in HYPOTHESES])
    enough = within >= binom.ppf(SURE / len(within), repetitions, promised)
    slopes = {"N": slope(HYPOTHESES, against_n), "M": slope(ROWS, against_m)}
    steep = {f"rate in {name}": not found[1] > -0.5 for name, found in slopes.items()}
    data = [
        {
            "N": n,
            "M": needed_rows(n),
            "allowed error": float(a),
            "promised": float(p),
            "found": w / repetitions,
        }
        for n, a, p, w in zip(HYPOTHESES, allowed, promised, within.tolist(), strict=True)
    ]
    told = " and ".join(
        f"{format_number(middle)} in {name}" for name, (middle, _) in slopes.items()
    )
    return Measurement(
        numbers={
            "N": HYPOTHESES,
            "M": ROWS,
            "needed": [needed_rows(n) for n in HYPOTHESES],
            "error by N": against_n.mean(axis=1),
            "error by M": against_m.mean(axis=1),
            "error by both": paired.mean(axis=1),
            "error by N, few rows": few_rows.mean(axis=1),
            "slopes": {name: found[0] for name, found in slopes.items()},
        },
        verdict=decide_verdict({"bound": bool(enough.all()), **steep}),
        reason=f"With M as the theorem asks, {within.min() / repetitions:.1%} or more of {repetitions:,} errors stay "
        f"within its bound; on a double logarithmic scale the mean error falls with a slope of {told}.",
        tables=(_bound_table(data), *([_budget_table(budgets)] if budgets else [])),
        notes=(
            "The Lipschitz constant of the theorem's second assumption is taken as 1, so that α(N) = 1 / √N.",
            "The bound is far from sharp here: with one Gaussian in the plane the error falls as 1 / N, and the "
            "bound's 1 / √N is an upper limit.",
        ),
    )


def _promised(hypotheses: int) -> float:
    missed = never_covered(hypotheses, hypotheses**-0.5, angle=np.pi * TRUE, near=NEAR, sigma=SIGMA)
    return max(0.0, 1 - 1 / (CLASSES * hypotheses) - missed)


def slope(sizes: Sequence[int], errors: Array, groups: int = 10) -> tuple[float, float]:
    """Return the slope of log mean error against log size, and the least it could be, but for a chance of 1 in 1,000.

    errors (sizes, repetitions): the repetitions are fitted in groups, and the groups' slopes are as many draws.
    """
    from scipy.stats import t

    parts = np.array_split(errors, groups, axis=1)
    fitted = np.array(
        [np.polyfit(np.log(sizes), np.log(part.mean(axis=1)), 1)[0] for part in parts]
    )
    spread = float(fitted.std(ddof=1)) / np.sqrt(groups)
    return float(fitted.mean()), float(fitted.mean() - t.ppf(1 - SURE, groups - 1) * spread)


def _bound_table(data: list[dict[str, Any]]) -> ReportTable:
    caption = (
        f"How often the error stays within 2δ + α + ε, with α = 1 / √N, δ = {DELTA} and ε = {NEAR}, as promised and "
        "as found; M is the least above 8 log(CN) / δ²."
    )
    return make_table("bound", caption, data, _COUNTS, ".4f")


def _budget_table(data: Sequence[Mapping[str, Any]]) -> ReportTable:
    caption = "Mean error of this package's estimators over 50 rows, by what they may spend, on one reference sample."
    return make_table("estimators", caption, data, default_format=".5f")


def draw_errors(measured: Measurement) -> list[Drawing]:
    """Draw the mean error against N and against M."""
    numbers, figure = measured.numbers, new_figure(9.5, 4.2)
    left, right = figure.subplots(1, 2, sharey=True)
    n, m = (np.array(numbers[name], dtype=float) for name in ("N", "M"))
    left.plot(n, numbers["error by N"], "o-", color="#d55e00", label="all rows (M → ∞)")
    left.plot(n, numbers["error by both"], "s-", color="#0072b2", label="M = 8 log(CN) / δ²")
    left.plot(n, numbers["error by N, few rows"], "^-", color="#009e73", label=f"M = {ROWS[1]}")
    left.plot(
        n, numbers["error by N"][0] * np.sqrt(n[0] / n), "--", color="#555555", label="1 / √N"
    )
    right.plot(m, numbers["error by M"], "o-", color="#d55e00", label="all hypotheses (N → ∞)")
    right.plot(
        m, numbers["error by M"][0] * np.sqrt(m[0] / m), "--", color="#555555", label="1 / √M"
    )
    left.set(
        xscale="log", yscale="log", xlabel="hypotheses N", ylabel="mean error of the estimated LDM"
    )
    right.set(xscale="log", xlabel="reference rows M")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=9)
        style_axes(axes)
    return [
        Drawing(
            figure,
            f"The estimator's mean error for a row of LDM {TRUE}, with the rates of the bound dashed.",
        )
    ]


THEOREM_1 = Item(
    name="theorem-1",
    title="The estimator tends to the LDM",
    location="theorem 1",
    claim="With N hypotheses and M > 8 log(CN) / δ² rows the estimate is within 2δ + α(N) + ε of the LDM, but for a "
    "chance of 1 / (CN) + β(N).",
    test="Holds if, with M at the theorem's limit and α and β of proposition 3, the error stays within the bound as "
    "often as promised (binomial, 99.9 % for all N together), and the mean error falls no slower than 1 / √N and 1 / "
    "√M (slopes of ten groups of repetitions, one-sided t-test, 99.9 %); in part if some of the three are so.",
    compute=measure_errors,
    draw=draw_errors,
)


# Corollary 1

SIZES = (16, 64, 256, 1024, 4096)
"""N, and a quarter of M: both grow together."""

PATIENCE, RAYS = (1, 2, 5, 10, 20), (2, 4, 8, 16, 32)
"""What this package's estimators may spend at each size."""

APART, RARE = 0.01, 0.001
"""The corollary's epsilon, and the share of pairs that may still be inverted by more at the largest size."""


def measure_order(config: StudyConfig) -> Measurement:
    """Compute how many pairs of rows the estimates invert, as N and M grow."""
    repetitions = 10 if config.quick else 50
    rows = sample_disc(60, rng(config.seed, "corollary 1", "rows"))
    true, tilt = exact_ldm(row_angles(rows)), row_angles(rows)

    def by_draws(k: int, reference: Array, generator: np.random.Generator) -> Array:
        return estimated_ldm(tilt, _hypotheses(SIZES[k], generator), np.sort(row_angles(reference)))

    def by_rays(k: int, reference: Array, generator: np.random.Generator) -> Array:
        seed = int(generator.integers(2**31))
        return ldm(rows, WEIGHT, reference=reference, rays=RAYS[k], seed=seed, device=config.device)

    def by_algorithm(k: int, reference: Array, generator: np.random.Generator) -> Array:
        seed = int(generator.integers(2**31))
        return ldm(
            rows,
            WEIGHT,
            reference=reference,
            method="gaussian",
            patience=PATIENCE[k],
            seed=seed,
            device=config.device,
        )

    ways: dict[str, Callable[[int, Array, np.random.Generator], Array]] = {
        "N draws": by_draws,
        "Algorithm 1": by_algorithm,
        "rays": by_rays,
    }
    found = {name: np.zeros((2, len(SIZES), repetitions)) for name in ways}
    for k, size in enumerate(SIZES):
        for repetition in range(repetitions):
            generator = rng(config.seed, "corollary 1", k, repetition)
            reference = sample_disc(4 * size, generator)
            for name, way in ways.items():
                estimate = way(k, reference, generator)
                found[name][:, k, repetition] = [
                    inverted(true, estimate, apart) for apart in (0.0, APART)
                ]
    return judge_order(found)


def inverted(true: Array, estimate: Array, apart: float) -> float:
    """Return the share of pairs with L_i < L_j whose estimates are the other way round, by more than ``apart``."""
    smaller = true[:, None] < true[None, :]
    wrong = estimate[:, None] > estimate[None, :] + apart
    return float((smaller & wrong).sum() / smaller.sum())


def judge_order(found: Mapping[str, Array]) -> Measurement:
    """Check that inverted pairs vanish: by estimator, (2, sizes, repetitions) for epsilon 0 and ``APART``."""
    means = {name: values.mean(axis=2) for name, values in found.items()}
    vanishing = {
        name: bool((np.diff(mean[1]) <= 0).all() and mean[1, -1] <= RARE)
        for name, mean in means.items()
    }
    told = ", ".join(
        f"{mean[1, 0]:.2%} to {mean[1, -1]:.2%} by {name}" for name, mean in means.items()
    )
    data = [
        {
            "N": n,
            "M": 4 * n,
            **{
                f"{name}, ε = {e:g}": float(mean[i, k])
                for name, mean in means.items()
                for i, e in _EPSILONS
            },
        }
        for k, n in enumerate(SIZES)
    ]
    caption = "The share of pairs whose order the estimates invert by more than ε."
    return Measurement(
        numbers={"sizes": SIZES, "inverted": means},
        verdict=decide_verdict(vanishing),
        reason=f"From the smallest size to the largest, pairs inverted by more than {APART:g} fall from {told}.",
        tables=(make_table("order", caption, data, _COUNTS, ".3%"),),
        notes=(
            "N counts the plain draws; in their places Algorithm 1 has "
            f"s = {', '.join(map(str, PATIENCE))}, and rays are {', '.join(map(str, RAYS))}. M is that of all three.",
        ),
    )


_EPSILONS = ((0, 0.0), (1, APART))


def draw_order(measured: Measurement) -> list[Drawing]:
    """Draw the share of inverted pairs against the size."""
    numbers, figure = measured.numbers, new_figure(7.5, 4)
    axes = figure.subplots()
    for (name, mean), colour in zip(
        numbers["inverted"].items(), ("#009e73", "#0072b2", "#d55e00"), strict=False
    ):
        axes.plot(
            numbers["sizes"],
            100 * np.array(mean[0]),
            "o--",
            color=colour,
            label=f"{name}, ε = 0",
            alpha=0.6,
        )
        axes.plot(
            numbers["sizes"],
            100 * np.array(mean[1]),
            "o-",
            color=colour,
            label=f"{name}, ε = {APART:g}",
        )
    axes.set(
        xscale="log",
        yscale="symlog",
        xlabel="N of the plain draws; M = 4 N for all",
        ylabel="inverted pairs (%)",
    )
    axes.set_yscale("symlog", linthresh=0.1)
    axes.set_ylim(0, 160 * max(max(map(max, mean)) for mean in numbers["inverted"].values()) + 0.1)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)
    style_axes(axes)
    caption = (
        "How many pairs of 60 rows the estimates put in the wrong order, by more than ε; Algorithm 1 and rays may "
        f"spend s = {PATIENCE[0]} to {PATIENCE[-1]} and {RAYS[0]} to {RAYS[-1]} rays from left to right."
    )
    return [Drawing(figure, caption)]


COROLLARY_1 = Item(
    name="corollary-1",
    title="The order of rows is kept",
    location="corollary 1",
    claim="As N and M grow, the chance that two rows are estimated in the wrong order, by more than any ε, goes to "
    "zero.",
    test=f"For ε = {APART:g}: an estimator passes if the share of inverted pairs never rises from one size to the "
    f"next, and is at most {RARE:.1%} at the largest; holds if drawn hypotheses, Algorithm 1 and rays all pass, in "
    "part if some do.",
    compute=measure_order,
    draw=draw_order,
)
