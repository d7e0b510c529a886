"""Charts of the progress page: geometry here, SVG in ``templates/chart.svg``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, Template
from markupsafe import Markup

from teeter.campaigns.records import AccuracyEstimate, CoveragePoint, ReliabilityBin

WIDTH = 640
HEIGHT = 260
LEFT = 52
RIGHT = 14
TOP = 12
BOTTOM = 40
"""Size and margins in SVG units."""

_MAX_POINTS = 400
"""Points of a line; more cannot be told apart at this width."""


@dataclass(frozen=True)
class _Point:
    x: float
    y: float


@dataclass(frozen=True)
class _Tick:
    position: float
    text: str


@dataclass(frozen=True)
class _Chart:
    """What the template draws."""

    description: str
    """For screen readers."""
    line: list[_Point]
    band: list[_Point]
    """Outline of the shaded area."""
    dots: list[_Point]
    y_ticks: list[_Tick]
    x_ticks: list[_Tick]
    x_label: str = ""
    start: str = ""
    """Below the left end of the x axis."""
    end: str = ""
    """Below the right end."""


@dataclass(frozen=True)
class _Scale:
    """Maps values to positions in the picture."""

    low: float
    high: float
    start: float
    end: float

    # Charts are SVG made on the server: they need no script, and print and scale well.
    def __call__(self, value: float) -> float:
        # A single value has no extent: it is drawn at the start.
        extent = (self.high - self.low) or 1
        return self.start + (value - self.low) / extent * (self.end - self.start)


def accuracy_chart(points: Sequence[tuple[int, AccuracyEstimate]]) -> Markup | None:
    """Draw accuracy against the number of labels, with its confidence interval.

    Args:
        points: the number of labels that each model was trained on, and its accuracy, in the
            order of training.

    Returns:
        An SVG, or None for fewer than two points.
    """
    if len(points) < 2:
        return None

    most_labels = max(labels for labels, _ in points)
    to_x = _Scale(0, most_labels, LEFT, WIDTH - RIGHT)
    to_y = _Scale(0, 1, HEIGHT - BOTTOM, TOP)

    line = [_Point(to_x(labels), to_y(accuracy.share)) for labels, accuracy in points]
    upper = [_Point(to_x(labels), to_y(accuracy.high)) for labels, accuracy in points]
    lower = [_Point(to_x(labels), to_y(accuracy.low)) for labels, accuracy in points]

    n_labels, last = points[-1]
    description = (
        f"Accuracy after {n_labels} labels is {last.share:.0%}, between {last.low:.0%} and "
        f"{last.high:.0%}. The chart shows {len(points)} models."
    )
    return _render(
        _Chart(
            description,
            line=line,
            band=[*upper, *reversed(lower)],  # there along the top, back along the bottom
            dots=line,
            y_ticks=[_Tick(to_y(share), f"{share:.0%}") for share in (0, 0.25, 0.5, 0.75, 1)],
            x_ticks=[_Tick(to_x(count), f"{count:,.0f}") for count in _round_steps(most_labels)],
            x_label="labels",
        )
    )


def labels_over_time_chart(times: Sequence[str]) -> Markup | None:
    """Draw the number of labels against time.

    Args:
        times: when each label was given (ISO 8601), the oldest first.

    Returns:
        An SVG, or None if there are no two different times.
    """
    seconds = [datetime.fromisoformat(time).timestamp() for time in times]
    if len(seconds) < 2 or seconds[-1] <= seconds[0]:
        return None

    to_x = _Scale(seconds[0], seconds[-1], LEFT, WIDTH - RIGHT)
    to_y = _Scale(0, len(seconds), HEIGHT - BOTTOM, TOP)

    # The last label is always drawn, so that the line ends at the total.
    step = max(1, len(seconds) // _MAX_POINTS)
    drawn = [*range(0, len(seconds), step), len(seconds) - 1]
    line = [_Point(to_x(seconds[index]), to_y(index + 1)) for index in drawn]

    start = _format_time(times[0])
    end = _format_time(times[-1])
    return _render(
        _Chart(
            f"{len(seconds)} labels between {start} and {end}.",
            line=line,
            band=[_Point(line[0].x, to_y(0)), *line, _Point(line[-1].x, to_y(0))],
            dots=[],
            y_ticks=[_Tick(to_y(count), f"{count:,.0f}") for count in _round_steps(len(seconds))],
            x_ticks=[],
            start=start,
            end=end,
        )
    )


def coverage_chart(
    curve: Sequence[CoveragePoint], planned: Sequence[CoveragePoint]
) -> Markup | None:
    """Draw how many items the model may label against the number of random labels.

    Args:
        curve: what was shown so far, as a line.
        planned: what more labels are likely to show, as dots.

    Returns:
        An SVG, or None if there is nothing to draw.
    """
    points = [*curve, *planned]
    if not points:
        return None

    most_draws = max(point.draws for point in points)
    to_x = _Scale(0, most_draws, LEFT, WIDTH - RIGHT)
    to_y = _Scale(0, 1, HEIGHT - BOTTOM, TOP)
    line = [_Point(to_x(point.draws), to_y(point.coverage)) for point in curve]
    dots = [_Point(to_x(point.draws), to_y(point.coverage)) for point in planned]

    now = curve[-1] if curve else None
    description = "The model may not label any items yet."
    if now is not None:
        description = f"After {now.draws} random labels the model may label {now.coverage:.0%}."
    band = []
    if line:
        band = [_Point(line[0].x, to_y(0)), *line, _Point(line[-1].x, to_y(0))]
    return _render(
        _Chart(
            f"{description} The plan has {len(planned)} points.",
            line=line,
            band=band,
            dots=dots,
            y_ticks=[_Tick(to_y(share), f"{share:.0%}") for share in (0, 0.25, 0.5, 0.75, 1)],
            x_ticks=[_Tick(to_x(count), f"{count:,.0f}") for count in _round_steps(most_draws)],
            x_label="random labels",
        )
    )


def reliability_chart(bins: Sequence[ReliabilityBin]) -> Markup | None:
    """Draw the share of right labels against the model's confidence, with intervals.

    Returns:
        An SVG, or None for fewer than two bins.
    """
    if len(bins) < 2:
        return None

    # Most models are sure of most items, so the lower half is drawn only if something is in it.
    is_upper_half = min(bin.low for bin in bins) >= 0.5 and bins[0].confidence >= 0.5
    lowest = 0.5 if is_upper_half else 0.0
    shares = [lowest + (1 - lowest) * k / 4 for k in range(5)]

    # The last tick is centred below the end of the axis and needs room on its right.
    to_x = _Scale(lowest, 1, LEFT, WIDTH - 2 * RIGHT)
    to_y = _Scale(lowest, 1, HEIGHT - BOTTOM, TOP)
    upper = [_Point(to_x(bin.confidence), to_y(bin.high)) for bin in bins]
    lower = [_Point(to_x(bin.confidence), to_y(bin.low)) for bin in bins]
    described = "; ".join(f"{bin.confidence:.0%} sure, {bin.right:.0%} right" for bin in bins)
    return _render(
        _Chart(
            f"Confidence and share of right labels: {described}.",
            # What a perfectly calibrated model would show.
            line=[_Point(to_x(lowest), to_y(lowest)), _Point(to_x(1), to_y(1))],
            band=[*upper, *reversed(lower)],
            dots=[_Point(to_x(bin.confidence), to_y(bin.right)) for bin in bins],
            y_ticks=[_Tick(to_y(share), f"{share:.0%}") for share in shares],
            x_ticks=[_Tick(to_x(share), f"{share:.0%}") for share in shares],
            x_label="confidence",
        )
    )


def _round_steps(high: float) -> list[float]:
    """Return about four round numbers from 0 up to ``high``."""
    # The smallest of 1, 2, 5 or 10 times a power of ten that makes at most four steps.
    raw_step = max(high, 1) / 4
    magnitude = 10.0 ** (len(str(int(raw_step))) - 1)
    step = next(factor * magnitude for factor in (1, 2, 5, 10) if factor * magnitude >= raw_step)
    return [step * index for index in range(int(high / step) + 1)]


def _format_time(time: str) -> str:
    return datetime.fromisoformat(time).strftime("%d %b %H:%M")


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True
    )
    return environment.get_template("chart.svg")


def _render(chart: _Chart) -> Markup:
    # The template escapes every value, so the result is safe to include in a page.
    return Markup(
        _template().render(
            chart=chart,
            width=WIDTH,
            height=HEIGHT,
            left=LEFT,
            right=WIDTH - RIGHT,
            bottom=HEIGHT - BOTTOM,
        )
    )
