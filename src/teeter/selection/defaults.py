"""Default values of a selection.

The command line shows them in its help, so they are here and not in ``request``: importing this
module does not load torch.
"""

from __future__ import annotations

__all__ = ["DEFAULT_CANDIDATES", "DEFAULT_REFERENCE", "DEFAULT_STRATEGY", "DEFAULT_WORK"]

DEFAULT_STRATEGY = "ldm-s"

DEFAULT_REFERENCE = 50_000
"""Rows of a sharded pool on which the LDM counts flips."""

DEFAULT_CANDIDATES = 100_000
"""Rows of a sharded pool that a strategy picks from if it needs all its candidates at once."""

DEFAULT_WORK = "teeter-work"
"""Folder of the scores of a sharded selection."""
