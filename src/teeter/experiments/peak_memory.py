"""How much memory some work took at the most."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

__all__ = ["Peak", "peak_memory"]


@dataclass
class Peak:
    """The most bytes in use; 0 where the system does not tell."""

    bytes: int = 0


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Peak]:
    """Yield a peak that is filled in at the end: of a GPU's memory, or of the whole process."""
    peak = Peak()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        yield peak
        peak.bytes = int(torch.cuda.max_memory_allocated(device))
        return
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # lets the peak begin anew
    yield peak
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        peak.bytes = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))
