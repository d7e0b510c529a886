"""Figures 2a and 2b: what LDM, Entropy and Random pick in the plane, one row at a time.

Rows are uniform on the disc, and their classes are the sides of a random line through its centre. A
logistic regression learns the line from the labels. Figure 2a shows which rows each strategy picks,
figure 2b the accuracy after each query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from research.paper.disc import Array, fit_line, line_accuracy, line_outputs, rng, sample_disc
from research.paper.item import (
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
from teeter.bench.analysis.plots import line_style, new_figure, plot_curves
from teeter.bench.analysis.statistics import gain_over
from teeter.bench.analysis.table_formats import format_number
from teeter.strategies.api import select

__all__ = ["FIGURE_2AB"]

STRATEGIES = ("ldm", "entropy", "random")

POOL = 500
INITIAL = 3
"""Labels of each class to begin with."""
STEPS = 30
"""Queries if quick, one row each; twice as many otherwise."""
REPETITIONS = 100

RAYS = 32
"""In the plane one ray to either side is exact, if it turns far enough."""

ALIKE = 0.5
"""LDM and Entropy are alike if their mean accuracies differ by less than so many points."""


def measure_plane(config: StudyConfig) -> Measurement:
    """Learn a line by one query at a time, 100 times with each strategy."""
    steps = STEPS if config.quick else 2 * STEPS
    accuracy = {name: np.zeros((REPETITIONS, steps + 1)) for name in STRATEGIES}
    distance = {name: np.zeros(REPETITIONS) for name in STRATEGIES}
    example: dict[str, Any] = {}

    for repetition in range(REPETITIONS):
        generator = rng(config.seed, "figure 2", repetition)
        pool = sample_disc(POOL, generator)
        truth = _sample_direction(generator)
        initial = _sample_initial(pool @ truth > 0, generator)

        # The figure shows the first repetition.
        if repetition == 0:
            example = {"pool": pool.round(4), "truth": truth, "shown": {}}

        for name in STRATEGIES:
            picks, lines, distances = learn_line(pool, truth, initial, name, steps, seed=repetition)
            accuracy[name][repetition] = [line_accuracy(line, truth) for line in lines]
            distance[name][repetition] = float(np.mean(distances))

            if repetition == 0:
                example["shown"][name] = {"picks": picks, "line": lines[-1]}

    measurement = judge_plane(accuracy, distance)
    return replace(measurement, numbers={**measurement.numbers, **example})


def _sample_direction(generator: np.random.Generator) -> Array:
    angle = 2 * np.pi * generator.random()
    return np.array([np.cos(angle), np.sin(angle)])


def _sample_initial(labels: npt.NDArray[np.bool_], generator: np.random.Generator) -> list[int]:
    """Return ``INITIAL`` rows of each class."""
    rows: list[int] = []
    for label in (False, True):
        of_class = np.flatnonzero(labels == label)
        rows += generator.choice(of_class, INITIAL, replace=False).tolist()
    return rows


def learn_line(
    pool: Array, truth: Array, initial: Sequence[int], strategy: str, steps: int, *, seed: int
) -> tuple[list[int], list[Array], list[float]]:
    """Learn a line by active learning, one query at a time.

    Args:
        pool: the rows to pick from: (N, 2).
        truth: the weight of the true line: (2,).
        initial: the rows that are labelled at the beginning.
        strategy: the name of a strategy.
        steps: how many rows to query.
        seed: the seed of the strategy.

    Returns:
        The picks; the lines learned before the first query and after each; and the distance of each
        pick to the boundary of its time, as a share of the pool's mean distance.
    """
    labels = (pool @ truth > 0).astype(float)
    labelled = list(initial)
    lines = [fit_line(pool[labelled], labels[labelled])]
    distances = []

    for step in range(steps):
        candidates = np.setdiff1d(np.arange(len(pool)), labelled)
        options: dict[str, Any] = {"rays": RAYS} if strategy == "ldm" else {}
        outputs = line_outputs(pool[candidates], lines[-1])
        # A seed for each query: a repetition has less than 1,000 of them.
        (pick,) = select(
            strategy, outputs, 1, seed=seed * 1000 + step, device="cpu", options=options
        )

        # The norm of the line cancels out in the ratio.
        distance = np.abs(pool[candidates] @ lines[-1])
        distances.append(float(distance[pick] / distance.mean()))
        labelled.append(int(candidates[pick]))
        lines.append(fit_line(pool[labelled], labels[labelled]))
    return labelled[len(initial) :], lines, distances


def judge_plane(accuracy: Mapping[str, Array], distance: Mapping[str, Array]) -> Measurement:
    """Check which strategies are accurate, and which ones pick near the boundary.

    Args:
        accuracy: the accuracies by strategy, each (R, T): repetitions by queries.
        distance: the mean distance of picks to the boundary by strategy, each (R,).
    """
    ldm = gain_over(accuracy["ldm"], accuracy["random"])
    entropy = gain_over(accuracy["entropy"], accuracy["random"])
    difference = gain_over(accuracy["ldm"], accuracy["entropy"])
    # Half of the 95 % interval of the mean difference.
    half_interval = 1.96 * difference.deviation / np.sqrt(len(accuracy["ldm"]))

    ldm_is_better = ldm.mean > 0 and ldm.significant
    entropy_is_better = entropy.mean > 0 and entropy.significant
    ldm_is_nearer = significantly_below(distance["ldm"], distance["random"])
    entropy_is_nearer = significantly_below(distance["entropy"], distance["random"])
    checks = {
        "both pick near the boundary": ldm_is_nearer and entropy_is_nearer,
        "both beat Random": ldm_is_better and entropy_is_better,
        "LDM is like Entropy": abs(difference.mean) + half_interval < ALIKE,
    }

    data = [
        {
            "strategy": name,
            "mean accuracy": 100 * float(runs[:, 1:].mean()),
            "last accuracy": 100 * float(runs[:, -1].mean()),
            "distance of picks": float(distance[name].mean()),
        }
        for name, runs in accuracy.items()
    ]
    caption = (
        "Accuracy in percent over the queries and after the last, and the mean distance of picks "
        "to the boundary at the time, as a share of the pool's mean."
    )
    return Measurement(
        # By strategy: (R, T). Six digits keep the result file small.
        numbers={"accuracy": {name: runs.round(6) for name, runs in accuracy.items()}},
        verdict=decide_verdict(checks),
        reason=f"Over Random, LDM gains {format_number(ldm.mean, '+.2f')} points "
        f"({format_p(ldm.p)}) and Entropy {format_number(entropy.mean, '+.2f')} "
        f"({format_p(entropy.p)}); LDM minus Entropy is {format_number(difference.mean, '+.2f')} "
        f"± {half_interval:.2f}, and {ALIKE} is the limit for being "
        f"alike.{describe_failed_checks(checks)}",
        tables=(make_table("plane", caption, data),),
    )


def draw_plane(measurement: Measurement) -> list[Drawing]:
    """Draw the picks of each strategy, and learning curves."""
    numbers = measurement.numbers
    pool = np.array(numbers["pool"])
    truth = np.array(numbers["truth"])

    figure = new_figure(9.5, 3.6)
    panels = figure.subplots(1, len(numbers["shown"]))
    for axes, (name, shown) in zip(panels, numbers["shown"].items(), strict=True):
        picks = pool[shown["picks"]]
        line = np.array(shown["line"])

        axes.scatter(*pool.T, s=4, color="#bbbbbb", linewidths=0)

        # A boundary is perpendicular to its weight.
        for weight, colour, style in ((truth, "#555555", "--"), (line, "#222222", "-")):
            along = np.array([-weight[1], weight[0]]) / np.linalg.norm(weight)
            axes.plot(*np.outer(along, [-1, 1]), color=colour, linestyle=style, linewidth=1.2)

        # The marker is the true class of a pick.
        is_positive = picks @ truth > 0
        for chosen, marker in ((is_positive, "o"), (~is_positive, "x")):
            axes.scatter(
                *picks[chosen].T,
                s=26,
                marker=marker,
                color=line_style(name)["color"],
                linewidths=1.3,
                zorder=3,
            )
        axes.set(title=name, aspect="equal", xticks=[], yticks=[])

    accuracy = {name: np.array(runs) for name, runs in numbers["accuracy"].items()}
    query_count = next(iter(accuracy.values())).shape[1]
    curves = plot_curves(2 * INITIAL + np.arange(query_count, dtype=float), accuracy)
    return [
        Drawing(
            figure,
            "The rows picked in one repetition, by class; the true boundary dashed, the learned "
            "one solid.",
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
    claim="In the plane, from three labels a class, LDM and Entropy both query rows near the "
    "boundary; LDM is as accurate as Entropy, and both are more accurate than Random.",
    test="Three checks over 100 repetitions: picks of LDM and of Entropy lie nearer to the "
    "boundary than Random's (paired t-tests, 5 %); both gain over Random (same); the 95 % "
    f"interval of LDM minus Entropy lies within {ALIKE} points. Holds if all pass, in part if "
    "some do.",
    compute=measure_plane,
    draw=draw_plane,
)
