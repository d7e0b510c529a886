"""Curves of the progress page, as SVG that takes its colours from the page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from markupsafe import Markup

__all__ = ["curve", "over_time"]

_WIDTH, _HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 12, 40

Point = tuple[float, float]


def curve(rounds: Sequence[dict[str, Any]]) -> Markup | None:
    """Return accuracy against labels, with its interval; None before two rounds are measured."""
    known = [one for one in rounds if one.get("accuracy")]
    if len(known) < 2:
        return None
    across = _Axis(0, max(one["labels"] for one in known), _LEFT, _WIDTH - _RIGHT)
    up = _Axis(0, 1, _HEIGHT - _BOTTOM, _TOP)
    points = [(across(one["labels"]), up(one["accuracy"]["share"])) for one in known]
    high = [(across(one["labels"]), up(one["accuracy"]["high"])) for one in known]
    low = [(across(one["labels"]), up(one["accuracy"]["low"])) for one in known]
    parts = [
        *_grid(across, up, [0, 0.25, 0.5, 0.75, 1], lambda value: f"{value:.0%}", "labels"),
        f'<polygon class="band" points="{_joined([*high, *reversed(low)])}"/>',
        f'<polyline class="line" points="{_joined(points)}"/>',
        *(f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in points),
    ]
    last = known[-1]
    told = (
        f"Accuracy after {last['labels']} labels is {last['accuracy']['share']:.0%}, "
        f"between {last['accuracy']['low']:.0%} and {last['accuracy']['high']:.0%}; {len(known)} rounds."
    )
    return _drawing(parts, told)


def over_time(times: Sequence[str]) -> Markup | None:
    """Return labels against time; None for fewer than two."""
    moments = [datetime.fromisoformat(one).timestamp() for one in times]
    if len(moments) < 2 or moments[-1] <= moments[0]:
        return None
    step = max(1, len(moments) // 400)
    shown = [*range(0, len(moments), step), len(moments) - 1]
    across = _Axis(moments[0], moments[-1], _LEFT, _WIDTH - _RIGHT)
    up = _Axis(0, len(moments), _HEIGHT - _BOTTOM, _TOP)
    points = [(across(moments[k]), up(k + 1)) for k in shown]
    area = [(points[0][0], up(0)), *points, (points[-1][0], up(0))]
    begin, end = times[0], times[-1]
    parts = [
        *_grid(across, up, _round_steps(len(moments)), lambda value: f"{value:,.0f}", ""),
        f'<polygon class="band" points="{_joined(area)}"/>',
        f'<polyline class="line" points="{_joined(points)}"/>',
        f'<text class="tick" x="{_LEFT}" y="{_HEIGHT - 8}">{_moment(begin)}</text>',
        f'<text class="tick" x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 8}" text-anchor="end">{_moment(end)}</text>',
    ]
    return _drawing(parts, f"{len(moments)} labels between {_moment(begin)} and {_moment(end)}.")


class _Axis:
    """Values to places."""

    def __init__(self, low: float, high: float, begin: float, end: float) -> None:
        self.low, self.high, self.begin, self.end = low, high if high > low else low + 1, begin, end

    def __call__(self, value: float) -> float:
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)


def _grid(across: _Axis, up: _Axis, steps: Sequence[float], written: Any, below: str) -> list[str]:
    parts = []
    for value in steps:
        y = up(value)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        parts.append(
            f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{written(value)}</text>'
        )
    if below:
        for value in _round_steps(across.high):
            place = f'x="{across(value):.1f}" y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle"'
            parts.append(f'<text class="tick" {place}>{value:,.0f}</text>')
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        parts.append(
            f'<text class="tick" x="{middle}" y="{_HEIGHT - 4}" text-anchor="middle">{below}</text>'
        )
    return parts


def _round_steps(high: float) -> list[float]:
    """Return about four round numbers from 0 up to ``high``."""
    raw = max(high, 1) / 4
    size = 10.0 ** (len(str(int(raw))) - 1)
    step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= raw)
    return [step * k for k in range(int(high / step) + 1)]


def _joined(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _moment(text: str) -> str:
    return datetime.fromisoformat(text).strftime("%d %b %H:%M")


def _drawing(parts: Sequence[str], told: str) -> Markup:
    head = f'<svg class="drawn" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{told}">'
    return Markup(head + "".join(parts) + "</svg>")  # numbers and our own words alone
