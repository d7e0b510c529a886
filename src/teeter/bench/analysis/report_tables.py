"""The tables of a report: gains, accuracy, labels needed, runtime, and comparisons across runs.

Every function returns a ``ReportTable``: rows in full precision for a CSV file, and the same rows
formatted for readers. Where the paper has a number, it stands beside ours, and differences are ours
minus the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from teeter.bench.analysis.plots import HIGHLIGHTED
from teeter.bench.analysis.run_comparison import BASELINE, RunComparison
from teeter.bench.analysis.statistics import (
    SIGNIFICANCE_LEVEL,
    FloatArray,
    Gain,
    PenaltyMatrix,
    mean_and_std,
    mean_ranks,
    penalty_matrix,
    performance_profile,
)
from teeter.bench.analysis.table_formats import (
    MISSING,
    ReportTable,
    format_duration,
    format_mean_and_std,
    format_number,
    format_p_value,
)

__all__ = [
    "ACCURACY_COLUMNS",
    "accuracy_table",
    "cross_dataset_table",
    "deltas_table",
    "gains_table",
    "labels_table",
    "paper_accuracy_table",
    "penalties_table",
    "runtime_table",
]

ACCURACY_COLUMNS = 6
"""Numbers of labels that an accuracy table shows; its CSV file has all."""

_PAPER_REPETITIONS = 5
"""How often the paper repeats a run. Its deviations are over these."""


def deltas_table(comparison: RunComparison) -> ReportTable:
    """Return each strategy's accuracy, its gain over Random and how far LDM-S leads it."""
    rows = [_delta_row(comparison, name) for name in comparison.accuracy]

    return ReportTable(
        name="deltas",
        caption=(
            f"{comparison.name}: mean accuracy over the rounds after the first, and gains in "
            "points of accuracy."
        ),
        data=[row for row, _ in rows],
        shown=[cells for _, cells in rows],
    )


def _delta_row(comparison: RunComparison, name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the numbers and the cells of a strategy.

    All rows of numbers have the same columns, some of them empty. A column of cells that would be
    empty in every row is left out.
    """
    gain = comparison.gains.get(name)
    gain_over_ldm_s = comparison.gains_over_ldm_s.get(name)
    paper = comparison.paper_deltas.get(name)
    repetitions = comparison.repetitions

    row: dict[str, Any] = {
        "strategy": name,
        "repetitions": repetitions,
        "accuracy_percent": comparison.mean_accuracy(name),
        "gain": None,
        **_test_columns(gain, repetitions),
        "ldm_s_lead": None,
        **_test_columns(gain_over_ldm_s, repetitions, prefix="ldm_s_lead_"),
        "paper_gain": None,
        "paper_deviation": None,
        "difference": None,
    }

    # Random has no gain over itself, LDM-S no lead over itself, and the paper not every strategy.
    # A lead is the gain over LDM-S with its sign turned: positive where LDM-S is better.
    if gain is not None:
        row["gain"] = gain.mean
    if gain_over_ldm_s is not None:
        row["ldm_s_lead"] = -gain_over_ldm_s.mean
    if paper is not None:
        row["paper_gain"] = paper.mean
        row["paper_deviation"] = paper.deviation
    if gain is not None and paper is not None:
        row["difference"] = gain.mean - paper.mean

    cells = {
        "strategy": name,
        "accuracy (%)": format_number(comparison.mean_accuracy(name)),
    }
    if comparison.gains:
        cells["gain over random"] = _gain_cell(gain, repetitions)
        cells["p"] = _p_cell(gain, repetitions)

    if comparison.paper_deltas and comparison.gains:
        cells["paper's gain"] = MISSING
        if paper is not None:
            cells["paper's gain"] = format_mean_and_std(
                paper.mean,
                paper.deviation,
                _PAPER_REPETITIONS,
                "+.2f",
            )
        cells["difference"] = format_number(row["difference"], "+.2f")

    if comparison.gains_over_ldm_s:
        cells["LDM-S leads by"] = format_number(row["ldm_s_lead"], "+.2f")
        cells["p of the lead"] = _p_cell(gain_over_ldm_s, repetitions)

    return row, cells


def _test_columns(gain: Gain | None, repetitions: int, prefix: str = "") -> dict[str, Any]:
    """Return the spread and the test of a gain; empty cells for a single repetition."""
    columns: dict[str, Any] = {
        f"{prefix}deviation": None,
        f"{prefix}p": None,
        f"{prefix}significant": None,
    }
    if gain is not None and repetitions > 1:
        columns[f"{prefix}deviation"] = gain.deviation
        columns[f"{prefix}p"] = gain.p
        columns[f"{prefix}significant"] = "yes" if gain.significant else "no"

    return columns


def _gain_cell(gain: Gain | None, repetitions: int) -> str:
    """Return a gain with its spread, or an en dash for a strategy without one."""
    if gain is None:
        return MISSING

    return format_mean_and_std(gain.mean, gain.deviation, repetitions, "+.2f")


def _p_cell(gain: Gain | None, repetitions: int) -> str:
    """Return the p-value of a gain; an en dash if there was no test."""
    if gain is None or repetitions < 2:
        return MISSING

    return _mark_if_not_significant(gain.p)


def _mark_if_not_significant(p: float) -> str:
    if p < SIGNIFICANCE_LEVEL:
        return format_p_value(p)

    return f"{format_p_value(p)} (n.s.)"


def accuracy_table(comparison: RunComparison) -> ReportTable:
    """Return the mean accuracy at a few numbers of labels; the data has all, with the paper's."""
    data: list[dict[str, Any]] = []
    shown = []
    labelled = comparison.labelled.astype(int).tolist()

    for name, runs in comparison.accuracy.items():
        mean, deviation = mean_and_std(runs)  # (T,) each
        paper = comparison.paper_accuracy.get(name, {})

        for index, labels in enumerate(labelled):
            percent = 100 * float(mean[index])
            paper_percent = paper.get(labels)
            row: dict[str, Any] = {
                "strategy": name,
                "labelled": labels,
                "accuracy_percent": percent,
                "deviation": None,
                "paper_accuracy_percent": paper_percent,
                "difference": None,
            }
            if comparison.repetitions > 1:
                row["deviation"] = 100 * float(deviation[index])
            if paper_percent is not None:
                row["difference"] = percent - paper_percent
            data.append(row)

        cells = {"strategy": name}
        for index in _rounds_to_show(comparison):
            column = f"{labelled[index]:,}"
            cells[column] = format_mean_and_std(
                100 * float(mean[index]),
                100 * float(deviation[index]),
                comparison.repetitions,
            )
        shown.append(cells)

    caption = f"{comparison.name}: test accuracy (%) by number of labels."
    return ReportTable("accuracy", caption, data, shown)


def paper_accuracy_table(comparison: RunComparison) -> ReportTable | None:
    """Return the paper's accuracies and how far ours are from them, or None if it has none."""
    rounds = [index for index in _rounds_to_show(comparison) if _in_paper(comparison, index)]
    strategies = [name for name in comparison.accuracy if name in comparison.paper_accuracy]
    if not rounds or not strategies:
        return None

    data = []
    shown = []

    for name in strategies:
        mean = 100 * comparison.accuracy[name].mean(axis=0)
        paper = comparison.paper_accuracy[name]
        row: dict[str, Any] = {"strategy": name}
        cells = {"strategy": name}

        for index in rounds:
            labels = int(comparison.labelled[index])
            paper_percent = paper[labels]
            difference = float(mean[index]) - paper_percent
            row[f"paper_{labels}"] = paper_percent
            row[f"difference_{labels}"] = difference

            column = f"{labels:,}"
            printed = format_number(paper_percent)
            cells[column] = f"{printed} ({format_number(difference, '+.2f')})"

        data.append(row)
        shown.append(cells)

    caption = (
        f"{comparison.name}: the paper's test accuracy (%), and in brackets ours minus the paper's."
    )
    return ReportTable("accuracy_beside_paper", caption, data, shown)


def _rounds_to_show(comparison: RunComparison) -> list[int]:
    """Return evenly spaced rounds up to the last, of those in the paper if it has any."""
    # Those in the paper first, so that its table and ours have the same columns.
    rounds = range(len(comparison.labelled))
    eligible = [index for index in rounds if _in_paper(comparison, index)]
    if not eligible:
        # The initial round says nothing about a strategy, but is better than an empty table.
        eligible = list(rounds[1:]) or [0]

    count = min(ACCURACY_COLUMNS, len(eligible))
    # Counted from the end, so that the last round is always among them.
    spaced = np.linspace(len(eligible) - 1, 0, count)
    positions = set(spaced.round().astype(int).tolist())
    return [eligible[position] for position in sorted(positions)]


def _in_paper(comparison: RunComparison, index: int) -> bool:
    """Return whether the paper prints an accuracy for the number of labels of a round."""
    labels = int(comparison.labelled[index])
    return any(labels in curve for curve in comparison.paper_accuracy.values())


def labels_table(comparison: RunComparison) -> ReportTable:
    """Return the labels that each strategy needs to reach Random's final accuracy."""
    savings = comparison.savings
    data = []
    shown = []

    def labels_needed(name: str) -> float:
        labels = savings[name].labels
        if labels is None:
            return float("inf")  # never reached, so at the end of the table
        return labels

    for name in sorted(savings, key=labels_needed):
        saving = savings[name]
        saved_share = None
        if saving.saved is not None:
            saved_share = saving.saved / saving.baseline

        # No spread if a repetition missed the target: the cell then stays empty.
        mean_saved, deviation = saving.spread or (None, None)
        spread_cell = MISSING
        if saving.spread is not None:
            spread_cell = format_mean_and_std(*saving.spread, comparison.repetitions, ",.0f")

        by_repetition = saving.saved_by_repetition
        reached = sum(saved is not None for saved in by_repetition)

        labels_cell = "not reached"
        if saving.labels is not None:
            labels_cell = f"{saving.labels:,.0f}"
        p_cell = MISSING
        if saving.p is not None:
            p_cell = _mark_if_not_significant(saving.p)

        data.append(
            {
                "strategy": name,
                "target_percent": 100 * saving.target,
                "labels": saving.labels,
                "random_labels": saving.baseline,
                "saved": saving.saved,
                "saved_share": saved_share,
                "saved_by_repetition": mean_saved,
                "deviation": deviation,
                "p": saving.p,
                "repetitions_that_reached_it": reached,
            }
        )
        shown.append(
            {
                "strategy": name,
                f"labels for {saving.target:.1%}": labels_cell,
                "saved": format_number(saving.saved, ",.0f"),
                "share saved": format_number(saved_share, ".0%"),
                "saved by repetition": spread_cell,
                "p": p_cell,
                "repetitions that reached it": f"{reached} of {len(by_repetition)}",
            }
        )

    caption = f"{comparison.name}: labels needed to reach Random's final accuracy."
    return ReportTable("labels", caption, data, shown)


def runtime_table(comparison: RunComparison) -> ReportTable:
    """Return the time of a run by phase, its peak memory, and the paper's minutes."""
    unit, units_per_minute = comparison.time_unit
    used_phases = set()
    for phases in comparison.minutes.values():
        for phase, minutes in phases.items():
            if minutes.any():
                used_phases.add(phase)

    data = []
    shown = []

    for name, phases in comparison.minutes.items():
        means = {phase: float(minutes.mean()) for phase, minutes in phases.items()}

        # The deviation of the sum, which the deviations of the phases do not add up to.
        totals = np.zeros(comparison.repetitions)
        if phases:
            totals = np.sum(list(phases.values()), axis=0)
        mean, deviation = (float(value) for value in mean_and_std(totals))

        paper = comparison.paper_minutes.get(name)
        difference = None
        if paper is not None:
            difference = mean - paper

        data.append(
            {
                "strategy": name,
                **{f"{phase}_minutes": minutes for phase, minutes in means.items()},
                "minutes": mean,
                "deviation": deviation if comparison.repetitions > 1 else None,
                "peak_memory_bytes": int(comparison.memory[name]),
                "paper_minutes": paper,
                "difference": difference,
            }
        )

        # Shown in the unit of the report; the data is in minutes always.
        cells = {"strategy": name}
        for phase, phase_minutes in means.items():
            if phase in used_phases:
                cells[phase] = format_duration(units_per_minute * phase_minutes)

        cells["total"] = format_duration(units_per_minute * mean)
        if comparison.repetitions > 1:
            spread = format_duration(units_per_minute * deviation)
            cells["total"] += f" ± {spread}"

        mebibytes = comparison.memory[name] / 2**20
        cells["peak memory"] = f"{mebibytes:,.0f} MiB"
        if comparison.paper_minutes:
            cells["paper"] = format_number(paper, ",.1f")
            cells["difference"] = format_number(difference, "+,.1f")
        shown.append(cells)

    caption = f"{comparison.name}: {unit} per run, by phase."
    return ReportTable("runtime", caption, data, shown)


def cross_dataset_table(
    datasets: Sequence[Mapping[str, FloatArray]], *, tested: bool
) -> ReportTable:
    """Return how each strategy does over all datasets: profile area, wins, penalties and rank.

    Args:
        datasets: accuracies (R, T) by strategy; the same strategies in each dataset.
        tested: whether every dataset has repetitions to test with; without, penalties say nothing.
    """
    profiles = performance_profile(datasets)
    ranks = mean_ranks(datasets)
    beaten = penalty_matrix(datasets).beaten
    areas = {name: profile.area() for name, profile in profiles.items()}
    data = []
    shown = []

    for name in sorted(profiles, key=lambda name: -areas[name]):
        # The share of cases in which no strategy is better.
        share_best = profiles[name].at(0)
        mean_penalty = beaten[name] if tested else None

        data.append(
            {
                "strategy": name,
                "profile_area": areas[name],
                "share_best": share_best,
                "beaten": mean_penalty,
                "mean_rank": ranks[name],
            }
        )
        shown.append(
            {
                "strategy": name,
                "profile area (of 10)": format_number(areas[name]),
                "best or equal": format_number(share_best, ".0%"),
                "beaten (mean penalty)": format_number(mean_penalty),
                "mean rank": format_number(ranks[name]),
            }
        )

    count = f"{len(datasets)} datasets"
    if len(datasets) == 1:
        count = "one dataset"
    caption = (
        f"Strategies over {count}. Larger areas, smaller penalties and smaller ranks are better."
    )
    return ReportTable("across", caption, data, shown)


def penalties_table(penalties: PenaltyMatrix) -> ReportTable:
    """Return the penalty matrix, with the column means in its last row."""
    names = penalties.strategies
    data: list[dict[str, Any]] = []
    shown = []

    for name, values in zip(names, penalties.matrix.tolist(), strict=True):
        wins_over = dict(zip(names, values, strict=True))
        data.append({"strategy": name, **wins_over})

        cells = {"strategy": name, **_format_row(wins_over)}
        cells[name] = ""  # no strategy plays against itself
        shown.append(cells)

    data.append({"strategy": "mean", **penalties.beaten})
    shown.append({"strategy": "mean", **_format_row(penalties.beaten)})

    caption = "How often the strategy in each row beats that in each column, summed over datasets."
    return ReportTable("penalties", caption, data, shown)


def _format_row(values: Mapping[str, float]) -> dict[str, str]:
    return {name: format_number(value) for name, value in values.items()}


def gains_table(comparisons: Sequence[RunComparison]) -> ReportTable:
    """Return the gains over Random by strategy and run; the data also has the paper's."""
    names = dict.fromkeys(name for comparison in comparisons for name in comparison.gains)
    data = []
    shown = []

    # LDM-S first, the others in the order of the runs.
    for name in sorted(names, key=lambda name: name != HIGHLIGHTED):
        row: dict[str, Any] = {"strategy": name}
        cells = {"strategy": name}

        for comparison in comparisons:
            gain = comparison.gains.get(name)
            paper = comparison.paper_deltas.get(name)

            row[comparison.name] = None
            if gain is not None:
                row[comparison.name] = gain.mean
            if paper is not None:
                row[f"{comparison.name} paper"] = paper.mean
                row[f"{comparison.name} difference"] = None
            if gain is not None and paper is not None:
                row[f"{comparison.name} difference"] = gain.mean - paper.mean

            cell = _gain_cell(gain, comparison.repetitions)
            if gain is not None and gain.significant:  # never for a single repetition: p is 1
                cell += "*"
            cells[comparison.name] = cell

        data.append(row)
        shown.append(cells)

    caption = f"Gains over {BASELINE} in points of accuracy; * where p < 0.05 in a paired t-test."
    return ReportTable("gains", caption, data, shown)
