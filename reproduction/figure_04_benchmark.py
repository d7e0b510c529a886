"""Figures 4 and 17, tables 1 and 5: strategies compared across the benchmark's datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from reproduction.item import Drawing, Item, Measurement, StudyConfig, decide_verdict, format_p
from reproduction.shared_runs import (
    Accuracies,
    accuracies_by_run,
    digits_setting,
    find_unbeaten,
    run_settings,
)
from teeter.analysis.cross_dataset import (
    PenaltyMatrix,
    PerformanceProfile,
    penalty_matrix,
    performance_profile,
)
from teeter.analysis.report.tables import (
    accuracy_table,
    cross_dataset_table,
    paper_accuracy_table,
    penalties_table,
)
from teeter.analysis.run_comparison import RunComparison, compare_strategies
from teeter.analysis.table_formats import (
    MISSING,
    ReportTable,
    format_mean_and_std,
    format_number,
)
from teeter.errors import InputError
from teeter.experiments import RunFolder
from teeter.experiments.settings import PAPER_STRATEGIES, Setting, setting_named, setting_names

__all__ = ["FIGURE_4", "FIGURE_17", "TABLE_1", "TABLE_5", "benchmark_runs", "paper_settings"]

FIRST, DELTAS = "ldm-s", np.round(np.arange(0, 10.01, 0.1), 1)
MOST_LEAD = 8.0
"""Leads of more points than this are named, not drawn: they would press the others together."""


def quick_settings() -> list[Setting]:
    """Return two small settings on digits, one with classes of unlike sizes."""
    values = {
        "repetitions": 5,
        "final": 100,
        "strategies": PAPER_STRATEGIES,
        "options": {"bait": {"form": "binary"}},
    }
    return [
        digits_setting("across", **values),
        digits_setting("across-imbalanced", imbalance=10.0, **values),
    ]


def paper_settings() -> list[str]:
    """Return the names of the paper's settings."""
    return [name for name in setting_names() if setting_named(name).paper == name]


def benchmark_runs(config: StudyConfig) -> tuple[list[RunComparison], tuple[str, ...]]:
    """Return the finished runs of the paper's settings, and a note on those that are missing."""
    if config.quick:
        runs = run_settings(config, quick_settings())
        said = "Quick: digits of scikit-learn and few rounds instead of the paper's datasets."
        return runs, (said, "BAIT is in a cheaper form, by a binary likelihood.")
    found, missing = [], []
    for name in paper_settings():
        run_folder = RunFolder(config.runs / name)
        run = run_folder.read() if run_folder.exists() else None
        if run is not None and run.finished and FIRST in run.strategies:
            found.append(compare_strategies(run))
        else:
            missing.append(name if run is None else f"{name} (begun)")
    if not found:
        raise InputError(
            f"There is no finished run of the paper's settings in {config.runs}: make one, or "
            "name --runs."
        )
    machines = ", ".join(dict.fromkeys(str(one.run.facts["hardware"]) for one in found))
    note = f"From the finished runs of {', '.join(one.name for one in found)}, on {machines}."
    return found, (note, f"Missing: {', '.join(missing)}.") if missing else (note,)


def shared(
    runs: Sequence[RunComparison], *, without: Sequence[str] = ()
) -> dict[str, dict[str, Any]]:
    """Return the accuracies of the strategies that all runs have."""
    names = [
        name
        for name in runs[0].accuracy
        if all(name in one.accuracy for one in runs) and name not in without
    ]
    return {one.name: {name: one.accuracy[name] for name in names} for one in runs}


# Figures 4 and 17


def measure_across(config: StudyConfig) -> Measurement:
    """Compute the profile and the penalties without BAIT, over all runs."""
    runs, notes = benchmark_runs(config)
    return _with_notes(judge_across(shared(runs, without=["bait"])), notes)


def measure_with_bait(config: StudyConfig) -> Measurement:
    """Compute the same with BAIT, over the runs that have it."""
    runs, notes = benchmark_runs(config)
    having = [one for one in runs if "bait" in one.accuracy]
    if not having:
        raise InputError("No finished run has BAIT.")
    return _with_notes(judge_across(shared(having)), notes)


def _with_notes(found: Measurement, notes: tuple[str, ...]) -> Measurement:
    return replace(found, notes=(*found.notes, *notes))


def judge_across(datasets: Accuracies) -> Measurement:
    """Check that LDM-S is within any delta of the best most often, and is beaten the least."""
    every = list(datasets.values())
    profiles, penalties = performance_profile(every), penalty_matrix(every)
    heights = {
        name: np.array([profile.at(delta) for delta in DELTAS])
        for name, profile in profiles.items()
    }
    highest = np.all([heights[FIRST] >= of_one - 1e-12 for of_one in heights.values()], axis=0)
    beaten = dict(zip(penalties.strategies, penalties.column_means.tolist(), strict=True))
    place = penalties.strategies.index(FIRST)
    ahead = [
        name
        for k, name in enumerate(penalties.strategies)
        if k != place and penalties.matrix[place, k] > penalties.matrix[k, place]
    ]
    others = len(profiles) - 1
    areas = sorted(profiles, key=lambda name: -profiles[name].area())
    least = sorted(beaten, key=lambda name: beaten[name])
    checks = {
        "highest at every delta": bool(highest.all()),
        "least beaten": beaten[FIRST] <= min(beaten.values()),
        "beats each more often than it is beaten": len(ahead) == others,
    }
    return Measurement(
        numbers={
            "profiles": {
                name: {"gaps": one.gaps, "shares": one.shares} for name, one in profiles.items()
            },
            "strategies": penalties.strategies,
            "penalties": penalties.matrix,
        },
        verdict=decide_verdict(checks),
        reason=f"Over {len(every)} dataset{'s' * (len(every) > 1)}, LDM-S has the highest share "
        f"at {highest.sum()} of {len(DELTAS)} values of delta; the largest areas are "
        f"{', '.join(f'{name} {profiles[name].area():.2f}' for name in areas[:3])}; the least "
        f"beaten are {', '.join(f'{name} {beaten[name]:.2f}' for name in least[:3])}; LDM-S beats "
        f"{len(ahead)} of {others} others more often than they beat it.",
        tables=(
            cross_dataset_table(
                every, tested=min(len(next(iter(one.values()))) for one in every) > 1
            ),
            penalties_table(penalties),
        ),
    )


def draw_across(measurement: Measurement) -> list[Drawing]:
    """Draw the profile and the penalties."""
    from teeter.analysis.plots import plot_penalties, plot_profile

    numbers = measurement.numbers
    profiles = {
        name: PerformanceProfile(np.array(one["gaps"]), np.array(one["shares"]))
        for name, one in numbers["profiles"].items()
    }
    penalties = PenaltyMatrix(tuple(numbers["strategies"]), np.array(numbers["penalties"]))
    return [
        Drawing(
            plot_profile(profiles), "How often each strategy is within delta points of the best."
        ),
        Drawing(
            plot_penalties(penalties), "How often one strategy beats another, summed over datasets."
        ),
    ]


_ACROSS_TEST = (
    "Three checks: its profile is the highest at each delta from 0 to 10 in steps of 0.1; its "
    "column mean in the penalty matrix is the least; and it beats every other strategy more often "
    "than it is beaten by it. Holds if all pass, in part if some do."
)

FIGURE_4 = Item(
    name="figure-4",
    title="LDM-S across datasets",
    location="figure 4",
    claim="Over all datasets LDM-S is within any delta of the best strategy most often, and is "
    "beaten the least.",
    test=_ACROSS_TEST,
    compute=measure_across,
    draw=draw_across,
    always_recompute=True,
)

FIGURE_17 = Item(
    name="figure-17",
    title="LDM-S across datasets, with BAIT",
    location="appendix, figure 17",
    claim="Where BAIT could be run LDM-S is still the most often near the best, and outdoes BAIT "
    "as well.",
    test=_ACROSS_TEST,
    compute=measure_with_bait,
    draw=draw_across,
    always_recompute=True,
)


# Table 1


def measure_deltas(config: StudyConfig) -> Measurement:
    """Compute the gains over Random on each dataset, beside the paper's."""
    runs, notes = benchmark_runs(config)
    agreements = [
        f"{one.name}: the paper and we order the strategies with a rank correlation of "
        f"{one.paper_rank_correlation.rho:.2f}."
        for one in runs
        if one.paper_rank_correlation is not None
    ]
    found = judge_deltas(accuracies_by_run(runs))
    return replace(found, tables=(deltas_beside(runs),), notes=(*agreements, *notes))


def judge_deltas(datasets: Accuracies) -> Measurement:
    """Check on each dataset that no strategy is significantly more accurate than LDM-S."""
    unbeaten, found = find_unbeaten(datasets)
    told = []
    for run, gains in found.items():
        nearest = min(gains, key=lambda name: gains[name].mean)
        told.append(
            f"{run} {format_number(gains[nearest].mean, '+.2f')} over {nearest} "
            f"({format_p(gains[nearest].p)})"
        )
    beaten = [run for run, passed in unbeaten.items() if not passed]
    return Measurement(
        numbers={
            "leads": {
                run: {k: gain.mean for k, gain in gains.items()} for run, gains in found.items()
            }
        },
        verdict=decide_verdict(unbeaten),
        reason=f"LDM-S is best or not significantly below the best on {sum(unbeaten.values())} of "
        f"{len(unbeaten)} datasets; its lead over the best of the others, in points: "
        f"{'; '.join(told)}." + (f" It is beaten on {', '.join(beaten)}." if beaten else ""),
    )


def deltas_beside(runs: Sequence[RunComparison]) -> ReportTable:
    """Return the gains over Random by strategy and dataset, the paper's beside ours."""
    names = sorted(
        dict.fromkeys(name for one in runs for name in one.gains), key=lambda name: name != FIRST
    )
    data, shown = [], []
    for name in names:
        row: dict[str, Any] = {"strategy": name}
        cells = {"strategy": name}
        for one in runs:
            gain, paper, loss = (
                one.gains.get(name),
                one.paper_deltas.get(name),
                one.gains_over_ldm_s.get(name),
            )
            row[one.name] = None if gain is None else gain.mean
            star = "*" if loss is not None and loss.significant else ""
            cells[one.name] = (
                MISSING
                if gain is None
                else format_mean_and_std(gain.mean, gain.deviation, one.repetitions, "+.2f") + star
            )
            if one.paper_deltas:
                row[f"{one.name} paper"] = None if paper is None else paper.mean
                cells[f"{one.name}, paper"] = (
                    MISSING
                    if paper is None
                    else format_number(paper.mean, "+.2f") + "*" * paper.beaten
                )
        data.append(row)
        shown.append(cells)
    caption = (
        "Gains over Random in points, over the rounds after the first; * where it differs from "
        "LDM-S, p < 0.05."
    )
    return ReportTable("deltas", caption, data, shown)


def draw_deltas(measurement: Measurement) -> list[Drawing]:
    """Draw what LDM-S leads the others by, a dot for each dataset."""
    from reproduction.dot_plot import describe_clipped, plot_dots

    found: Mapping[str, Mapping[str, float]] = measurement.numbers["leads"]
    figure = plot_dots(
        found, label="LDM-S leads by (points of accuracy)", reference=0, maximum=MOST_LEAD
    )
    far = describe_clipped(found, MOST_LEAD)
    caption = (
        "By how much LDM-S leads each strategy on each dataset; left of the line it is behind."
    )
    return [Drawing(figure, f"{caption} Off the right edge: {', '.join(far)}." if far else caption)]


TABLE_1 = Item(
    name="table-1",
    title="Gains over Random on each dataset",
    location="table 1",
    claim="On every dataset LDM-S has the largest mean gain over Random, or one comparable to the "
    "largest.",
    test="On each dataset no strategy has a mean accuracy significantly above that of LDM-S "
    "(paired t-test over repetitions, 5 %). Holds if so on all datasets, in part if on some.",
    compute=measure_deltas,
    draw=draw_deltas,
    always_recompute=True,
)


# Table 5


def measure_accuracy(config: StudyConfig) -> Measurement:
    """Set the accuracies of each dataset beside the paper's."""
    runs, notes = benchmark_runs(config)
    tables = [
        replace(table, name=f"{one.name}-{table.name}")
        for one in runs
        for table in (accuracy_table(one), paper_accuracy_table(one))
        if table is not None
    ]
    return replace(judge_accuracy(accuracies_by_run(runs)), tables=tuple(tables), notes=notes)


def judge_accuracy(datasets: Accuracies) -> Measurement:
    """Check on each dataset that LDM-S is among the two best at most numbers of labels."""
    shares = {}
    for run, of_run in datasets.items():
        means = {name: runs[:, 1:].mean(axis=0) for name, runs in of_run.items()}
        better = np.sum([mean > means[FIRST] + 1e-12 for mean in means.values()], axis=0)
        shares[run] = float((better <= 1).mean())
    told = ", ".join(f"{run} {share:.0%}" for run, share in shares.items())
    return Measurement(
        numbers={"shares": shares},
        verdict=decide_verdict({run: share > 0.5 for run, share in shares.items()}),
        reason="Numbers of labels at which the mean accuracy of LDM-S is the best or the second: "
        f"{told}.",
    )


TABLE_5 = Item(
    name="table-5",
    title="Accuracy by number of labels",
    location="appendix, table 5",
    claim="On all datasets LDM-S is consistently the best or on a par with others, while those "
    "vary; in the paper's table it is the first or the second at most numbers of labels of each "
    "dataset.",
    test="On each dataset the mean accuracy of LDM-S is among the two best at more than half of "
    "the rounds after the first. Holds if so on all datasets, in part if on some.",
    compute=measure_accuracy,
    always_recompute=True,
)
