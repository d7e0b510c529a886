"""The demonstration: strategies side by side on handwritten digits, and the digits that LDM-S asks about."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from teeter.analysis.plot_style import figure_png
from teeter.analysis.plots import pca_2d, plot_curves, plot_picks
from teeter.analysis.report.render import ImageBlock, Section, TableBlock, render_page
from teeter.analysis.statistics import Gain, gain_over, labels_to_reach
from teeter.analysis.table_formats import format_p_value
from teeter.arrays import describe_device
from teeter.experiments.play import initial_rows, play
from teeter.learner import Learner
from teeter.models.networks import mlp
from teeter.models.outputs import Outputs
from teeter.strategies.api import ldm
from teeter.training import TrainingConfig
from teeter.version import __version__, commit

__all__ = ["Demo", "Line", "run_demo"]

Array = npt.NDArray[np.floating[Any]]
Cell = tuple[str, int]
"""A strategy and a repetition."""

STRATEGIES = ("ldm-s", "random", "entropy", "margin", "badge")
POOL, INITIAL, BATCH, ROUNDS = 1300, 20, 20, 10


@dataclass(frozen=True)
class Line:
    """A strategy's line of the table."""

    strategy: str
    accuracy: float
    """The mean over rounds and repetitions."""
    last: float
    gain: Gain | None
    """Over Random; None for Random itself."""
    labels: float | None
    """Labels needed to be as accurate as Random at its end."""


@dataclass(frozen=True)
class Demo:
    """What the demonstration found, and where it is shown."""

    page: Path
    picture: Path
    lines: tuple[Line, ...]
    labels: int
    """How many labels each run ended with."""


def run_demo(
    folder: Path,
    *,
    strategies: Sequence[str] = STRATEGIES,
    repetitions: int = 5,
    rounds: int = ROUNDS,
    training: TrainingConfig | None = None,
    workers: int = 2,
    on_step: Callable[[int, int], None] = lambda done, whole: None,
) -> Demo:
    """Run every strategy ``repetitions`` times on the digits, and write a page, pictures and results into ``folder``.

    ``on_step`` is told how many runs are done, of how many.
    """
    training = training or TrainingConfig()
    cells = [(name, seed) for seed in range(repetitions) for name in strategies]
    run = partial(_run, rounds=rounds, training=training)
    curve = _all_runs(cells, run, workers=workers, on_step=on_step)
    accuracy = {
        name: np.array([curve[name, seed] for seed in range(repetitions)]) for name in strategies
    }
    labelled = INITIAL + BATCH * np.arange(rounds + 1, dtype=float)
    lines = tuple(_line(name, labelled, accuracy) for name in accuracy)
    curves, chosen = plot_curves(labelled, accuracy), _draw_a_round(training)
    folder.mkdir(parents=True, exist_ok=True)
    curves.savefig(folder / "curves.png", dpi=150)
    chosen.savefig(folder / "picks.png", dpi=150)
    facts = _facts()
    (folder / "index.html").write_text(
        _page(lines, curves, chosen, repetitions, facts), encoding="utf-8"
    )
    results = {
        **facts,
        "pool": POOL,
        "training": asdict(training),
        "lines": [asdict(line) for line in lines],
        "labelled": labelled.tolist(),
        "accuracy": {name: runs.round(6).tolist() for name, runs in accuracy.items()},
    }
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return Demo(folder / "index.html", folder / "curves.png", lines, int(labelled[-1]))


@cache
def _digits() -> tuple[Array, npt.NDArray[np.int64]]:
    """Return 1,797 digits in an order of our own: features (N, 64) in [0, 1], labels (N,)."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.data))
    return (digits.data[order] / 16).astype(np.float32), digits.target[order].astype(np.int64)


def _learner(strategy: str, seed: int, training: TrainingConfig) -> Learner:
    features, _ = _digits()
    return Learner(
        partial(_network),
        features[:POOL],
        strategy,
        classes=10,
        seed=seed,
        training=training,
        device="cpu",
    )


def _network(seed: int) -> torch.nn.Module:
    return mlp(64, 10, seed=seed)


def _run(strategy: str, seed: int, rounds: int, training: TrainingConfig) -> list[float]:
    """Return the test accuracy after each round of one run."""
    torch.set_num_threads(1)
    features, labels = _digits()
    learner = _learner(strategy, seed, training)
    played = play(
        learner,
        labels[:POOL],
        initial=initial_rows(POOL, INITIAL, seed),
        n=BATCH,
        rounds=rounds,
        test=(features[POOL:], labels[POOL:]),
    )
    return [one.accuracy for one in played]


def _all_runs(
    cells: Sequence[Cell],
    run: Callable[[str, int], list[float]],
    *,
    workers: int,
    on_step: Callable[[int, int], None],
) -> dict[Cell, list[float]]:
    """Return the curve of every strategy and repetition."""
    found: dict[Cell, list[float]] = {}
    if workers == 1:
        for done, cell in enumerate(cells, start=1):
            found[cell] = run(*cell)
            on_step(done, len(cells))
        return found
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(run, *cell): cell for cell in cells}
        for done, future in enumerate(as_completed(waiting), start=1):
            found[waiting[future]] = future.result()
            on_step(done, len(cells))
    return found


def _line(name: str, labelled: Array, accuracy: dict[str, Array]) -> Line:
    runs, random = accuracy[name], accuracy["random"]
    return Line(
        strategy=name,
        accuracy=float(runs[:, 1:].mean()),
        last=float(runs[:, -1].mean()),
        gain=None if name == "random" else gain_over(runs, random),
        labels=labels_to_reach(labelled, runs.mean(axis=0), float(random[:, -1].mean())),
    )


def _draw_a_round(training: TrainingConfig) -> Any:
    """Return a figure of the pool after the first fit, with what LDM-S picks."""
    features, labels = _digits()
    learner = _learner("ldm-s", 0, training)
    start = initial_rows(POOL, 3 * INITIAL, 0)
    learner.tell(start, labels[:POOL][start])
    learner.fit()
    rows = learner.ask(BATCH)
    free = learner.pool.candidates()
    outputs: Outputs = learner.observe(features[free], {"features", "head"})
    if outputs.features is None or outputs.weight is None:
        raise TypeError("The network of the demonstration ends in a linear layer.")
    values = ldm(outputs.features, outputs.weight, outputs.bias).numpy()
    places = np.searchsorted(free, rows)
    return plot_picks(
        pca_2d(outputs.features.numpy()), values, places, features[rows].reshape(-1, 8, 8)
    )


def _facts() -> dict[str, str | None]:
    hardware = describe_device(torch.device("cpu"))
    return {
        "teeter": __version__,
        "commit": commit(),
        "torch": str(torch.__version__),
        "hardware": hardware,
    }


def _page(
    lines: Sequence[Line], curves: Any, chosen: Any, repetitions: int, facts: dict[str, str | None]
) -> str:
    return render_page(
        "teeter on handwritten digits",
        "A small network learns to read digits, twenty labels at a time. Which twenty makes the difference.",
        [
            Section(
                "Accuracy against labels",
                f"The mean of {repetitions} repetitions, with a band of one standard deviation. All strategies begin "
                "with the same labels and the same networks.",
                [
                    ImageBlock(figure_png(curves), "Learning curves of each strategy"),
                    TableBlock(_cells(lines)),
                ],
            ),
            Section(
                "What LDM-S asks about",
                "The pool after 60 labels, laid out by the network's last features. Dark rows are those whose label "
                "flips under the smallest change of the network; the picks are such rows, spread over the pool.",
                [
                    ImageBlock(
                        figure_png(chosen),
                        "The pool coloured by its least disagree metric, with the picked digits beside it",
                    )
                ],
            ),
        ],
        {name: value for name, value in facts.items() if value is not None},
    )


def _cells(lines: Sequence[Line]) -> list[dict[str, str]]:
    random = next(line for line in lines if line.strategy == "random")
    return [
        {
            "strategy": line.strategy,
            "mean accuracy": f"{line.accuracy:.1%}",
            "last accuracy": f"{line.last:.1%}",
            "gain over random": ""
            if line.gain is None
            else f"{line.gain.mean:+.2f} ± {line.gain.deviation:.2f} points",
            "p (paired t-test)": "" if line.gain is None else _chance(line.gain),
            f"labels for {random.last:.1%}": "not reached"
            if line.labels is None
            else f"{line.labels:.0f}",
        }
        for line in lines
    ]


def _chance(gain: Gain) -> str:
    shown = format_p_value(gain.p)
    return shown if gain.significant else f"{shown}, not significant"
