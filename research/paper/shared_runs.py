"""Benchmark runs that several items share, and how strategies are compared within them.

``run_settings`` returns the runs. Each has a folder of its own, called after its setting. A
complete one is only read, so that an item can be judged on a machine without the dataset; one that
was stopped is resumed.

Strategies are compared by their *lead*: the difference of two mean accuracies in percentage points,
over the rounds after the first, paired by repetition. A paired t-test at 5 % says whether a lead is
significant. Most items claim that a strategy leads others, and ``judge_leads`` judges them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from research.paper.item import Array, Drawing, Measurement, StudyConfig, decide_verdict, format_p
from teeter.bench.analysis.run_comparison import RunComparison, compare_strategies
from teeter.bench.analysis.statistics import Gain, gain_over
from teeter.bench.analysis.table_formats import ReportTable, format_number, format_p_value
from teeter.bench.experiments import Run, RunFolder, Setting, read_run, run_setting, setting_named
from teeter.errors import TeeterError

__all__ = [
    "LDM_S",
    "Accuracies",
    "collect_accuracies",
    "collect_curves",
    "compute_leads",
    "describe_runs",
    "draw_runs",
    "find_closest_rival",
    "find_unbeaten",
    "format_leads",
    "is_significantly_ahead",
    "is_significantly_behind",
    "judge_leads",
    "make_digits_setting",
    "make_leads_table",
    "read_run_if_any",
    "run_settings",
]

LDM_S = "ldm-s"
"""The paper's strategy, which most items are about."""

Accuracies = Mapping[str, Mapping[str, Array]]
"""Test accuracies by run and strategy, each (R, T): repetitions by rounds."""

NOT_COMPARED = ("strategies", "repetitions", "quick", "paper")
"""Values of a setting that may differ between a run and what is asked: a run may hold more."""


def make_digits_setting(name: str, **values: Any) -> Setting:
    """Return a setting on scikit-learn's digits that runs within a minute.

    Args:
        name: its name, to which "quick-" is added.
        values: values of the setting that differ from the usual ones of a quick run.
    """
    # Given values take precedence over these.
    small = {"epochs": 50, "repetitions": 4, "pool": 300, "final": 120, "quick": True}
    return replace(setting_named("digits"), **{**small, **values}, name=f"quick-{name}")


def run_settings(config: StudyConfig, settings: Sequence[Setting]) -> list[RunComparison]:
    """Return the runs of settings, which are run if ``config.runs`` does not have them yet.

    Args:
        config: the folder of the runs, the seed and the device.
        settings: what to run, each into a folder that is called after it. A seed other than 0 is
            part of the folder's name.

    Returns:
        The comparison of the strategies of each run, in the order of the settings.

    Raises:
        TeeterError: a run has failures, or its strategies cannot be compared.
    """
    comparisons = []
    for setting in settings:
        name = setting.name
        if config.seed != 0:
            name = f"{name}-seed-{config.seed}"

        # The name tells runs of different seeds apart, also in messages.
        seeded = replace(setting, name=name, seed=config.seed)
        folder = config.runs / name
        run = _read_complete_run(seeded, folder)
        if run is None:
            run = run_setting(seeded, folder, device=config.device, folder=config.folder)

        comparison = compare_strategies(run, setting.name)
        if not comparison.comparable or run.failures:
            notes = " ".join(comparison.notes)
            raise TeeterError(f"The run in {folder} cannot be compared: {notes}")
        comparisons.append(comparison)
    return comparisons


def _read_complete_run(setting: Setting, folder: Path) -> Run | None:
    """Return the run in a folder if it has all that a setting asks, else None.

    Reading needs neither the dataset nor the lock of the folder, which running does.
    """
    run = read_run_if_any(folder)
    if run is None:
        return None

    # It may have more strategies and repetitions than the setting asks, but not fewer.
    if not run.finished or not set(setting.strategies) <= set(run.strategies):
        return None
    if run.repetitions < setting.repetitions or len(run.curves().labelled) <= setting.rounds:
        return None

    # All other values must agree, or the run is another experiment.
    for value in fields(run.setting):
        if value.name in NOT_COMPARED:
            continue
        if getattr(run.setting, value.name) != getattr(setting, value.name):
            return None
    return run


def read_run_if_any(folder: Path) -> Run | None:
    """Return the run in a folder, finished or not, or None if the folder has no run."""
    if not RunFolder(folder).exists():
        return None
    return read_run(folder)


def collect_accuracies(runs: Sequence[RunComparison]) -> dict[str, dict[str, Array]]:
    """Return the test accuracies by run and strategy, each (R, T)."""
    return {run.name: run.accuracy for run in runs}


def collect_curves(
    runs: Sequence[RunComparison], strategies: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the numbers that ``draw_runs`` draws: labels and accuracies of each run.

    Args:
        runs: the runs to draw.
        strategies: the strategies to draw besides Random; all of a run if None.
    """
    numbers = {}
    for run in runs:
        accuracy = run.accuracy
        if strategies is not None:
            accuracy = {name: run.accuracy[name] for name in ("random", *strategies)}
        numbers[run.name] = {"labelled": run.labelled, "accuracy": accuracy}
    return {"runs": numbers}


def describe_runs(runs: Sequence[RunComparison]) -> tuple[str, ...]:
    """Return a sentence on each run: its dataset, its label counts and its hardware."""
    sentences = []
    for run in runs:
        setting = run.run.setting
        sentences.append(
            f"{run.name}: {setting.dataset}, {run.labelled[0]:,.0f} to {run.labelled[-1]:,.0f} "
            f"labels by {setting.query:,}, {run.repetitions} repetitions, "
            f"on {run.run.facts['hardware']}."
        )
    return tuple(sentences)


def compute_leads(
    accuracy: Mapping[str, Array], strategy: str, baselines: Sequence[str]
) -> dict[str, Gain]:
    """Return by how many points ``strategy`` is more accurate than each baseline.

    Args:
        accuracy: the accuracies of one run by strategy, each (R, T).
        strategy: the strategy whose leads are wanted.
        baselines: the strategies that it is compared with.
    """
    return {name: gain_over(accuracy[strategy], accuracy[name]) for name in baselines}


def is_significantly_ahead(gain: Gain) -> bool:
    """Return whether a lead is positive and significant."""
    return gain.mean > 0 and gain.significant


def is_significantly_behind(gain: Gain) -> bool:
    """Return whether a lead is negative and significant."""
    return gain.mean < 0 and gain.significant


def find_closest_rival(leads: Mapping[str, Gain]) -> str:
    """Return the name of the most accurate baseline: the one with the smallest lead over it."""
    return min(leads, key=lambda name: leads[name].mean)


def format_leads(leads: Mapping[str, Gain]) -> str:
    """Return leads as they stand in a sentence: "margin +0.52 (p = 0.03), badge ..."."""
    parts = []
    for name, gain in leads.items():
        parts.append(f"{name} {format_number(gain.mean, '+.2f')} ({format_p(gain.p)})")
    return ", ".join(parts)


def make_leads_table(strategy: str, leads: Mapping[str, Mapping[str, Gain]]) -> ReportTable:
    """Return a table of the leads of one strategy.

    Args:
        strategy: the strategy that leads.
        leads: its leads by run and baseline.
    """
    # The data go into the CSV file, the shown cells onto the page.
    data = []
    shown = []
    for run, gains in leads.items():
        for baseline, gain in gains.items():
            data.append(
                {
                    "run": run,
                    "over": baseline,
                    "lead": gain.mean,
                    "deviation": gain.deviation,
                    "p": gain.p,
                }
            )
            shown.append(
                {
                    "run": run,
                    f"{strategy} over": baseline,
                    "points": format_number(gain.mean, "+.2f"),
                    "deviation": format_number(gain.deviation),
                    "p": format_p_value(gain.p),
                }
            )

    caption = (
        f"By how many points of accuracy {strategy} leads, over the rounds after the first, "
        "paired by repetition."
    )
    return ReportTable("leads", caption, data, shown)


def judge_leads(runs: Accuracies, strategy: str, baselines: Sequence[str]) -> Measurement:
    """Check on each run that ``strategy`` is significantly ahead of each baseline.

    Args:
        runs: the accuracies by run and strategy.
        strategy: the strategy that is claimed to be better.
        baselines: the strategies that it is compared with.

    Returns:
        The verdict on all comparisons, without numbers to draw.
    """
    leads = {run: compute_leads(accuracy, strategy, baselines) for run, accuracy in runs.items()}
    # A check for each pair of a baseline and a run; losses are named in the reason.
    checks = {}
    behind = []
    for run, gains in leads.items():
        for baseline, gain in gains.items():
            comparison = f"{baseline} on {run}"
            checks[comparison] = is_significantly_ahead(gain)
            if is_significantly_behind(gain):
                behind.append(comparison)

    details = "; ".join(f"{run}: {format_leads(gains)}" for run, gains in leads.items())
    reason = (
        f"{strategy} is significantly ahead in {sum(checks.values())} of {len(checks)} "
        f"comparisons; its lead in points, by run, is {details}."
    )
    if behind:
        reason += f" It is significantly behind {'; '.join(behind)}."

    return Measurement(
        numbers={},
        verdict=decide_verdict(checks),
        reason=reason,
        tables=(make_leads_table(strategy, leads),),
    )


def find_unbeaten(
    runs: Accuracies, strategy: str = LDM_S
) -> tuple[dict[str, bool], dict[str, dict[str, Gain]]]:
    """Find the runs in which no other strategy is significantly more accurate.

    Returns:
        Whether ``strategy`` is unbeaten, by run; and its leads, by run and other strategy.
    """
    unbeaten = {}
    leads = {}
    for run, accuracy in runs.items():
        rivals = [name for name in accuracy if name != strategy]
        leads[run] = compute_leads(accuracy, strategy, rivals)
        unbeaten[run] = not any(is_significantly_behind(gain) for gain in leads[run].values())
    return unbeaten, leads


def draw_runs(measurement: Measurement) -> list[Drawing]:
    """Draw, for each run, what strategies gain over Random as labels are added."""
    from teeter.bench.analysis.plots import plot_gains

    drawings = []
    for name, run in measurement.numbers["runs"].items():
        # Numbers come from a result file, where arrays are lists.
        accuracy = {strategy: np.array(values) for strategy, values in run["accuracy"].items()}
        baseline = accuracy.pop("random")

        figure = plot_gains(np.array(run["labelled"]), accuracy, baseline)
        caption = f"{name}: gains over Random; bands are one standard deviation."
        drawings.append(Drawing(figure, caption))
    return drawings
