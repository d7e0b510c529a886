"""Triton kernels that do several steps in one pass over a GPU, and when to use them.

Each has a plain twin in torch that defines what it computes: ``kernels.flip_rates`` for
``fused.flip_rates`` and ``fused.subspace_rates``, ``kernels.ranks`` for ``fused.ranks``, and the
loop of ``kernels.seeding.seed_rows`` for ``fused.seeding``. README.md in this folder explains how
they work. The modules import Triton, so callers import them only after ``use_fused_kernel`` has
checked for it.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from teeter.base.seeds import is_portable

__all__ = ["MAX_FUSED_RANK", "use_fused_kernel"]

MIN_OPERATIONS = 10**11
"""About a millisecond of work. Less than that is not worth the compilation of a kernel."""

MAX_FUSED_RANK = 64
"""Most dimensions of a subspace for the fused kernel: more would not fit into one product."""


def use_fused_kernel(tensor: Tensor, operations: int) -> bool:
    """Return whether to use a fused kernel for work on ``tensor``.

    The environment variable ``TEETER_FUSED`` overrides the choice: 0 means never, 1 means even for
    little work, if the GPU can run them.

    Args:
        tensor: any tensor on the device where the work is done.
        operations: rough number of floating-point operations.
    """
    setting = os.environ.get("TEETER_FUSED")
    if not tensor.is_cuda or setting == "0" or is_portable():
        return False

    # The cheap questions first: this is asked for every call of a kernel, also on small pools.
    is_worth_it = setting == "1" or operations >= MIN_OPERATIONS
    return is_worth_it and _has_triton() and _copies_tiles(tensor.device)


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


@cache
def _copies_tiles(device: torch.device) -> bool:
    """Return whether a GPU copies tiles in hardware (TMA) and has the shared memory for them.

    Hopper (9.x) and data-centre Blackwell (10.x) do. Workstation Blackwell (12.x) has less than
    half of the shared memory per program.
    """
    major_version, _ = torch.cuda.get_device_capability(device)
    return major_version in (9, 10)
