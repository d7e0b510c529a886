"""What LDM picks in the plane, one row at a time, beside Entropy and Random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reproduction.disc import Array, fit_line, line_accuracy, line_outputs, rng, sample_disc
from reproduction.item import (
    Drawing,
    Item,
    Measurement,
    StudyConfig,
    decide_verdict,
    describe_failed_checks,
    format_p,
    make_table,
    significantly_below,
)
from teeter.analysis.plot_style import line_style, new_figure
from teeter.analysis.plots import plot_curves
from teeter.analysis.statistics import gain_over
from teeter.analysis.table_formats import format_number
from teeter.strategies.api import select

__all__ = ["FIGURE_2AB"]

STRATEGIES = ("ldm", "entropy", "random")
POOL, INITIAL, STEPS, REPETITIONS = 500, 3, 30, 100
"""Rows to pick from, labels of each class to begin with, queries, and how often."""

RAYS = 32
"""In the plane one ray to either side is exact, if it turns far enough."""

ALIKE = 0.5
"""LDM and Entropy are alike if their mean accuracies differ by less than so many points."""


def measure_plane(config: StudyConfig) -> Measurement:
    """Learn a line by one query at a time, 100 times with each strategy."""
    repetitions, steps = REPETITIONS, STEPS if config.quick else 2 * STEPS
    accuracy = {name: np.zeros((repetitions, steps + 1)) for name in STRATEGIES}
    apart = {name: np.zeros(repetitions) for name in STRATEGIES}
    shown: dict[str, Any] = {}
    for repetition in range(repetitions):
        generator = rng(config.seed, "figure 2", repetition)
        pool, truth = sample_disc(POOL, generator), _direction(generator)
        first = _initial(pool @ truth > 0, generator)
        for name in STRATEGIES:
            picks, lines, near = learn_line(pool, truth, first, name, steps, seed=repetition)
            accuracy[name][repetition] = [line_accuracy(line, truth) for line in lines]
            apart[name][repetition] = float(np.mean(near))
            if repetition == 0:
                shown[name] = {"picks": picks, "line": lines[-1]}
    found = judge_plane(accuracy, apart)
    world = {"pool": _first_pool(config), "truth": _first_truth(config), "shown": shown}
    return Measurement(
        {**found.numbers, **world}, found.verdict, found.reason, found.tables, found.notes
    )


def _direction(generator: np.random.Generator) -> Array:
    angle = 2 * np.pi * generator.random()
    return np.array([np.cos(angle), np.sin(angle)])


def _first_pool(config: StudyConfig) -> Array:
    return sample_disc(POOL, rng(config.seed, "figure 2", 0)).round(4)


def _first_truth(config: StudyConfig) -> Array:
    generator = rng(config.seed, "figure 2", 0)
    sample_disc(POOL, generator)
    return _direction(generator)


def _initial(labels: npt.NDArray[np.bool_], generator: np.random.Generator) -> list[int]:
    """Return three rows of each class."""
    sides = [np.flatnonzero(labels == side) for side in (False, True)]
    return [int(row) for side in sides for row in generator.choice(side, INITIAL, replace=False)]


def learn_line(
    pool: Array, truth: Array, first: Sequence[int], strategy: str, steps: int, *, seed: int
) -> tuple[list[int], list[Array], list[float]]:
    """Return the rows asked for after the ``first``, the line after each number of labels, and how near picks were.

    pool (N, 2), truth (2,). Near is a pick's distance to the boundary at the time, as a share of the pool's mean.
    """
    labels = (pool @ truth > 0).astype(float)
    told = list(first)
    lines = [fit_line(pool[told], labels[told])]
    near = []
    for step in range(steps):
        free = np.setdiff1d(np.arange(len(pool)), told)
        options: dict[str, Any] = {"rays": RAYS} if strategy == "ldm" else {}
        outputs = line_outputs(pool[free], lines[-1])
        (pick,) = select(strategy, outputs, 1, seed=seed * 1000 + step, device="cpu", **options)
        distance = np.abs(pool[free] @ lines[-1])
        near.append(float(distance[pick] / distance.mean()))
        told.append(int(free[pick]))
        lines.append(fit_line(pool[told], labels[told]))
    return told[len(first) :], lines, near


def judge_plane(accuracy: Mapping[str, Array], apart: Mapping[str, Array]) -> Measurement:
    """Check who is more accurate, (R, T) each, and who picks near the boundary, (R,) each."""
    ldm, entropy = (gain_over(accuracy[name], accuracy["random"]) for name in ("ldm", "entropy"))
    between = gain_over(accuracy["ldm"], accuracy["entropy"])
    reach = 1.96 * between.deviation / np.sqrt(len(accuracy["ldm"]))
    nearer = {
        name: significantly_below(apart[name], apart["random"]) for name in ("ldm", "entropy")
    }
    checks = {
        "both pick near the boundary": all(nearer.values()),
        "both beat Random": ldm.mean > 0
        and ldm.significant
        and entropy.mean > 0
        and entropy.significant,
        "LDM is like Entropy": abs(between.mean) + reach < ALIKE,
    }
    data = [
        {
            "strategy": name,
            "mean accuracy": 100 * float(runs[:, 1:].mean()),
            "last accuracy": 100 * float(runs[:, -1].mean()),
            "distance of picks": float(apart[name].mean()),
        }
        for name, runs in accuracy.items()
    ]
    caption = (
        "Accuracy in percent over the queries and after the last, and the mean distance of picks to the boundary at "
        "the time, as a share of the pool's mean."
    )
    return Measurement(
        numbers={"accuracy": {name: runs.round(6) for name, runs in accuracy.items()}},
        verdict=decide_verdict(checks),
        reason=f"Over Random, LDM gains {format_number(ldm.mean, '+.2f')} points ({format_p(ldm.p)}) and Entropy "
        f"{format_number(entropy.mean, '+.2f')} ({format_p(entropy.p)}); LDM minus Entropy is {format_number(between.mean, '+.2f')} ± "
        f"{reach:.2f}, and {ALIKE} is the limit for being alike.{describe_failed_checks(checks)}",
        tables=(make_table("plane", caption, data),),
    )


def draw_plane(measured: Measurement) -> list[Drawing]:
    """Draw the picks of each strategy, and learning curves."""
    numbers, figure = measured.numbers, new_figure(9.5, 3.6)
    pool, truth = np.array(numbers["pool"]), np.array(numbers["truth"])
    for axes, (name, one) in zip(
        figure.subplots(1, len(numbers["shown"])), numbers["shown"].items(), strict=True
    ):
        picks, line = pool[one["picks"]], np.array(one["line"])
        axes.scatter(*pool.T, s=4, color="#bbbbbb", linewidths=0)
        for weight, colour, style in ((truth, "#555555", "--"), (line, "#222222", "-")):
            along = np.array([-weight[1], weight[0]]) / np.linalg.norm(weight)
            axes.plot(*np.outer(along, [-1, 1]), color=colour, linestyle=style, linewidth=1.2)
        side = picks @ truth > 0
        for chosen, marker in ((side, "o"), (~side, "x")):
            axes.scatter(
                *picks[chosen].T,
                s=26,
                marker=marker,
                color=line_style(name).colour,
                linewidths=1.3,
                zorder=3,
            )
        axes.set(title=name, aspect="equal", xticks=[], yticks=[])
    curves = plot_curves(
        2 * INITIAL + np.arange(len(next(iter(numbers["accuracy"].values()))[0]), dtype=float),
        {name: np.array(runs) for name, runs in numbers["accuracy"].items()},
    )
    return [
        Drawing(
            figure,
            "The rows picked in one repetition, by class; the true boundary dashed, the learned one solid.",
        ),
        Drawing(
            curves,
            "Accuracy against labels: the mean of 100 repetitions, and one standard deviation.",
        ),
    ]


FIGURE_2AB = Item(
    name="figure-2ab",
    title="One query at a time in the plane",
    location="figure 2, a and b",
    claim="In the plane, from three labels a class, LDM and Entropy both query rows near the boundary; LDM is as "
    "accurate as Entropy, and both are more accurate than Random.",
    test="Three checks over 100 repetitions: picks of LDM and of Entropy lie nearer to the boundary than Random's "
    f"(paired t-tests, 5 %); both gain over Random (same); the 95 % interval of LDM minus Entropy lies within {ALIKE} "
    "points. Holds if all pass, in part if some do.",
    compute=measure_plane,
    draw=draw_plane,
)
