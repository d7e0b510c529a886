"""Strategies by name: each a thin class over a kernel, under the contract of ``strategies.base``."""

from __future__ import annotations

from teeter.strategies import (
    clustered,
    coverage,
    filtered,
    gradients,
    least_disagree,
    posterior,
    seeding,
    uncertainty,
)
from teeter.strategies.base import Context, Scored, Strategy, TopScored, registry

__all__ = ["Context", "Scored", "Strategy", "TopScored", "get", "names", "register"]

register = registry.register
names = registry.names
get = registry.get

# Importing a family registers it.
_BUILT_IN = (clustered, coverage, filtered, gradients, least_disagree, posterior, seeding, uncertainty)
