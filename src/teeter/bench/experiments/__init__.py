"""Compare strategies on datasets whose labels are known.

==================  ==============================================================================
``settings``        ``Setting``: what an experiment consists of, and the settings of the LDM paper
``experiment``      the rows of a setting, learners that ask for their labels, and peak memory
``runner``          ``run_setting``: plan the groups, run the rounds, resume after a crash
``run_folder``      ``RunFolder``: the files of a run; its rounds, failures and curves
``sweep``           ``sweep``: strategies on your own data, over batch sizes and seeds
``tracking``        rounds for TensorBoard and other trackers
==================  ==============================================================================

Names are imported when they are first used, because most of them load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from teeter.base.lazy_imports import import_lazily

if TYPE_CHECKING:
    from teeter.bench.experiments.experiment import Experiment, initial_rows
    from teeter.bench.experiments.run_folder import (
        PHASES,
        Cell,
        Curves,
        Failure,
        Round,
        Run,
        RunFolder,
        by_cells,
        read_run,
        round_to_row,
    )
    from teeter.bench.experiments.runner import run_setting
    from teeter.bench.experiments.settings import (
        PAPER_STRATEGIES,
        Setting,
        override,
        read_setting,
        setting_named,
        setting_names,
    )
    from teeter.bench.experiments.sweep import Sweep, sweep
    from teeter.bench.experiments.tracking import (
        TensorBoardTracker,
        Tracker,
        learner_row,
        make_tracker,
        round_key,
    )

__all__ = [
    "PAPER_STRATEGIES",
    "PHASES",
    "Cell",
    "Curves",
    "Experiment",
    "Failure",
    "Round",
    "Run",
    "RunFolder",
    "Setting",
    "Sweep",
    "TensorBoardTracker",
    "Tracker",
    "by_cells",
    "initial_rows",
    "learner_row",
    "make_tracker",
    "override",
    "read_run",
    "read_setting",
    "round_key",
    "round_to_row",
    "run_setting",
    "setting_named",
    "setting_names",
    "sweep",
]

__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "experiment": ["Experiment", "initial_rows"],
        "run_folder": [
            "Cell",
            "Curves",
            "Failure",
            "PHASES",
            "Round",
            "Run",
            "RunFolder",
            "by_cells",
            "read_run",
            "round_to_row",
        ],
        "runner": ["run_setting"],
        "settings": [
            "PAPER_STRATEGIES",
            "Setting",
            "override",
            "read_setting",
            "setting_named",
            "setting_names",
        ],
        "sweep": ["Sweep", "sweep"],
        "tracking": ["TensorBoardTracker", "Tracker", "learner_row", "make_tracker", "round_key"],
    },
)
