"""The demonstration: compare strategies on handwritten digits, and show the digits LDM-S picks.

It is a run of the setting ``digits`` with a page of its own. The run folder stays beside the page,
so ``teeter bench report`` can compare it further.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from teeter.bench.analysis.plots import figure_png, pca_2d, plot_curves, plot_picks
from teeter.bench.analysis.report import Section, picture, render_block, render_page
from teeter.bench.analysis.run_comparison import BASELINE, RunComparison, compare_strategies
from teeter.bench.analysis.table_formats import format_p_value
from teeter.bench.experiments.experiment import Experiment
from teeter.bench.experiments.run_folder import Cell, Run, by_cells
from teeter.bench.experiments.runner import Progress, run_setting
from teeter.bench.experiments.settings import Setting, override, setting_named
from teeter.errors import InputError, TrainingError
from teeter.learner.rounds import resume
from teeter.strategies.api import ldm

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "DEMO_SETTING",
    "labels_for_random_s_accuracy",
    "run_demo",
]


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


def run_demo(
    folder: Path,
    *,
    setting: Setting = DEMO_SETTING,
    on_step: Progress = lambda done, total: None,
) -> RunComparison:
    """Run strategies on handwritten digits, and write a page, figures and results.

    Called again with the same folder, it continues a run that was interrupted.

    Args:
        folder: where the page goes; the run is recorded in its subfolder ``run``.
        setting: a setting of the dataset ``digits``, with the strategies ldm-s and random.
        on_step: called with the number of finished rounds and of all rounds.

    Returns:
        How the strategies compare, as the page ``index.html`` in the folder shows it.

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
    comparison = compare_strategies(run)

    # On the CPU like the run, so that the fit for the map repeats one of the run.
    experiment = Experiment(setting, None, torch.device("cpu"))
    curves_figure = plot_curves(comparison.labelled, run.curves().accuracy)
    picks_figure = _plot_picks(run, experiment)
    curves_figure.savefig(folder / "curves.png", dpi=150)
    picks_figure.savefig(folder / "picks.png", dpi=150)

    html = _render(comparison, curves_figure, picks_figure)
    (folder / "index.html").write_text(html, encoding="utf-8")

    # Its keys are part of its format. The setting is the one asked for: that of the run may have
    # more repetitions or strategies.
    results = {
        **run.facts,
        "setting": asdict(setting),
        "lines": [_result_of(comparison, name) for name in run.strategies],
        "labelled": comparison.labelled.tolist(),
        "accuracy": {name: comparison.accuracy[name].round(6).tolist() for name in run.strategies},
    }
    results_text = json.dumps(results, indent=1) + "\n"
    (folder / "results.json").write_text(results_text, encoding="utf-8")
    return comparison


def _result_of(comparison: RunComparison, strategy: str) -> dict[str, Any]:
    """Return what ``results.json`` says about a strategy. Random has no gain over itself."""
    accuracy = comparison.accuracy[strategy]
    gain = None
    if strategy in comparison.gains:
        gain = asdict(comparison.gains[strategy])
    return {
        "strategy": strategy,
        # Without the first round, in which all strategies have the same labels.
        "accuracy": float(accuracy[:, 1:].mean()),
        "last": float(accuracy[:, -1].mean()),
        "gain": gain,
        "labels": labels_for_random_s_accuracy(comparison, strategy),
    }


def labels_for_random_s_accuracy(comparison: RunComparison, strategy: str) -> float | None:
    """Return the labels at which a strategy is as accurate as Random at its end; None if never."""
    if strategy == BASELINE:
        return comparison.savings["ldm-s"].baseline
    return comparison.savings[strategy].labels


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


def _render(comparison: RunComparison, curves_figure: Figure, picks_figure: Figure) -> str:
    """Return the page as HTML."""
    run = comparison.run
    setting = run.setting
    map_labels = setting.initial + _ROUNDS_BEFORE_MAP * setting.query

    repetitions = "One repetition, so the differences cannot be tested."
    if run.repetitions > 1:
        repetitions = (
            f"Means over {run.repetitions} repetitions, with bands of one standard deviation."
        )
    accuracy = Section(
        "Accuracy against labels",
        f"{repetitions} All strategies begin with the same labels and the same networks.",
        [
            picture(figure_png(curves_figure), "Learning curves of each strategy"),
            render_block("table", _table_rows(comparison)),
        ],
    )
    selection = Section(
        "What LDM-S picks",
        f"The pool after {map_labels} labels, laid out by the features of the network's last "
        f"layer. Dark points are digits whose predicted label flips under the smallest changes "
        f"to the network. The picks are such digits, spread over the pool.",
        [
            picture(
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
        [accuracy, selection],
        known_facts,
    )


def _table_rows(comparison: RunComparison) -> list[dict[str, Any]]:
    """Return the table of the page: a dictionary per strategy, from column to text."""
    accuracy_of_random = comparison.accuracy[BASELINE]
    final_random = accuracy_of_random[:, -1].mean()

    table = []
    for name in comparison.run.strategies:
        # Random has no gain over itself.
        gain_cell = ""
        p_value = ""
        gain = comparison.gains.get(name)
        if gain is not None and comparison.repetitions == 1:
            gain_cell = f"{gain.mean:+.2f} points"
            p_value = "one repetition: no test"
        elif gain is not None:
            gain_cell = f"{gain.mean:+.2f} ± {gain.deviation:.2f} points"
            p_value = format_p_value(gain.p)
            if not gain.significant:
                p_value += ", not significant"

        labels_cell = "not reached"
        labels = labels_for_random_s_accuracy(comparison, name)
        if labels is not None:
            labels_cell = f"{labels:.0f}"
        accuracy = comparison.accuracy[name]
        table.append(
            {
                "strategy": name,
                "mean accuracy": f"{accuracy[:, 1:].mean():.1%}",
                "last accuracy": f"{accuracy[:, -1].mean():.1%}",
                "gain over random": gain_cell,
                "p (paired t-test)": p_value,
                f"labels for {final_random:.1%}": labels_cell,
            }
        )
    return table
