"""Strategies by name. Each is a thin class over a kernel, under the contract of ``base``."""

from __future__ import annotations

from teeter.strategies import (
    bayesian,
    cluster_margin,
    coverage,
    fass,
    gradients,
    ldm,
    seeding,
    uncertainty,
)
from teeter.strategies.base import Context, ScoringStrategy, Strategy, TopKStrategy, registry

__all__ = ["Context", "ScoringStrategy", "Strategy", "TopKStrategy", "get", "names", "register"]

register = registry.register
"""Register a strategy class under a name."""

names = registry.names
"""Return the names of all strategies."""

get = registry.get
"""Return the strategy class with a name."""

# Importing a family registers it.
_BUILT_IN = (cluster_margin, coverage, fass, gradients, ldm, bayesian, seeding, uncertainty)
