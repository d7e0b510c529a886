"""Figures of bars and cells: who beats whom, what a run costs, and how many labels it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from teeter.analysis.cross_dataset import PenaltyMatrix
from teeter.analysis.plot_style import HIGHLIGHTED, line_style, new_figure, style_axes
from teeter.analysis.statistics import LabelSaving
from teeter.analysis.table_formats import format_duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_labels", "plot_penalties", "plot_runtime"]

_KINDS = {
    "training": "#44546a",
    "validation": "#6d8764",
    "outputs": "#8ea9c1",
    "selection": "#e3a23c",
    "evaluation": "#cfcfcf",
}


def plot_penalties(penalties: PenaltyMatrix) -> Figure:
    """Return the penalty matrix with its numbers, the least beaten first, and the column means under it."""
    order = np.argsort(penalties.column_means, kind="stable")
    names, count = [penalties.strategies[k] for k in order], len(order)
    cells = np.vstack([penalties.matrix[np.ix_(order, order)], penalties.column_means[order]])
    figure = new_figure(2.6 + 0.62 * count, 2.0 + 0.5 * count)
    axes = figure.subplots()
    top = max(float(penalties.matrix.max()), 1e-9)
    shown = np.ma.masked_array(cells, mask=np.eye(count + 1, count, dtype=bool))
    axes.set_facecolor("#e9ecef")
    axes.imshow(shown, cmap="Blues", vmin=0, vmax=top, aspect="auto")
    for (row, column), value in np.ndenumerate(cells):
        if row == column:
            continue
        ink = "white" if value > 0.6 * top else "#1c2430"
        weight = "bold" if row == count else "normal"
        axes.text(
            column,
            row,
            f"{value:.2f}",
            ha="center",
            va="center",
            color=ink,
            fontsize=9,
            fontweight=weight,
        )
    axes.axhline(count - 0.5, color="white", linewidth=6)
    axes.set_xticks(range(count), names, rotation=45, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(count + 1), [*names, "mean"])
    axes.tick_params(length=0, top=False, bottom=False, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    for label in [*axes.get_xticklabels(), *axes.get_yticklabels()]:
        label.set_fontweight("bold" if label.get_text() == HIGHLIGHTED else "normal")
    axes.set_ylabel("this one beats …")
    axes.set_xlabel("… this one", labelpad=8)
    axes.xaxis.set_label_position("top")
    return figure


def plot_runtime(times: Mapping[str, Mapping[str, float]], unit: str = "minutes") -> Figure:
    """Return bars of the time of a run, by strategy and kind of work, the fastest first."""
    order = sorted(times, key=lambda name: sum(times[name].values()), reverse=True)
    figure = new_figure(8, 1.4 + 0.34 * len(order))
    axes = figure.subplots()
    starts = np.zeros(len(order))
    taken = {kind for parts in times.values() for kind, value in parts.items() if value > 0}
    kinds = [*(kind for kind in _KINDS if kind in taken), *sorted(taken - set(_KINDS))]
    for kind in kinds:
        widths = np.array([times[name].get(kind, 0.0) for name in order])
        axes.barh(
            order, widths, left=starts, color=_KINDS.get(kind, "#8073ac"), label=kind, height=0.7
        )
        starts += widths
    for place, whole in enumerate(starts):
        axes.text(whole, place, f" {format_duration(float(whole))}", va="center", fontsize=9)
    axes.set(xlabel=f"{unit} a run")
    axes.set_xlim(0, max(float(starts.max()), 1e-9) * 1.1)
    style_axes(axes, grid="x")
    _embolden(axes)
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside upper center",
        ncols=max(1, len(kinds)),
        frameon=False,
        fontsize=9,
    )
    return figure


def plot_labels(savings: Mapping[str, LabelSaving]) -> Figure:
    """Return bars of the labels each strategy needs to be as accurate as the baseline at its end.

    A dot is one repetition, the dashed line the baseline itself.
    """
    order = sorted(savings, key=lambda name: -(savings[name].labels or np.inf))
    dots = {
        name: [labels for labels, _ in savings[name].needed if labels is not None] for name in order
    }
    saving = savings[order[0]]
    far = max(saving.baseline, *(max(savings[name].labels or 0, *dots[name], 0) for name in order))
    figure = new_figure(8, 1.3 + 0.34 * len(order))
    axes = figure.subplots()
    for place, name in enumerate(order):
        labels, look = savings[name].labels, line_style(name)
        if labels is None:
            axes.text(0.01 * far, place, "not reached", va="center", fontsize=9, color="#5a6675")
            continue
        axes.barh(
            place, labels, color=look.colour, alpha=1 if name == HIGHLIGHTED else 0.55, height=0.7
        )
        axes.plot(
            dots[name], [place] * len(dots[name]), "o", color="#1c2430", markersize=2.6, zorder=4
        )
        axes.text(far * 1.03, place, f"{labels:,.0f}", va="center", fontsize=9)
    axes.axvline(saving.baseline, color=line_style("random").colour, linestyle="--", linewidth=1)
    axes.set_yticks(range(len(order)), order)
    axes.set(
        xlabel=f"labels needed for {saving.target:.1%}, random's accuracy at its end (dashed: random)"
    )
    axes.set(xlim=(0, far * 1.12), ylim=(-0.6, len(order) - 0.4))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    style_axes(axes, grid="x")
    _embolden(axes)
    return figure


def _embolden(axes: Axes) -> None:
    for label in axes.get_yticklabels():
        label.set_fontweight("bold" if label.get_text() == HIGHLIGHTED else "normal")
