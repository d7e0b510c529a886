"""A tiny run of digits, and what it found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from teeter.bench.experiments.run_folder import Run, by_cells
from teeter.bench.experiments.settings import setting_named

TINY = replace(
    setting_named("digits"),
    name="tiny",
    train=300,
    test=100,
    final=80,
    epochs=4,
    repetitions=2,
    strategies=("random", "ldm-s", "cluster-margin"),
)


def results_without_times(run: Run) -> dict[Any, list[tuple[Any, ...]]]:
    """Return the rounds of every cell, without the seconds they took."""
    return {
        cell: [
            (
                round_.number,
                round_.labelled,
                round_.accuracy,
                round_.loss,
                round_.picks,
                round_.ensemble_accuracy,
            )
            for round_ in rounds
        ]
        for cell, rounds in by_cells(run.rounds).items()
    }
