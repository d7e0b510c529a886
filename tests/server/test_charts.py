"""Charts of the progress page: their shape, their ticks, and what screen readers hear."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from teeter.campaigns.records import AccuracyEstimate
from teeter.server.charts import _round_steps, accuracy_chart, labels_over_time_chart

POINTS = [
    (20, AccuracyEstimate(0.5, 0.3, 0.7, total=20, right=10)),
    (40, AccuracyEstimate(0.75, 0.6, 0.9, total=20, right=15)),
]


def coordinates(chart: str, css_class: str) -> list[tuple[float, float]]:
    """Return the points of the first shape of a class."""
    for element in ElementTree.fromstring(chart).iter():
        if element.get("class") == css_class:
            pairs = [pair.split(",") for pair in (element.get("points") or "").split()]
            return [(float(x), float(y)) for x, y in pairs]
    raise AssertionError(f"no {css_class}")


def texts(chart: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(chart).iter("text")]


def test_accuracy_is_drawn_with_its_interval() -> None:
    chart = accuracy_chart(POINTS)
    assert chart is not None

    first, last = coordinates(chart, "line")
    assert first[0] < last[0] == 640 - 14
    assert first[1] > last[1], "up is small in an SVG"
    assert len(coordinates(chart, "band")) == 4
    assert chart.count('class="dot"') == 2

    assert texts(chart) == [
        "0%",
        "25%",
        "50%",
        "75%",
        "100%",
        "0",
        "10",
        "20",
        "30",
        "40",
        "labels",
    ]

    description = "Accuracy after 40 labels is 75%, between 60% and 90%. The chart shows 2 models."
    assert f'aria-label="{description}"' in chart


def test_labels_are_drawn_over_time() -> None:
    times = [f"2024-05-01T10:{minute:02}:00+00:00" for minute in range(30)]
    chart = labels_over_time_chart(times)
    assert chart is not None
    line = coordinates(chart, "line")
    assert line == sorted(line, key=lambda point: point[0])
    assert line[-1] == (626.0, 12.0), "the last label is at the top right"
    assert "01 May 10:00" in texts(chart)
    assert "01 May 10:29" in texts(chart)
    assert 'class="dot"' not in chart


def test_a_long_line_is_thinned_out() -> None:
    times = [
        f"2024-05-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}+00:00"
        for second in range(5000)
    ]
    chart = labels_over_time_chart(times)
    assert chart is not None
    assert len(coordinates(chart, "line")) < 500


def test_too_few_points_are_not_drawn() -> None:
    assert accuracy_chart(POINTS[:1]) is None
    assert labels_over_time_chart([]) is None
    assert labels_over_time_chart(["2024-05-01T10:00:00+00:00"] * 3) is None


@pytest.mark.parametrize(
    ("high", "steps"),
    [(1, [0, 1]), (30, [0, 10, 20, 30]), (100, [0, 50, 100]), (4000, [0, 1000, 2000, 3000, 4000])],
)
def test_ticks_are_round_numbers(high: float, steps: list[float]) -> None:
    assert _round_steps(high) == steps
