"""Runs that items share: each is made once, into a folder of its own, and goes on where it was stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.analysis.run_comparison import RunComparison, compare_strategies
from teeter.analysis.statistics import Gain, gain_over
from teeter.analysis.table_formats import ReportTable, format_number
from teeter.errors import TeeterError
from teeter.experiments.results import FACTS, Run, read_run
from teeter.experiments.runner import run_setting
from teeter.experiments.settings import Setting, setting_named
from teeter.studies.items import Drawing, Measured, Scale, chance, chance_shown

__all__ = [
    "Accuracies",
    "accuracies",
    "digits",
    "draw_runs",
    "judge_unbeaten",
    "leads",
    "leads_table",
    "numbers_of",
    "on_runs",
    "run_trials",
    "told_leads",
]

Array = npt.NDArray[np.floating[Any]]
Accuracies = Mapping[str, Mapping[str, Array]]
"""By run and strategy, (R, T)."""


def digits(name: str, **values: Any) -> Setting:
    """Return a small setting on the digits of scikit-learn, which a minute is enough for."""
    small = {"epochs": 50, "repetitions": 4, "pool": 300, "final": 120, "quick": True}
    return replace(setting_named("digits"), **{**small, **values}, name=f"quick-{name}")


def run_trials(scale: Scale, settings: Sequence[Setting]) -> list[RunComparison]:
    """Run settings into folders under ``scale.runs``, each called after its setting; what is there is only read."""
    found = []
    for setting in settings:
        name = setting.name if scale.seed == 0 else f"{setting.name}-seed-{scale.seed}"
        wanted = replace(setting, name=name, seed=scale.seed)
        run = _whole(wanted, scale.runs / name)
        if run is None:
            run = run_setting(wanted, scale.runs / name, device=scale.device, folder=scale.folder)
        one = compare_strategies(run, setting.name)
        if not one.comparable or run.failures:
            raise TeeterError(f"{scale.runs / name} cannot be compared: {' '.join(one.notes)}")
        found.append(one)
    return found


def _whole(setting: Setting, folder: Path) -> Run | None:
    """Return the run of a setting if nothing of it is missing: to read it takes neither its dataset nor a lock."""
    run = read_run(folder) if (folder / FACTS).exists() else None
    if run is None or not run.finished or not set(setting.strategies) <= set(run.strategies):
        return None
    if run.repetitions < setting.repetitions or len(run.curves().labelled) <= setting.rounds:
        return None
    told = ("strategies", "repetitions", "quick", "paper")
    same = all(
        getattr(run.setting, one.name) == getattr(setting, one.name)
        for one in fields(run.setting)
        if one.name not in told
    )
    return run if same else None


def accuracies(runs: Sequence[RunComparison]) -> dict[str, dict[str, Array]]:
    """Return the accuracies by run and strategy."""
    return {one.name: one.accuracy for one in runs}


def numbers_of(runs: Sequence[RunComparison]) -> dict[str, Any]:
    """Return what ``draw_runs`` draws from."""
    return {
        "runs": {one.name: {"labelled": one.labelled, "accuracy": one.accuracy} for one in runs}
    }


def on_runs(runs: Sequence[RunComparison]) -> tuple[str, ...]:
    """Return what each run was made of, a sentence each."""
    return tuple(
        f"{one.name}: {one.run.setting.dataset}, {one.labelled[0]:,.0f} to {one.labelled[-1]:,.0f} labels by "
        f"{one.run.setting.query:,}, {one.repetitions} repetitions, on {one.run.facts['hardware']}."
        for one in runs
    )


def leads(accuracy: Mapping[str, Array], first: str, others: Sequence[str]) -> dict[str, Gain]:
    """Return by how much ``first`` is more accurate than each of the others."""
    return {name: gain_over(accuracy[first], accuracy[name]) for name in others}


def told_leads(found: Mapping[str, Gain]) -> str:
    """Return leads as they stand in a sentence."""
    return ", ".join(
        f"{name} {format_number(gain.mean, '+.2f')} ({chance(gain.p)})"
        for name, gain in found.items()
    )


def leads_table(name: str, first: str, found: Mapping[str, Mapping[str, Gain]]) -> ReportTable:
    """Return a table of leads by run and strategy."""
    data = [
        {"run": run, "over": other, "lead": gain.mean, "deviation": gain.deviation, "p": gain.p}
        for run, gains in found.items()
        for other, gain in gains.items()
    ]
    shown = [
        {
            "run": str(row["run"]),
            f"{first} over": str(row["over"]),
            "points": format_number(gain.mean, "+.2f"),
            "deviation": format_number(gain.deviation),
            "p": chance_shown(gain.p),
        }
        for row, gain in zip(
            data, (gain for gains in found.values() for gain in gains.values()), strict=True
        )
    ]
    caption = f"By how many points of accuracy {first} leads, over the rounds after the first, paired by repetition."
    return ReportTable(name, caption, data, shown)


def judge_unbeaten(
    runs: Accuracies, first: str = "ldm-s"
) -> tuple[dict[str, bool], dict[str, dict[str, Gain]]]:
    """Return, by run, whether no other strategy is significantly more accurate, and all leads."""
    found = {
        run: leads(of_run, first, [name for name in of_run if name != first])
        for run, of_run in runs.items()
    }
    return {run: not _beaten(gains) for run, gains in found.items()}, found


def _beaten(gains: Mapping[str, Gain]) -> bool:
    return any(gain.mean < 0 and gain.significant for gain in gains.values())


def draw_runs(measured: Measured) -> list[Drawing]:
    """Draw, for each run, what strategies gain over Random as labels are added."""
    from teeter.analysis.plots import plot_gains

    drawings = []
    for name, run in measured.numbers["runs"].items():
        accuracy = {strategy: np.array(of_it) for strategy, of_it in run["accuracy"].items()}
        baseline = accuracy.pop("random")
        figure = plot_gains(np.array(run["labelled"]), accuracy, baseline)
        drawings.append(
            Drawing(figure, f"{name}: gains over Random; bands are one standard deviation.")
        )
    return drawings
