"""LDM-S with parts taken away or put in another's place, and with small and large batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from reproduction.item import Item, Measurement, StudyConfig, decide_verdict, format_p
from reproduction.ldm_laplace import LAPLACE, LaplaceSetting
from reproduction.shared_runs import (
    Accuracies,
    accuracies_by_run,
    compute_leads,
    describe_runs,
    digits_setting,
    draw_runs,
    find_unbeaten,
    format_leads,
    leads_table,
    numbers_to_draw,
    run_settings,
)
from teeter.analysis.run_comparison import RunComparison
from teeter.analysis.table_formats import format_number
from teeter.experiments.settings import Setting, setting_named

__all__ = [
    "FIGURE_12",
    "FIGURE_13",
    "FIGURE_14",
    "FIGURE_16",
    "THEIRS",
    "ablation_runs",
    "batch_runs",
    "judge_leads",
]

FIRST = "ldm-s"
PARTS = ("ldm", "seeding-cosine", "seeding-l2", "ldm-fass", "ldm-cluster-margin")
SEEDED = ("entropy-s", "margin-s")
SMALL = ("ldm-s", "random", "entropy", "margin", "coreset", "badge", "batchbald")
LARGE = ("ldm-s", "random", "entropy", "margin", "coreset", "badge", "cluster-margin")
SIZES = (1, 10, 40)
THEIRS = "The paper shows MNIST to 1,020 labels, CIFAR10 and CIFAR100."


def ablation_settings(config: StudyConfig) -> list[Setting]:
    """Return the settings of all ablations, whose strategies run side by side."""
    strategies = (FIRST, "random", *PARTS, *SEEDED, LAPLACE)
    if config.quick:
        wanted = [digits_setting("ablations", repetitions=8, final=160, strategies=strategies)]
    else:
        letters = replace(
            setting_named("openml-6"), name="openml-6-ablations", paper=None, strategies=strategies
        )
        images = replace(setting_named("mnist"), name="mnist-ablations", final=420, validation=1000)
        colours = replace(
            setting_named("cifar10"),
            name="cifar10-ablations",
            final=2600,
            validation=1000,
            repetitions=3,
        )
        wanted = [
            letters,
            *(replace(one, paper=None, strategies=strategies) for one in (images, colours)),
        ]
    return [
        LaplaceSetting(**{one.name: getattr(setting, one.name) for one in fields(setting)})
        for setting in wanted
    ]


def ablation_runs(config: StudyConfig) -> list[RunComparison]:
    """Return the ablations' runs, which several items share."""
    return run_settings(config, ablation_settings(config))


def batch_settings(config: StudyConfig) -> list[Setting]:
    """Return a setting for each small batch size."""
    if config.quick:
        options = {"batchbald": {"configurations": 2000}}
        finals = {1: 40, 10: 90, 40: 140}
        return [
            digits_setting(
                f"batch-{n}",
                query=n,
                final=finals[n],
                pool=150,
                epochs=40,
                strategies=SMALL,
                options=options,
            )
            for n in SIZES
        ]
    finals = {1: 70, 10: 220, 40: 420}
    options = {"batchbald": {"configurations": 10_000}}
    base = replace(
        setting_named("mnist"), validation=1000, paper=None, strategies=SMALL, options=options
    )
    return [replace(base, name=f"mnist-batch-{n}", query=n, final=finals[n]) for n in SIZES]


def batch_runs(config: StudyConfig) -> list[RunComparison]:
    """Return the runs with small batches, which two items share."""
    return run_settings(config, batch_settings(config))


def large_settings(config: StudyConfig) -> list[Setting]:
    """Return settings with batches that are a large part of the pool."""
    if config.quick:
        return [
            digits_setting(
                "batch-large", initial=100, query=200, final=700, pool=None, strategies=LARGE
            )
        ]
    letters = replace(
        setting_named("openml-6"),
        name="openml-6-batch-2000",
        initial=2000,
        query=2000,
        final=10_000,
        pool=None,
        paper=None,
        strategies=LARGE,
    )
    images = replace(
        setting_named("mnist"),
        name="mnist-batch-5000",
        initial=5000,
        query=5000,
        final=20_000,
        pool=None,
        validation=1000,
        epochs=15,
        repetitions=3,
        paper=None,
        strategies=LARGE,
    )
    return [letters, images]


def only(runs: Sequence[RunComparison], names: Sequence[str]) -> dict[str, Any]:
    """Return what is drawn of some strategies, and Random."""
    numbers = numbers_to_draw(runs)
    for run in numbers["runs"].values():
        run["accuracy"] = {name: run["accuracy"][name] for name in ("random", *names)}
    return numbers


# Figures 12 and 16


def measure_parts(config: StudyConfig) -> Measurement:
    """Compare LDM-S with its parts alone and with other ways to spread picks."""
    runs = ablation_runs(config)
    found = judge_leads(accuracies_by_run(runs), FIRST, PARTS)
    return replace(found, numbers=only(runs, (FIRST, *PARTS)), notes=(*describe_runs(runs), THEIRS))


def measure_seeded(config: StudyConfig) -> Measurement:
    """Compare LDM-S with other measures of uncertainty under the same seeding."""
    runs = ablation_runs(config)
    found = judge_leads(accuracies_by_run(runs), FIRST, SEEDED)
    return replace(
        found, numbers=only(runs, (FIRST, *SEEDED)), notes=(*describe_runs(runs), THEIRS)
    )


def judge_leads(runs: Accuracies, first: str, others: Sequence[str]) -> Measurement:
    """Check on each run that ``first`` is significantly more accurate than each of the others."""
    found = {run: compute_leads(accuracy, first, others) for run, accuracy in runs.items()}
    every = {
        f"{name} on {run}": gain for run, gains in found.items() for name, gain in gains.items()
    }
    checks = {name: gain.mean > 0 and gain.significant for name, gain in every.items()}
    told = "; ".join(f"{run}: {format_leads(gains)}" for run, gains in found.items())
    behind = [name for name, gain in every.items() if gain.mean < 0 and gain.significant]
    return Measurement(
        numbers={},
        verdict=decide_verdict(checks),
        reason=f"{first} is significantly ahead in {sum(checks.values())} of {len(checks)} comparisons; its lead in "
        f"points over the others, {told}."
        + (f" It is significantly behind {'; '.join(behind)}." if behind else ""),
        tables=(leads_table("leads", first, found),),
    )


FIGURE_12 = Item(
    name="figure-12",
    title="Both LDM and seeding are needed",
    location="appendix, figure 12",
    claim="LDM-S is more accurate than the smallest LDM alone, than seeding alone by cosine or Euclidean distance, and "
    "than LDM spread by FASS or by Cluster-Margin.",
    test="On each dataset the mean accuracy of LDM-S is significantly above that of each of the five (paired t-test "
    "over repetitions, 5 %). Holds if so in all comparisons, in part if in some.",
    compute=measure_parts,
    draw=draw_runs,
)

FIGURE_16 = Item(
    name="figure-16",
    title="LDM against entropy and margin with the same seeding",
    location="appendix, figure 16",
    claim="Even when Entropy and Margin are given the same weighted seeding, LDM-S is more accurate.",
    test="On each dataset the mean accuracy of LDM-S is significantly above that of each of the two (paired t-test "
    "over repetitions, 5 %). Holds if so in all comparisons, in part if in some.",
    compute=measure_seeded,
    draw=draw_runs,
)


# Figures 13 and 14


def measure_small(config: StudyConfig) -> Measurement:
    """Compare strategies at batch sizes of 1, 10 and 40."""
    return _by_size(batch_runs(config))


def measure_large(config: StudyConfig) -> Measurement:
    """Compare strategies at large batch sizes."""
    found = _by_size(run_settings(config, large_settings(config)))
    note = "The paper's batches are 5,000 rows of CIFAR10, SVHN and CIFAR100; these are other datasets."
    return replace(found, notes=(*found.notes, note))


def _by_size(runs: Sequence[RunComparison]) -> Measurement:
    return replace(
        judge_sizes(accuracies_by_run(runs)),
        numbers=numbers_to_draw(runs),
        notes=describe_runs(runs),
    )


def judge_sizes(runs: Accuracies) -> Measurement:
    """Check at each size that LDM-S is above Random, and that none is significantly more accurate."""
    unbeaten, found = find_unbeaten(runs)
    above = {
        run: gains["random"].mean > 0 and gains["random"].significant
        for run, gains in found.items()
    }
    told = []
    for run, gains in found.items():
        nearest = min(gains, key=lambda name: gains[name].mean)
        told.append(
            f"{run} {format_number(gains['random'].mean, '+.2f')} over Random and "
            f"{format_number(gains[nearest].mean, '+.2f')} over the best of the others, {nearest} ({format_p(gains[nearest].p)})"
        )
    return Measurement(
        numbers={},
        verdict=decide_verdict({run: unbeaten[run] and above[run] for run in found}),
        reason=f"LDM-S leads, in points: {'; '.join(told)}.",
        tables=(leads_table("leads", FIRST, found),),
    )


_SIZES_TEST = (
    "At each size the mean accuracy of LDM-S is significantly above Random's, and no strategy is significantly above "
    "it (paired t-tests over repetitions, 5 %). Holds if so at all sizes, in part if at some."
)

FIGURE_13 = Item(
    name="figure-13",
    title="Small batches: 1, 10 and 40",
    location="appendix, figure 13",
    claim="LDM-S does well whether labels are asked for one, ten or forty at a time, BatchBALD being among the others.",
    test=_SIZES_TEST,
    compute=measure_small,
    draw=draw_runs,
)

FIGURE_14 = Item(
    name="figure-14",
    title="Large batches",
    location="appendix, figure 14",
    claim="LDM-S also does well with batches of thousands of rows, Cluster-Margin being among the others.",
    test=_SIZES_TEST,
    compute=measure_large,
    draw=draw_runs,
)
