"""Checks of option values, shared by the strategies."""

from __future__ import annotations

import numpy as np

__all__ = ["is_count", "is_number", "is_positive"]


def is_count(value: object) -> bool:
    """Return whether ``value`` is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return False
    return bool(value >= 1)


def is_number(value: object) -> bool:
    """Return whether ``value`` is a real number."""
    if isinstance(value, bool | np.complexfloating):
        return False
    return isinstance(value, int | float | np.number)


def is_positive(value: object) -> bool:
    """Return whether ``value`` is a positive, finite number."""
    return is_number(value) and bool(0 < value < np.inf)  # type: ignore[operator]
