"""The background worker: a process beside the server that trains and picks.

Requests wait in a queue, a thread takes them one by one to the worker process, and the result comes
back as a future. No request of an annotator ever waits for a model. What can be asked for is listed
here by name, with the type of its result; ``tasks`` has the functions. Only what may run twice is
on the list, because a request is made again if the process dies.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

from teeter.base.wording import pluralize
from teeter.base.worker_process import Handler, WorkerDiedError, WorkerProcess
from teeter.campaigns.items.find_items import Similarities
from teeter.campaigns.records import (
    Activity,
    EncodingResult,
    Explanation,
    ImportResult,
    ModelRound,
    QuestionsReady,
    StatusReport,
    SuspectLabel,
)
from teeter.classifier import Prediction
from teeter.data.table_files import JSON_SUFFIXES
from teeter.errors import StoreError, TeeterError

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")
ResultT_co = TypeVar("ResultT_co", covariant=True)


class MapKind(StrEnum):
    """What a map shows."""

    PCA = "pca"
    TSNE = "tsne"
    LDM = "ldm"


@dataclass(frozen=True)
class MapFile:
    """A map on disk, and the version of the model whose predictions it shows."""

    file: str
    version: int
    change: int
    """The newest change of the items that it shows, from ``Items.newest_change``."""


@dataclass(frozen=True)
class LabelledFile:
    """An uploaded file whose rows the model has labelled."""

    file: str
    """By which it is downloaded."""
    rows: int
    """Rows that have a class now."""
    sentences: list[str]
    """What became of the rows, for people."""


@dataclass(frozen=True)
class WorkerTask(Generic[ResultT_co]):
    """Something that the worker does for a campaign."""

    name: str
    activity: Activity | None = None
    """What it reports when it begins; None if it says more itself."""
    is_urgent: bool = False
    """Whether annotators wait for it, so that it goes before other work."""


@dataclass(frozen=True)
class Request(Generic[ResultT_co]):
    """A task to do. It travels between two processes, so it holds plain data only.

    Two equal requests mean the same work: the queue holds each once.
    """

    task: WorkerTask[ResultT_co]
    campaign: str
    """File or database URL of the campaign."""
    arguments: dict[str, Any]


WARM_UP = WorkerTask[None]("warm_up")
ENSURE_QUESTIONS = WorkerTask[QuestionsReady]("ensure_questions", is_urgent=True)
PICK_AHEAD = WorkerTask[None]("pick_ahead", Activity.PICKING)
TRAIN = WorkerTask[ModelRound | None]("train", is_urgent=True)
ENCODE = WorkerTask[EncodingResult]("encode")
FIND_SUSPECTS = WorkerTask[list[SuspectLabel]]("find_suspects", Activity.FINDING_SUSPECTS)
EXPORT = WorkerTask[str]("export", Activity.EXPORTING)
PREDICT = WorkerTask[tuple[int, list[Prediction]]]("predict", Activity.PREDICTING)
LABEL_FILE = WorkerTask[LabelledFile]("label_file", Activity.PREDICTING)
DRAW_MAP = WorkerTask[MapFile]("draw_map", Activity.DRAWING_MAP)
COMPARE_ITEMS = WorkerTask[Similarities]("compare_items", is_urgent=True)
ADD_ITEMS = WorkerTask[ImportResult]("add_items", is_urgent=True)
CHANGE_ITEM = WorkerTask[bool]("change_item", is_urgent=True)
CREATE_CAMPAIGN = WorkerTask[ImportResult]("create_campaign", Activity.CREATING)

MODEL_FORM = "model"
"""Exported instead of labels: the newest model."""

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

    def add_questions(self, annotator: str, result: QuestionsReady) -> None:
        """Take in that an annotator has items to label, or none are left."""
        if result.is_finished:
            self.finished_annotators.add(annotator)
        else:
            self.finished_annotators.discard(annotator)

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
            sentence = f"{self.encoded:,} of {self.to_encode:,} items are encoded"
            seconds = self.seconds_left()
            if seconds is not None:
                sentence += f"; about {_format_duration(seconds)} left"
            return f"{sentence}."
        if self.activity is not None:
            return _SENTENCES[self.activity]

        if self.trained_at is not None:
            age = _format_duration(time.time() - self.trained_at)
            return f"Model {self.version} was trained {age} ago."
        return ""


def _format_duration(seconds: float) -> str:
    """Return a duration in the largest unit of which it has at least one and a half."""
    if seconds < 90:
        return pluralize(round(seconds), "second")
    if seconds < 90 * 60:
        return pluralize(round(seconds / 60), "minute")
    if seconds < 36 * 3600:
        return pluralize(round(seconds / 3600), "hour")
    return pluralize(round(seconds / 86_400), "day")


def labelled_path(source: Path) -> Path:
    """Return where the rows of a file go when they are labelled: beside it, in its format.

    Example:
        >>> labelled_path(Path("new.parquet")).name, labelled_path(Path("photos.zip")).name
        ('new-labelled.parquet', 'photos-labelled.csv')
    """
    suffix = source.suffix.lower()
    if suffix in JSON_SUFFIXES:
        suffix = ".jsonl"
    elif suffix != ".parquet":
        suffix = ".csv"
    return source.with_name(f"{source.stem}-labelled{suffix}")


async def wait_for(future: Future[ResultT], seconds: float) -> ResultT:
    """Return the result of a request, without a thread that waits for it.

    Raises:
        StoreError: it took too long. The worker sets the result later all the same.
    """
    try:
        # Shielded: neither the time limit nor a client that leaves may cancel the future, because
        # the worker sets its result later.
        result = asyncio.shield(asyncio.wrap_future(future))
        return await asyncio.wait_for(result, seconds)
    except TimeoutError:
        raise StoreError("The server is busy with other work: try again later.") from None


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
        self.on_trained: Callable[[str], object] = lambda campaign: None
        """Called with a campaign's location when a model was trained."""
        self._status_by_campaign: dict[str, WorkerStatus] = {}
        self._queue: deque[tuple[Request[Any], Future[Any]]] = deque()
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
        self.submit(ENSURE_QUESTIONS, campaign, annotator=annotator, batch=self.batch)

    def start(self) -> None:
        """Start the process now, so that it is ready when it is needed."""
        self.submit(WARM_UP, "")

    def submit(self, task: WorkerTask[ResultT], campaign: str, **arguments: Any) -> Future[ResultT]:
        """Put a request into the queue, and return the future of its result.

        Urgent requests go before others. A request that waits already is not added again: its
        future is returned.
        """
        request = Request(task, campaign, arguments)
        with self._queue_changed:
            # Every answer asks for new items, so the same request comes many times a minute.
            for waiting, future in self._queue:
                if waiting == request and not future.cancelled():
                    return future

            future = Future()
            self._queue.insert(self._position_of(task), (request, future))

            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="trainer", daemon=True)
                self._thread.start()
            self._queue_changed.notify()
        return future

    def stop(self) -> None:
        """End the process. No answer is lost, because answers never go through it."""
        with self._queue_changed:
            self._stopped.set()
            self._queue_changed.notify()
        self._process.close()

        for _, future in self._queue:
            future.cancel()

    def _position_of(self, task: WorkerTask[Any]) -> int:
        if task.is_urgent:
            for position, (request, _) in enumerate(self._queue):
                if not request.task.is_urgent:
                    return position
        return len(self._queue)

    def _run(self) -> None:
        """Handle the requests of the queue until the worker is stopped. Runs in a thread."""
        while True:
            with self._queue_changed:
                self._queue_changed.wait_for(lambda: self._queue or self._stopped.is_set())
                if self._stopped.is_set():
                    return
                request, future = self._queue.popleft()

            # False if the request was cancelled meanwhile.
            if future.set_running_or_notify_cancel():
                self._handle(request, future)

    def _handle(self, request: Request[ResultT], future: Future[ResultT]) -> None:
        """Have a request handled, and set the result or the error of its future."""
        status = self.status(request.campaign)
        error: TeeterError | None = None
        trained_before = status.trained_at

        try:
            result = self._run_with_retries(request, status)
            if isinstance(result, QuestionsReady):
                status.add_questions(request.arguments["annotator"], result)
        except TeeterError as raised:
            error = raised
        except Exception as raised:  # a fault of ours: the next job must still be done
            name = request.task.name
            logger.exception("%s failed.", name)
            reason = f"{type(raised).__name__}: {raised}"
            error = BackgroundTaskError(f"{name} failed: {reason}")

        # The status first: a thread that waits for the future may read it at once.
        status.activity = None
        status.encoding_since = None
        status.is_restarting = False
        if error is None:
            if request.task.is_urgent:
                status.error = None
            future.set_result(result)
            if status.trained_at != trained_before:
                self.on_trained(request.campaign)
        else:
            if request.task.is_urgent or isinstance(error, BackgroundTaskError):
                status.error = str(error)
            future.set_exception(error)

    def _run_with_retries(self, request: Request[ResultT], status: WorkerStatus) -> ResultT:
        """Return the result of a request; try again if the process dies.

        Raises:
            BackgroundTaskError: the process died at every attempt, or the worker was stopped.
        """
        name = request.task.name
        for _ in range(MAX_ATTEMPTS):
            try:
                result: ResultT = self._process.run(request, status.update)
                return result
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
