"""A handler for worker processes in tests. Workers import this file, so it loads no library."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

from teeter.base.worker_process import Handler, Report
from teeter.errors import InputError


class TwoArgumentsError(Exception):
    """Can be pickled, but not unpickled: its constructor takes two arguments and passes on one."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)


def make_echo_handler() -> Handler:
    """Return a handler that answers with its request and its process id."""
    return handle


def handle(request: str, report: Report) -> Any:
    if request == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if request == "die, but leave a child":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(10)"], close_fds=False)
        os.kill(os.getpid(), signal.SIGKILL)
    if request == "fail":
        raise InputError("This request is bad.")
    if request == "fail in an odd way":
        raise TwoArgumentsError("first", "second")
    if request == "return a function":
        return lambda: None
    if request == "wait":
        report("waiting")
        signal.pause()

    report(f"working on {request}")
    return request, os.getpid()
