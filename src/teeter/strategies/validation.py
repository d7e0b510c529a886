"""What strategies ask of their options."""

from __future__ import annotations

import numpy as np

__all__ = ["is_count", "is_number", "is_positive"]


def is_count(value: object) -> bool:
    """Tell whether an option is a whole number from 1 up."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 1)


def is_number(value: object) -> bool:
    """Tell whether an option is a number."""
    return isinstance(value, int | float | np.number) and not isinstance(
        value, bool | np.complexfloating
    )


def is_positive(value: object) -> bool:
    """Tell whether an option is a positive number that is not infinite."""
    return is_number(value) and bool(0 < value < np.inf)  # type: ignore[operator]
