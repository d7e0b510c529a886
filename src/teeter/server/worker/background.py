"""The background worker: a process beside the server that trains and picks.

Requests wait in a queue, a thread takes them one by one to the worker process, and the result comes
back as a future. No request of an annotator ever waits for a model.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from teeter.base.wording import pluralize
from teeter.base.worker_process import Handler, WorkerDiedError, WorkerProcess
from teeter.campaigns.records import Activity, Explanation, QuestionsReady, StatusReport
from teeter.errors import TeeterError
from teeter.server.worker.requests import EnsureQuestions, TaskRequest, WarmUp

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

MAX_ATTEMPTS = 3
"""How often a request is tried if the worker process dies at it."""

RESTART_PAUSE = 1.0
"""Seconds between the death of a process and the next attempt, so that a machine without memory is
not kept busy by starting processes."""

_MAX_EXPLANATIONS = 2000
"""Items of a campaign whose explanations are kept."""

_SENTENCES = {
    Activity.PICKING: "The next items are being picked.",
    Activity.FINDING_SUSPECTS: "The server is searching for labels that may be wrong.",
    Activity.EXPORTING: "Labels are being exported.",
    Activity.DRAWING_MAP: "The map is being drawn.",
    Activity.CREATING: "A campaign is being created.",
    Activity.PREDICTING: "New texts are being predicted.",
}


class BackgroundTaskError(TeeterError, RuntimeError):
    """The background worker failed at a request through no fault of the request."""


@dataclass
class WorkerStatus:
    """What the worker last said about a campaign."""

    activity: Activity | None = None
    labels: int = 0
    """Number of labels that the newest model is trained on."""
    version: int = 0
    """Version of the newest model."""
    trained_at: float | None = None
    """When it was trained, in seconds since 1970; None if unknown."""
    error: str | None = None
    """Why items are not picked or models not trained; None if all is well."""
    encoded: int = 0
    """Number of items encoded so far."""
    to_encode: int = 0
    """Number of items to encode, including those already encoded."""
    encoding_since: tuple[float, int] | None = None
    """When the encoding was started or resumed, and the number of items encoded by then."""
    is_restarting: bool = False
    """Whether the worker process died and the request is being tried again."""
    finished_annotators: set[str] = field(default_factory=set)
    """Annotators for whom no item is left."""
    explanations: dict[str, Explanation] = field(default_factory=dict)
    """By item id."""

    def update(self, report: StatusReport) -> None:
        """Take in what the worker says while it works."""
        self.activity = report.activity

        if report.labels is not None:
            self.labels = report.labels
        if report.version is not None:
            self.version = report.version
        if report.is_trained:
            self.trained_at = time.time()

        if report.done is not None and report.total is not None:
            if self.encoding_since is None:
                self.encoding_since = (time.monotonic(), report.done)
            self.encoded = report.done
            self.to_encode = report.total

    def add_questions(self, request: EnsureQuestions, result: QuestionsReady) -> None:
        """Take in that an annotator has items to label, or none are left."""
        if result.is_finished:
            self.finished_annotators.add(request.annotator)
        else:
            self.finished_annotators.discard(request.annotator)

        self.explanations |= result.explanations
        while len(self.explanations) > _MAX_EXPLANATIONS:
            del self.explanations[next(iter(self.explanations))]  # the oldest

    def seconds_left(self) -> float | None:
        """Return the estimated seconds until the encoding is complete; None if unknown."""
        if self.encoding_since is None:
            return None

        started, encoded_before = self.encoding_since
        newly_encoded = self.encoded - encoded_before
        if newly_encoded <= 0:
            return None
        seconds_per_item = (time.monotonic() - started) / newly_encoded
        return seconds_per_item * (self.to_encode - self.encoded)

    def describe(self) -> str:
        """Return what is going on, in one sentence; empty if there is nothing to say."""
        if self.error is not None:
            return self.error
        if self.is_restarting:
            return "The trainer stopped and is being restarted. No answers were lost."

        if self.activity is Activity.TRAINING:
            return f"Model {self.version} is being trained on {self.labels} labels."
        if self.activity is Activity.ENCODING:
            return self._describe_encoding()
        if self.activity is not None:
            return _SENTENCES[self.activity]

        if self.trained_at is not None:
            age = _format_duration(time.time() - self.trained_at)
            return f"Model {self.version} was trained {age} ago."
        return ""

    def _describe_encoding(self) -> str:
        sentence = f"{self.encoded:,} of {self.to_encode:,} items are encoded"
        seconds = self.seconds_left()
        if seconds is not None:
            sentence += f"; about {_format_duration(seconds)} left"
        return f"{sentence}."


def _format_duration(seconds: float) -> str:
    """Return a duration in the largest unit of which it has at least one and a half."""
    if seconds < 90:
        return pluralize(round(seconds), "second")
    if seconds < 90 * 60:
        return pluralize(round(seconds / 60), "minute")
    if seconds < 36 * 3600:
        return pluralize(round(seconds / 3600), "hour")
    return pluralize(round(seconds / 86_400), "day")


@dataclass(frozen=True)
class _Job:
    request: TaskRequest[Any]
    future: Future[Any]


def _default_handler() -> Handler:
    # Imported in the worker process only, which needs torch.
    from teeter.server.worker.tasks import make_task_handler

    return make_task_handler()


class BackgroundWorker:
    """A queue of requests, and the process that handles them.

    Args:
        batch: number of items that are picked at a time.
        make_handler: makes the handler in the worker process.
    """

    def __init__(
        self, batch: int = 20, make_handler: Callable[[], Handler] = _default_handler
    ) -> None:
        self.batch = batch
        # A daemon: the server must not wait for a training when it ends.
        self._process = WorkerProcess(make_handler, name="teeter trainer", daemon=True)
        self._status_by_campaign: dict[str, WorkerStatus] = {}
        self._queue: deque[_Job] = deque()
        self._queue_changed = threading.Condition()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def process_id(self) -> int | None:
        """The id of the worker process; None before it is first needed."""
        return self._process.process_id

    def status(self, campaign: str) -> WorkerStatus:
        """Return what is known about a campaign."""
        return self._status_by_campaign.setdefault(campaign, WorkerStatus())

    def ensure_questions(self, campaign: str, annotator: str) -> None:
        """Make sure that items wait for an annotator. Returns at once."""
        self.submit(EnsureQuestions(campaign, annotator, self.batch))

    def start(self) -> None:
        """Start the process now, so that it is ready when it is needed."""
        self.submit(WarmUp())

    def submit(self, request: TaskRequest[ResultT]) -> Future[ResultT]:
        """Put a request into the queue, and return the future of its result.

        Urgent requests go before others. A request that waits already is not added again: its
        future is returned.
        """
        with self._queue_changed:
            # Every answer asks for new items, so the same request comes many times a minute.
            for job in self._queue:
                if job.request == request and not job.future.cancelled():
                    return job.future

            job = _Job(request, Future())
            self._queue.insert(self._position_of(request), job)

            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="trainer", daemon=True)
                self._thread.start()
            self._queue_changed.notify()
        return job.future

    def stop(self) -> None:
        """End the process. No answer is lost, because answers never go through it."""
        with self._queue_changed:
            self._stopped.set()
            self._queue_changed.notify()
        self._process.close()

        for job in self._queue:
            job.future.cancel()

    def _position_of(self, request: TaskRequest[Any]) -> int:
        if request.is_urgent:
            for position, job in enumerate(self._queue):
                if not job.request.is_urgent:
                    return position
        return len(self._queue)

    def _run(self) -> None:
        """Handle the jobs of the queue until the worker is stopped. Runs in a thread."""
        while True:
            with self._queue_changed:
                self._queue_changed.wait_for(lambda: self._queue or self._stopped.is_set())
                if self._stopped.is_set():
                    return
                job = self._queue.popleft()

            # False if the job was cancelled meanwhile.
            if job.future.set_running_or_notify_cancel():
                self._handle(job)

    def _handle(self, job: _Job) -> None:
        """Have a job done, and set the result or the error of its future."""
        request = job.request
        status = self.status(request.campaign)
        error: TeeterError | None = None

        try:
            result = self._run_with_retries(request, status)
            if isinstance(request, EnsureQuestions):
                status.add_questions(request, result)
        except TeeterError as raised:
            error = raised
        except Exception as raised:  # a fault of ours: the next job must still be done
            name = type(request).__name__
            logger.exception("%s failed.", name)
            error = BackgroundTaskError(f"{name} failed: {type(raised).__name__}: {raised}")

        # The status first: a thread that waits for the future may read it at once.
        status.activity = None
        status.encoding_since = None
        status.is_restarting = False
        if error is None:
            if request.is_urgent:
                status.error = None
            job.future.set_result(result)
        else:
            if request.is_urgent or isinstance(error, BackgroundTaskError):
                status.error = str(error)
            job.future.set_exception(error)

    def _run_with_retries(self, request: TaskRequest[Any], status: WorkerStatus) -> Any:
        """Return the result of a request; try again if the process dies.

        Raises:
            BackgroundTaskError: the process died at every attempt, or the worker was stopped.
        """
        name = type(request).__name__
        for _ in range(MAX_ATTEMPTS):
            try:
                return self._process.run(request, status.update)
            except WorkerDiedError:
                if self._stopped.is_set():
                    raise BackgroundTaskError("The server is shutting down.") from None

            logger.warning("The trainer stopped while handling %s.", name)
            status.activity = None
            status.is_restarting = True
            self._stopped.wait(RESTART_PAUSE)

        raise BackgroundTaskError(
            f"The trainer stopped {MAX_ATTEMPTS} times while handling {name}. Answers are still "
            f"saved, but no models are trained."
        )
