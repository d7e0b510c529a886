"""What strategies cost: the runtime table, and what the paper says about it in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from teeter.analysis.compared import Compared, compare
from teeter.analysis.tables import MISSING, Table, number, time_shown
from teeter.experiments.results import FACTS, read_run
from teeter.studies.across import benchmark_runs
from teeter.studies.items import Drawing, Item, Measured, Scale, judged

__all__ = ["ENSEMBLE_TIME", "LDM_TIME", "TABLE_2", "times_of"]

FIRST, OTHER = "ldm-s", "entropy"
IMAGES = ("mnist", "cifar10", "svhn", "cifar100", "tiny-imagenet", "food101")
LONGER, SLIGHT, FIVE = 1.25, 1.06, (4.0, 6.0)
"""At most so much longer is as fast; the paper's 6 %; and what is about five times."""

Times = Mapping[str, Mapping[str, float]]
"""Minutes of a run, by dataset and strategy."""


def minutes_of(one: Compared) -> dict[str, float]:
    """Return the minutes of one repetition by strategy."""
    return {name: sum(float(part.mean()) for part in kinds.values()) for name, kinds in one.minutes.items()}


def times_of(scale: Scale) -> tuple[list[Compared], dict[str, dict[str, float]], tuple[str, ...]]:
    """Return the runs, their minutes by strategy, and notes; where a strategy was also run alone, that is its time."""
    runs, notes = benchmark_runs(scale)
    times = {one.name: minutes_of(one) for one in runs}
    alone = []
    for one in runs:
        folders = {name: scale.runs / f"{one.name}-{name}-alone" for name in (FIRST, OTHER)}
        if all((folder / FACTS).exists() and read_run(folder).finished for folder in folders.values()):
            for name, folder in folders.items():
                times[one.name][f"{name} alone"] = minutes_of(compare(read_run(folder)))[name]
            alone.append(one.name)
    said = "Networks of all strategies train together, and a strategy's training time is its share of that"
    if alone:
        said += f"; on {', '.join(alone)} LDM-S and Entropy were also run alone, and those times are compared"
    return runs, times, (f"{said}.", *notes)


def ratios(times: Times, first: str = FIRST, other: str = OTHER) -> dict[str, float]:
    """Return how many times as long as ``other`` each dataset takes with ``first``; alone where both were."""
    answer = {}
    for dataset, of_it in times.items():
        pair = (f"{first} alone", f"{other} alone")
        one, two = pair if all(name in of_it for name in pair) else (first, other)
        if one in of_it and two in of_it:
            answer[dataset] = of_it[one] / of_it[two]
    return answer


def told(found: Mapping[str, float]) -> str:
    """Return ratios as they stand in a sentence."""
    return ", ".join(f"{dataset} {number(ratio)}" for dataset, ratio in found.items())


def times_table(runs: Sequence[Compared], times: Times) -> Table:
    """Return the minutes by strategy and dataset, the paper's beside ours."""
    names = list(dict.fromkeys(name for of_it in times.values() for name in of_it))
    data, shown = [], []
    for name in names:
        row: dict[str, Any] = {"strategy": name}
        cells = {"strategy": name}
        for one in runs:
            ours, theirs = times[one.name].get(name), one.paper_minutes.get(name.removesuffix(" alone"))
            row[one.name] = ours
            cells[one.name] = MISSING if ours is None else time_shown(60 * ours)
            if one.paper_minutes:
                row[f"{one.name} paper"] = theirs
                cells[f"{one.name}, paper"] = MISSING if theirs is None else time_shown(60 * theirs)
        data.append(row)
        shown.append(cells)
    return Table("runtime", "Seconds of one repetition; the data has minutes.", data, shown)


def draw_times(measured: Measured) -> list[Drawing]:
    """Draw the time of each strategy against Entropy's."""
    from teeter.analysis.drawing import clean, new_figure

    times: Times = measured.numbers["minutes"]
    names = sorted({name for of_it in times.values() for name in of_it if not name.endswith(" alone")} - {OTHER})
    figure = new_figure(8, 1.5 + 0.34 * len(names))
    axes = figure.subplots()
    for dataset, marker in zip(times, "osD^vP*X<>", strict=False):
        of_it = times[dataset]
        there = [(of_it[name] / of_it[OTHER], place) for place, name in enumerate(names) if name in of_it]
        axes.plot(*zip(*there, strict=True), marker, label=dataset, markersize=6, alpha=0.8)
    axes.axvline(1, color="#555555", linewidth=1)
    axes.set_yticks(range(len(names)), names)
    most = max(value / of_it[OTHER] for of_it in times.values() for value in of_it.values())
    axes.set(xscale="log", xlabel="time of a run, as a multiple of Entropy's")
    axes.set_xticks([1, 2, 5, 10, 20, 50], ["1", "2", "5", "10", "20", "50"])
    axes.minorticks_off()
    axes.set_xlim(0.7, 1.3 * most)
    clean(axes)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)
    return [Drawing(figure, "How long strategies take, against Entropy on the same dataset.")]


def _measured(scale: Scale, judge: Any) -> Measured:
    runs, times, notes = times_of(scale)
    found: Measured = judge(times)
    numbers = {**found.numbers, "minutes": times}
    return Measured(numbers, found.verdict, found.reason, (times_table(runs, times),), (*found.notes, *notes))


# Table 2


def measure_runtime(scale: Scale) -> Measured:
    """Set the times of all strategies beside the paper's."""
    return _measured(scale, judge_runtime)


def judge_runtime(times: Times) -> Measured:
    """Check that LDM-S takes about as long as Entropy on almost all datasets."""
    found = ratios(times)
    near = [dataset for dataset, ratio in found.items() if ratio <= LONGER]
    return Measured(
        numbers={"ratios": found},
        verdict=judged({"almost all": len(near) >= max(1, len(found) - 1), "some": bool(near)}),
        reason=f"LDM-S takes as many times as long as Entropy: {told(found)}; at most {LONGER:g} on {len(near)} of "
        f"{len(found)} datasets.",
    )


TABLE_2 = Item(
    name="table-2",
    title="Runtime on each dataset",
    where="table 2",
    claim="LDM-S takes about as long as Entropy, one of the fastest strategies, on almost all datasets.",
    test=f"Holds if a run with LDM-S takes at most {LONGER - 1:.0%} longer than one with Entropy on all datasets but "
    "one at the most; in part if it does so on some.",
    compute=measure_runtime,
    draw=draw_times,
    always=True,
)


# Claims in words


def measure_ldm_time(scale: Scale) -> Measured:
    """Compute how much longer than Entropy LDM-S takes on image sets."""
    return _measured(scale, lambda times: judge_ldm_time(times, IMAGES if not scale.quick else tuple(times)))


def judge_ldm_time(times: Times, images: Sequence[str] = IMAGES) -> Measured:
    """Check that LDM-S takes at most 6 % longer than Entropy on the image sets, as far as they are there."""
    found = {dataset: ratio for dataset, ratio in ratios(times).items() if dataset in images}
    if not found:
        found = ratios(times)
    missing = [name for name in IMAGES[1:] if name not in found]
    slight = all(ratio <= SLIGHT for ratio in found.values())
    more = ", ".join(f"{dataset} {number(100 * (ratio - 1), '+.1f')} %" for dataset, ratio in found.items())
    return Measured(
        numbers={"ratios": found},
        verdict=judged({"there": slight, "everywhere": slight and not missing}),
        reason=f"LDM-S takes longer than Entropy by: {more}.",
        notes=(f"Of the paper's five image sets there is no finished run of {', '.join(missing)}.",) if missing else (),
    )


LDM_TIME = Item(
    name="claim-runtime",
    title="LDM-S costs 3 to 6 % more time than Entropy on image sets",
    where="section 4.3",
    claim="On CIFAR10, SVHN, CIFAR100, Tiny ImageNet and FOOD101 a run with LDM-S takes 3 to 6 % longer than one with "
    "Entropy.",
    test=f"Holds if LDM-S takes at most {SLIGHT - 1:.0%} longer than Entropy on these five; in part if it does so on "
    "every image set that is finished, MNIST among them, while some of the five are not. Less than 3 % is as good.",
    compute=measure_ldm_time,
    always=True,
)


def measure_ensemble_time(scale: Scale) -> Measured:
    """Compute how many times as long as Entropy an ensemble takes."""
    return _measured(scale, judge_ensemble_time)


def judge_ensemble_time(times: Times) -> Measured:
    """Check that an ensemble takes about five times as long as Entropy on every dataset."""
    found = {
        dataset: of_it["ensemble"] / of_it[OTHER]
        for dataset, of_it in times.items()
        if "ensemble" in of_it and OTHER in of_it
    }
    return Measured(
        numbers={"ratios": found},
        verdict=judged({dataset: FIVE[0] <= ratio <= FIVE[1] for dataset, ratio in found.items()}),
        reason=f"An ensemble takes as many times as long as Entropy: {told(found)}.",
    )


ENSEMBLE_TIME = Item(
    name="claim-ensemble-time",
    title="An ensemble takes about five times as long",
    where="section 4.3",
    claim="Since all its five networks are trained, ENS takes about five times as long as Entropy.",
    test=f"Holds if the ratio of the times is from {FIVE[0]:g} to {FIVE[1]:g} on every dataset, in part if on some.",
    compute=measure_ensemble_time,
    always=True,
)
