"""Select rows to label from arrays, tables, model files and shards.

A ``SelectionRequest`` becomes candidates, in memory or in shards, then picks, then one
``Selection`` with its provenance. Shards are scored by an ``Executor``, in local processes or on a
Ray cluster. Importing this package does not load torch: the names below are imported when they are
first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from teeter.base.lazy_imports import import_lazily

if TYPE_CHECKING:
    from teeter.selection.api import run_selection, select_from_file, select_from_shards
    from teeter.selection.executors import (
        Executor,
        LocalExecutor,
        RayExecutor,
        Task,
        make_executor,
        run_plan,
        run_task,
    )
    from teeter.selection.request import Provenance, SelectedRow, Selection, SelectionRequest
    from teeter.selection.scoring import (
        FeatureSource,
        ScoringJob,
        fetch_features,
        make_feature_source,
    )

__all__ = [
    "Executor",
    "FeatureSource",
    "LocalExecutor",
    "Provenance",
    "RayExecutor",
    "ScoringJob",
    "SelectedRow",
    "Selection",
    "SelectionRequest",
    "Task",
    "fetch_features",
    "make_executor",
    "make_feature_source",
    "run_plan",
    "run_selection",
    "run_task",
    "select_from_file",
    "select_from_shards",
]

# The command line shows these in its help, so they are where importing loads no torch.

DEFAULT_STRATEGY = "ldm-s"

DEFAULT_REFERENCE = 50_000
"""Rows of a sharded pool on which the LDM counts flips."""

DEFAULT_CANDIDATES = 100_000
"""Rows of a sharded pool that a strategy picks from if it needs all its candidates at once."""

DEFAULT_WORK = "teeter-work"
"""Folder of the scores of a sharded selection."""

__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "api": ["run_selection", "select_from_file", "select_from_shards"],
        "executors": [
            "Executor",
            "LocalExecutor",
            "RayExecutor",
            "Task",
            "make_executor",
            "run_plan",
            "run_task",
        ],
        "request": ["Provenance", "SelectedRow", "Selection", "SelectionRequest"],
        "scoring": ["FeatureSource", "ScoringJob", "fetch_features", "make_feature_source"],
    },
)
