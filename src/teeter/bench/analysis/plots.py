"""Figures of a report, from arrays: learning curves, gains, profiles, penalties, costs and picks.

All have one style: a colour and a marker per strategy, clean axes, SVG and PNG files.

Nothing here reads a run or computes a statistic beyond a mean and its spread: compute first, then
draw. Matplotlib is imported when the first figure is made.
"""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from teeter.bench.analysis.statistics import (
    FloatArray,
    LabelSaving,
    PenaltyMatrix,
    PerformanceProfile,
    mean_and_std,
)
from teeter.bench.analysis.table_formats import format_duration
from teeter.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

__all__ = [
    "HIGHLIGHTED",
    "figure_png",
    "line_style",
    "new_figure",
    "pca_2d",
    "plot_curves",
    "plot_gains",
    "plot_labels",
    "plot_penalties",
    "plot_picks",
    "plot_profile",
    "plot_runtime",
    "save_figure",
    "style_axes",
]


HIGHLIGHTED = "ldm-s"
"""The strategy that figures draw boldest and on top of the others."""

# Colours that readers with colour vision deficiency can tell apart [Okabe and Ito 2008; Tol 2021].
# There are more strategies than such colours. Some share one, as do margin, seeding-cosine and
# margin-s, or coreset and ldm-fass: their markers differ.
_STYLES = {
    "ldm-s": ("#d55e00", "o"),
    "random": ("#555555", "x"),
    "entropy": ("#56b4e9", "v"),
    "margin": ("#0072b2", "^"),
    "coreset": ("#009e73", "s"),
    "probcover": ("#e69f00", "D"),
    "dbal": ("#cc79a7", "P"),
    "ensemble": ("#882255", "p"),
    "badge": ("#332288", "*"),
    "bait": ("#999933", "X"),
    "ldm": ("#a3320b", "h"),
    "batchbald": ("#aa4499", "<"),
    "cluster-margin": ("#117733", ">"),
    "fass": ("#44aa99", "d"),
    "typiclust": ("#ddaa33", "H"),
    "least-confidence": ("#88ccee", "1"),
    "seeding-cosine": ("#0072b2", "s"),
    "seeding-l2": ("#aa4499", "D"),
    "ldm-fass": ("#009e73", "d"),
    "ldm-cluster-margin": ("#332288", ">"),
    "entropy-s": ("#56b4e9", "1"),
    "margin-s": ("#0072b2", "2"),
    "ldm-s-laplace": ("#882255", "P"),
    "maxherding": ("#88ccee", "^"),
    "uherding": ("#e69f00", "v"),
    "herding-ldm-s": ("#d55e00", "s"),
    "alfa-mix": ("#44aa99", "o"),
    "dropquery": ("#cc79a7", "D"),
    "galaxy": ("#999933", "*"),
    "mmc": ("#332288", "p"),
    "cvirs": ("#117733", "h"),
    "rare-labels": ("#aa4499", "P"),
}
_PLUGIN_COLOURS = ("#661100", "#6699cc", "#888888", "#117733", "#aa4466", "#4477aa")
_PLUGIN_MARKERS = "2348+"


def line_style(strategy: str) -> dict[str, Any]:
    """Return how a strategy is drawn, as keyword arguments for ``Axes.plot``.

    It depends on the name alone, so that a strategy looks the same in every figure, whatever else
    is drawn. Strategies of plugins get a colour and a marker from a hash of their name.
    """
    if strategy in _STYLES:
        colour, marker = _STYLES[strategy]
        linestyle = "-"
        if strategy == "random":
            linestyle = "--"
    else:
        # Not hash(), which differs from process to process.
        name_hash = zlib.crc32(strategy.encode())
        colour = _PLUGIN_COLOURS[name_hash % len(_PLUGIN_COLOURS)]
        marker = _PLUGIN_MARKERS[name_hash % len(_PLUGIN_MARKERS)]
        linestyle = "-."

    width = 1.5
    layer = 3
    if strategy == HIGHLIGHTED:
        width = 3.0
        layer = 5  # on top of the others
    return {
        "color": colour,
        "marker": marker,
        "linestyle": linestyle,
        "linewidth": width,
        "zorder": layer,
        "markersize": 3 + 1.2 * width,
        "markeredgewidth": 1.0,
    }


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure.

    Args:
        width: in inches.
        height: in inches.

    Raises:
        MissingExtraError: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("Drawing needs matplotlib: pip install 'teeter[bench]'.") from None

    return Figure(figsize=(width, height), layout="constrained")


def style_axes(axes: Axes, *, grid: str = "both") -> None:
    """Draw a faint grid and remove the top and right borders.

    Args:
        axes: the axes to change.
        grid: direction of the grid: "x", "y" or "both".
    """
    axes.grid(axis=grid, alpha=0.25)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def save_figure(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Write a figure as SVG and PNG.

    The same figure gives the same bytes each time, so that reports can be compared and committed.

    Args:
        figure: the figure to write.
        stem: path of the files without an extension; ``.svg`` and ``.png`` are added.

    Returns:
        The paths of the two files.
    """
    from matplotlib import rc_context

    svg = stem.with_name(f"{stem.name}.svg")
    png = stem.with_name(f"{stem.name}.png")

    # By default, ids in an SVG are random and its metadata has the date.
    with rc_context({"svg.hashsalt": "teeter"}):
        figure.savefig(svg, metadata={"Date": None})

    png.write_bytes(figure_png(figure))
    return svg, png


def figure_png(figure: Figure) -> bytes:
    """Return a figure as a PNG of 256 colours, a third of the size of one in full colour."""
    from PIL import Image

    full_colour = io.BytesIO()
    figure.savefig(full_colour, format="png", dpi=120)

    # Without dithering, which would turn flat areas into noise that does not compress.
    image = Image.open(full_colour).convert("RGB")
    reduced = image.quantize(256, dither=Image.Dither.NONE)

    png = io.BytesIO()
    reduced.save(png, format="png", optimize=True)
    return png.getvalue()


_PHASE_COLOURS = {
    "training": "#44546a",
    "validation": "#6d8764",
    "outputs": "#8ea9c1",
    "selection": "#e3a23c",
    "evaluation": "#cfcfcf",
}
_OTHER_PHASE_COLOUR = "#8073ac"

_INK = "#1c2430"
_PALE_INK = "#5a6675"
_PICK_COLOUR = "#c02020"


def pca_2d(features: FloatArray) -> FloatArray:
    """Project rows onto their first two principal components: (N, D) -> (N, 2)."""
    centred = features - features.mean(axis=0)
    # The coordinates along the components are U S; the components themselves are not needed.
    left, singular_values, _ = np.linalg.svd(centred, full_matrices=False)
    coordinates = left * singular_values
    return np.asarray(coordinates[:, :2])


def plot_curves(labelled: FloatArray, accuracy: Mapping[str, FloatArray]) -> Figure:
    """Draw learning curves: the mean over repetitions, with a band of one standard deviation.

    Args:
        labelled: labels at each round, shape (T,).
        accuracy: accuracies by strategy, each of shape (R, T).
    """
    figure = _figure_with_legend(len(accuracy))
    axes = figure.subplots()

    for position, name in enumerate(_by_final_mean(accuracy)):
        percent = 100 * accuracy[name]
        _draw_curve(axes, name, labelled, percent, position=position)

    axes.set(xlabel="labelled rows", ylabel="test accuracy (%)")
    _finish_curves(axes, labelled)
    return figure


def plot_gains(
    labelled: FloatArray, accuracy: Mapping[str, FloatArray], baseline: FloatArray
) -> Figure:
    """Draw the gain over a baseline at each round, with a band of one standard deviation.

    A strategy that falls far below the others is cut off at the bottom, so that it does not flatten
    them. The legend then says how far it falls.

    Args:
        labelled: labels at each round, shape (T,).
        accuracy: accuracies by strategy, each of shape (R, T).
        baseline: accuracies of the baseline in the same repetitions, shape (R, T).
    """
    gains = {}
    lowest = {}
    top = 1.0
    for name, runs in accuracy.items():
        gains[name] = 100 * (runs - baseline)
        mean_gain = gains[name].mean(axis=0)
        lowest[name] = float(mean_gain.min())
        top = max(top, float(mean_gain.max()))

    # A strategy stays in the picture if it falls at most twice as far as the best one rises.
    deepest = -2 * top
    visible = [low for low in lowest.values() if low >= deepest]
    bottom = min(visible, default=min(lowest.values()))

    figure = _figure_with_legend(len(gains) + 1)
    axes = figure.subplots()
    axes.axhline(
        0,
        color=line_style("random")["color"],
        linestyle="--",
        linewidth=1.5,
        label="random",
    )

    for position, name in enumerate(_by_final_mean(gains)):
        label = name
        if lowest[name] < bottom:
            fall = -lowest[name]
            label = f"{name} (falls to −{fall:.0f})"
        _draw_curve(axes, name, labelled, gains[name], position=position, label=label)

    axes.set(xlabel="labelled rows", ylabel="gain over random (points of accuracy)")

    # Only if a curve leaves the picture; otherwise matplotlib finds the better limits.
    if any(low < bottom for low in lowest.values()):
        widest_band = 0.0
        for name, runs in gains.items():
            if lowest[name] >= bottom:
                _, deviation = mean_and_std(runs)
                widest_band = max(widest_band, float(deviation.max()))

        margin = widest_band + 0.05 * (top - bottom)
        axes.set_ylim(bottom - margin, top + margin)

    _finish_curves(axes, labelled)
    return figure


def plot_profile(profiles: Mapping[str, PerformanceProfile], limit: float = 10.0) -> Figure:
    """Draw performance profiles as step functions; the legend has the area under each.

    Args:
        profiles: profiles by strategy.
        limit: largest delta drawn, in percentage points.
    """
    figure = _figure_with_legend(len(profiles) + 1)
    axes = figure.subplots()

    areas = {name: profile.area(limit) for name, profile in profiles.items()}
    for name in sorted(profiles, key=lambda name: -areas[name]):
        profile = profiles[name]

        # Starting at delta = 0 and ending at the limit draws the line across the whole axes.
        is_inside = (profile.gaps > 0) & (profile.gaps < limit)
        gaps = profile.gaps[is_inside]
        deltas = np.array([0.0, *gaps, limit])
        heights = [100 * profile.at(delta) for delta in deltas]

        # Steps are dense, so that markers stand at a tenth of the line's length instead of each.
        options = {**line_style(name), "markevery": 0.1}
        label = f"{name}  {areas[name]:.2f}"
        axes.plot(deltas, heights, drawstyle="steps-post", label=label, **options)

    axes.set(
        xlabel="delta (points of accuracy below the best)",
        ylabel="cases within delta of the best (%)",
        xlim=(0, limit),
        ylim=(0, 102),
    )
    style_axes(axes)
    _place_legend(axes, title=f"area (of {limit:.0f})")
    return figure


def plot_penalties(penalties: PenaltyMatrix) -> Figure:
    """Draw the penalty matrix with its numbers, the least beaten strategy first.

    The last row has the column means: how often each strategy is beaten.
    """
    order = np.argsort(penalties.column_means, kind="stable")
    names = [penalties.strategies[index] for index in order]
    count = len(names)
    matrix = penalties.matrix[np.ix_(order, order)]
    cells = np.vstack([matrix, penalties.column_means[order]])  # (A + 1, A)

    # Not 0, because colours divide by it: nothing may beat anything.
    largest = max(float(penalties.matrix.max()), 1e-9)

    width = 2.6 + 0.62 * count
    height = 2.0 + 0.5 * count
    figure = new_figure(width, height)
    axes = figure.subplots()

    # No strategy plays against itself: the diagonal shows the grey background.
    axes.set_facecolor("#e9ecef")
    is_diagonal = np.eye(count + 1, count, dtype=bool)
    without_diagonal = np.ma.masked_array(cells, mask=is_diagonal)
    axes.imshow(without_diagonal, cmap="Blues", vmin=0, vmax=largest, aspect="auto")

    for (row, column), value in np.ndenumerate(cells):
        if row == column:
            continue

        colour = _INK
        if value > 0.6 * largest:
            colour = "white"  # dark blue hides dark ink
        weight = "normal"
        if row == count:
            weight = "bold"  # a mean
        axes.text(
            column,
            row,
            f"{value:.2f}",
            ha="center",
            va="center",
            color=colour,
            fontsize=9,
            fontweight=weight,
        )

    # A white gap sets the row of means apart.
    axes.axhline(count - 0.5, color="white", linewidth=6)

    # Names above the matrix, where long ones can slant away from it.
    axes.set_xticks(range(count), names, rotation=45, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(count + 1), [*names, "mean"])
    axes.tick_params(length=0, top=False, bottom=False, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    _highlight([*axes.get_xticklabels(), *axes.get_yticklabels()])

    axes.set_ylabel("this one beats …")
    axes.set_xlabel("… this one", labelpad=8)
    axes.xaxis.set_label_position("top")
    return figure


def plot_runtime(times: Mapping[str, Mapping[str, float]], unit: str = "minutes") -> Figure:
    """Draw stacked bars of the time of a run, the fastest strategy on top.

    Args:
        times: time by strategy and phase, such as "training" and "selection".
        unit: unit of the times, for the axis.
    """
    # Bars are drawn from the bottom up.
    totals = {name: sum(phases.values()) for name, phases in times.items()}
    order = sorted(times, key=totals.__getitem__, reverse=True)

    used = set()
    for time_by_phase in times.values():
        for phase, time in time_by_phase.items():
            if time > 0:
                used.add(phase)

    # Phases that a plugin adds come last, by name.
    phases = [phase for phase in _PHASE_COLOURS if phase in used]
    phases += sorted(used - set(_PHASE_COLOURS))

    height = 1.4 + 0.34 * len(order)
    figure = new_figure(8, height)
    axes = figure.subplots()
    ends = np.zeros(len(order))

    for phase in phases:
        lengths = [times[name].get(phase, 0.0) for name in order]
        widths = np.array(lengths)
        colour = _PHASE_COLOURS.get(phase, _OTHER_PHASE_COLOUR)
        axes.barh(order, widths, left=ends, color=colour, label=phase, height=0.7)
        ends += widths

    for position, total in enumerate(ends):
        # The space keeps the text off the end of the bar.
        text = f" {format_duration(float(total))}"
        axes.text(total, position, text, va="center", fontsize=9)

    # Room for the texts on the right. Not 0, since limits must differ.
    longest = max(float(ends.max()), 1e-9)
    axes.set(xlabel=f"{unit} per run", xlim=(0, longest * 1.1))
    style_axes(axes, grid="x")
    _highlight(axes.get_yticklabels())
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="outside upper center",
        ncols=max(1, len(phases)),
        frameon=False,
        fontsize=9,
    )
    return figure


def plot_labels(savings: Mapping[str, LabelSaving]) -> Figure:
    """Draw bars of the labels each strategy needs to reach the baseline's final accuracy.

    A dot is one repetition. The dashed line is the baseline itself.

    Args:
        savings: savings by strategy, all over the same baseline.
    """

    # Bars are drawn from the bottom up: the strategy that needs the fewest labels ends on top.
    def labels_needed(name: str) -> float:
        return savings[name].labels or math.inf

    order = sorted(savings, key=labels_needed, reverse=True)

    # The baseline and its target are the same in all savings.
    baseline = savings[order[0]]

    dots = {}
    rightmost = baseline.baseline
    for name in order:
        needed = savings[name].needed_by_repetition
        dots[name] = [labels for labels, _ in needed if labels is not None]
        mean_labels = savings[name].labels or 0
        rightmost = max(rightmost, mean_labels, *dots[name])

    height = 1.3 + 0.34 * len(order)
    figure = new_figure(8, height)
    axes = figure.subplots()

    for position, name in enumerate(order):
        labels = savings[name].labels
        if labels is None:
            axes.text(
                0.01 * rightmost,
                position,
                "not reached",
                va="center",
                fontsize=9,
                color=_PALE_INK,
            )
            continue

        axes.barh(
            position,
            labels,
            color=line_style(name)["color"],
            alpha=1 if name == HIGHLIGHTED else 0.55,
            height=0.7,
        )
        heights = [position] * len(dots[name])
        axes.plot(dots[name], heights, "o", color=_INK, markersize=2.6, zorder=4)
        axes.text(rightmost * 1.03, position, f"{labels:,.0f}", va="center", fontsize=9)

    axes.axvline(
        baseline.baseline,
        color=line_style("random")["color"],
        linestyle="--",
        linewidth=1,
    )
    axes.set_yticks(range(len(order)), order)
    axes.set(
        xlabel=f"labels needed for {baseline.target:.1%}, random's final accuracy (dashed: random)",
        xlim=(0, rightmost * 1.12),
        ylim=(-0.6, len(order) - 0.4),
    )
    axes.xaxis.set_major_formatter("{x:,.0f}")
    style_axes(axes, grid="x")
    _highlight(axes.get_yticklabels())
    return figure


def plot_picks(
    points: FloatArray, ldm: FloatArray, picks: npt.NDArray[np.int64], images: FloatArray
) -> Figure:
    """Draw a map of the pool coloured by LDM with the picks marked, and the picks as images.

    Args:
        points: positions of the pool's rows on the map, shape (N, 2).
        ldm: the least disagree metric of each row, positive, shape (N,).
        picks: indices of the picked rows, best first, shape (n,).
        images: images of the picked rows in the same order, shape (n, height, width).
    """
    figure = new_figure(9.5, 4.8)
    subfigures: Any = figure.subfigures(1, 2, width_ratios=[3, 2])
    pool_side, image_side = subfigures

    axes = pool_side.subplots()
    # Rows of a small LDM are drawn last, on top: they are the ones to see.
    order = np.argsort(-ldm)
    x, y = points[order].T
    dots = axes.scatter(
        x,
        y,
        c=np.log10(ldm[order]),  # an LDM is a share of rows: most are small, some are near 1
        s=12,
        cmap="viridis",
        linewidths=0,
    )
    pick_x, pick_y = points[picks].T
    axes.scatter(
        pick_x,
        pick_y,
        s=70,
        facecolors="none",
        edgecolors=_PICK_COLOUR,
        linewidths=1.4,
        label="picked",
    )
    axes.set(xticks=[], yticks=[], title="The pool in two dimensions (dark rows flip easily)")
    axes.legend(loc="upper right", frameon=False)
    pool_side.colorbar(dots, ax=axes, label="log10 of the LDM", shrink=0.8)

    # As square a grid as possible; its last cells may stay empty.
    side = math.sqrt(len(images))
    columns = max(1, math.ceil(side))
    rows = math.ceil(len(images) / columns)
    grid = image_side.subplots(rows, columns, squeeze=False)

    for rank, cell in enumerate(grid.flat, start=1):
        cell.axis("off")
        if rank <= len(images):
            cell.imshow(images[rank - 1], cmap="gray_r")
            cell.set_title(str(rank), fontsize=7, pad=1)

    image_side.suptitle("The picks, best first", fontsize=11)
    return figure


def _figure_with_legend(entries: int) -> Figure:
    """Return an empty figure, high enough for a legend of this many entries beside the axes."""
    height = max(4.8, 0.21 * entries)
    return new_figure(8, height)


def _by_final_mean(curves: Mapping[str, FloatArray]) -> list[str]:
    """Return the names by the mean of their last round, so that the legend reads as curves end."""
    final_means = {}
    for name, runs in curves.items():
        last_round = runs[:, -1]
        final_means[name] = float(last_round.mean())

    return sorted(curves, key=lambda name: final_means[name], reverse=True)


def _draw_curve(
    axes: Axes,
    name: str,
    labelled: FloatArray,
    runs: FloatArray,
    *,
    position: int,
    label: str | None = None,
) -> None:
    """Draw the mean of a strategy's runs, (R, T), and a band of one standard deviation.

    Args:
        axes: where to draw.
        name: the strategy, which decides the style.
        labelled: labels at each round, shape (T,).
        runs: the values to draw, shape (R, T).
        position: the index of the curve among those drawn.
        label: entry in the legend; the name by default.
    """
    mean, deviation = mean_and_std(runs)
    style = line_style(name)

    # About eight markers a curve, shifted from curve to curve so that they do not hide each other.
    every = max(1, len(labelled) // 8)
    markers = (position % every, every)
    axes.plot(labelled, mean, label=label or name, markevery=markers, **style)

    # Pale bands, because they lie on top of each other.
    alpha = 0.07
    if name == HIGHLIGHTED:
        alpha = 0.2
    axes.fill_between(
        labelled,
        mean - deviation,
        mean + deviation,
        color=style["color"],
        alpha=alpha,
        linewidth=0,
    )


def _finish_curves(axes: Axes, labelled: FloatArray) -> None:
    # A single round has no width, and matplotlib would warn about equal limits.
    if len(labelled) > 1:
        first = float(labelled[0])
        last = float(labelled[-1])
        axes.set_xlim(first, last)

    axes.xaxis.set_major_formatter("{x:,.0f}")
    style_axes(axes)
    _place_legend(axes)


def _place_legend(axes: Axes, title: str | None = None) -> None:
    """Put the legend to the right of the axes."""
    axes.legend(
        frameon=False,
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
        title=title,
        fontsize=9,
    )


def _highlight(labels: Sequence[Text]) -> None:
    """Print the name of the highlighted strategy in bold."""
    for label in labels:
        is_highlighted = label.get_text() == HIGHLIGHTED
        label.set_fontweight("bold" if is_highlighted else "normal")
