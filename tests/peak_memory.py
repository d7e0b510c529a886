"""The memory that a call takes, as the system sees it: torch's and NumPy's arrays alike."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path

import pytest

_STATUS, _FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def taken(call: Callable[[], object]) -> int:
    """Return by how many bytes the process grows at most during a call; skip the test where nobody
    tells.
    """
    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(
            0
        )  # what earlier tests gave back would be used again, and not be seen
        _FORGET.write_text("5")
    except (OSError, AttributeError):
        pytest.skip("this system does not tell the peak of a call")
    before = _told("VmRSS")
    call()
    return _told("VmHWM") - before


def _told(what: str) -> int:
    lines = _STATUS.read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{what}:"))
