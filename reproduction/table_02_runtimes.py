"""Table 2: what strategies cost in time, and what the paper's text says about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from reproduction.figure_04_benchmark import benchmark_runs, paper_settings, quick_settings
from reproduction.item import Drawing, Item, Measurement, StudyConfig, decide_verdict, make_table
from reproduction.shared_runs import run_settings
from teeter.analysis.run_comparison import RunComparison, compare_strategies
from teeter.analysis.table_formats import MISSING, ReportTable, format_duration, format_number
from teeter.errors import InputError
from teeter.experiments import RunFolder, read_run

__all__ = ["ENSEMBLE_TIME", "LDM_TIME", "TABLE_2", "measure_times"]

FIRST = "ldm-s"
BASELINE = "entropy"
ENSEMBLE = "ensemble"
IMAGES = ("cifar10", "svhn", "cifar100", "tiny-imagenet", "food101")
"""The image sets that the paper gives its 3 to 6 % for."""
LONGER = 1.25
"""A strategy that takes at most so many times as long is as fast."""
MOST = 0.75
"""The share of datasets that counts as almost all."""
SLIGHT = 1.065
"""The paper's 6 % more, rounded."""
FIVE = (4.0, 6.0)
"""What counts as about five times."""

Times = Mapping[str, Mapping[str, float]]
"""Minutes of a run, by dataset and strategy."""


def total_minutes(one: RunComparison) -> dict[str, float]:
    """Return the minutes of one repetition by strategy."""
    return {
        name: sum(float(part.mean()) for part in kinds.values())
        for name, kinds in one.minutes.items()
    }


def measure_times(
    config: StudyConfig,
) -> tuple[list[RunComparison], dict[str, dict[str, float]], tuple[str, ...]]:
    """Return the runs, their minutes by strategy (also of strategies run alone), and notes."""
    runs, notes = benchmark_runs(config)
    times = {one.name: total_minutes(one) for one in runs}
    if not config.quick:
        for one in runs:
            found, machine = solo_minutes(config, one.name, FIRST)
            times[one.name] |= found if machine == one.run.facts["hardware"] else {}
    return runs, times, notes


def solo_minutes(config: StudyConfig, dataset: str, name: str) -> tuple[dict[str, float], str]:
    """Return the minutes of a strategy and of Entropy, each run alone, and their machine.

    Returns ({}, "") unless both were run to the end, on one kind of machine.
    """
    folders = {one: config.runs / f"{dataset}-{one}-alone" for one in (name, BASELINE)}
    runs = {one: read_run(folder) for one, folder in folders.items() if RunFolder(folder).exists()}
    machines = {str(run.facts["hardware"]) for run in runs.values() if run.finished}
    if (
        len(runs) < len(folders)
        or len(machines) > 1
        or not all(run.finished for run in runs.values())
    ):
        return {}, ""
    return {
        f"{one} alone": total_minutes(compare_strategies(run))[one] for one, run in runs.items()
    }, machines.pop()


def time_ratios(times: Times, first: str = FIRST, other: str = BASELINE) -> dict[str, float]:
    """Return how many times as long as ``other`` a run with ``first`` takes, by dataset.

    The runs of one strategy alone are compared where both strategies have one.
    """
    answer = {}
    for dataset, of_it in times.items():
        pair = (f"{first} alone", f"{other} alone")
        one, two = pair if all(name in of_it for name in pair) else (first, other)
        if one in of_it and two in of_it:
            answer[dataset] = of_it[one] / of_it[two]
    return answer


def format_ratios(found: Mapping[str, float]) -> str:
    """Return ratios as they stand in a sentence."""
    return ", ".join(f"{dataset} {format_number(ratio)}" for dataset, ratio in found.items())


def times_table(runs: Sequence[RunComparison], times: Times) -> ReportTable:
    """Return the minutes by strategy and dataset, the paper's beside ours."""
    names = list(dict.fromkeys(name for of_it in times.values() for name in of_it))
    data, shown = [], []
    for name in names:
        row: dict[str, Any] = {"strategy": name}
        cells = {"strategy": name}
        for one in runs:
            ours = times[one.name].get(name)
            theirs = None if name.endswith(" alone") else one.paper_minutes.get(name)
            row[one.name] = ours
            cells[one.name] = MISSING if ours is None else format_duration(60 * ours)
            if one.paper_minutes:
                row[f"{one.name} paper"] = theirs
                cells[f"{one.name}, paper"] = (
                    MISSING if theirs is None else format_duration(60 * theirs)
                )
        data.append(row)
        shown.append(cells)
    return ReportTable("runtime", "Seconds of one repetition; the data has minutes.", data, shown)


def draw_times(measurement: Measurement) -> list[Drawing]:
    """Draw the time of each strategy as a multiple of Entropy's, and of solo runs likewise."""
    from reproduction.dot_plot import plot_dots

    times: Times = measurement.numbers["minutes"]
    others = {
        dataset: {
            name: of_it[name] / of_it[_baseline_of(name)]
            for name in of_it
            if name != _baseline_of(name)
        }
        for dataset, of_it in times.items()
    }
    figure = plot_dots(
        others, label="time of a run, as a multiple of Entropy's", reference=1, log=True
    )
    return [
        Drawing(
            figure,
            "How long strategies take, against Entropy on the same dataset; alone against alone.",
        )
    ]


def _baseline_of(name: str) -> str:
    return f"{BASELINE} alone" if name.endswith(" alone") else BASELINE


SHARED_TIME = (
    "Networks of all strategies train together, and a strategy's training time is its networks' "
    "share of that"
)


def _add_times(
    found: Measurement, runs: Sequence[RunComparison], times: Times, notes: Sequence[str]
) -> Measurement:
    numbers = {**found.numbers, "minutes": times}
    return replace(
        found, numbers=numbers, tables=(times_table(runs, times),), notes=(*found.notes, *notes)
    )


def _describe_sharing(times: Times) -> str:
    """Return what is compared, in a sentence."""
    both = [
        name
        for name, of_it in times.items()
        if {f"{FIRST} alone", f"{BASELINE} alone"} <= set(of_it)
    ]
    said = (
        f"; on {', '.join(both)} LDM-S and Entropy were also run alone, and those times are "
        "compared"
        if both
        else ""
    )
    five = "; an ensemble has five" if any(ENSEMBLE in of_it for of_it in times.values()) else ""
    return f"{SHARED_TIME}{five}{said}."


# Table 2


def measure_runtime(config: StudyConfig) -> Measurement:
    """Set the times of all strategies beside the paper's."""
    runs, times, notes = measure_times(config)
    return _add_times(judge_runtime(times), runs, times, (_describe_sharing(times), *notes))


def judge_runtime(times: Times) -> Measurement:
    """Check that LDM-S takes about as long as Entropy on almost all datasets."""
    found = time_ratios(times)
    near = [dataset for dataset, ratio in found.items() if ratio <= LONGER]
    return Measurement(
        numbers={"ratios": found},
        verdict=decide_verdict(
            {"almost all": len(near) >= max(1, MOST * len(found)), "some": bool(near)}
        ),
        reason=f"LDM-S takes as many times as long as Entropy: {format_ratios(found)}; at most "
        f"{LONGER:g} on {len(near)} of {len(found)} datasets.",
    )


TABLE_2 = Item(
    name="table-2",
    title="Runtime on each dataset",
    location="table 2",
    claim="LDM-S takes about as long as Entropy, one of the fastest strategies, on almost all "
    "datasets.",
    test=f"Holds if a run with LDM-S takes at most {100 * (LONGER - 1):.0f} % longer than one "
    "with Entropy on three datasets of four or more (in the paper's own table, on 7 of 9); in "
    "part if it does so on some.",
    compute=measure_runtime,
    draw=draw_times,
    always_recompute=True,
)


# Claims in words


def measure_ldm_time(config: StudyConfig) -> Measurement:
    """Compute how much longer than Entropy LDM-S takes on image sets, finished or begun."""
    runs, times, notes = measure_times(config)
    begun = [] if config.quick else _unfinished_runs(config, list(times))
    times |= {one.name: total_minutes(one) for one in begun}
    found = judge_ldm_time(times, tuple(times) if config.quick else IMAGES)
    judged_on = {name: times[name] for name in found.numbers["ratios"]}
    said = [
        f"{one.name} is begun: its times are those of up to {one.labelled[-1]:,.0f} labels, on "
        f"{one.run.facts['hardware']}."
        for one in begun
    ]
    there = [one for one in [*runs, *begun] if one.name in judged_on]
    return _add_times(found, there, judged_on, (_describe_sharing(judged_on), *said, *notes))


def _unfinished_runs(config: StudyConfig, known: Sequence[str]) -> list[RunComparison]:
    """Return runs of image sets that are not finished, as far as all their strategies went."""
    folders = [config.runs / name for name in IMAGES if name not in known]
    runs = [
        compare_strategies(read_run(folder)) for folder in folders if RunFolder(folder).exists()
    ]
    return [one for one in runs if one.comparable and {FIRST, BASELINE} <= set(one.minutes)]


def judge_ldm_time(times: Times, images: Sequence[str] = IMAGES) -> Measurement:
    """Check that LDM-S takes at most 6 % longer than Entropy on the image sets."""
    found = {dataset: ratio for dataset, ratio in time_ratios(times).items() if dataset in images}
    if not found:
        raise InputError(
            f"None of {', '.join(images)} was run with LDM-S and Entropy: run one, or name --runs."
        )
    missing = [name for name in images if name not in found]
    slight = {dataset: ratio <= SLIGHT for dataset, ratio in found.items()}
    more = ", ".join(
        f"{dataset} {format_number(100 * (ratio - 1), '+.1f')} %"
        for dataset, ratio in found.items()
    )
    return Measurement(
        numbers={"ratios": found},
        verdict=decide_verdict({**slight, "all of them": not missing and all(slight.values())}),
        reason=f"LDM-S takes longer than Entropy by: {more}.",
        notes=(f"Of the paper's five image sets there is no run of {', '.join(missing)}.",)
        if missing
        else (),
    )


LDM_TIME = Item(
    name="claim-runtime",
    title="LDM-S costs 3 to 6 % more time than Entropy on image sets",
    location="section 4.3",
    claim="On CIFAR10, SVHN, CIFAR100, Tiny ImageNet and FOOD101 a run with LDM-S takes 3 to 6 % "
    "longer than one with Entropy.",
    test=f"Holds if LDM-S takes at most {100 * (SLIGHT - 1):.1f} % longer (6 % if rounded) than "
    "Entropy on these five; in part if it does so on some of them, while it takes longer on "
    "others or they were not run. Less than 3 % is as good.",
    compute=measure_ldm_time,
    always_recompute=True,
)


def measure_ensemble_time(config: StudyConfig) -> Measurement:
    """Compute how many times as long as Entropy an ensemble takes, each run alone."""
    times: dict[str, dict[str, float]] = {}
    machines: dict[str, str] = {}
    if config.quick:
        base = quick_settings()[0]
        wanted = [
            replace(base, name=f"{base.name}-{one}-alone", strategies=(one,))
            for one in (ENSEMBLE, BASELINE)
        ]
        runs = run_settings(config, wanted)
        times[base.name] = {
            f"{name} alone": t for one in runs for name, t in total_minutes(one).items()
        }
        machines[base.name] = ", ".join(
            dict.fromkeys(str(one.run.facts["hardware"]) for one in runs)
        )
    else:
        for name in paper_settings():
            found, machine = solo_minutes(config, name, ENSEMBLE)
            if found:
                times[name], machines[name] = found, machine
    return judge_ensemble_time(times, machines)


def judge_ensemble_time(times: Times, machines: Mapping[str, str] | None = None) -> Measurement:
    """Check that an ensemble alone takes about five times as long as Entropy alone."""
    found = time_ratios(times, ENSEMBLE)
    if not found:
        raise InputError(
            "On no dataset were the ensemble and Entropy each run alone, on one kind of machine: "
            "teeter bench run openml-6 --strategies ensemble --out runs/openml-6-ensemble-alone, "
            "and the same with entropy."
        )
    data = [
        {
            "dataset": dataset,
            "ensemble (s)": 60 * times[dataset][f"{ENSEMBLE} alone"],
            "entropy (s)": 60 * times[dataset][f"{BASELINE} alone"],
            "ratio": ratio,
            "machine": (machines or {}).get(dataset, ""),
        }
        for dataset, ratio in found.items()
    ]
    caption = "Seconds of one repetition, each strategy run alone."
    return Measurement(
        numbers={"ratios": found},
        verdict=decide_verdict(
            {dataset: FIVE[0] <= ratio <= FIVE[1] for dataset, ratio in found.items()}
        ),
        reason="An ensemble alone takes as many times as long as Entropy alone: "
        f"{format_ratios(found)}.",
        tables=(make_table("alone", caption, data),),
        notes=(
            "Small networks train as one stack here, which takes less time than one network after "
            "the other.",
            "In a run of many strategies all networks train together and have equal shares of the "
            "time, so that an ensemble takes five times as long by construction: only runs of one "
            "strategy tell.",
        ),
    )


ENSEMBLE_TIME = Item(
    name="claim-ensemble-time",
    title="An ensemble takes about five times as long",
    location="section 4.3",
    claim="Since all its five networks are trained, ENS takes about five times as long as Entropy.",
    test=f"Holds if the ratio of the times is from {FIVE[0]:g} to {FIVE[1]:g} on every dataset "
    "where ENS and Entropy were each run alone, in part if on some.",
    compute=measure_ensemble_time,
    always_recompute=True,
)
