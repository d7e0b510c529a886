"""Figures of lines and dots, from arrays: compute first, then draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from teeter.analysis.cross_dataset import PerformanceProfile
from teeter.analysis.plot_style import HIGHLIGHTED, line_style, new_figure, style_axes
from teeter.analysis.statistics import mean_and_std

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["pca_2d", "plot_curves", "plot_gains", "plot_picks", "plot_profile"]

Array = npt.NDArray[np.floating[Any]]


def pca_2d(features: Array) -> Array:
    """Return the two principal components: (N, D) -> (N, 2)."""
    centred = features - features.mean(axis=0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    answer: Array = (left * values)[:, :2]
    return answer


def plot_curves(labelled: Array, accuracy: Mapping[str, Array]) -> Figure:
    """Return learning curves: the mean over repetitions, and a band of one standard deviation.

    labelled (T,), accuracy by strategy (R, T); LDM-S is drawn boldest.
    """
    figure = _with_legend_of(len(accuracy))
    axes = figure.subplots()
    for place, name in enumerate(_best_first(accuracy)):
        _draw_line(axes, name, labelled, 100 * accuracy[name], place=place)
    axes.set(xlabel="labelled rows", ylabel="test accuracy (%)")
    _finish(axes, labelled)
    return figure


def plot_gains(labelled: Array, accuracy: Mapping[str, Array], baseline: Array) -> Figure:
    """Return the gain over a baseline at each round: the mean of paired differences, and one standard deviation.

    labelled (T,), accuracy by strategy (R, T), baseline (R, T). A strategy that falls far below the others leaves the
    picture, and the legend says so.
    """
    gains = {name: 100 * (runs - baseline) for name, runs in accuracy.items()}
    lowest = {name: float(runs.mean(axis=0).min()) for name, runs in gains.items()}
    top = max(1.0, *(float(runs.mean(axis=0).max()) for runs in gains.values()))
    floor = min((low for low in lowest.values() if low >= -2 * top), default=min(lowest.values()))
    figure = _with_legend_of(len(gains) + 1)
    axes = figure.subplots()
    axes.axhline(
        0, color=line_style("random").colour, linestyle="--", linewidth=1.5, label="random"
    )
    for place, name in enumerate(_best_first(gains)):
        label = f"{name} (falls to −{-lowest[name]:.0f})" if lowest[name] < floor else name
        _draw_line(axes, name, labelled, gains[name], place=place, label=label)
    axes.set(xlabel="labelled rows", ylabel="gain over random (points of accuracy)")
    spread = max(
        float(mean_and_std(runs)[1].max()) for name, runs in gains.items() if lowest[name] >= floor
    )
    if any(low < floor for low in lowest.values()):
        axes.set_ylim(floor - spread - 0.05 * (top - floor), top + spread + 0.05 * (top - floor))
    _finish(axes, labelled)
    return figure


def plot_profile(profiles: Mapping[str, PerformanceProfile], limit: float = 10.0) -> Figure:
    """Return the performance profiles, each a step function of delta; the legend has their areas."""
    figure = _with_legend_of(len(profiles) + 1)
    axes = figure.subplots()
    for name in sorted(profiles, key=lambda name: -profiles[name].area(limit)):
        profile, look = profiles[name], line_style(name)
        places = np.array([0.0, *profile.gaps[(profile.gaps > 0) & (profile.gaps < limit)], limit])
        heights = [100 * profile.at(place) for place in places]
        options = {**look.line, "markevery": 0.1}
        axes.plot(
            places,
            heights,
            drawstyle="steps-post",
            label=f"{name}  {profile.area(limit):.2f}",
            **options,
        )
    axes.set(
        xlabel="delta (points of accuracy below the best)",
        ylabel="cases within delta of the best (%)",
    )
    axes.set(xlim=(0, limit), ylim=(0, 102))
    style_axes(axes)
    axes.legend(
        frameon=False,
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
        title="area (of 10)",
        fontsize=9,
    )
    return figure


def _with_legend_of(lines: int) -> Figure:
    """Return an empty figure, high enough for the names of so many lines beside it."""
    return new_figure(8, max(4.8, 0.21 * lines))


def _best_first(curves: Mapping[str, Array]) -> list[str]:
    """Return the names in the order of the curves' last means, so that the legend reads as the curves end."""
    return sorted(curves, key=lambda name: -float(curves[name][:, -1].mean()))


def _draw_line(
    axes: Axes, name: str, labelled: Array, runs: Array, *, place: int, label: str | None = None
) -> None:
    mean, spread = mean_and_std(runs)
    look, every = line_style(name), max(1, len(labelled) // 8)
    axes.plot(labelled, mean, label=label or name, markevery=(place % every, every), **look.line)
    alpha = 0.2 if name == HIGHLIGHTED else 0.07
    axes.fill_between(
        labelled, mean - spread, mean + spread, color=look.colour, alpha=alpha, linewidth=0
    )


def _finish(axes: Axes, labelled: Array) -> None:
    if len(labelled) > 1:
        axes.set_xlim(float(labelled[0]), float(labelled[-1]))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    style_axes(axes)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=9)


def plot_picks(points: Array, ldm: Array, picks: npt.NDArray[np.int64], images: Array) -> Figure:
    """Return a map of the pool coloured by LDM, with the picks marked and shown as images beside it.

    points (N, 2), ldm (N,), picks (n,), images (n, height, width).
    """
    figure = new_figure(9.5, 4.8)
    halves: Any = figure.subfigures(1, 2, width_ratios=[3, 2])
    whole, side = halves
    axes = whole.subplots()
    order = np.argsort(-ldm)
    dots = axes.scatter(
        *points[order].T, c=np.log10(ldm[order]), s=12, cmap="viridis", linewidths=0
    )
    axes.scatter(
        *points[picks].T,
        s=70,
        facecolors="none",
        edgecolors="#c02020",
        linewidths=1.4,
        label="picked",
    )
    axes.set(xticks=[], yticks=[], title="The pool in the plane: dark rows flip easily")
    axes.legend(loc="upper right", frameon=False)
    whole.colorbar(dots, ax=axes, label="log10 of the LDM", shrink=0.8)
    columns = max(1, int(np.ceil(np.sqrt(len(images)))))
    grid = side.subplots(-(-len(images) // columns), columns, squeeze=False)
    for rank, cell in enumerate(grid.flat, start=1):
        cell.axis("off")
        if rank <= len(images):
            cell.imshow(images[rank - 1], cmap="gray_r")
            cell.set_title(str(rank), fontsize=7, pad=1)
    side.suptitle("The picks, best first", fontsize=11)
    return figure
