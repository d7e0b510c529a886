"""How teeter computes: with how much memory, and whether the same on every device.

Both are context managers, so that they end where the block ends and hold for one thread only.
"""

from __future__ import annotations

from teeter.base.arrays import working_memory
from teeter.base.seeds import portable

__all__ = ["portable", "working_memory"]
