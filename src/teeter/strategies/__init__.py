"""Strategies by name. Each is a thin class over a kernel, under the contract of ``base``.

``ABLATIONS`` names those of the LDM paper that leave out or replace a part of LDM-S. They are for
comparisons, and listings show them apart from the others. ``SEVERAL_LABELS`` names those that only
rows with several labels can use.
"""

from __future__ import annotations

from teeter.strategies import (
    ablations,
    diverse,
    herding,
    ldm,
    perturbed,
    several_labels,
    uncertainty,
)
from teeter.strategies.base import (
    Context,
    ScoringStrategy,
    Strategy,
    TopKStrategy,
    registry,
)

__all__ = [
    "ABLATIONS",
    "SEVERAL_LABELS",
    "Context",
    "ScoringStrategy",
    "Strategy",
    "TopKStrategy",
    "get",
    "names",
    "register",
]

register = registry.register
"""Register a strategy class under a name."""

names = registry.names
"""Return the names of all strategies."""

get = registry.get
"""Return the strategy class with a name."""


def __dir__() -> list[str]:
    """Return the public names, without the modules of this package."""
    return list(__all__)


# Importing a family registers it.
_BUILT_IN = (ablations, diverse, herding, ldm, perturbed, several_labels, uncertainty)

ABLATIONS = frozenset(
    name
    for name, strategy in registry.loaded_classes().items()
    if strategy.__module__ == ablations.__name__
)
"""The names of the paper's ablations of LDM-S."""

SEVERAL_LABELS = frozenset(
    name
    for name, strategy in registry.loaded_classes().items()
    if strategy.labels_per_row == "several"
)
"""The names of the strategies for rows that may have several labels only."""
