"""The style of all figures: one colour and marker per strategy, clean axes, SVG and PNG files."""

from __future__ import annotations

import io
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teeter.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "HIGHLIGHTED",
    "LineStyle",
    "figure_png",
    "line_style",
    "new_figure",
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
}
_PLUGIN_COLOURS = ("#661100", "#6699cc", "#888888", "#117733", "#aa4466", "#4477aa")
_PLUGIN_MARKERS = "2348+"


@dataclass(frozen=True)
class LineStyle:
    """How a strategy is drawn."""

    colour: str
    marker: str
    linestyle: str
    """A line style of matplotlib: "-", "--" or "-."."""
    linewidth: float
    zorder: float
    """Lines of a larger order are drawn on top."""

    @property
    def plot_options(self) -> dict[str, Any]:
        """Keyword arguments for ``Axes.plot``."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "linestyle": self.linestyle,
            "linewidth": self.linewidth,
            "zorder": self.zorder,
            "markersize": 3 + 1.2 * self.linewidth,
            "markeredgewidth": 1.0,
        }


def line_style(strategy: str) -> LineStyle:
    """Return the style of a strategy.

    It depends on the name alone, so that a strategy looks the same in every figure, whatever else
    is drawn. Strategies of plugins get a colour and a marker from a hash of their name.
    """
    if strategy in _STYLES:
        colour, marker = _STYLES[strategy]
        linestyle = "--" if strategy == "random" else "-"
    else:
        # Not hash(), which differs from process to process.
        name_hash = zlib.crc32(strategy.encode())
        colour = _PLUGIN_COLOURS[name_hash % len(_PLUGIN_COLOURS)]
        marker = _PLUGIN_MARKERS[name_hash % len(_PLUGIN_MARKERS)]
        linestyle = "-."

    is_highlighted = strategy == HIGHLIGHTED
    return LineStyle(
        colour=colour,
        marker=marker,
        linestyle=linestyle,
        linewidth=3.0 if is_highlighted else 1.5,
        zorder=5 if is_highlighted else 3,
    )


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
