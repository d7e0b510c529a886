"""The sections of a report: each one figure or table, with the words that it needs, and its files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teeter.analysis.bars import plot_labels, plot_penalties, plot_runtime
from teeter.analysis.cross_dataset import penalty_matrix, performance_profile
from teeter.analysis.plot_style import save_figure
from teeter.analysis.plots import plot_curves, plot_gains, plot_profile
from teeter.analysis.report.cross_dataset_tables import across_table, gains_table, penalties_table
from teeter.analysis.report.page import chart, section, table
from teeter.analysis.report.tables import (
    accuracy_table,
    beside_paper_table,
    deltas_table,
    labels_table,
    runtime_table,
)
from teeter.analysis.run_comparison import BASELINE, Array, RunComparison
from teeter.analysis.table_formats import ReportTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ReportWriter", "common_strategies", "sections_across", "sections_of"]


class ReportWriter:
    """Where figures and tables are written on their way into the page."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.files: list[Path] = []
        self.tables: dict[str, list[dict[str, Any]]] = {}

    def folder(self, name: str) -> Path:
        """Return a folder inside the report's, made if it is not there."""
        path = self.out / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def draw(self, figure: Figure, name: str, alt: str) -> str:
        """Write a figure's files and return it for the page."""
        svg, png = save_figure(figure, self.folder("figures") / name)
        self.files += [svg, png]
        return chart(png.read_bytes(), alt, inches=figure.get_figwidth())

    def lay(self, made: ReportTable, prefix: str = "") -> str:
        """Write a table's files and return it for the page; nothing for a table without rows."""
        if not made.shown:
            return ""
        name = prefix + made.name
        self.files += made.write(self.folder("tables") / name)
        self.tables[name] = [
            {key: _or_none(value) for key, value in row.items()} for row in made.data
        ]
        return table(made.shown)


def _or_none(value: Any) -> Any:
    """Return a value that JSON has."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def common_strategies(
    compared: Sequence[RunComparison],
) -> tuple[list[dict[str, Array]], list[str]]:
    """Return the accuracies of the strategies that all comparable runs have, and the names of the others."""
    able = [one for one in compared if one.comparable]
    names = (
        [name for name in able[0].accuracy if all(name in one.accuracy for one in able)]
        if able
        else []
    )
    others = dict.fromkeys(name for one in able for name in one.accuracy if name not in names)
    return [{name: one.accuracy[name] for name in names} for one in able] if names else [], list(
        others
    )


def sections_of(one: RunComparison, desk: ReportWriter, prefix: str) -> list[str]:
    """Return the sections on one run; their files and titles are told apart by ``prefix``."""
    if not one.comparable:
        return []
    head = f"{one.name}: " if prefix else ""
    return [
        _curves(one, desk, prefix, head),
        section(f"{head}Gains", _about_gains(one), desk.lay(deltas_table(one), prefix)),
        *_accuracies(one, desk, prefix, head),
        *_labels(one, desk, prefix, head),
        _runtime(one, desk, prefix, head),
    ]


def _curves(one: RunComparison, desk: ReportWriter, prefix: str, head: str) -> str:
    figure = plot_curves(one.labelled, one.accuracy)
    drawn = [desk.draw(figure, f"{prefix}curves", f"Learning curves on {one.name}")]
    if one.gains:
        others = {name: runs for name, runs in one.accuracy.items() if name != BASELINE}
        figure = plot_gains(one.labelled, others, one.accuracy[BASELINE])
        drawn.append(
            desk.draw(figure, f"{prefix}gains", f"Gain over Random at each round on {one.name}")
        )
    text = (
        "One repetition."
        if one.repetitions == 1
        else f"The mean of {one.repetitions} repetitions, with a band of one standard deviation."
    )
    common = " All strategies begin with the same labels; the first round is theirs in common."
    return section(f"{head}Accuracy against labels", text + common, *drawn)


def _labels(one: RunComparison, desk: ReportWriter, prefix: str, head: str) -> list[str]:
    if not one.savings:
        return []
    drawn = desk.draw(plot_labels(one.savings), f"{prefix}labels", f"Labels needed on {one.name}")
    return [
        section(f"{head}Labels needed", _ABOUT_LABELS, drawn, desk.lay(labels_table(one), prefix))
    ]


def _runtime(one: RunComparison, desk: ReportWriter, prefix: str, head: str) -> str:
    unit, count = one.unit
    times = {
        name: {kind: count * float(m.mean()) for kind, m in kinds.items()}
        for name, kinds in one.minutes.items()
    }
    drawn = desk.draw(plot_runtime(times, unit), f"{prefix}runtime", f"Time of a run on {one.name}")
    about = f"{unit.capitalize()} of one repetition from the first round to the last, summed over rounds."
    if one.paper_minutes:
        about += " The paper's minutes were taken on other machines, and are to be held against each other."
    return section(f"{head}Runtime", about, drawn, desk.lay(runtime_table(one), prefix))


_ABOUT_LABELS = (
    "How many labels a strategy needs to be as accurate as Random at its end, read off its mean curve. A dot is one "
    "repetition, measured against Random in that repetition; a curve that wavers crosses a line early, and so does "
    "Random's, which is why the saving by repetition can be smaller."
)


def _about_gains(one: RunComparison) -> str:
    text = "The mean over the rounds after the first, in points of accuracy."
    if one.repetitions > 1:
        text += (
            f" ± is the standard deviation over {one.repetitions} repetitions, and p comes from a two-sided t-test "
            "paired over them, not corrected for how many tests there are; n.s. is not significant, p of 0.05 or more."
        )
    if one.paper and one.gains:
        text += " The difference is ours minus the paper's."
    return text


def _accuracies(one: RunComparison, desk: ReportWriter, prefix: str, head: str) -> list[str]:
    text = "Test accuracy in percent by number of labels; the CSV file beside the page has every round."
    parts = [section(f"{head}Accuracy", text, desk.lay(accuracy_table(one), prefix))]
    beside = beside_paper_table(one)
    if beside is not None:
        text = "The paper's test accuracy in percent, and in brackets ours minus it."
        parts.append(section(f"{head}Accuracy beside the paper's", text, desk.lay(beside, prefix)))
    return parts


def sections_across(compared: Sequence[RunComparison], desk: ReportWriter) -> list[str]:
    """Return the sections that take all runs together; they make sense for one run, too."""
    datasets, _ = common_strategies(compared)
    if not datasets or len(datasets[0]) < 2:
        return []
    able = [one for one in compared if one.comparable]
    tested = all(one.repetitions > 1 for one in able)
    profile = plot_profile(performance_profile(datasets))
    parts = [
        desk.lay(across_table(datasets, tested=tested)),
        desk.draw(profile, "profile", "Performance profiles"),
    ]
    if tested:
        penalties = penalty_matrix(datasets)
        desk.lay(penalties_table(penalties))
        parts.append(desk.draw(plot_penalties(penalties), "penalties", "Penalty matrix"))
    title = "Who is close to the best, and who beats whom" if len(compared) == 1 else "Across runs"
    whole = section(title, _ABOUT_ACROSS + ("" if tested else _UNTESTED), *parts)
    gains = gains_table(able)
    if len(able) == 1 or not gains.shown:
        return [whole]
    return [section("Gains in every run", gains.caption, desk.lay(gains)), whole]


_ABOUT_ACROSS = (
    "The performance profile says in how many cases (a repetition and a round) a strategy is within delta points of "
    "the best; its area from 0 to 10 points is 10 for one that always is the best. The penalty matrix says in what "
    "share of rounds one strategy beats another significantly, summed over datasets; the last row is how often a "
    "strategy is beaten, on average."
)
_UNTESTED = " With one repetition there is no test, and so there are no penalties."
