"""The tables of one run: the paper's numbers stand beside ours, with the difference."""

from __future__ import annotations

from typing import Any

import numpy as np

from teeter.analysis.run_comparison import Array, RunComparison
from teeter.analysis.statistics import Gain, LabelSaving, mean_and_std
from teeter.analysis.table_formats import MISSING, ReportTable, format_duration, format_number

__all__ = [
    "accuracy_table",
    "beside_paper_table",
    "deltas_table",
    "labels_table",
    "runtime_table",
    "with_spread",
]

COLUMNS = 6
"""How many numbers of labels a table shows; its CSV has all."""


def _chance(gain: Gain | None, repetitions: int) -> str:
    return MISSING if gain is None or repetitions < 2 else _p(gain.p)


def _p(p: float) -> str:
    shown = "< 0.001" if p < 0.001 else f"{p:.3f}"
    return shown if p < 0.05 else f"{shown} (n.s.)"


def with_spread(mean: float, deviation: float, repetitions: int, form: str = ".2f") -> str:
    """Return a mean ± its standard deviation as it is shown; the mean alone where there is one repetition."""
    spread = "" if repetitions < 2 else f" ± {format_number(deviation, form.lstrip('+'))}"
    return format_number(mean, form) + spread


def deltas_table(one: RunComparison) -> ReportTable:
    """Return each strategy's mean accuracy, its gain over Random, the paper's, and what LDM-S leads it by."""
    caption = f"{one.name}: mean accuracy over the rounds after the first, and gains in points of accuracy."
    return ReportTable(
        "deltas",
        caption,
        [_delta(one, name) for name in one.accuracy],
        [_delta_shown(one, name) for name in one.accuracy],
    )


def _delta(one: RunComparison, name: str) -> dict[str, Any]:
    gain, loss, paper = one.gains.get(name), one.losses.get(name), one.paper.get(name)
    return {
        "strategy": name,
        "repetitions": one.repetitions,
        "accuracy_percent": one.mean(name),
        "gain": None if gain is None else gain.mean,
        **_tested(gain, one.repetitions),
        "ldm_s_lead": None if loss is None else -loss.mean,
        **_tested(loss, one.repetitions, "ldm_s_lead_"),
        "paper_gain": None if paper is None else paper.mean,
        "paper_deviation": None if paper is None else paper.deviation,
        "difference": None if gain is None or paper is None else gain.mean - paper.mean,
    }


def _delta_shown(one: RunComparison, name: str) -> dict[str, str]:
    gain, loss, paper = one.gains.get(name), one.losses.get(name), one.paper.get(name)
    row = {"strategy": name, "accuracy (%)": format_number(one.mean(name))}
    if one.gains:
        row["gain over random"] = (
            MISSING
            if gain is None
            else with_spread(gain.mean, gain.deviation, one.repetitions, "+.2f")
        )
        row["p"] = _chance(gain, one.repetitions)
    if one.paper and one.gains:
        row["paper's gain"] = (
            MISSING if paper is None else with_spread(paper.mean, paper.deviation, 5, "+.2f")
        )
        row["difference"] = format_number(
            None if gain is None or paper is None else gain.mean - paper.mean, "+.2f"
        )
    if one.losses:
        row["LDM-S leads by"] = MISSING if loss is None else format_number(-loss.mean, "+.2f")
        row["p of the lead"] = _chance(loss, one.repetitions)
    return row


def _tested(gain: Gain | None, repetitions: int, prefix: str = "") -> dict[str, Any]:
    if gain is None or repetitions < 2:
        return {f"{prefix}deviation": None, f"{prefix}p": None, f"{prefix}significant": None}
    told = "yes" if gain.significant else "no"
    return {
        f"{prefix}deviation": gain.deviation,
        f"{prefix}p": gain.p,
        f"{prefix}significant": told,
    }


def accuracy_table(one: RunComparison) -> ReportTable:
    """Return the mean accuracy at some numbers of labels; at all of them in the data, with the paper's."""
    data, shown = [], []
    for name, runs in one.accuracy.items():
        mean, spread = (100 * values for values in mean_and_std(runs))
        theirs = one.paper_accuracy.get(name, {})
        for k, labels in enumerate(one.labelled.astype(int).tolist()):
            data.append(
                {
                    "strategy": name,
                    "labelled": labels,
                    "accuracy_percent": float(mean[k]),
                    "deviation": float(spread[k]) if one.repetitions > 1 else None,
                    "paper_accuracy_percent": theirs.get(labels),
                    "difference": float(mean[k]) - theirs[labels] if labels in theirs else None,
                }
            )
        cells = {
            f"{one.labelled[k]:,.0f}": with_spread(
                float(mean[k]), float(spread[k]), one.repetitions
            )
            for k in _columns(one)
        }
        shown.append({"strategy": name, **cells})
    return ReportTable(
        "accuracy", f"{one.name}: test accuracy (%) by number of labels.", data, shown
    )


def beside_paper_table(one: RunComparison) -> ReportTable | None:
    """Return the paper's accuracies and how far ours are from them, or None where it has none."""
    places = [k for k in _columns(one) if _in_paper(one, k)]
    names = [name for name in one.accuracy if name in one.paper_accuracy]
    if not places or not names:
        return None
    data, shown = [], []
    for name in names:
        mean, theirs = 100 * one.accuracy[name].mean(axis=0), one.paper_accuracy[name]
        cells: dict[str, Any] = {}
        told: dict[str, str] = {}
        for k in places:
            labels = int(one.labelled[k])
            apart = float(mean[k]) - theirs[labels]
            cells |= {f"paper_{labels}": theirs[labels], f"difference_{labels}": apart}
            told[f"{labels:,}"] = (
                f"{format_number(theirs[labels])} ({format_number(apart, '+.2f')})"
            )
        data.append({"strategy": name, **cells})
        shown.append({"strategy": name, **told})
    caption = f"{one.name}: the paper's test accuracy (%), and in brackets ours minus it."
    return ReportTable("accuracy_beside_paper", caption, data, shown)


def _columns(one: RunComparison) -> list[int]:
    """Return some rounds to show, the last among them; those that the paper shows where it does."""
    places = (
        [k for k in range(len(one.labelled)) if _in_paper(one, k)]
        or list(range(1, len(one.labelled)))
        or [0]
    )
    chosen = np.linspace(len(places) - 1, 0, min(COLUMNS, len(places))).round().astype(int)
    return [places[k] for k in sorted(set(chosen.tolist()))]


def _in_paper(one: RunComparison, k: int) -> bool:
    return any(int(one.labelled[k]) in curve for curve in one.paper_accuracy.values())


def labels_table(one: RunComparison) -> ReportTable:
    """Return the labels that each strategy needs to be as accurate as Random at its end."""
    data, shown = [], []
    ranked = sorted(one.savings, key=lambda name: _needed(one.savings[name]))
    for name in ranked:
        saving = one.savings[name]
        spread = saving.spread
        reached = sum(saved is not None for saved in saving.each)
        share = None if saving.saved is None else saving.saved / saving.baseline
        data.append(
            {
                "strategy": name,
                "target_percent": 100 * saving.target,
                "labels": saving.labels,
                "random_labels": saving.baseline,
                "saved": saving.saved,
                "saved_share": share,
                "saved_by_repetition": None if spread is None else spread[0],
                "deviation": None if spread is None else spread[1],
                "p": saving.p,
                "repetitions_that_reached_it": reached,
            }
        )
        shown.append(
            {
                "strategy": name,
                f"labels for {saving.target:.1%}": "not reached"
                if saving.labels is None
                else f"{saving.labels:,.0f}",
                "saved": format_number(saving.saved, ",.0f"),
                "share saved": format_number(share, ".0%"),
                "saved by repetition": MISSING
                if spread is None
                else with_spread(*spread, 2, ",.0f"),
                "p": MISSING if saving.p is None else _p(saving.p),
                "repetitions that got there": f"{reached} of {len(saving.each)}",
            }
        )
    caption = f"{one.name}: labels needed to be as accurate as Random at its end."
    return ReportTable("labels", caption, data, shown)


def _needed(saving: LabelSaving) -> float:
    return float("inf") if saving.labels is None else saving.labels


def runtime_table(one: RunComparison) -> ReportTable:
    """Return the time of a run by kind of work, the peak memory, and the paper's minutes."""
    data, shown = [], []
    unit, times = one.unit
    taken = {
        kind for kinds in one.minutes.values() for kind, minutes in kinds.items() if minutes.any()
    }
    for name, kinds in one.minutes.items():
        whole: Array = np.sum(list(kinds.values()), axis=0) if kinds else np.zeros(one.repetitions)
        deviation = float(whole.std(ddof=1)) if len(whole) > 1 else 0.0
        theirs = one.paper_minutes.get(name)
        apart = None if theirs is None else float(whole.mean()) - theirs
        parts = {kind: float(minutes.mean()) for kind, minutes in kinds.items()}
        data.append(
            {
                "strategy": name,
                **{f"{kind}_minutes": value for kind, value in parts.items()},
                "minutes": float(whole.mean()),
                "deviation": deviation if len(whole) > 1 else None,
                "peak_memory_bytes": int(one.memory[name]),
                "paper_minutes": theirs,
                "difference": apart,
            }
        )
        row = {
            "strategy": name,
            **{
                kind: format_duration(times * value)
                for kind, value in parts.items()
                if kind in taken
            },
        }
        spread = "" if len(whole) < 2 else f" ± {format_duration(times * deviation)}"
        row["whole"] = format_duration(times * float(whole.mean())) + spread
        row["peak memory"] = f"{one.memory[name] / 2**20:,.0f} MiB"
        if one.paper_minutes:
            row |= {
                "paper": format_number(theirs, ",.1f"),
                "difference": format_number(apart, "+,.1f"),
            }
        shown.append(row)
    return ReportTable("runtime", f"{one.name}: {unit} of a run, by kind of work.", data, shown)
