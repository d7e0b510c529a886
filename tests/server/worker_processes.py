"""Handlers of background workers in tests. A process starts in a moment: no library is loaded."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any

from teeter.base.worker_process import Handler, Report
from teeter.campaigns.records import Activity, QuestionsReady, StatusReport
from teeter.errors import InputError
from teeter.server.worker.requests import EnsureQuestions, TaskRequest


@dataclass(frozen=True)
class Die(TaskRequest[None]):
    """Kill the worker process."""

    campaign: str


@dataclass(frozen=True)
class Refuse(TaskRequest[None]):
    """Raise an error that is the user's."""

    campaign: str


@dataclass(frozen=True)
class Fail(TaskRequest[None]):
    """Raise an error that is ours."""

    campaign: str


@dataclass(frozen=True)
class ProcessId(TaskRequest[int]):
    """Return the id of the worker process."""

    campaign: str


def make_light_handler() -> Handler:
    return handle_light_task


def handle_light_task(request: TaskRequest[Any], report: Report) -> Any:
    match request:
        case Die():
            return os.kill(os.getpid(), signal.SIGKILL)
        case Refuse():
            raise InputError(f"{request.campaign} does not exist.")
        case Fail():
            raise ValueError("an unexpected value")

        case EnsureQuestions():
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
