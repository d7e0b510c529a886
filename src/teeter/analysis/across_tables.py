"""The tables that take several runs together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from teeter.analysis.across import Penalties, mean_ranks, penalty_matrix, performance_profile
from teeter.analysis.compared import BASELINE, Array, Compared
from teeter.analysis.comparison import Gain
from teeter.analysis.drawing import FIRST
from teeter.analysis.report_tables import with_spread
from teeter.analysis.tables import MISSING, Table, number

__all__ = ["across_table", "gains_table", "penalties_table"]


def across_table(datasets: Sequence[Mapping[str, Array]], *, tested: bool) -> Table:
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
                "profile area (of 10)": number(profiles[name].area()),
                "best or equal": number(profiles[name].at(0), ".0%"),
                "beaten (mean penalty)": number(beaten[name]) if tested else MISSING,
                "mean rank": number(ranks[name]),
            }
        )
    count = "one dataset" if len(datasets) == 1 else f"{len(datasets)} datasets"
    return Table(
        "across", f"Strategies over {count}: large areas, small penalties and small ranks are good.", data, shown
    )


def penalties_table(penalties: Penalties) -> Table:
    """Return the penalty matrix, with the column means in its last row."""
    rows = [*zip(penalties.strategies, penalties.matrix.tolist(), strict=True)]
    rows.append(("mean", penalties.column_means.tolist()))
    data = [{"strategy": name, **dict(zip(penalties.strategies, row, strict=True))} for name, row in rows]
    shown = [{k: v if isinstance(v, str) else number(v) for k, v in row.items()} for row in data]
    for name, row in zip(penalties.strategies, shown, strict=False):
        row[name] = ""
    return Table(
        "penalties", "How often the strategy of a row beats that of a column, summed over datasets.", data, shown
    )


def gains_table(runs: Sequence[Compared]) -> Table:
    """Return the gains over Random by strategy and run; the data has the paper's and the differences, too."""
    names = sorted(dict.fromkeys(name for one in runs for name in one.gains), key=lambda name: name != FIRST)
    data: list[dict[str, Any]] = []
    shown = []
    for name in names:
        data.append({"strategy": name})
        for one in runs:
            gain, paper = one.gains.get(name), one.paper.get(name)
            data[-1][one.name] = None if gain is None else gain.mean
            if paper is not None:
                data[-1][f"{one.name} paper"] = paper.mean
                data[-1][f"{one.name} difference"] = None if gain is None else gain.mean - paper.mean
        shown.append({"strategy": name, **{one.name: _gain_cell(one, one.gains.get(name)) for one in runs}})
    caption = f"Gains over {BASELINE} in points of accuracy; * where p < 0.05 in a paired t-test."
    return Table("gains", caption, data, shown)


def _gain_cell(one: Compared, gain: Gain | None) -> str:
    if gain is None:
        return MISSING
    star = "*" if one.repetitions > 1 and gain.significant else ""
    return with_spread(gain.mean, gain.deviation, one.repetitions, "+.2f") + star
