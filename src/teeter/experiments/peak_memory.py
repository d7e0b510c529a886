"""Measure the peak memory of a block of code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

__all__ = ["Peak", "peak_memory"]

_CLEAR_REFS = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")

_RESET_PEAK = "5"
"""What Linux takes in ``clear_refs`` to reset the peak of the resident memory."""


@dataclass
class Peak:
    """The peak memory of a block, once the block has ended."""

    bytes: int = 0
    """0 if the operating system does not report it."""


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Peak]:
    """Measure the peak memory of the block: of a GPU, or of the whole process on a CPU.

    Args:
        device: a CUDA device counts the memory allocated by torch, any other device the resident
            memory of this process.

    Yields:
        A ``Peak`` that is filled in when the block ends.
    """
    peak = Peak()

    if device.type == "cuda":
        # Counts torch's own allocations, so other processes on the GPU do not matter.
        torch.cuda.reset_peak_memory_stats(device)
        yield peak
        peak.bytes = int(torch.cuda.max_memory_allocated(device))
        return

    # Without the reset, the peak would be that of the process since its start.
    with contextlib.suppress(OSError):
        _CLEAR_REFS.write_text(_RESET_PEAK, encoding="utf-8")
    yield peak
    peak.bytes = _peak_resident_bytes()


def _peak_resident_bytes() -> int:
    """Return the peak resident memory of this process, or 0 if the system does not report it."""
    try:
        status = _STATUS.read_text(encoding="utf-8")
    except OSError:
        return 0

    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            kibibytes = int(line.split()[1])
            return kibibytes * 1024
    return 0
