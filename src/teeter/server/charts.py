"""Charts of the progress page: geometry here, SVG in ``templates/chart.svg``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TypeAlias

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

_QUARTERS = (0, 0.25, 0.5, 0.75, 1)
"""Shares that an axis marks."""

_MAX_POINTS = 400
"""Points of a line; more cannot be told apart at this width."""


_Point: TypeAlias = tuple[float, float]
"""The place of a value in the picture, x and y."""

_Tick: TypeAlias = tuple[float, str]
"""The position of a mark on an axis, and its text."""


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    """Return a function from values to positions in the picture."""
    # A single value has no extent: it is drawn at the start.
    extent = (high - low) or 1
    return lambda value: start + (value - low) / extent * (end - start)


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
    to_x = _scale(0, most_labels, LEFT, WIDTH - RIGHT)
    to_y = _scale(0, 1, HEIGHT - BOTTOM, TOP)

    line = []
    upper = []
    lower = []
    for labels, accuracy in points:
        x = to_x(labels)
        line.append((x, to_y(accuracy.share)))
        upper.append((x, to_y(accuracy.high)))
        lower.append((x, to_y(accuracy.low)))

    n_labels, last = points[-1]
    description = (
        f"Accuracy after {n_labels} labels is {last.share:.0%}, between {last.low:.0%} and "
        f"{last.high:.0%}. The chart shows {len(points)} models."
    )
    return _render(
        description,
        line=line,
        band=[*upper, *reversed(lower)],  # there along the top, back along the bottom
        dots=line,
        y_ticks=_ticks(to_y, _QUARTERS, ".0%"),
        x_ticks=_ticks(to_x, _round_steps(most_labels), ",.0f"),
        x_label="labels",
    )


def labels_over_time_chart(times: Sequence[str]) -> Markup | None:
    """Draw the number of labels against time.

    Args:
        times: when each label was given (ISO 8601), the oldest first.

    Returns:
        An SVG, or None if there are no two different times.
    """
    seconds = [datetime.fromisoformat(time).timestamp() for time in times]
    n_labels = len(seconds)
    if n_labels < 2 or seconds[-1] <= seconds[0]:
        return None

    to_x = _scale(seconds[0], seconds[-1], LEFT, WIDTH - RIGHT)
    to_y = _scale(0, n_labels, HEIGHT - BOTTOM, TOP)

    # The last label is always drawn, so that the line ends at the total.
    step = max(1, n_labels // _MAX_POINTS)
    line = []
    for index in (*range(0, n_labels, step), n_labels - 1):
        x = to_x(seconds[index])
        line.append((x, to_y(index + 1)))

    start = _format_time(times[0])
    end = _format_time(times[-1])
    return _render(
        f"{n_labels} labels between {start} and {end}.",
        line=line,
        band=_area_below(line, to_y(0)),
        dots=[],
        y_ticks=_ticks(to_y, _round_steps(n_labels), ",.0f"),
        x_ticks=[],
        start=start,
        end=end,
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
    to_x = _scale(0, most_draws, LEFT, WIDTH - RIGHT)
    to_y = _scale(0, 1, HEIGHT - BOTTOM, TOP)
    line = [(to_x(point.draws), to_y(point.coverage)) for point in curve]
    dots = [(to_x(point.draws), to_y(point.coverage)) for point in planned]

    description = "The model may not label any items yet."
    if curve:
        now = curve[-1]
        description = f"After {now.draws} random labels the model may label {now.coverage:.0%}."
    return _render(
        f"{description} The plan has {len(planned)} points.",
        line=line,
        band=_area_below(line, to_y(0)),
        dots=dots,
        y_ticks=_ticks(to_y, _QUARTERS, ".0%"),
        x_ticks=_ticks(to_x, _round_steps(most_draws), ",.0f"),
        x_label="random labels",
    )


def reliability_chart(bins: Sequence[ReliabilityBin]) -> Markup | None:
    """Draw the share of right labels against the model's confidence, with intervals.

    Returns:
        An SVG, or None for fewer than two bins.
    """
    if len(bins) < 2:
        return None

    # Most models are sure of most items, so the lower half is drawn only if something is in it.
    lowest = 0.5
    if min(bins[0].confidence, *[bin.low for bin in bins]) < 0.5:
        lowest = 0.0
    shares = [lowest + (1 - lowest) * k / 4 for k in range(5)]

    # The last tick is centred below the end of the axis and needs room on its right.
    to_x = _scale(lowest, 1, LEFT, WIDTH - 2 * RIGHT)
    to_y = _scale(lowest, 1, HEIGHT - BOTTOM, TOP)
    dots = []
    upper = []
    lower = []
    described = []
    for bin in bins:
        x = to_x(bin.confidence)
        dots.append((x, to_y(bin.right)))
        upper.append((x, to_y(bin.high)))
        lower.append((x, to_y(bin.low)))
        described.append(f"{bin.confidence:.0%} sure, {bin.right:.0%} right")
    return _render(
        f"Confidence and share of right labels: {'; '.join(described)}.",
        # What a perfectly calibrated model would show.
        line=[(to_x(lowest), to_y(lowest)), (to_x(1), to_y(1))],
        band=[*upper, *reversed(lower)],
        dots=dots,
        y_ticks=_ticks(to_y, shares, ".0%"),
        x_ticks=_ticks(to_x, shares, ".0%"),
        x_label="confidence",
    )


def _area_below(line: Sequence[_Point], bottom: float) -> list[_Point]:
    """Return the corners of the area between a line and the axis; none without a line."""
    if not line:
        return []

    first_x, _ = line[0]
    last_x, _ = line[-1]
    return [(first_x, bottom), *line, (last_x, bottom)]


def _ticks(scale: Callable[[float], float], values: Sequence[float], spec: str) -> list[_Tick]:
    return [(scale(value), format(value, spec)) for value in values]


def _round_steps(high: float) -> list[float]:
    """Return about four round numbers from 0 up to ``high``."""
    # The smallest of 1, 2, 5 or 10 times a power of ten that makes at most four steps.
    raw_step = max(high, 1) / 4
    digits = len(str(int(raw_step)))
    magnitude = 10.0 ** (digits - 1)
    steps = [factor * magnitude for factor in (1, 2, 5, 10)]
    step = next(step for step in steps if step >= raw_step)
    return [step * index for index in range(int(high / step) + 1)]


def _format_time(time: str) -> str:
    return datetime.fromisoformat(time).strftime("%d %b %H:%M")


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True
    )
    return environment.get_template("chart.svg")


def _render(
    description: str,
    *,
    line: list[_Point],
    band: list[_Point],
    dots: list[_Point],
    y_ticks: list[_Tick],
    x_ticks: list[_Tick],
    x_label: str = "",
    start: str = "",
    end: str = "",
) -> Markup:
    """Draw a chart as SVG, which needs no script, and prints and scales well.

    Args:
        description: for screen readers.
        line: points that are joined.
        band: outline of the shaded area.
        dots: points that are drawn.
        y_ticks: marks on the y axis.
        x_ticks: marks on the x axis.
        x_label: what the x axis shows.
        start: below the left end of the x axis.
        end: below the right end.
    """
    # The template escapes every value, so the result is safe to include in a page.
    return Markup(
        _template().render(
            description=description,
            points=line,
            band=band,
            dots=dots,
            y_ticks=y_ticks,
            x_ticks=x_ticks,
            x_label=x_label,
            start=start,
            end=end,
            width=WIDTH,
            height=HEIGHT,
            left=LEFT,
            right=WIDTH - RIGHT,
            bottom=HEIGHT - BOTTOM,
        )
    )
