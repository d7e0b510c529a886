"""A process that a test kills while it works."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

__all__ = ["Report", "kill_after", "needs_fork"]

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")

Report = Callable[[str], object]


def kill_after(work: Callable[[Report], None], reports: int, pause: float = 0.0) -> list[str]:
    """Run some work in a process of its own and kill it with SIGKILL while it goes on.

    Args:
        work: Gets a function to report with, one line at a time; a report that returned was sent.
        reports: Kill the process after so many reports, however long they take.
        pause: Seconds to wait then, so that the moment is anywhere in what comes next.

    Returns:
        Everything that was reported until the process was gone.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            work(lambda line: os.write(writing, f"{line}\n".encode()))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        lines = [pipe.readline() for _ in range(reports)]
        time.sleep(pause)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        lines += pipe.readlines()
    assert all(lines), f"the process ended after {sum(map(bool, lines))} reports"
    return [line.strip() for line in lines]
