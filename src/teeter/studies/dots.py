"""One dot for each dataset on a line for each strategy: what leads and times are drawn as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from teeter.analysis.plot_style import new_figure, style_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["cut_off", "plot_dots"]

MARKERS = "osD^vP*X<>"


def plot_dots(
    values: Mapping[str, Mapping[str, float]],
    *,
    label: str,
    mark: float,
    log: bool = False,
    most: float | None = None,
) -> Figure:
    """Return a figure of values by dataset and strategy, with a line at ``mark``; what is above ``most`` is cut off."""
    names = sorted({name for of_it in values.values() for name in of_it}, reverse=True)
    figure = new_figure(8, 1.6 + 0.34 * len(names))
    axes = figure.subplots()
    for dataset, marker in zip(values, MARKERS, strict=False):
        there = [
            (values[dataset][name], place)
            for place, name in enumerate(names)
            if name in values[dataset]
        ]
        axes.plot(*zip(*there, strict=True), marker, label=dataset, markersize=6, alpha=0.8)
    axes.axvline(mark, color="#555555", linewidth=1)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(-0.5, len(names) - 0.5)
    every = [value for of_it in values.values() for value in of_it.values()]
    if log:
        ticks = [
            tick for tick in (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500) if 0.7 * min(every) <= tick
        ]
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlim(0.8 * min(mark, *every), 1.3 * max(every))
    elif most is not None:
        axes.set_xlim(1.15 * min(mark - 1, *every), most)
    axes.set_xlabel(label)
    style_axes(axes)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)
    return figure


def cut_off(values: Mapping[str, Mapping[str, float]], most: float) -> Sequence[str]:
    """Return what lies above ``most``, each as it stands in a sentence."""
    return [
        f"{name} on {dataset} {value:+.1f}"
        for dataset, of_it in values.items()
        for name, value in of_it.items()
        if value > most
    ]
