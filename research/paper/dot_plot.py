"""A figure with a row for each strategy and a dot for each dataset: for leads and times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from teeter.bench.analysis.plots import new_figure, style_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["describe_clipped", "plot_dots"]

MARKERS = "osD^vP*X<>"
"""A marker for each dataset: colours alone are hard to tell apart."""
LOG_TICKS = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)


def plot_dots(
    values: Mapping[str, Mapping[str, float]],
    *,
    label: str,
    reference: float,
    log: bool = False,
    maximum: float | None = None,
) -> Figure:
    """Return a figure of values by dataset and strategy.

    Args:
        values: the values by dataset and strategy.
        label: the label of the horizontal axis.
        reference: where to draw a vertical line.
        log: whether the horizontal axis is logarithmic.
        maximum: where a linear axis ends; dots beyond it are not shown.
    """
    strategies = sorted({name for row in values.values() for name in row}, reverse=True)
    all_values = [value for row in values.values() for value in row.values()]

    # The height grows with the number of strategies, so that rows stay equally far apart.
    figure = new_figure(8, 1.6 + 0.34 * len(strategies))
    axes = figure.subplots()

    for dataset, marker in zip(values, MARKERS, strict=False):
        # Not every strategy was run on every dataset.
        x = []
        y = []
        for height, strategy in enumerate(strategies):
            if strategy in values[dataset]:
                x.append(values[dataset][strategy])
                y.append(height)
        axes.plot(x, y, marker, label=dataset, markersize=6, alpha=0.8)

    axes.axvline(reference, color="#555555", linewidth=1)
    axes.set_yticks(range(len(strategies)), strategies)
    axes.set_ylim(-0.5, len(strategies) - 0.5)

    if log:
        # By default, only powers of ten would have labels.
        ticks = [tick for tick in LOG_TICKS if 0.7 * min(all_values) <= tick]
        axes.set_xscale("log")
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlim(0.8 * min(reference, *all_values), 1.3 * max(all_values))
    elif maximum is not None:
        # A few large values must not squeeze the others.
        axes.set_xlim(1.15 * min(reference - 1, *all_values), maximum)

    axes.set_xlabel(label)
    style_axes(axes)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)
    return figure


def describe_clipped(values: Mapping[str, Mapping[str, float]], maximum: float) -> list[str]:
    """Return a phrase on each value above ``maximum``: "coreset on mnist +12.3"."""
    phrases = []
    for dataset, row in values.items():
        for strategy, value in row.items():
            if value > maximum:
                phrases.append(f"{strategy} on {dataset} {value:+.1f}")
    return phrases
