"""Runs that never took place: made-up curves in the shape of results, to compare and report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from teeter.bench.experiments.run_folder import Round, Run
from teeter.bench.experiments.settings import Setting

LIFTS = {
    "ldm-s": 0.047,
    "random": 0.0,
    "entropy": -0.025,
    "margin": 0.041,
    "coreset": 0.011,
    "probcover": 0.002,
    "dbal": 0.001,
    "ensemble": 0.044,
    "badge": 0.03,
    "bait": 0.026,
}
NAMES = tuple(LIFTS)


def fake_accuracy(
    names: tuple[str, ...] = NAMES, *, repetitions: int = 5, rounds: int = 20, seed: int = 0
) -> dict[str, np.ndarray]:
    """Curves as they are: steep, then flat, noisy, and with one beginning."""
    rng = np.random.default_rng(seed)
    steps = np.arange(rounds)
    start = 0.45 + 0.01 * rng.normal(size=repetitions)

    accuracy = {}
    for name in names:
        rise = (
            0.45 + 0.45 * (1 - np.exp(-steps / 5)) + LIFTS.get(name, 0.0) * (1 - np.exp(-steps / 3))
        )
        noise = 0.006 * rng.normal(size=(repetitions, rounds)) + 0.004 * rng.normal(
            size=(repetitions, 1)
        )

        accuracy[name] = np.round(np.clip(rise + noise, 0, 1), 4)
        accuracy[name][:, 0] = start.round(4)

    return accuracy


def fake_setting(**values: Any) -> Setting:
    """The setting of OpenML 6, as in the paper, with some values changed."""
    paper = {
        "name": "openml-6",
        "dataset": "openml-6",
        "network": "mlp",
        "initial": 200,
        "query": 200,
        "final": 4000,
    }
    return Setting(**{**paper, "pool": 2000, "paper": "openml-6", **values})


def fake_run(
    accuracy: dict[str, np.ndarray] | None = None,
    *,
    folder: Path = Path("somewhere/a-run"),
    failures: dict[tuple[str, int], str] | None = None,
    finished: bool = True,
    **values: Any,
) -> Run:
    """A run of these accuracies, (R, T) by strategy."""
    accuracy = fake_accuracy() if accuracy is None else accuracy
    setting = fake_setting(**values)

    rounds = tuple(
        Round(
            strategy=name,
            repetition=r,
            number=t,
            labelled=setting.initial + setting.query * t,
            accuracy=float(value),
            loss=1.5 - float(value),
            picks=tuple(range(3 * t, 3 * t + 3)),
            seconds=_seconds(name),
            peak_memory=2**26 + 2**20 * t,
            ensemble_accuracy=float(value) + 0.01 if name == "ensemble" else None,
        )
        for name, runs in accuracy.items()
        for r, curve in enumerate(runs)
        for t, value in enumerate(curve)
    )

    repetitions = max((len(runs) for runs in accuracy.values()), default=0)
    facts = {"teeter": "0.1.0", "commit": None, "torch": "2.9", "hardware": "a thread", "seed": 0}
    return Run(
        folder, setting, facts, tuple(accuracy), repetitions, rounds, failures or {}, finished
    )


def _seconds(name: str) -> dict[str, float]:
    times = 5 if name == "ensemble" else 1
    asked = {"bait": 40.0, "random": 0.01}.get(name, 1.1)
    return {"training": 15.0 * times, "outputs": 0.6, "selection": asked, "evaluation": 0.4}
