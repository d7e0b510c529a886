"""What the choices of LDM-S are worth in accuracy: the stop condition, the reference rows, the grid, and the rays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from reproduction.item import (
    Array,
    Drawing,
    Item,
    Measurement,
    StudyConfig,
    decide_verdict,
    format_p,
    make_table,
)
from reproduction.shared_runs import Accuracies, accuracies_by_run, digits_setting, run_settings
from teeter.analysis.statistics import critical_value, gain_over
from teeter.analysis.table_formats import ReportTable, format_number
from teeter.experiments.settings import Setting, setting_named

__all__ = ["FIGURE_15", "variants"]

BASE = "s=10"
"""The paper's choice: s = 10, all candidates, 51 strengths."""
STOPS = (1, 5, 100, 1000)
REFERENCES = (10, 100, 1000, 10_000)
SPACINGS = (0.01, 0.05, 0.5, 1.0)
RAYS = (16, 64, 512, 4096)
FAMILIES = {"s": "stop condition s", "M": "reference rows M", "beta": "spacing β", "rays": "rays"}
SMALL = "M=10"
"""The one choice that the paper finds too small."""


def spaced(beta: float) -> list[float]:
    """Return strengths from 1e-5 to 1, equally spaced in the exponent."""
    return [10.0 ** (beta * k - 5) for k in range(round(5 / beta) + 1)]


def variants(*, quick: bool) -> dict[str, dict[str, Any]]:
    """Return the options of every variant of LDM-S, by name; the base first."""
    drawn = {"strategy": "ldm-s", "method": "gaussian"}
    found = {BASE: {**drawn, "patience": 10}}
    found |= {f"s={s}": {**drawn, "patience": s} for s in STOPS if not (quick and s > 100)}
    found |= {
        f"M={m}": {**drawn, "reference_rows": m} for m in REFERENCES if not (quick and m > 100)
    }
    found |= {f"beta={beta:g}": {**drawn, "sigmas": spaced(beta)} for beta in SPACINGS}
    return found | {f"rays={rays}": {"strategy": "ldm-s", "rays": rays} for rays in RAYS}


def settings_of(config: StudyConfig) -> list[Setting]:
    """Return the settings that variants run in, side by side; the base is in each.

    A search that ends late takes minutes where the candidates are many, and 10,000 reference rows are drawn from the
    candidates: so these two have a run each.
    """
    options = variants(quick=config.quick)
    if config.quick:
        return [
            digits_setting(
                "choices", final=80, pool=200, strategies=tuple(options), options=options
            )
        ]
    few = {name: one for name, one in options.items() if _family(name) in ("s", "rays")}
    many = {
        name: one for name, one in options.items() if name == BASE or _family(name) in ("M", "beta")
    }
    base = replace(setting_named("openml-156"), paper=None)
    return [
        replace(base, name="openml-156-stops", final=700, strategies=tuple(few), options=few),
        replace(
            base,
            name="openml-156-references",
            final=600,
            pool=12_000,
            strategies=tuple(many),
            options=many,
        ),
    ]


def measure_choices(config: StudyConfig) -> Measurement:
    """Run all variants side by side."""
    runs = run_settings(config, settings_of(config))
    found = judge_choices(accuracies_by_run(runs))
    left_out = (
        "s = 1,000 and M above 100 are left out where it must be quick." if config.quick else None
    )
    notes = [
        *(
            f"{one.name}: {one.run.setting.dataset}, {one.labelled[0]:,.0f} to {one.labelled[-1]:,.0f} labels, "
            f"{one.run.setting.pool or 0:,} candidates a round, {one.repetitions} repetitions."
            for one in runs
        ),
        "No significant difference is no proof of none: the table has what the runs leave open.",
    ]
    return replace(found, notes=(*notes, *([left_out] if left_out else [])))


def judge_choices(runs: Accuracies) -> Measurement:
    """Check that no choice but ten reference rows differs from the base of its run; accuracies (R, T) by variant."""
    rows = [{"run": name, **row} for name, accuracy in runs.items() for row in _rows(accuracy)]
    others = {row["choice"]: row for row in rows if row["choice"] != BASE}
    level = 0.05 / len(others)
    different = [name for name, row in others.items() if row["p"] < level]
    checks = {
        FAMILIES[family]: not any(_family(name) == family and name != SMALL for name in different)
        for family in FAMILIES
    }
    checks["M = 10 is worse"] = (
        SMALL in others and others[SMALL]["difference"] < 0 and others[SMALL]["p"] < 0.05
    )
    told = ", ".join(f"{name} {_told(others[name])}" for name in different)
    widest = max(others, key=lambda name: abs(others[name]["difference"]))
    small = f"; M = 10 is {_told(others[SMALL])}" if SMALL in others else ""
    data = sorted(rows, key=lambda row: _place(row["choice"]))
    return Measurement(
        numbers={"choices": data},
        verdict=decide_verdict(checks),
        reason=f"Against the paper's choice, in points: significantly different {told or 'none'}, of {len(others)}; "
        f"the largest difference is {format_number(others[widest]['difference'], '+.2f')} at {widest}{small}.",
        tables=(_table(data),),
    )


def _rows(accuracy: Mapping[str, Array]) -> list[dict[str, Any]]:
    """Return each variant's accuracy and its difference to the base of the same run."""
    repetitions = len(accuracy[BASE])
    half = critical_value(repetitions) / np.sqrt(repetitions)
    rows = []
    for name, of_it in accuracy.items():
        gain = None if name == BASE else gain_over(of_it, accuracy[BASE])
        rows.append(
            {
                "choice": name,
                "accuracy (%)": 100 * float(of_it[:, 1:].mean()),
                "difference": gain.mean if gain else 0.0,
                "half width": half * gain.deviation if gain else 0.0,
                "p": gain.p if gain else None,
            }
        )
    return rows


def _told(row: Mapping[str, Any]) -> str:
    return f"{format_number(row['difference'], '+.2f')} ({format_p(row['p'])})"


def _place(name: str) -> tuple[int, float]:
    """Return where a variant stands in a list: families in their order, values rising."""
    return list(FAMILIES).index(_family(name)), float(name.split("=")[1])


def _family(name: str) -> str:
    return name.split("=")[0]


def _table(data: list[dict[str, Any]]) -> ReportTable:
    forms = {"difference": "+.2f"}
    caption = (
        "Mean accuracy over the rounds after the first, its difference to the paper's choice in points with half of "
        "its 95 % interval, and p of a paired t-test."
    )
    return make_table("choices", caption, data, forms)


def draw_choices(measured: Measurement) -> list[Drawing]:
    """Draw the difference to the paper's choice for each value of each choice."""
    from teeter.analysis.plot_style import new_figure, style_axes

    figure = new_figure(9.5, 3.4)
    for axes, (family, label) in zip(
        figure.subplots(1, len(FAMILIES), sharey=True), FAMILIES.items(), strict=True
    ):
        of_family = [row for row in measured.numbers["choices"] if _family(row["choice"]) == family]
        rows = list({row["choice"]: row for row in of_family}.values())  # the base is in each run
        places = range(len(rows))
        axes.axhline(0, color="#555555", linewidth=1)
        axes.errorbar(
            places,
            [row["difference"] for row in rows],
            yerr=[row["half width"] for row in rows],
            fmt="o",
            color="#d55e00",
            capsize=3,
        )
        names = [f"{float(row['choice'].split('=')[1]):,g}" for row in rows]
        axes.set_xticks(places, names, rotation=45)
        axes.set_xlim(-0.5, len(rows) - 0.5)
        axes.set(xlabel=label)
        style_axes(axes, grid="y")
    figure.axes[0].set_ylabel("points of accuracy against s = 10,\nall rows, β = 0.1", fontsize=9)
    return [
        Drawing(figure, "Differences in mean accuracy to the paper's choice, with 95 % intervals.")
    ]


FIGURE_15 = Item(
    name="figure-15",
    title="Accuracy hardly depends on the choices",
    location="appendix, figure 15",
    claim="Accuracy does not differ significantly with s from 1 to 1,000, with M unless it is as small as 10, or with "
    "the spacing of the strengths.",
    test="Five checks by paired t-tests over repetitions against s = 10, all rows and β = 0.1: no s, no M above 10, no "
    "β, and no number of rays (which are ours) differs, at 5 % shared among all comparisons; and M = 10 is worse (5 %)."
    " Holds if all pass, in part if some do.",
    compute=measure_choices,
    draw=draw_choices,
)
