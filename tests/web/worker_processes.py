"""What the process of a trainer runs in tests. This file loads no library, so that a process starts in a moment."""

from __future__ import annotations

import os
import signal
from multiprocessing.connection import Connection


def answer_requests(end: Connection) -> None:
    """Answer each request of a ``Trainer``; die at "die", and refuse "refuse"."""
    while True:
        try:
            what, path, told = end.recv()
        except (EOFError, OSError):
            return
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "refuse":
            end.send(("refused", f"{path} is not there."))
        else:
            end.send(("say", {"doing": what, "version": 1}))
            end.send(("done", {"finished": False, "why": {}, "process": os.getpid(), **told}))


def work_at_full_priority(end: Connection) -> None:
    """Work as a trainer does, but not after everybody else: on a busy machine that would take minutes."""
    os.nice = lambda _: 0
    from teeter.web.background import work

    work(end)
