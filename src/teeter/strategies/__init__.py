"""Strategies by name: each a thin class over a kernel, under the contract of ``strategies.base``."""

from __future__ import annotations

from teeter.strategies import least_disagree, seeding, uncertainty
from teeter.strategies.base import Context, Scored, Strategy, TopScored, registry

__all__ = ["Context", "Scored", "Strategy", "TopScored", "get", "names", "register"]

register = registry.register
names = registry.names
get = registry.get

_BUILT_IN = (least_disagree, seeding, uncertainty)  # importing a family registers it
