"""Table 2: what strategies cost in time, and what the paper's text says about it.

Networks of all strategies of a run train together, and the training time is divided among the
networks. So the time of a strategy in such a run is an estimate, and an ensemble of five networks
takes five times as long by construction. Times are exact if a strategy has a run of its own: a
*solo run*, in the folder DATASET-STRATEGY-alone. Solo runs are compared if both strategies have one
on the same kind of machine; otherwise the shared run is used.

All times are compared with Entropy, one of the fastest strategies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from research.paper.figure_04_benchmark import (
    list_paper_settings,
    load_benchmark_runs,
    make_quick_settings,
)
from research.paper.item import Drawing, Item, Measurement, StudyConfig, decide_verdict, make_table
from research.paper.shared_runs import LDM_S, read_run_if_any, run_settings
from teeter.bench.analysis.run_comparison import RunComparison, compare_strategies
from teeter.bench.analysis.table_formats import MISSING, ReportTable, format_duration, format_number
from teeter.bench.experiments import Setting
from teeter.errors import InputError

__all__ = ["ENSEMBLE_TIME", "LDM_TIME", "TABLE_2", "measure_minutes"]

BASELINE = "entropy"
ENSEMBLE = "ensemble"
SOLO = " alone"
"""Ends the name of a strategy whose minutes are those of a solo run."""

IMAGE_SETS = ("cifar10", "svhn", "cifar100", "tiny-imagenet", "food101")
"""The datasets for which the paper says that LDM-S takes 3 to 6 % longer."""

SIMILAR_RATIO = 1.25
"""A strategy that takes at most this many times as long takes about as long."""
ALMOST_ALL = 0.75
"""The share of datasets that counts as almost all."""
SIX_PERCENT = 1.065
"""The largest ratio that rounds to 6 % more time."""
ABOUT_FIVE = (4.0, 6.0)
"""The ratios that count as about five."""

Minutes = Mapping[str, Mapping[str, float]]
"""Minutes of one repetition, by dataset and strategy; solo runs have names that end in ``SOLO``."""


# The times of runs


@dataclass(frozen=True)
class SoloMinutes:
    """The minutes of two strategies that each had a run of its own, and their hardware."""

    minutes: dict[str, float]
    """Minutes of one repetition, by strategy with ``SOLO`` added."""
    hardware: str


def sum_minutes(run: RunComparison) -> dict[str, float]:
    """Return the minutes of one repetition by strategy: the mean of each phase, summed."""
    # The phases are training, selection and so on; all are part of a run.
    totals = {}
    for name, phases in run.minutes.items():
        totals[name] = sum(float(minutes.mean()) for minutes in phases.values())
    return totals


def read_solo_minutes(config: StudyConfig, dataset: str, strategy: str) -> SoloMinutes | None:
    """Read the minutes of the solo runs of a strategy and of Entropy.

    Args:
        config: says where the runs are.
        dataset: the name of one of the paper's settings.
        strategy: the strategy to compare with Entropy.

    Returns:
        The minutes, or None unless both runs are finished, have accuracies to compare and used the
        same hardware.
    """
    minutes = {}
    machines = set()
    for name in (strategy, BASELINE):
        run = read_run_if_any(config.runs / f"{dataset}-{name}-alone")
        if run is None or not run.finished:
            return None

        # A strategy is left out of its own comparison if its accuracies are not numbers.
        strategy_minutes = sum_minutes(compare_strategies(run))
        if name not in strategy_minutes:
            return None
        minutes[f"{name}{SOLO}"] = strategy_minutes[name]
        machines.add(str(run.facts["hardware"]))

    # A ratio of times on different machines says nothing about the strategies.
    if len(machines) > 1:
        return None
    return SoloMinutes(minutes, machines.pop())


def measure_minutes(
    config: StudyConfig,
) -> tuple[list[RunComparison], dict[str, dict[str, float]], tuple[str, ...]]:
    """Return the runs of the benchmark, the minutes of their strategies, and notes on the runs.

    The minutes include solo runs of LDM-S and Entropy on the hardware of the shared run.
    """
    runs, notes = load_benchmark_runs(config)
    minutes = {run.name: sum_minutes(run) for run in runs}

    if not config.quick:
        for run in runs:
            solo = read_solo_minutes(config, run.name, LDM_S)
            # Times of another machine do not belong into the same column.
            if solo is not None and solo.hardware == run.run.facts["hardware"]:
                minutes[run.name] |= solo.minutes

    return runs, minutes, notes


def compute_time_ratios(minutes: Minutes, strategy: str = LDM_S) -> dict[str, float]:
    """Return how many times as long as Entropy a strategy takes, by dataset.

    Solo runs are compared where both strategies have one. Datasets without the times of both
    strategies are left out.

    Args:
        minutes: the minutes by dataset and strategy.
        strategy: the strategy to compare with Entropy.
    """
    ratios = {}
    for dataset, by_strategy in minutes.items():
        # Solo runs first: their times are measured, not divided.
        for suffix in (SOLO, ""):
            ours = by_strategy.get(f"{strategy}{suffix}")
            baseline = by_strategy.get(f"{BASELINE}{suffix}")
            if ours is not None and baseline is not None:
                ratios[dataset] = ours / baseline
                break
    return ratios


def format_ratios(ratios: Mapping[str, float]) -> str:
    """Return ratios as they stand in a sentence: "mnist 1.02, cifar10 1.01"."""
    return ", ".join(f"{dataset} {format_number(ratio)}" for dataset, ratio in ratios.items())


def make_minutes_table(runs: Sequence[RunComparison], minutes: Minutes) -> ReportTable:
    """Return the time of one repetition by strategy and dataset, ours and the paper's.

    Args:
        runs: the runs to show, each in a column, with another for the paper if it has the dataset.
        minutes: our minutes by dataset and strategy.
    """
    names = dict.fromkeys(name for by_strategy in minutes.values() for name in by_strategy)

    # The data go into the CSV file, the shown cells onto the page.
    data = []
    shown = []
    for name in names:
        row: dict[str, Any] = {"strategy": name}
        cells = {"strategy": name}

        for run in runs:
            ours = minutes[run.name].get(name)
            row[run.name] = ours
            cells[run.name] = _format_seconds(ours)

            # The paper has no solo runs, so their names are not in its table.
            if run.paper_minutes:
                paper = run.paper_minutes.get(name)
                row[f"{run.name} paper"] = paper
                cells[f"{run.name}, paper"] = _format_seconds(paper)

        data.append(row)
        shown.append(cells)

    return ReportTable("runtime", "Seconds of one repetition; the data has minutes.", data, shown)


def _format_seconds(minutes: float | None) -> str:
    if minutes is None:
        return MISSING
    return format_duration(60 * minutes)


def draw_minutes(measurement: Measurement) -> list[Drawing]:
    """Draw the time of each strategy as a multiple of Entropy's, solo runs against solo runs."""
    from research.paper.dot_plot import plot_dots

    minutes: Minutes = measurement.numbers["minutes"]
    multiples: dict[str, dict[str, float]] = {}
    for dataset, by_strategy in minutes.items():
        multiples[dataset] = {}
        for name, value in by_strategy.items():
            baseline = f"{BASELINE}{SOLO}" if name.endswith(SOLO) else BASELINE
            if name != baseline:
                multiples[dataset][name] = value / by_strategy[baseline]

    figure = plot_dots(
        multiples, label="time of a run, as a multiple of Entropy's", reference=1, log=True
    )
    caption = (
        "How long strategies take as a multiple of Entropy on the same dataset; solo runs as a "
        "multiple of solo runs."
    )
    return [Drawing(figure, caption)]


def _add_minutes(
    measurement: Measurement,
    runs: Sequence[RunComparison],
    minutes: Minutes,
    notes: Sequence[str],
) -> Measurement:
    """Return a measurement with the minutes that it is drawn from, their table and more notes."""
    return replace(
        measurement,
        numbers={**measurement.numbers, "minutes": minutes},
        tables=(make_minutes_table(runs, minutes),),
        notes=(*measurement.notes, *notes),
    )


def _describe_sharing(minutes: Minutes) -> str:
    """Return a sentence on how the time of shared training is divided, and on solo runs."""
    sentence = (
        "Networks of all strategies train together, and a strategy's training time is the share of "
        "its networks"
    )
    if any(ENSEMBLE in by_strategy for by_strategy in minutes.values()):
        sentence += "; an ensemble has five"

    solo_names = {f"{LDM_S}{SOLO}", f"{BASELINE}{SOLO}"}
    solo_datasets = [name for name in minutes if solo_names <= set(minutes[name])]
    if solo_datasets:
        sentence += (
            f"; on {', '.join(solo_datasets)} LDM-S and Entropy were also run alone, and those "
            "times are compared"
        )
    return f"{sentence}."


# Table 2


def measure_runtimes(config: StudyConfig) -> Measurement:
    """Compute the times of all strategies, and set the paper's beside them."""
    runs, minutes, notes = measure_minutes(config)
    measurement = judge_runtimes(minutes)
    return _add_minutes(measurement, runs, minutes, (_describe_sharing(minutes), *notes))


def judge_runtimes(minutes: Minutes) -> Measurement:
    """Check that LDM-S takes about as long as Entropy on almost all datasets.

    Args:
        minutes: the minutes by dataset and strategy.
    """
    ratios = compute_time_ratios(minutes)
    similar = [dataset for dataset, ratio in ratios.items() if ratio <= SIMILAR_RATIO]
    # At least one dataset: without any ratio, almost all of them would pass.
    checks = {
        "almost all": len(similar) >= max(1, ALMOST_ALL * len(ratios)),
        "some": bool(similar),
    }
    return Measurement(
        numbers={"ratios": ratios},
        verdict=decide_verdict(checks),
        reason=f"The time of LDM-S as a multiple of Entropy's: {format_ratios(ratios)}; at most "
        f"{SIMILAR_RATIO:g} on {len(similar)} of {len(ratios)} datasets.",
    )


TABLE_2 = Item(
    name="table-2",
    title="Runtime on each dataset",
    location="table 2",
    claim="LDM-S takes about as long as Entropy, one of the fastest strategies, on almost all "
    "datasets.",
    test=f"Holds if a run with LDM-S takes at most {100 * (SIMILAR_RATIO - 1):.0f} % longer than "
    "one with Entropy on at least three of four datasets (in the paper's own table, on 7 of 9); in "
    "part if it does so on some.",
    compute=measure_runtimes,
    draw=draw_minutes,
    always_recompute=True,
)


# What the text says about LDM-S


def measure_ldm_time(config: StudyConfig) -> Measurement:
    """Compute how much longer than Entropy LDM-S takes on image sets.

    Unfinished runs count as well: they say little about accuracy, but enough about time.

    Raises:
        InputError: no image set has a run with LDM-S and Entropy.
    """
    runs, minutes, notes = measure_minutes(config)
    unfinished: list[RunComparison] = []
    image_sets: Sequence[str] = IMAGE_SETS
    if config.quick:
        # The settings on digits stand for the image sets.
        image_sets = list(minutes)
    else:
        unfinished = _read_unfinished_runs(config, list(minutes))
        minutes |= {run.name: sum_minutes(run) for run in unfinished}

    # The page shows the runs that were judged, not all of the benchmark.
    measurement = judge_ldm_time(minutes, image_sets)
    judged = {name: minutes[name] for name in measurement.numbers["ratios"]}
    judged_runs = [run for run in (*runs, *unfinished) if run.name in judged]
    unfinished_notes = [
        f"The run of {run.name} is not finished: its times are those of up to "
        f"{run.labelled[-1]:,.0f} labels, on {run.run.facts['hardware']}."
        for run in unfinished
    ]
    all_notes = (_describe_sharing(judged), *unfinished_notes, *notes)
    return _add_minutes(measurement, judged_runs, judged, all_notes)


def _read_unfinished_runs(config: StudyConfig, finished: Sequence[str]) -> list[RunComparison]:
    """Return the unfinished runs of image sets, up to the last round that all strategies have."""
    comparisons = []
    for name in IMAGE_SETS:
        if name in finished:
            continue
        run = read_run_if_any(config.runs / name)
        if run is None:
            continue

        comparison = compare_strategies(run)
        if comparison.comparable and {LDM_S, BASELINE} <= set(comparison.minutes):
            comparisons.append(comparison)
    return comparisons


def judge_ldm_time(minutes: Minutes, image_sets: Sequence[str] = IMAGE_SETS) -> Measurement:
    """Check that LDM-S takes at most 6 % longer than Entropy on the image sets.

    Args:
        minutes: the minutes by dataset and strategy; other datasets are ignored.
        image_sets: the datasets that the claim is about.

    Raises:
        InputError: none of the image sets has the minutes of LDM-S and Entropy.
    """
    all_ratios = compute_time_ratios(minutes)
    ratios = {name: ratio for name, ratio in all_ratios.items() if name in image_sets}
    if not ratios:
        raise InputError(
            f"None of {', '.join(image_sets)} was run with LDM-S and Entropy: run one, or "
            "choose another folder of runs."
        )

    missing = [name for name in image_sets if name not in ratios]
    checks = {dataset: ratio <= SIX_PERCENT for dataset, ratio in ratios.items()}
    checks["all of them"] = not missing and all(checks.values())

    phrases = []
    for dataset, ratio in ratios.items():
        phrases.append(f"{dataset} {format_number(100 * (ratio - 1), '+.1f')} %")
    notes: tuple[str, ...] = ()
    if missing:
        notes = (f"Of the paper's five image sets there is no run of {', '.join(missing)}.",)

    return Measurement(
        numbers={"ratios": ratios},
        verdict=decide_verdict(checks),
        reason=f"The time that LDM-S takes in addition to Entropy's: {', '.join(phrases)}.",
        notes=notes,
    )


LDM_TIME = Item(
    name="claim-runtime",
    title="LDM-S costs 3 to 6 % more time than Entropy on image sets",
    location="section 4.3",
    claim="On CIFAR10, SVHN, CIFAR100, Tiny ImageNet and FOOD101 a run with LDM-S takes 3 to 6 % "
    "longer than one with Entropy.",
    test=f"Holds if LDM-S takes at most {100 * (SIX_PERCENT - 1):.1f} % longer (6 % if rounded) "
    "than Entropy on these five; in part if it does so on some of them, while it takes longer on "
    "others or they were not run. Less than 3 % is as good.",
    compute=measure_ldm_time,
    always_recompute=True,
)


# What the text says about the ensemble


def measure_ensemble_time(config: StudyConfig) -> Measurement:
    """Compute how many times as long as Entropy an ensemble takes, from solo runs.

    Raises:
        InputError: no dataset has finished solo runs of both on the same hardware.
    """
    solo_runs: dict[str, SoloMinutes] = {}
    if config.quick:
        base = make_quick_settings()[0]
        solo_runs[base.name] = _run_alone(config, base, ENSEMBLE)
    else:
        for name in list_paper_settings():
            solo = read_solo_minutes(config, name, ENSEMBLE)
            if solo is not None:
                solo_runs[name] = solo

    minutes = {name: solo.minutes for name, solo in solo_runs.items()}
    machines = {name: solo.hardware for name, solo in solo_runs.items()}
    return judge_ensemble_time(minutes, machines)


def _run_alone(config: StudyConfig, base: Setting, strategy: str) -> SoloMinutes:
    """Run a strategy alone, and Entropy alone, in a setting."""
    settings = [
        replace(base, name=f"{base.name}-{name}-alone", strategies=(name,))
        for name in (strategy, BASELINE)
    ]

    minutes = {}
    machines = []
    for run in run_settings(config, settings):
        machines.append(str(run.run.facts["hardware"]))
        for name, value in sum_minutes(run).items():
            minutes[f"{name}{SOLO}"] = value
    return SoloMinutes(minutes, ", ".join(dict.fromkeys(machines)))


def judge_ensemble_time(minutes: Minutes, machines: Mapping[str, str] | None = None) -> Measurement:
    """Check that an ensemble alone takes about five times as long as Entropy alone.

    Args:
        minutes: the minutes of solo runs by dataset and strategy.
        machines: the hardware of the runs by dataset, for the table.

    Raises:
        InputError: no dataset has the minutes of both.
    """
    ratios = compute_time_ratios(minutes, ENSEMBLE)
    if not ratios:
        raise InputError(
            "There is no dataset on which the ensemble and Entropy were each run alone, on the "
            "same kind of machine: run both with teeter bench run, for example into the folders "
            "openml-6-ensemble-alone and openml-6-entropy-alone."
        )

    smallest, largest = ABOUT_FIVE
    return Measurement(
        numbers={"ratios": ratios},
        verdict=decide_verdict(
            {dataset: smallest <= ratio <= largest for dataset, ratio in ratios.items()}
        ),
        reason="The time of an ensemble alone as a multiple of Entropy's alone: "
        f"{format_ratios(ratios)}.",
        tables=(_make_ensemble_table(ratios, minutes, machines or {}),),
        notes=(
            "Small networks train together here, which takes less time than one network after "
            "the other.",
            "In a run of many strategies all networks train together and have equal shares of the "
            "time, so that an ensemble takes five times as long by construction. Only runs of one "
            "strategy measure its time.",
        ),
    )


def _make_ensemble_table(
    ratios: Mapping[str, float], minutes: Minutes, machines: Mapping[str, str]
) -> ReportTable:
    data = []
    for dataset, ratio in ratios.items():
        data.append(
            {
                "dataset": dataset,
                "ensemble (s)": 60 * minutes[dataset][f"{ENSEMBLE}{SOLO}"],
                "entropy (s)": 60 * minutes[dataset][f"{BASELINE}{SOLO}"],
                "ratio": ratio,
                "machine": machines.get(dataset, ""),
            }
        )
    return make_table("alone", "Seconds of one repetition, each strategy run alone.", data)


ENSEMBLE_TIME = Item(
    name="claim-ensemble-time",
    title="An ensemble takes about five times as long",
    location="section 4.3",
    claim="Since all its five networks are trained, ENS takes about five times as long as Entropy.",
    test=f"Holds if the ratio of the times is from {ABOUT_FIVE[0]:g} to {ABOUT_FIVE[1]:g} on every "
    "dataset where ENS and Entropy were each run alone, in part if on some.",
    compute=measure_ensemble_time,
    always_recompute=True,
)
