"""For researchers: named datasets, experiments and their analysis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teeter.base.lazy_imports import import_lazily

if TYPE_CHECKING:
    from teeter.bench.analysis.run_comparison import compare_strategies
    from teeter.bench.experiments.sweep import sweep

__all__ = ["compare_strategies", "sweep"]

__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "analysis.run_comparison": ["compare_strategies"],
        "experiments.sweep": ["sweep"],
    },
)
