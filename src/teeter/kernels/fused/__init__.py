"""Kernels of several steps in one pass over a GPU, in Triton; each has a plain twin in torch that says what it is."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from teeter.seeds import is_portable

__all__ = ["use_fused_kernel"]

WORTH = 10**11
"""Operations that take as long as a millisecond: for fewer nobody should wait until kernels are compiled."""


def use_fused_kernel(tensor: Tensor, operations: int) -> bool:
    """Tell whether so many operations on ``tensor`` are worth a fused kernel, and one can run where it is.

    ``TEETER_FUSED=0`` in the environment says never, and ``TEETER_FUSED=1`` however few they are.
    """
    told = os.environ.get("TEETER_FUSED")
    if not tensor.is_cuda or told == "0" or is_portable():
        return False
    return (told == "1" or operations >= WORTH) and _has_triton() and _copies_tiles(tensor.device)


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


@cache
def _copies_tiles(device: torch.device) -> bool:
    """Tell whether a GPU copies whole tiles by itself, and holds as many as the kernels ask it to.

    Hopper does, and Blackwell in data centres; in workstations (12.0) a program has less than half of their memory.
    """
    return torch.cuda.get_device_capability(device)[0] in (9, 10)
