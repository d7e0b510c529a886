"""How figures look: a colour and a marker for every strategy, whichever others are drawn, and files of both kinds."""

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
"""The strategy that is drawn boldest, over the others."""

# Told apart by people who see few colours [Okabe and Ito 2008; Tol 2021]; near ones differ by marker.
_LOOKS = {
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
_OTHERS = ("#661100", "#6699cc", "#888888", "#117733", "#aa4466", "#4477aa")
_MARKERS = "2348+"


@dataclass(frozen=True)
class LineStyle:
    """How a strategy is drawn."""

    colour: str
    marker: str
    dashes: str
    width: float
    order: float
    """Larger is drawn over smaller."""

    @property
    def line(self) -> dict[str, Any]:
        """Options of a line in matplotlib."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "linestyle": self.dashes,
            "linewidth": self.width,
            "zorder": self.order,
            "markersize": 3 + 1.2 * self.width,
            "markeredgewidth": 1.0,
        }


def line_style(strategy: str) -> LineStyle:
    """Return the look of a strategy: by its name alone, so that it is the same in every figure."""
    first = strategy == HIGHLIGHTED
    dashes = "--" if strategy == "random" else "-"
    if strategy in _LOOKS:
        colour, marker = _LOOKS[strategy]
    else:
        number = zlib.crc32(strategy.encode())
        colour, marker, dashes = (
            _OTHERS[number % len(_OTHERS)],
            _MARKERS[number % len(_MARKERS)],
            "-.",
        )
    return LineStyle(colour, marker, dashes, width=3.0 if first else 1.5, order=5 if first else 3)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of so many inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("Drawing needs matplotlib: pip install 'teeter[report]'.") from None
    return Figure(figsize=(width, height), layout="constrained")


def style_axes(axes: Axes, *, grid: str = "both") -> None:
    """Leave out the lines that say nothing; ``grid`` is along x, y or both."""
    axes.grid(axis=grid, alpha=0.25)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def save_figure(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Write a figure as SVG and PNG, the same bytes each time, and return the two paths."""
    from matplotlib import rc_context

    svg, png = (stem.with_name(f"{stem.name}.{ending}") for ending in ("svg", "png"))
    with rc_context({"svg.hashsalt": "teeter"}):
        figure.savefig(svg, metadata={"Date": None})
    png.write_bytes(figure_png(figure))
    return svg, png


def figure_png(figure: Figure) -> bytes:
    """Return a figure as a PNG of 256 colours, which shows as much as one of all colours in a third of its size."""
    from PIL import Image

    whole, small = io.BytesIO(), io.BytesIO()
    figure.savefig(whole, format="png", dpi=120)
    picture = Image.open(whole).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    picture.save(small, format="png", optimize=True)
    return small.getvalue()
