"""The process of a trainer that loads no library: it starts in a moment, and says what it was asked for."""

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
