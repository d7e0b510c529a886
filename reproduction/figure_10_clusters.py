"""The paper's geometric example: groups A and B at the boundary, and C and D further out, which tell more."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from reproduction.disc import Array, fit_line, line_accuracy, line_outputs, rng
from reproduction.item import (
    Drawing,
    Item,
    Measurement,
    StudyConfig,
    decide_verdict,
    describe_failed_checks,
    format_p,
    make_table,
)
from teeter.analysis.plot_style import new_figure
from teeter.analysis.statistics import paired_t
from teeter.analysis.table_formats import ReportTable
from teeter.strategies.api import ldm, select

__all__ = ["FIGURE_10"]

GROUPS = {"A": (90.0, 10.0), "B": (270.0, 10.0), "C": (122.0, 8.0), "D": (302.0, 8.0)}
"""Where each group lies, in degrees, and how far it reaches to either side."""

LABELLED = (-30.0, 30.0)
"""Where the labelled rows of class 1 lie; those of class 0 are their mirror images, so that g is upright."""

TRUTHS = (40.0, 60.0)
"""Angles of true parameters that fit the example: past C and D, which g gets wrong, and before the labelled rows."""

ROWS, PICKS = 25, 10
"""Rows of a group, and of a batch."""

REPETITIONS = (300, 3000)
"""Where it must be quick, and else."""


def draw_world(generator: np.random.Generator) -> tuple[Array, npt.NDArray[np.str_], Array, Array]:
    """Return the pool (N, 2) with the group of each row, and labelled rows (L, 2) with their classes."""
    places = [
        _around(middle - reach, middle + reach, ROWS, generator)
        for middle, reach in GROUPS.values()
    ]
    names = np.repeat(list(GROUPS), ROWS)
    right = _around(*LABELLED, 5, generator)
    told = np.concatenate([right, right * [-1, 1]])
    return np.concatenate(places), names, told, np.repeat([1.0, 0.0], 5)


def _around(start: float, end: float, count: int, generator: np.random.Generator) -> Array:
    angle = np.radians(generator.uniform(start, end, count))
    radius = generator.uniform(0.6, 1.0, count)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def _parameter(angle: float) -> Array:
    return np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))])


def measure_groups(config: StudyConfig) -> Measurement:
    """Let LDM and LDM-S pick in many draws of the example, and see how right the next line is."""
    repetitions = REPETITIONS[not config.quick]
    angles = rng(config.seed, "groups", "truth").uniform(*TRUTHS, repetitions)
    ways = ("ldm", "ldm-s", "A and B", "C and D")
    accuracy = {name: np.zeros(repetitions) for name in ("before", *ways)}
    far = {name: np.zeros(repetitions) for name in ("ldm", "ldm-s")}
    values = {name: np.zeros(repetitions) for name in GROUPS}
    shown: dict[str, Any] = {}
    for repetition in range(repetitions):
        generator = rng(config.seed, "groups", repetition)
        pool, names, told, classes = draw_world(generator)
        line, truth = fit_line(told, classes), _parameter(float(angles[repetition]))
        outputs = line_outputs(pool, line)
        metric = ldm(pool, np.stack([np.zeros(2), line]), rays=64, seed=repetition, device="cpu")
        picks = {
            name: select(name, outputs, PICKS, seed=repetition, device="cpu", rays=64)
            for name in ("ldm", "ldm-s")
        }
        for name, rows in picks.items():
            far[name][repetition] = float(np.isin(names[rows], ["C", "D"]).sum())
        for pair in (("A", "B"), ("C", "D")):
            picks[" and ".join(pair)] = generator.choice(
                np.flatnonzero(np.isin(names, pair)), PICKS, replace=False
            )
        accuracy["before"][repetition] = line_accuracy(line, truth)
        for name in ways:
            more = np.concatenate([told, pool[picks[name]]])
            learned = fit_line(more, np.concatenate([classes, pool[picks[name]] @ truth > 0]))
            accuracy[name][repetition] = line_accuracy(learned, truth)
        for name in GROUPS:
            values[name][repetition] = float(metric[names == name].mean())
        if repetition == 0:
            shown = {
                "pool": pool,
                "names": names.tolist(),
                "told": told,
                "classes": classes,
                "line": line,
            }
            shown["truth"] = truth
            shown["picks"] = {name: picks[name] for name in ("ldm", "ldm-s")}
    found = judge_groups(accuracy, far, values, angles)
    return Measurement(
        {**found.numbers, "shown": shown}, found.verdict, found.reason, found.tables, found.notes
    )


def judge_groups(
    accuracy: Mapping[str, Array],
    far: Mapping[str, Array],
    values: Mapping[str, Array],
    angles: Array,
) -> Measurement:
    """Check where picks lie, (R,) counts in C or D, and who is more accurate after, (R,); angles (R,) of the truths."""
    informed = paired_t(accuracy["C and D"] - accuracy["A and B"])
    seeded = paired_t(accuracy["ldm-s"] - accuracy["ldm"])
    near, wide = (
        max(float(values[name].mean()) for name in "AB"),
        min(float(values[name].mean()) for name in "CD"),
    )
    reached = float((far["ldm-s"] > 0).mean())
    alone = float((far["ldm"] == 0).mean())
    checks = {
        "LDM is smaller in A and B": near < wide,
        "LDM alone picks in A and B only": alone == 1,
        "LDM-S picks in C or D, too": reached >= 0.95,
        "C and D tell more than A and B": informed[0] > 0 and informed[1] < 0.05,
        "LDM-S is more accurate than LDM alone": seeded[0] > 0 and seeded[1] < 0.05,
    }
    means = {name: 100 * float(runs.mean()) for name, runs in accuracy.items()}
    return Measurement(
        numbers={"accuracy": dict(accuracy), "picked in C or D": dict(far), "angles": angles},
        verdict=decide_verdict(checks),
        reason=f"LDM alone stays in A and B in {alone:.0%} of {len(far['ldm'])} draws, and LDM-S reaches C or D in "
        f"{reached:.0%}; the accuracy goes from {means['before']:.1f} % to {means['ldm']:.1f} % by LDM alone and to "
        f"{means['ldm-s']:.1f} % by LDM-S ({format_p(seeded[1])})."
        + describe_failed_checks(checks),
        tables=(_table(accuracy, far, angles),),
        notes=(
            "The paper tells of its example in words, so where the groups lie is our choice; the true boundary is "
            "drawn from all that fit, and the verdict is on their average.",
            "The layout was not the first we tried: with labelled rows placed at random instead of mirrored, and the "
            "truth at 40 degrees, three of the five checks failed.",
            "Which labels tell more depends on the truth, as the table shows: where the true boundary is just past C "
            "and D, labels of A and B may do better, for the line that is learned overshoots.",
        ),
    )


_WAYS = {
    "before": "no more labels",
    "ldm": "LDM alone",
    "ldm-s": "LDM-S",
    "A and B": "rows of A and B at random",
    "C and D": "rows of C and D at random",
}


def _table(accuracy: Mapping[str, Array], far: Mapping[str, Array], angles: Array) -> ReportTable:
    edges = np.linspace(*TRUTHS, 5)
    data: list[dict[str, Any]] = [
        {
            "labels": _WAYS[name],
            "accuracy (%)": 100 * float(runs.mean()),
            **{
                f"truth at {low:g}° to {high:g}°": _mean(
                    100 * runs[(angles >= low) & (angles <= high)]
                )
                for low, high in pairwise(edges)
            },
            "picks in C or D": float(far[name].mean()) if name in far else None,
        }
        for name, runs in accuracy.items()
    ]
    caption = f"The accuracy after {PICKS} more labels, by the angle of the truth, and how many labels were of C or D."
    return make_table("groups", caption, data)


def _mean(values: Array) -> float | None:
    return float(values.mean()) if len(values) else None


def draw_groups(measured: Measurement) -> list[Drawing]:
    """Draw the groups with the picks of LDM alone and of LDM-S."""
    shown, figure = measured.numbers["shown"], new_figure(9.5, 4.9)
    pool, told, classes = (np.array(shown[name]) for name in ("pool", "told", "classes"))
    for axes, (name, rows) in zip(figure.subplots(1, 2), shown["picks"].items(), strict=True):
        for weight, colour, style, label in (
            (np.array(shown["line"]), "#222222", "-", "boundary of g"),
            (np.array(shown["truth"]), "#888888", "--", "true boundary"),
        ):
            along = np.array([-weight[1], weight[0]]) / np.linalg.norm(weight)
            axes.plot(
                *np.outer(along, [-1.15, 1.15]),
                color=colour,
                linestyle=style,
                linewidth=1.3,
                label=label,
            )
        axes.scatter(
            *told[classes == 1].T, marker="o", color="#0072b2", s=30, label="labelled, class 1"
        )
        axes.scatter(
            *told[classes == 0].T, marker="x", color="#0072b2", s=30, label="labelled, class 0"
        )
        axes.scatter(*pool.T, s=10, color="#b0b0b0", linewidths=0, label="not labelled")
        axes.scatter(
            *pool[rows].T,
            s=48,
            facecolors="none",
            edgecolors="#d55e00",
            linewidths=1.6,
            label="picked",
        )
        for group, (middle, _) in GROUPS.items():
            axes.annotate(group, 1.22 * _parameter(middle + 7), ha="center", va="center")
        axes.set(title=_WAYS[name], aspect="equal", xlim=(-1.3, 1.3), ylim=(-1.3, 1.35))
        axes.axis("off")
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=3,
        frameon=False,
        fontsize=9,
    )
    return [
        Drawing(
            figure,
            f"The groups in one draw, with the {PICKS} rows picked by LDM alone and by LDM-S.",
        )
    ]


FIGURE_10 = Item(
    name="figure-10",
    title="Groups that the smallest LDM never reaches",
    location="appendix, figure 10",
    claim="By LDM alone only rows of groups A and B at the boundary are picked; with seeding rows of C and D are "
    "picked, too, which tell more.",
    test="Five checks over draws of the example and of truths that fit it: the mean LDM is smaller in A and B; LDM "
    "alone always picks in A and B only; LDM-S picks in C or D in 95 % of draws or more; ten random rows of C and D "
    "make a better line than ten of A and B, and LDM-S a better one than LDM alone (paired t-tests, 5 %). Holds if "
    "all pass, in part if some do.",
    compute=measure_groups,
    draw=draw_groups,
)
