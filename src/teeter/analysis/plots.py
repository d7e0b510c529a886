"""Figures from arrays: compute first, then draw."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from teeter.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plane", "plot_curves", "plot_picks"]

Array = npt.NDArray[np.floating[Any]]

_COLOURS = [
    "#b2182b",
    "#4d4d4d",
    "#2166ac",
    "#e08214",
    "#5aae61",
    "#8073ac",
    "#35978f",
    "#c51b7d",
    "#a6761d",
    "#66a0c8",
]


def plane(features: Array) -> Array:
    """Return the two principal components: (N, D) -> (N, 2)."""
    centred = features - features.mean(axis=0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    answer: Array = (left * values)[:, :2]
    return answer


def plot_curves(labelled: Array, accuracy: Mapping[str, Array]) -> Figure:
    """Return learning curves: the mean over repetitions, and a band of one standard deviation.

    labelled (T,), accuracy by strategy (R, T); the first strategy is drawn boldest.
    """
    figure = _figure((8, 4.8))
    axes = figure.subplots()
    for k, (name, runs) in enumerate(accuracy.items()):
        mean, spread = 100 * runs.mean(axis=0), 100 * runs.std(axis=0, ddof=min(1, len(runs) - 1))
        colour = _COLOURS[k % len(_COLOURS)]
        axes.plot(labelled, mean, color=colour, linewidth=2.6 if k == 0 else 1.5, zorder=10 - k, label=name)
        axes.fill_between(labelled, mean - spread, mean + spread, color=colour, alpha=0.13, linewidth=0)
    axes.set(xlabel="labelled rows", ylabel="test accuracy (%)", xlim=(labelled[0], labelled[-1]))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    return figure


def plot_picks(points: Array, ldm: Array, picks: npt.NDArray[np.int64], images: Array) -> Figure:
    """Return a map of the pool coloured by LDM, with the picks marked and shown as images beside it.

    points (N, 2), ldm (N,), picks (n,), images (n, height, width).
    """
    figure = _figure((9.5, 4.8))
    halves: Any = figure.subfigures(1, 2, width_ratios=[3, 2])
    whole, side = halves
    axes = whole.subplots()
    order = np.argsort(-ldm)
    dots = axes.scatter(*points[order].T, c=np.log10(ldm[order]), s=12, cmap="viridis", linewidths=0)
    axes.scatter(*points[picks].T, s=70, facecolors="none", edgecolors="#c02020", linewidths=1.4, label="picked")
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


def _figure(size: tuple[float, float]) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("Drawing needs matplotlib: pip install 'teeter[report]'.") from None
    return Figure(figsize=size, layout="constrained")
