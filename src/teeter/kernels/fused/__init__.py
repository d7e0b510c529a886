"""Kernels of several steps in one pass over a GPU, in Triton; each has a plain twin in torch that says what it is."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

from torch import Tensor

__all__ = ["is_fused"]


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def is_fused(tensor: Tensor) -> bool:
    """Tell whether what is computed from ``tensor`` is fused: it is on a GPU, Triton is there, and it was asked for."""
    return tensor.is_cuda and os.environ.get("TEETER_FUSED") == "1" and _has_triton()
