"""The tables that take several runs together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from teeter.analysis.cross_dataset import (
    PenaltyMatrix,
    mean_ranks,
    penalty_matrix,
    performance_profile,
)
from teeter.analysis.plot_style import HIGHLIGHTED
from teeter.analysis.report.tables import with_spread
from teeter.analysis.run_comparison import BASELINE, Array, RunComparison
from teeter.analysis.statistics import Gain
from teeter.analysis.table_formats import MISSING, ReportTable, format_number

__all__ = ["across_table", "gains_table", "penalties_table"]


def across_table(datasets: Sequence[Mapping[str, Array]], *, tested: bool) -> ReportTable:
    """Return the profile's area, how often a strategy is the best, how often it is beaten, and its mean rank."""
    profiles, ranks = performance_profile(datasets), mean_ranks(datasets)
    penalties = penalty_matrix(datasets)
    beaten = dict(zip(penalties.strategies, penalties.column_means.tolist(), strict=True))
    data, shown = [], []
    for name in sorted(profiles, key=lambda name: -profiles[name].area()):
        data.append(
            {
                "strategy": name,
                "profile_area": profiles[name].area(),
                "share_best": profiles[name].at(0),
                "beaten": beaten[name] if tested else None,
                "mean_rank": ranks[name],
            }
        )
        shown.append(
            {
                "strategy": name,
                "profile area (of 10)": format_number(profiles[name].area()),
                "best or equal": format_number(profiles[name].at(0), ".0%"),
                "beaten (mean penalty)": format_number(beaten[name]) if tested else MISSING,
                "mean rank": format_number(ranks[name]),
            }
        )
    count = "one dataset" if len(datasets) == 1 else f"{len(datasets)} datasets"
    return ReportTable(
        "across",
        f"Strategies over {count}: large areas, small penalties and small ranks are good.",
        data,
        shown,
    )


def penalties_table(penalties: PenaltyMatrix) -> ReportTable:
    """Return the penalty matrix, with the column means in its last row."""
    rows = [*zip(penalties.strategies, penalties.matrix.tolist(), strict=True)]
    rows.append(("mean", penalties.column_means.tolist()))
    data = [
        {"strategy": name, **dict(zip(penalties.strategies, row, strict=True))}
        for name, row in rows
    ]
    shown = [
        {k: v if isinstance(v, str) else format_number(v) for k, v in row.items()} for row in data
    ]
    for name, row in zip(penalties.strategies, shown, strict=False):
        row[name] = ""
    return ReportTable(
        "penalties",
        "How often the strategy of a row beats that of a column, summed over datasets.",
        data,
        shown,
    )


def gains_table(runs: Sequence[RunComparison]) -> ReportTable:
    """Return the gains over Random by strategy and run; the data has the paper's and the differences, too."""
    names = sorted(
        dict.fromkeys(name for one in runs for name in one.gains),
        key=lambda name: name != HIGHLIGHTED,
    )
    data: list[dict[str, Any]] = []
    shown = []
    for name in names:
        data.append({"strategy": name})
        for one in runs:
            gain, paper = one.gains.get(name), one.paper.get(name)
            data[-1][one.name] = None if gain is None else gain.mean
            if paper is not None:
                data[-1][f"{one.name} paper"] = paper.mean
                data[-1][f"{one.name} difference"] = (
                    None if gain is None else gain.mean - paper.mean
                )
        shown.append(
            {"strategy": name, **{one.name: _gain_cell(one, one.gains.get(name)) for one in runs}}
        )
    caption = f"Gains over {BASELINE} in points of accuracy; * where p < 0.05 in a paired t-test."
    return ReportTable("gains", caption, data, shown)


def _gain_cell(one: RunComparison, gain: Gain | None) -> str:
    if gain is None:
        return MISSING
    star = "*" if one.repetitions > 1 and gain.significant else ""
    return with_spread(gain.mean, gain.deviation, one.repetitions, "+.2f") + star
