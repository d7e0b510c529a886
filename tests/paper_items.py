"""Items of a made-up paper."""

from __future__ import annotations

from collections.abc import Callable

from reproduction.item import HOLDS, Drawing, Item, Measurement, StudyConfig
from teeter.analysis.plot_style import new_figure
from teeter.analysis.table_formats import ReportTable


def measured(config: StudyConfig) -> Measurement:
    rows = [{"name": "<b>bold</b>", "value": "1"}]
    return Measurement(
        numbers={"values": [1.0, 2.0], "not there": float("nan")},
        verdict=HOLDS,
        reason=f"1 < 2 with the seed {config.seed}.",
        tables=(ReportTable("values", "Values & more", [{"name": "bold", "value": 1}], rows),),
        notes=("Made up.",),
    )


def drawn(found: Measurement) -> list[Drawing]:
    figure = new_figure(3, 2)
    figure.subplots().plot(found.numbers["values"])
    return [Drawing(figure, "Two values, <rising>.")]


def item(
    name: str, compute: Callable[[StudyConfig], Measurement] = measured, **changes: object
) -> Item:
    values = dict(
        title=f"Item <{name}>",
        location="figure 1",
        claim="1 < 2 & so on.",
        test="Counted.",
        draw=drawn,
    )
    return Item(name=name, compute=compute, **{**values, **changes})
