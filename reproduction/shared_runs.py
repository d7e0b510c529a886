"""Benchmark runs that several items share, and how strategies are compared within them.

Each run has a folder of its own. A complete one is only read; one that was stopped is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.item import Array, Drawing, Measurement, StudyConfig, format_p
from teeter.analysis.run_comparison import RunComparison, compare_strategies
from teeter.analysis.statistics import Gain, gain_over
from teeter.analysis.table_formats import ReportTable, format_number, format_p_value
from teeter.errors import TeeterError
from teeter.experiments import Run, RunFolder, read_run
from teeter.experiments.runner import run_setting
from teeter.experiments.settings import Setting, setting_named

__all__ = [
    "Accuracies",
    "accuracies_by_run",
    "compute_leads",
    "describe_runs",
    "digits_setting",
    "draw_runs",
    "find_unbeaten",
    "format_leads",
    "leads_table",
    "numbers_to_draw",
    "run_settings",
]

Accuracies = Mapping[str, Mapping[str, Array]]
"""Test accuracies by run and strategy, each (R, T): repetitions by rounds."""

NOT_COMPARED = ("strategies", "repetitions", "quick", "paper")
"""Values of a setting that may differ between a run and what is asked: a run may hold more."""


def digits_setting(name: str, **values: Any) -> Setting:
    """Return a setting on scikit-learn's digits that runs within a minute."""
    small = {"epochs": 50, "repetitions": 4, "pool": 300, "final": 120, "quick": True}
    return replace(setting_named("digits"), **{**small, **values}, name=f"quick-{name}")


def run_settings(config: StudyConfig, settings: Sequence[Setting]) -> list[RunComparison]:
    """Run settings into folders under ``config.runs``, each called after its setting.

    Raises:
        TeeterError: A run has failures, or its strategies cannot be compared.
    """
    comparisons = []
    for setting in settings:
        name = setting.name
        if config.seed != 0:
            name = f"{name}-seed-{config.seed}"
        seeded = replace(setting, name=name, seed=config.seed)
        folder = config.runs / name

        run = _read_complete_run(seeded, folder)
        if run is None:
            run = run_setting(seeded, folder, device=config.device, folder=config.folder)

        comparison = compare_strategies(run, setting.name)
        if not comparison.comparable or run.failures:
            raise TeeterError(f"{folder} cannot be compared: {' '.join(comparison.notes)}")
        comparisons.append(comparison)
    return comparisons


def _read_complete_run(setting: Setting, folder: Path) -> Run | None:
    """Return the run in a folder if it has all that a setting asks, else None.

    Reading needs neither the dataset nor the lock of the folder, which running does.
    """
    if not RunFolder(folder).exists():
        return None
    run = read_run(folder)

    if not run.finished or not set(setting.strategies) <= set(run.strategies):
        return None
    if run.repetitions < setting.repetitions or len(run.curves().labelled) <= setting.rounds:
        return None

    for value in fields(run.setting):
        if value.name in NOT_COMPARED:
            continue
        if getattr(run.setting, value.name) != getattr(setting, value.name):
            return None
    return run


def accuracies_by_run(runs: Sequence[RunComparison]) -> dict[str, dict[str, Array]]:
    """Return the test accuracies by run and strategy, each (R, T)."""
    return {run.name: run.accuracy for run in runs}


def numbers_to_draw(runs: Sequence[RunComparison]) -> dict[str, Any]:
    """Return the numbers that ``draw_runs`` draws from."""
    numbers = {run.name: {"labelled": run.labelled, "accuracy": run.accuracy} for run in runs}
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
    """Return by how many points ``strategy`` is more accurate than each baseline."""
    return {name: gain_over(accuracy[strategy], accuracy[name]) for name in baselines}


def format_leads(leads: Mapping[str, Gain]) -> str:
    """Return leads as they stand in a sentence: "margin +0.52 (p = 0.03), badge ..."."""
    parts = []
    for name, gain in leads.items():
        parts.append(f"{name} {format_number(gain.mean, '+.2f')} ({format_p(gain.p)})")
    return ", ".join(parts)


def leads_table(name: str, strategy: str, leads: Mapping[str, Mapping[str, Gain]]) -> ReportTable:
    """Return a table of the leads of one strategy, by run and baseline."""
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
    return ReportTable(name, caption, data, shown)


def find_unbeaten(
    runs: Accuracies, strategy: str = "ldm-s"
) -> tuple[dict[str, bool], dict[str, dict[str, Gain]]]:
    """Find the runs in which no other strategy is significantly more accurate.

    Returns:
        Whether ``strategy`` is unbeaten, by run; and its leads, by run and other strategy.
    """
    unbeaten = {}
    leads = {}
    for run, accuracy in runs.items():
        others = [name for name in accuracy if name != strategy]
        leads[run] = compute_leads(accuracy, strategy, others)
        is_beaten = any(gain.mean < 0 and gain.significant for gain in leads[run].values())
        unbeaten[run] = not is_beaten
    return unbeaten, leads


def draw_runs(measurement: Measurement) -> list[Drawing]:
    """Draw, for each run, what strategies gain over Random as labels are added."""
    from teeter.analysis.plots import plot_gains

    drawings = []
    for name, run in measurement.numbers["runs"].items():
        accuracy = {strategy: np.array(values) for strategy, values in run["accuracy"].items()}
        baseline = accuracy.pop("random")

        figure = plot_gains(np.array(run["labelled"]), accuracy, baseline)
        caption = f"{name}: gains over Random; bands are one standard deviation."
        drawings.append(Drawing(figure, caption))
    return drawings
