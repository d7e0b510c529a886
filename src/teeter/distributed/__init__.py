"""Score, fetch and train in tasks that local processes or a Ray cluster run.

Importing this package does not load torch: the names below are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_HOMES = {
    "Executor": "executors",
    "FeatureSource": "feature_source",
    "LocalExecutor": "executors",
    "RayExecutor": "ray_executor",
    "ScoringJob": "scoring",
    "Task": "executors",
    "fetch_features": "fetch",
    "make_executor": "executors",
    "make_feature_source": "feature_source",
    "run_plan": "executors",
    "run_task": "executors",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    home = _HOMES[name]
    module = import_module(f"{__name__}.{home}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return __all__
