"""A process that a test kills while it works."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable

import pytest

__all__ = ["Report", "kill_after", "needs_fork"]

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

PATIENCE = 600
"""Seconds that a process has for its reports."""

Report = Callable[[str], object]
"""Sends one line to the test."""


def kill_after(work: Callable[[Report], None], reports: int, pause: float = 0.0) -> list[str]:
    """Run a function in a forked process, and kill the process with SIGKILL while it works.

    Args:
        work: The function. It gets a function to report with; a report that returned was sent.
        reports: Kill the process after this number of reports, however long they take.
        pause: Seconds to wait before the kill, to hit any moment of what comes next.

    Returns:
        Everything that was reported until the process was dead.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        try:
            work(lambda line: os.write(write_end, f"{line}\n".encode()))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        # A child that hangs ends too, and then reports nothing more.
        timer = threading.Timer(PATIENCE, os.kill, (child, signal.SIGKILL))
        timer.start()
        lines = [pipe.readline() for _ in range(reports)]
        timer.cancel()
        timer.join()

        time.sleep(pause)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        lines += pipe.readlines()

    assert all(lines), f"the process ended after {sum(map(bool, lines))} reports"
    return [line.strip() for line in lines]
