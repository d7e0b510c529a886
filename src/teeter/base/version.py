"""The version of teeter, and the commit it runs from."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

__all__ = ["commit"]

__version__ = "0.1.0"
"""The version of teeter."""


def commit() -> str | None:
    """Return the commit that teeter runs from, with "-dirty" if files have changed since.

    The environment variable TEETER_COMMIT takes precedence. It serves machines that have the
    sources without the repository.

    Returns:
        The commit, or None if teeter does not run from its repository.
    """
    from_environment = os.environ.get("TEETER_COMMIT")
    if from_environment:
        return from_environment

    root = Path(__file__).parents[3]
    package = root / "src" / "teeter"
    if not (root / ".git").exists() or not package.is_dir():
        return None

    # --exclude=* ignores tags, so that the answer is always a commit.
    options = ["--always", "--abbrev=40", "--exclude=*", "--dirty"]
    command = ["git", "-C", str(root), "describe", *options]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
