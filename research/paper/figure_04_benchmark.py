"""Figures 4 and 17, tables 1 and 5: strategies compared across the benchmark's datasets.

All four items read the finished runs of the paper's settings and train nothing themselves. A quick
computation runs two small settings on scikit-learn's digits instead.

Figure 4
    The performance profile, which is how often a strategy is within delta points of the best, and
    the penalty matrix, which is how often a strategy significantly beats another. BAIT is left out,
    because it is too slow for some of the datasets.

Figure 17
    The same with BAIT, on the datasets where it was run.

Table 1
    The gain over Random on each dataset, averaged over the rounds after the first.

Table 5
    The accuracy on each dataset at each number of labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from research.paper.item import (
    Array,
    Drawing,
    Item,
    Measurement,
    StudyConfig,
    decide_verdict,
    format_p,
)
from research.paper.shared_runs import (
    LDM_S,
    Accuracies,
    collect_accuracies,
    find_closest_rival,
    find_unbeaten,
    make_digits_setting,
    read_run_if_any,
    run_settings,
)
from teeter.bench.analysis.paper_results import PaperDelta
from teeter.bench.analysis.report_tables import (
    accuracy_table,
    cross_dataset_table,
    paper_accuracy_table,
    penalties_table,
)
from teeter.bench.analysis.run_comparison import RunComparison, compare_strategies
from teeter.bench.analysis.statistics import (
    PenaltyMatrix,
    PerformanceProfile,
    penalty_matrix,
    performance_profile,
)
from teeter.bench.analysis.table_formats import (
    MISSING,
    ReportTable,
    format_mean_and_std,
    format_number,
)
from teeter.bench.experiments import PAPER_STRATEGIES, Setting, setting_named, setting_names
from teeter.errors import InputError

__all__ = [
    "FIGURE_4",
    "FIGURE_17",
    "TABLE_1",
    "TABLE_5",
    "list_paper_settings",
    "load_benchmark_runs",
    "make_quick_settings",
    "select_shared_strategies",
]

DELTAS = np.round(np.arange(0, 10.01, 0.1), 1)
"""The deltas at which profiles are compared, in points: 0, 0.1, ..., 10."""

LARGEST_DRAWN_LEAD = 8.0
"""Leads of more points are named in the caption, not drawn: they would squeeze the other dots."""

ROUNDING = 1e-12
"""Shares and accuracies that differ by less than this are equal."""

QUICK_NOTES = (
    "Quick: scikit-learn's digits and few rounds instead of the paper's datasets.",
    "BAIT uses its cheaper form, with a binary likelihood.",
)


# The runs that all items of the benchmark read


def make_quick_settings() -> list[Setting]:
    """Return two small settings on digits, the second with classes of different sizes."""
    values: dict[str, Any] = {
        "repetitions": 5,
        "final": 100,
        "strategies": PAPER_STRATEGIES,
        "options": {"bait": {"form": "binary"}},
    }

    balanced = make_digits_setting("across", **values)
    imbalanced = make_digits_setting("across-imbalanced", imbalance=10.0, **values)
    return [balanced, imbalanced]


def list_paper_settings() -> list[str]:
    """Return the names of the paper's settings, without their quick and changed variants."""
    return [name for name in setting_names() if setting_named(name).paper == name]


def load_benchmark_runs(config: StudyConfig) -> tuple[list[RunComparison], tuple[str, ...]]:
    """Return the runs of the benchmark, and notes on where they come from.

    Args:
        config: if it is quick, two small settings are run. Otherwise the finished runs of the
            paper's settings are read from ``config.runs``.

    Returns:
        The runs in the order of the paper's datasets; and sentences that name the hardware and the
        settings without a finished run.

    Raises:
        InputError: ``config.runs`` has no finished run of the paper's settings.
    """
    if config.quick:
        return run_settings(config, make_quick_settings()), QUICK_NOTES

    # Only finished runs count: an unfinished one has not reached the paper's number of labels.
    runs = []
    missing = []
    for name in list_paper_settings():
        run = read_run_if_any(config.runs / name)
        if run is None:
            missing.append(name)
        elif not run.finished:
            missing.append(f"{name} (unfinished)")
        elif LDM_S not in run.strategies:
            missing.append(f"{name} (without {LDM_S})")
        else:
            runs.append(compare_strategies(run))

    if not runs:
        raise InputError(
            f"There is no finished run of the paper's settings in {config.runs}: run one with "
            "teeter bench run, or choose another folder of runs."
        )

    run_names = ", ".join(run.name for run in runs)
    machines = ", ".join(dict.fromkeys(str(run.run.facts["hardware"]) for run in runs))
    notes = [f"From the finished runs of {run_names}, on {machines}."]
    if missing:
        notes.append(f"Missing: {', '.join(missing)}.")
    return runs, tuple(notes)


def select_shared_strategies(
    runs: Sequence[RunComparison], *, without: Sequence[str] = ()
) -> dict[str, dict[str, Array]]:
    """Return the accuracies of the strategies that all runs have, by run and strategy.

    Profiles and penalties can only be compared between strategies that ran on the same datasets.

    Args:
        runs: the runs to read.
        without: strategies to leave out.
    """
    shared = [
        name
        for name in runs[0].accuracy
        if name not in without and all(name in run.accuracy for run in runs)
    ]
    return {run.name: {name: run.accuracy[name] for name in shared} for run in runs}


# Figures 4 and 17


def measure_without_bait(config: StudyConfig) -> Measurement:
    """Compute the profiles and the penalties of all strategies but BAIT, over all runs."""
    runs, notes = load_benchmark_runs(config)
    measurement = judge_cross_dataset(select_shared_strategies(runs, without=["bait"]))
    return replace(measurement, notes=notes)


def measure_with_bait(config: StudyConfig) -> Measurement:
    """Compute the profiles and the penalties of all strategies, over the runs that have BAIT.

    Raises:
        InputError: no run has BAIT.
    """
    runs, notes = load_benchmark_runs(config)
    runs_with_bait = [run for run in runs if "bait" in run.accuracy]
    if not runs_with_bait:
        raise InputError("No finished run has BAIT: run one of the settings with it.")

    measurement = judge_cross_dataset(select_shared_strategies(runs_with_bait))
    return replace(measurement, notes=notes)


def judge_cross_dataset(datasets: Accuracies) -> Measurement:
    """Check that LDM-S is within any delta of the best most often, and is beaten the least.

    Args:
        datasets: the accuracies by dataset and strategy. All datasets have the same strategies.
    """
    accuracies = list(datasets.values())
    profiles = performance_profile(accuracies)
    penalties = penalty_matrix(accuracies)

    # The three checks: profiles at every delta, mean penalties, and penalties in pairs.
    is_highest = _compare_profiles(profiles)
    outdone = _find_outdone(penalties)
    rival_count = len(profiles) - 1
    # The mean of a column says how often its strategy is beaten by the others.
    beaten = penalties.beaten
    checks = {
        "highest at every delta": bool(is_highest.all()),
        "least beaten": beaten[LDM_S] <= min(beaten.values()),
        "beats each more often than it is beaten": len(outdone) == rival_count,
    }

    # The reason names three strategies of each kind, LDM-S only if it is among them.
    largest_areas = sorted(profiles, key=lambda name: -profiles[name].area())[:3]
    least_beaten = sorted(beaten, key=lambda name: beaten[name])[:3]
    areas = ", ".join(f"{name} {profiles[name].area():.2f}" for name in largest_areas)
    penalty_means = ", ".join(f"{name} {beaten[name]:.2f}" for name in least_beaten)
    plural = "" if len(datasets) == 1 else "s"

    # A t-test needs two repetitions.
    repetitions = [len(runs) for dataset in accuracies for runs in dataset.values()]
    table = cross_dataset_table(accuracies, tested=min(repetitions) > 1)
    return Measurement(
        numbers={
            "profiles": {
                name: {"gaps": profile.gaps, "shares": profile.shares}  # (K,) steps each
                for name, profile in profiles.items()
            },
            "strategies": penalties.strategies,  # the rows and columns of the penalties
            "penalties": penalties.matrix,
        },
        verdict=decide_verdict(checks),
        reason=f"Over {len(datasets)} dataset{plural}, LDM-S has the highest share at "
        f"{is_highest.sum()} of {len(DELTAS)} values of delta; the largest areas are {areas}; the "
        f"least beaten are {penalty_means}; LDM-S beats {len(outdone)} of {rival_count} others "
        "more often than they beat it.",
        tables=(table, penalties_table(penalties)),
    )


def _compare_profiles(profiles: Mapping[str, PerformanceProfile]) -> npt.NDArray[np.bool_]:
    """Return at which of ``DELTAS`` the profile of LDM-S is the highest, alone or with others."""
    shares = {}
    for name, profile in profiles.items():
        shares[name] = np.array([profile.at(delta) for delta in DELTAS])

    # LDM-S is among them, so this is a comparison with the best at each delta: (len(DELTAS),).
    highest = np.max(list(shares.values()), axis=0)
    is_highest: npt.NDArray[np.bool_] = shares[LDM_S] >= highest - ROUNDING
    return is_highest


def _find_outdone(penalties: PenaltyMatrix) -> list[str]:
    """Return the strategies that LDM-S beats more often than they beat it."""
    # Entry (i, j) of the matrix says how often strategy i beats strategy j.
    row = penalties.strategies.index(LDM_S)
    outdone = []
    for column, name in enumerate(penalties.strategies):
        if penalties.matrix[row, column] > penalties.matrix[column, row]:
            outdone.append(name)
    return outdone


def draw_cross_dataset(measurement: Measurement) -> list[Drawing]:
    """Draw the profiles and the penalties."""
    from teeter.bench.analysis.plots import plot_penalties, plot_profile

    numbers = measurement.numbers
    profiles = {}
    for name, profile in numbers["profiles"].items():
        gaps = np.array(profile["gaps"])
        profiles[name] = PerformanceProfile(gaps, np.array(profile["shares"]))
    penalties = PenaltyMatrix(tuple(numbers["strategies"]), np.array(numbers["penalties"]))

    return [
        Drawing(
            plot_profile(profiles), "How often each strategy is within delta points of the best."
        ),
        Drawing(
            plot_penalties(penalties), "How often one strategy beats another, summed over datasets."
        ),
    ]


CROSS_DATASET_TEST = (
    "Three checks: the profile of LDM-S is the highest at each delta from 0 to 10 in steps of 0.1; "
    "its column mean in the penalty matrix is the smallest; and it beats every other strategy more "
    "often than it is beaten by it. Holds if all pass, in part if some do."
)

FIGURE_4 = Item(
    name="figure-4",
    title="LDM-S across datasets",
    location="figure 4",
    claim="Over all datasets LDM-S is within any delta of the best strategy most often, and is "
    "beaten the least.",
    test=CROSS_DATASET_TEST,
    compute=measure_without_bait,
    draw=draw_cross_dataset,
    always_recompute=True,
)

FIGURE_17 = Item(
    name="figure-17",
    title="LDM-S across datasets, with BAIT",
    location="appendix, figure 17",
    claim="On the datasets where BAIT could be run, LDM-S is still near the best most often, and "
    "it beats BAIT as well.",
    test=CROSS_DATASET_TEST,
    compute=measure_with_bait,
    draw=draw_cross_dataset,
    always_recompute=True,
)


# Table 1


def measure_deltas(config: StudyConfig) -> Measurement:
    """Compute the gains over Random on each dataset, and set the paper's beside them."""
    runs, notes = load_benchmark_runs(config)

    agreements = []
    for run in runs:
        correlation = run.paper_rank_correlation
        if correlation is not None:
            agreements.append(
                f"{run.name}: the rank correlation of our order of strategies and the paper's is "
                f"{correlation:.2f}."
            )

    measurement = judge_deltas(collect_accuracies(runs))
    return replace(measurement, tables=(make_deltas_table(runs),), notes=(*agreements, *notes))


def judge_deltas(datasets: Accuracies) -> Measurement:
    """Check on each dataset that no strategy is significantly more accurate than LDM-S.

    Args:
        datasets: the accuracies by dataset and strategy.
    """
    unbeaten, leads = find_unbeaten(datasets)

    # The reason names the best of the others: the rival that LDM-S leads the least.
    phrases = []
    for dataset, gains in leads.items():
        rival = find_closest_rival(gains)
        points = format_number(gains[rival].mean, "+.2f")
        phrases.append(f"{dataset} {points} over {rival} ({format_p(gains[rival].p)})")

    reason = (
        f"LDM-S is best or not significantly below the best on {sum(unbeaten.values())} of "
        f"{len(unbeaten)} datasets; its lead over the best of the others, in points: "
        f"{'; '.join(phrases)}."
    )
    beaten_on = [dataset for dataset, is_unbeaten in unbeaten.items() if not is_unbeaten]
    if beaten_on:
        reason += f" It is beaten on {', '.join(beaten_on)}."

    points_by_dataset = {}
    for dataset, gains in leads.items():
        points_by_dataset[dataset] = {name: gain.mean for name, gain in gains.items()}
    return Measurement(
        numbers={"leads": points_by_dataset},  # by dataset and strategy
        verdict=decide_verdict(unbeaten),
        reason=reason,
    )


def make_deltas_table(runs: Sequence[RunComparison]) -> ReportTable:
    """Return the gains over Random by strategy and dataset, ours and the paper's side by side.

    Args:
        runs: the runs to show, each in a column, with another for the paper if it has the dataset.
    """
    # LDM-S first; the other strategies in the order in which runs rank them.
    all_names = dict.fromkeys(name for run in runs for name in run.gains)
    names = sorted(all_names, key=lambda name: name != LDM_S)

    # The data go into the CSV file, the shown cells onto the page.
    data = []
    shown = []
    for name in names:
        row: dict[str, Any] = {"strategy": name}
        cells = {"strategy": name}

        for run in runs:
            gain = run.gains.get(name)
            row[run.name] = None if gain is None else gain.mean
            cells[run.name] = _format_gain(run, name)

            if run.paper_deltas:
                delta = run.paper_deltas.get(name)
                row[f"{run.name} paper"] = None if delta is None else delta.mean
                cells[f"{run.name}, paper"] = _format_paper_delta(delta)

        data.append(row)
        shown.append(cells)

    caption = (
        "Gains over Random in points, over the rounds after the first; * where it differs from "
        "LDM-S, p < 0.05."
    )
    return ReportTable("deltas", caption, data, shown)


def _format_gain(run: RunComparison, strategy: str) -> str:
    """Return a gain over Random, with a star if it differs significantly from that of LDM-S."""
    gain = run.gains.get(strategy)
    if gain is None:
        return MISSING

    text = format_mean_and_std(gain.mean, gain.deviation, run.repetitions, "+.2f")
    difference = run.gains_over_ldm_s.get(strategy)
    if difference is not None and difference.significant:
        text += "*"
    return text


def _format_paper_delta(delta: PaperDelta | None) -> str:
    """Return a gain as the paper prints it, with its star."""
    if delta is None:
        return MISSING

    text = format_number(delta.mean, "+.2f")
    if delta.beaten:
        text += "*"
    return text


def draw_deltas(measurement: Measurement) -> list[Drawing]:
    """Draw the lead of LDM-S over each strategy, with a dot for each dataset."""
    from research.paper.dot_plot import describe_clipped, plot_dots

    leads: Mapping[str, Mapping[str, float]] = measurement.numbers["leads"]
    figure = plot_dots(
        leads,
        label="LDM-S leads by (points of accuracy)",
        reference=0,
        maximum=LARGEST_DRAWN_LEAD,
    )

    caption = (
        "By how much LDM-S leads each strategy on each dataset; left of the line it is behind."
    )
    clipped = describe_clipped(leads, LARGEST_DRAWN_LEAD)
    if clipped:
        caption += f" Off the right edge: {', '.join(clipped)}."
    return [Drawing(figure, caption)]


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
    """Compute the accuracies on each dataset, and set the paper's beside them."""
    runs, notes = load_benchmark_runs(config)

    tables = []
    for run in runs:
        run_tables = [accuracy_table(run)]
        paper_table = paper_accuracy_table(run)
        if paper_table is not None:
            run_tables.append(paper_table)

        # Names must be unique: they are the names of the CSV files.
        tables += [replace(table, name=f"{run.name}-{table.name}") for table in run_tables]

    measurement = judge_accuracy(collect_accuracies(runs))
    return replace(measurement, tables=tuple(tables), notes=notes)


def judge_accuracy(datasets: Accuracies) -> Measurement:
    """Check on each dataset that LDM-S is among the two best in most rounds.

    Args:
        datasets: the accuracies by dataset and strategy. The first round does not count.
    """
    shares = {}
    for dataset, accuracy in datasets.items():
        # The mean over repetitions at each round after the first: (T - 1,).
        means = {name: runs[:, 1:].mean(axis=0) for name, runs in accuracy.items()}
        is_better = [mean > means[LDM_S] + ROUNDING for mean in means.values()]
        better_count = np.sum(is_better, axis=0)  # strategies above LDM-S, by round
        shares[dataset] = float((better_count <= 1).mean())

    phrases = ", ".join(f"{dataset} {share:.0%}" for dataset, share in shares.items())
    return Measurement(
        numbers={"shares": shares},
        verdict=decide_verdict({dataset: share > 0.5 for dataset, share in shares.items()}),
        reason=f"Share of rounds in which the mean accuracy of LDM-S is the best or the second "
        f"best: {phrases}.",
    )


TABLE_5 = Item(
    name="table-5",
    title="Accuracy by number of labels",
    location="appendix, table 5",
    claim="On all datasets LDM-S is consistently the best or as good as the best, while other "
    "strategies vary; in the paper's table it is the first or the second at most numbers of labels "
    "of each dataset.",
    test="On each dataset the mean accuracy of LDM-S is among the two best in more than half of "
    "the rounds after the first. Holds if so on all datasets, in part if on some.",
    compute=measure_accuracy,
    always_recompute=True,
)
