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

from teeter.bench.analysis.plots import figure_png, pca_2d, plot_curves, plot_picks
from teeter.bench.analysis.report import ImageBlock, Section, TableBlock, render_page
from teeter.bench.analysis.statistics import Gain, gain_over, labels_to_reach
from teeter.bench.analysis.table_formats import format_p_value
from teeter.bench.experiments.experiment import Experiment
from teeter.bench.experiments.run_folder import Cell, Curves, Run, by_cells
from teeter.bench.experiments.runner import Progress, run_setting
from teeter.bench.experiments.settings import Setting, override, setting_named
from teeter.errors import InputError, TrainingError
from teeter.learner.rounds import resume
from teeter.strategies.api import ldm

if TYPE_CHECKING:
    from matplotlib.figure import Figure


DEMO_SETTING = override(
    setting_named("digits"),
    {
        "strategies": ("ldm-s", "random", "entropy", "margin", "badge"),
    },
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
    repetitions: int
    """The number of runs of each strategy. A difference can be tested from two on."""

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
        InputError: if the setting is another one, or the folder holds a run with different values.
        TrainingError: if a strategy fails.
    """
    has_both = {"ldm-s", "random"} <= set(setting.strategies)
    if setting.dataset != "digits" or not has_both:
        strategies = ", ".join(setting.strategies)
        raise InputError(
            f"The demonstration compares ldm-s with random on digits, but {setting.name} runs "
            f"{strategies} on {setting.dataset}."
        )

    run = run_setting(setting, folder / "run", device="cpu", on_step=on_step)
    for cell, error in run.failures.items():
        raise TrainingError(f"{cell.strategy}, repetition {cell.repetition}, failed: {error}")

    # An earlier call may have recorded more repetitions or strategies.
    run = replace(
        run,
        strategies=setting.strategies,
        repetitions=setting.repetitions,
    )
    curves = run.curves()
    rows = tuple(_make_row(name, curves) for name in curves.accuracy)

    # On the CPU like the run, so that the fit for the map repeats one of the run.
    experiment = Experiment(setting, None, torch.device("cpu"))
    curves_figure = plot_curves(curves.labelled, curves.accuracy)
    picks_figure = _plot_picks(run, experiment)

    curves_path = folder / "curves.png"
    curves_figure.savefig(curves_path, dpi=150)
    picks_figure.savefig(folder / "picks.png", dpi=150)

    page = folder / "index.html"
    html = _render(run, rows, curves_figure, picks_figure)
    page.write_text(html, encoding="utf-8")

    results = _collect_results(run, setting, rows, curves)
    results_text = json.dumps(results, indent=1) + "\n"
    (folder / "results.json").write_text(results_text, encoding="utf-8")

    return DemoResult(
        page=page,
        curves=curves_path,
        rows=rows,
        labels=int(curves.labelled[-1]),
        repetitions=run.repetitions,
    )


def _collect_results(
    run: Run,
    setting: Setting,
    rows: Sequence[DemoRow],
    curves: Curves,
) -> dict[str, Any]:
    """Return what ``results.json`` holds. Its keys are part of its format.

    The setting is the one asked for: that of the run may have more repetitions or strategies.
    """
    accuracy = {}
    for name, values in curves.accuracy.items():
        accuracy[name] = values.round(6).tolist()

    return {
        **run.facts,
        "setting": asdict(setting),
        "lines": [asdict(row) for row in rows],
        "labelled": curves.labelled.tolist(),
        "accuracy": accuracy,
    }


def _make_row(strategy: str, curves: Curves) -> DemoRow:
    """Return the row of a strategy: what it reached, and how that compares with Random."""
    # (repetitions, rounds) both.
    accuracy = curves.accuracy[strategy]
    random = curves.accuracy["random"]
    final_random = float(random[:, -1].mean())

    gain = None
    if strategy != "random":
        gain = gain_over(accuracy, random)

    # In the first round all strategies have the same labels.
    after_first = accuracy[:, 1:]
    mean_curve = accuracy.mean(axis=0)
    return DemoRow(
        strategy=strategy,
        accuracy=float(after_first.mean()),
        last=float(accuracy[:, -1].mean()),
        gain=gain,
        labels=labels_to_reach(curves.labelled, mean_curve, final_random),
    )


def _plot_picks(run: Run, experiment: Experiment) -> Figure:
    """Draw the pool as LDM-S saw it in its first repetition, with its picks."""
    cell = Cell("ldm-s", 0)
    all_rounds = by_cells(run.rounds)[cell]
    rounds = all_rounds[:_ROUNDS_BEFORE_MAP]

    # The run keeps labels and picks, but no networks: repeat the fit of that round.
    learner = experiment.make_learner(cell)
    for result in rounds:
        experiment.tell_labels(learner, result)
    resume(learner, len(rounds), {})
    learner.fit()

    candidates = learner.pool.candidates()
    picks = learner.ask(experiment.setting.query)
    pixels = experiment.train.inputs[picks].numpy()
    images = pixels.reshape(-1, *_IMAGE_SHAPE)

    candidate_inputs = experiment.train.inputs[candidates]
    outputs = learner.observe(candidate_inputs, {"features", "head"})
    # Not None: the network ends in a linear layer.
    features = cast(Tensor, outputs.features)
    weight = cast(Tensor, outputs.weight)
    disagreement = ldm(features, weight, outputs.bias).numpy()

    return plot_picks(
        pca_2d(features.numpy()),
        disagreement,
        np.searchsorted(candidates, picks),
        images,
    )


def _render(
    run: Run,
    rows: Sequence[DemoRow],
    curves_figure: Figure,
    picks_figure: Figure,
) -> str:
    """Return the page as HTML."""
    setting = run.setting
    map_labels = setting.initial + _ROUNDS_BEFORE_MAP * setting.query

    repetitions = "One repetition, so the differences cannot be tested."
    if run.repetitions > 1:
        repetitions = (
            f"Means over {run.repetitions} repetitions, with bands of one standard deviation."
        )
    comparison = Section(
        "Accuracy against labels",
        f"{repetitions} All strategies begin with the same labels and the same networks.",
        [
            ImageBlock(figure_png(curves_figure), "Learning curves of each strategy"),
            TableBlock(_table_rows(rows, run.repetitions)),
        ],
    )
    selection = Section(
        "What LDM-S picks",
        f"The pool after {map_labels} labels, laid out by the features of the network's last "
        f"layer. Dark points are digits whose predicted label flips under the smallest changes "
        f"to the network. The picks are such digits, spread over the pool.",
        [
            ImageBlock(
                figure_png(picks_figure),
                "The pool coloured by its least disagree metric, with the picked digits beside it",
            )
        ],
    )
    known_facts = {name: value for name, value in run.facts.items() if value is not None}
    return render_page(
        "teeter on handwritten digits",
        f"A small network learns to read digits, {setting.query} labels at a time. Its accuracy "
        f"depends on which {setting.query} digits are labelled.",
        [comparison, selection],
        known_facts,
    )


def _table_rows(rows: Sequence[DemoRow], repetitions: int) -> list[dict[str, Any]]:
    """Return the table of the page: a dictionary per strategy, from column to text."""
    final_random = next(row.last for row in rows if row.strategy == "random")

    table = []
    for row in rows:
        # Random has no gain over itself.
        gain = ""
        p_value = ""
        if row.gain is not None and repetitions == 1:
            gain = f"{row.gain.mean:+.2f} points"
            p_value = "one repetition: no test"
        elif row.gain is not None:
            gain = f"{row.gain.mean:+.2f} ± {row.gain.deviation:.2f} points"
            p_value = format_p_value(row.gain.p)
            if not row.gain.significant:
                p_value += ", not significant"

        labels = "not reached"
        if row.labels is not None:
            labels = f"{row.labels:.0f}"

        table.append(
            {
                "strategy": row.strategy,
                "mean accuracy": f"{row.accuracy:.1%}",
                "last accuracy": f"{row.last:.1%}",
                "gain over random": gain,
                "p (paired t-test)": p_value,
                f"labels for {final_random:.1%}": labels,
            }
        )
    return table
