"""The demonstration: compare strategies on handwritten digits, and show the digits LDM-S picks.

It is a run of the setting ``digits`` with a page of its own. The run folder stays beside the page,
so ``teeter bench report`` can compare it further.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from teeter.analysis.plot_style import figure_png
from teeter.analysis.plots import pca_2d, plot_curves, plot_picks
from teeter.analysis.report.render import ImageBlock, Section, TableBlock, render_page
from teeter.analysis.statistics import Gain, gain_over, labels_to_reach
from teeter.analysis.table_formats import format_p_value
from teeter.errors import InputError, TrainingError
from teeter.experiments.experiment import Experiment
from teeter.experiments.results import Cell, Curves, Run, by_cells
from teeter.experiments.runner import Progress, run_setting
from teeter.experiments.settings import Setting, override, setting_named
from teeter.strategies.api import ldm

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["DEMO_SETTING", "DemoResult", "DemoRow", "run_demo"]

DEMO_SETTING = override(
    setting_named("digits"), {"strategies": ("ldm-s", "random", "entropy", "margin", "badge")}
)
"""What the demonstration runs: 20 to 220 labels, 5 repetitions."""

_IMAGE_SHAPE = (8, 8)

_ROUNDS_BEFORE_MAP = 2
"""The map of the pool shows the picks after this many rounds of labels."""


@dataclass(frozen=True)
class DemoRow:
    """A strategy's row in the table."""

    strategy: str
    accuracy: float
    """Mean over repetitions, and over the rounds after the first."""
    last: float
    """Mean accuracy in the last round."""
    gain: Gain | None
    """Over Random; None for Random itself."""
    labels: float | None
    """Number of labels at which it is as accurate as Random at its end; None if it never is."""


@dataclass(frozen=True)
class DemoResult:
    """The results of the demonstration, and the page that shows them."""

    page: Path
    curves: Path
    """The learning curves as a PNG file."""
    rows: tuple[DemoRow, ...]
    labels: int
    """The number of labels at the end of each run."""

    def row(self, strategy: str) -> DemoRow:
        """Return the row of a strategy."""
        return next(row for row in self.rows if row.strategy == strategy)


def run_demo(
    folder: Path,
    *,
    setting: Setting = DEMO_SETTING,
    on_step: Progress = lambda done, total: None,
) -> DemoResult:
    """Run strategies on handwritten digits, and write a page, figures and results.

    Called again with the same folder, it continues a run that was interrupted.

    Args:
        folder: where the page goes; the run is recorded in its subfolder ``run``.
        setting: a setting of the dataset ``digits``, with the strategies ldm-s and random.
        on_step: called with the number of finished rounds and of all rounds.

    Raises:
        InputError: if the setting is another one, or the folder holds a run with other values.
        TrainingError: if a strategy fails.
    """
    if setting.dataset != "digits" or not {"ldm-s", "random"} <= set(setting.strategies):
        raise InputError(
            f"The demonstration compares ldm-s with random on digits, and {setting.name} has "
            f"{', '.join(setting.strategies)} on {setting.dataset}."
        )

    run = run_setting(setting, folder / "run", device="cpu", on_step=on_step)
    for cell, error in run.failures.items():
        raise TrainingError(f"{cell.strategy}, repetition {cell.repetition}, failed: {error}")

    # An earlier call may have recorded more repetitions or strategies.
    run = replace(run, strategies=setting.strategies, repetitions=setting.repetitions)
    curves = run.curves()
    rows = tuple(_make_row(name, curves) for name in curves.accuracy)

    curves_figure = plot_curves(curves.labelled, curves.accuracy)
    picks_figure = _plot_picks(run, Experiment(setting, None, torch.device("cpu")))
    curves_figure.savefig(folder / "curves.png", dpi=150)
    picks_figure.savefig(folder / "picks.png", dpi=150)

    page = folder / "index.html"
    page.write_text(_render(run, rows, curves_figure, picks_figure), encoding="utf-8")
    results = {
        **run.facts,
        "setting": asdict(setting),
        "lines": [asdict(row) for row in rows],
        "labelled": curves.labelled.tolist(),
        "accuracy": {name: values.round(6).tolist() for name, values in curves.accuracy.items()},
    }
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")

    return DemoResult(page, folder / "curves.png", rows, int(curves.labelled[-1]))


def _make_row(strategy: str, curves: Curves) -> DemoRow:
    accuracy = curves.accuracy[strategy]
    random = curves.accuracy["random"]
    final_random = float(random[:, -1].mean())

    gain = None
    if strategy != "random":
        gain = gain_over(accuracy, random)
    return DemoRow(
        strategy=strategy,
        accuracy=float(accuracy[:, 1:].mean()),
        last=float(accuracy[:, -1].mean()),
        gain=gain,
        labels=labels_to_reach(curves.labelled, accuracy.mean(axis=0), final_random),
    )


def _plot_picks(run: Run, experiment: Experiment) -> Figure:
    """Draw the pool as LDM-S saw it in its first repetition, with its picks."""
    cell = Cell("ldm-s", 0)
    rounds = by_cells(run.rounds)[cell][:_ROUNDS_BEFORE_MAP]

    learner = experiment.make_learner(cell)
    for result in rounds:
        experiment.tell_labels(learner, result)
    learner.resume(len(rounds), {})
    learner.fit()

    candidates = learner.pool.candidates()
    picks = learner.ask(experiment.setting.query)
    images = experiment.train.inputs[picks].numpy().reshape(-1, *_IMAGE_SHAPE)

    outputs = learner.observe(experiment.train.inputs[candidates], {"features", "head"})
    # Not None: the network ends in a linear layer.
    features = cast(Tensor, outputs.features)
    weight = cast(Tensor, outputs.weight)
    disagreement = ldm(features, weight, outputs.bias).numpy()
    return plot_picks(
        pca_2d(features.numpy()), disagreement, np.searchsorted(candidates, picks), images
    )


def _render(run: Run, rows: Sequence[DemoRow], curves_figure: Figure, picks_figure: Figure) -> str:
    """Return the page as HTML."""
    setting = run.setting
    map_labels = setting.initial + _ROUNDS_BEFORE_MAP * setting.query

    comparison = Section(
        "Accuracy against labels",
        f"Means over {run.repetitions} repetitions, with bands of one standard deviation. All "
        "strategies begin with the same labels and the same networks.",
        [
            ImageBlock(figure_png(curves_figure), "Learning curves of each strategy"),
            TableBlock(_table_rows(rows)),
        ],
    )
    selection = Section(
        "What LDM-S asks about",
        f"The pool after {map_labels} labels, laid out by the network's last features. Dark rows "
        "are those whose label flips under the smallest change of the network. The picks are such "
        "rows, spread over the pool.",
        [
            ImageBlock(
                figure_png(picks_figure),
                "The pool coloured by its least disagree metric, with the picked digits beside it",
            )
        ],
    )
    return render_page(
        "teeter on handwritten digits",
        f"A small network learns to read digits, {setting.query} labels at a time. Which "
        f"{setting.query} makes the difference.",
        [comparison, selection],
        {name: value for name, value in run.facts.items() if value is not None},
    )


def _table_rows(rows: Sequence[DemoRow]) -> list[dict[str, Any]]:
    final_random = next(row.last for row in rows if row.strategy == "random")

    table = []
    for row in rows:
        gain = ""
        p_value = ""
        if row.gain is not None:
            gain = f"{row.gain.mean:+.2f} ± {row.gain.deviation:.2f} points"
            p_value = format_p_value(row.gain.p)
            if not row.gain.significant:
                p_value += ", not significant"

        table.append(
            {
                "strategy": row.strategy,
                "mean accuracy": f"{row.accuracy:.1%}",
                "last accuracy": f"{row.last:.1%}",
                "gain over random": gain,
                "p (paired t-test)": p_value,
                f"labels for {final_random:.1%}": _format_labels(row.labels),
            }
        )
    return table


def _format_labels(labels: float | None) -> str:
    if labels is None:
        return "not reached"
    return f"{labels:.0f}"
