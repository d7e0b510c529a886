"""Handlers of background workers in tests. A process starts in a moment: no library is loaded."""

from __future__ import annotations

import os
import signal
from typing import Any

from teeter.base.worker_process import Handler, Report
from teeter.campaigns.records import Activity, QuestionsReady, StatusReport
from teeter.errors import InputError
from teeter.server.worker.background import Request, WorkerTask

DIE = WorkerTask[None]("die")
"""Kill the worker process."""

REFUSE = WorkerTask[None]("refuse")
"""Raise an error that is the user's."""

FAIL = WorkerTask[None]("fail")
"""Raise an error that is ours."""

PROCESS_ID = WorkerTask[int]("process_id")
"""Return the id of the worker process."""


def make_light_handler() -> Handler:
    return handle_light_task


def handle_light_task(request: Request[Any], report: Report) -> Any:
    match request.task.name:
        case "die":
            return os.kill(os.getpid(), signal.SIGKILL)
        case "refuse":
            raise InputError(f"{request.campaign} does not exist.")
        case "fail":
            raise ValueError("an unexpected value")

        case "ensure_questions":
            report(StatusReport(Activity.PICKING, version=1))
            return QuestionsReady(is_finished=False, explanations={})
        case _:
            report(StatusReport(Activity.TRAINING, labels=2, version=1))
            return os.getpid()


def make_handler_at_full_priority() -> Handler:
    """Work as the trainer does, but not at a lower priority: a busy machine would take minutes."""
    os.nice = lambda _: 0
    from teeter.server.worker.tasks import make_task_handler

    return make_task_handler()
