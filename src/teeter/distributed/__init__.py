"""Score, fetch and train in tasks that local processes or a Ray cluster run.

Importing this package does not load torch: the names below are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from teeter.base.lazy_imports import import_lazily

if TYPE_CHECKING:
    from teeter.distributed.executors import (
        Executor,
        LocalExecutor,
        Task,
        make_executor,
        run_plan,
        run_task,
    )
    from teeter.distributed.feature_source import FeatureSource, make_feature_source
    from teeter.distributed.fetch import fetch_features
    from teeter.distributed.ray_executor import RayExecutor
    from teeter.distributed.scoring import ScoringJob

__all__ = [
    "Executor",
    "FeatureSource",
    "LocalExecutor",
    "RayExecutor",
    "ScoringJob",
    "Task",
    "fetch_features",
    "make_executor",
    "make_feature_source",
    "run_plan",
    "run_task",
]

__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "executors": ["Executor", "LocalExecutor", "Task", "make_executor", "run_plan", "run_task"],
        "feature_source": ["FeatureSource", "make_feature_source"],
        "fetch": ["fetch_features"],
        "ray_executor": ["RayExecutor"],
        "scoring": ["ScoringJob"],
    },
)
