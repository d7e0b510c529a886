"""Items of a made-up paper, and checks that tests of several items share."""

from __future__ import annotations

from collections.abc import Callable

from research.paper.item import HOLDS, Drawing, Item, Measurement, StudyConfig, to_json_value
from teeter.bench.analysis.plots import new_figure
from teeter.bench.analysis.table_formats import ReportTable


def measure_two_values(config: StudyConfig) -> Measurement:
    cells = [{"name": "<b>bold</b>", "value": "1"}]
    return Measurement(
        numbers={"values": [1.0, 2.0], "not there": float("nan")},
        verdict=HOLDS,
        reason=f"1 < 2 with the seed {config.seed}.",
        tables=(ReportTable("values", "Values & more", [{"name": "bold", "value": 1}], cells),),
        notes=("Made up.",),
    )


def draw_two_values(measurement: Measurement) -> list[Drawing]:
    figure = new_figure(3, 2)
    figure.subplots().plot(measurement.numbers["values"])
    return [Drawing(figure, "Two values, <rising>.")]


def make_item(
    name: str,
    compute: Callable[[StudyConfig], Measurement] = measure_two_values,
    **changes: object,
) -> Item:
    """Return an item that takes no time, with characters that HTML must escape."""
    values = dict(
        title=f"Item <{name}>",
        location="figure 1",
        claim="1 < 2 & so on.",
        test="Counted.",
        draw=draw_two_values,
    )
    return Item(name=name, compute=compute, **{**values, **changes})


def assert_drawable(item: Item, measurement: Measurement) -> None:
    """Check that an item draws from numbers as its result file has them."""
    numbers = to_json_value(measurement.numbers)
    drawings = item.draw(Measurement(numbers, measurement.verdict, measurement.reason))

    assert drawings
    assert all(drawing.caption.endswith(".") for drawing in drawings)
