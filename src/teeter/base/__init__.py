"""What everything may use: arrays, seeds, threads, registries, files and processes."""

from __future__ import annotations

from teeter.base.seeds import portable, stream

__all__ = ["portable", "stream"]
