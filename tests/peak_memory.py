"""The memory that a call takes, as the system sees it: torch's and NumPy's arrays alike."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path

import pytest

_STATUS = Path("/proc/self/status")
_FORGET = Path("/proc/self/clear_refs")


def measure_peak_memory(call: Callable[[], object]) -> int:
    """Return by how many bytes the process grows at most during a call.

    Skip the test on a system that does not report the peak.
    """
    gc.collect()
    try:
        # Memory that earlier tests freed would be used again, and not be seen.
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        _FORGET.write_text("5")
    except (OSError, AttributeError):
        pytest.skip("this system does not report the peak of a call")

    before = _read_bytes("VmRSS")
    call()
    return _read_bytes("VmHWM") - before


def _read_bytes(what: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{what}:"))
