"""Tasks for worker processes. Workers import this module, so it imports little."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from teeter.errors import InputError


def die_once(output: Path, marker: str) -> None:
    """Kill the worker the first time, write the output the next time."""
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)

    # The loss of one worker ends the others. A file that one of them has only begun must not exist.
    partial = output.with_suffix(".partial")
    partial.write_text("done")
    partial.rename(output)


def die_always(output: Path) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail(output: Path) -> None:
    raise InputError("This shard is bad.")


def write_done(output: Path) -> None:
    output.write_text("done")


def write_variable(output: Path, name: str) -> None:
    """Write the value that an environment variable has in the worker."""
    output.write_text(os.environ.get(name, "not set"))
