"""Which teeter this is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

__all__ = ["__version__", "commit"]

__version__ = "0.1.0"


def commit() -> str | None:
    """Return the commit of the repository that teeter runs from, marked if files were changed since; else None.

    Where the repository is not at hand, as on a machine that was sent the sources alone, TEETER_COMMIT may tell.
    """
    told = os.environ.get("TEETER_COMMIT")
    root = Path(__file__).parents[2]
    if told or not (root / ".git").exists() or not (root / "src" / "teeter").is_dir():
        return told
    command = [
        "git",
        "-C",
        str(root),
        "describe",
        "--always",
        "--abbrev=40",
        "--exclude=*",
        "--dirty",
    ]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
