"""The trainer: one process beside the page that trains and picks, so that no answer ever waits for a model."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

from teeter.errors import InputError, TeeterError

__all__ = ["BackgroundWorker", "WorkerStatus", "work"]

log = logging.getLogger(__name__)

_REMEMBERED = 2000
"""Items whose reasons are kept at hand."""

_FIRST = ("look", "train")

_CALM = 60.0
"""Seconds that a process must last; one that dies sooner is started again after a pause."""

_DOING = {
    "picking": "The next questions are being picked.",
    "suspects": "Labels that may be wrong are being looked for.",
    "exporting": "Labels are being exported.",
    "map": "The map is being drawn.",
}


@dataclass
class WorkerStatus:
    """What the trainer last said of a campaign."""

    doing: str | None = None
    labels: int = 0
    version: int = 0
    since: float = field(default_factory=time.time)
    trained: float | None = None
    """When a model was last trained here."""
    trouble: str | None = None
    finished: set[str] = field(default_factory=set)
    """Annotators for whom nothing is left."""
    why: dict[str, dict[str, Any]] = field(default_factory=dict)

    def learn(self, told: dict[str, Any]) -> None:
        """Take in what the trainer says while it works."""
        if "doing" in told:
            self.doing, self.since = told["doing"], time.time()
        self.labels, self.version = (
            told.get("labels", self.labels),
            told.get("version", self.version),
        )
        if told.get("trained"):
            self.trained = time.time()

    def sentence(self) -> str:
        """Return what goes on, in words."""
        if self.trouble:
            return self.trouble
        if self.doing == "training":
            return f"Model {self.version} is being trained on {self.labels} labels."
        if self.doing:
            return _DOING.get(self.doing, "")
        if self.trained is not None:
            return f"Model {self.version} was trained {_ago(time.time() - self.trained)} ago."
        return ""


def _ago(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"


@dataclass
class _Job:
    what: str
    path: str
    told: dict[str, Any]
    future: Future[Any]
    tried: int = 0


class BackgroundWorker:
    """A queue of work, and the process that does it; what waits there is not put in again."""

    def __init__(self, batch: int = 20, target: Callable[[Connection], None] | None = None) -> None:
        self.batch = batch
        self._target = target or work
        self._news: dict[str, WorkerStatus] = {}
        self._queue: deque[_Job] = deque()
        self._change = threading.Condition()
        self._ended = False
        self._thread: threading.Thread | None = None
        self._process: Any = None
        self._end: Connection | None = None
        self._started = 0.0

    def news(self, path: str) -> WorkerStatus:
        """Return what is known of a campaign."""
        return self._news.setdefault(path, WorkerStatus())

    def look(self, path: str, annotator: str) -> None:
        """See to it that questions are waiting for an annotator; return at once."""
        self.do("look", path, annotator=annotator, batch=self.batch)

    def do(self, what: str, path: str, **told: Any) -> Future[Any]:
        """Put work in the queue, unless the same waits there; looks and trainings go first."""
        job = _Job(what, path, told, Future())
        with self._change:
            same = next(
                (
                    one
                    for one in self._queue
                    if (one.what, one.path, one.told) == (what, path, told)
                ),
                None,
            )
            if same is not None and not same.future.cancelled():
                return same.future
            ahead = len(self._queue)
            if what in _FIRST:
                ahead = next(
                    (k for k, one in enumerate(self._queue) if one.what not in _FIRST), ahead
                )
            self._queue.insert(ahead, job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="trainer", daemon=True)
                self._thread.start()
            self._change.notify()
        return job.future

    def start(self) -> None:
        """Start the process now, so that it is ready when it is needed."""
        self.do("ready", "")

    def stop(self) -> None:
        """End the process; what it has not written is not lost, for answers never go through it."""
        with self._change:
            self._ended = True
            self._change.notify()
        if self._process is not None:
            self._process.kill()
            self._process.join(5)
        if self._end is not None:
            self._end.close()
        for job in self._queue:
            job.future.cancel()

    @property
    def process_id(self) -> int | None:
        """The number of the process, while there is one."""
        return None if self._process is None else self._process.pid

    def _run(self) -> None:
        while True:
            with self._change:
                while not self._queue and not self._ended:
                    self._change.wait()
                if self._ended:
                    return
                job = self._queue.popleft()
            if not job.future.running() and not job.future.set_running_or_notify_cancel():
                continue  # nobody waits for it any more
            try:
                self._carry_out(job)
            except (EOFError, OSError, BrokenPipeError):
                if self._ended:
                    return
                self._again(job)
            except Exception as error:  # whatever it is, the next in the queue has its turn
                log.exception("%s failed in the page's process", job.what)
                self._give_up(job, error)

    def _give_up(self, job: _Job, error: Exception) -> None:
        """Tell whoever waits for a job, and start anew: what its process says later is no answer to the next one."""
        self.news(job.path).doing = None
        if self._process is not None:
            self._process.kill()
            self._process = None
        if not job.future.done():
            job.future.set_exception(
                InputError(f"{job.what} failed: {type(error).__name__}: {error}")
            )

    def _carry_out(self, job: _Job) -> None:
        if self._process is None or not self._process.is_alive():
            self._begin()
        if self._end is None:
            raise EOFError
        self._end.send((job.what, job.path, job.told))
        news = self.news(job.path)
        while True:
            kind, told = self._end.recv()
            if kind == "say":
                news.learn(told)
                continue
            news.doing = None
            if kind == "done":
                self._take_in(news, job, told)
                job.future.set_result(told)
            else:
                news.trouble = told if job.what in ("look", "train") else news.trouble
                job.future.set_exception(InputError(told))
            return

    def _take_in(self, news: WorkerStatus, job: _Job, told: Any) -> None:
        if job.what in ("look", "train"):
            news.trouble = None
        if job.what == "look":
            (news.finished.add if told["finished"] else news.finished.discard)(
                job.told["annotator"]
            )
            news.why |= told["why"]
            for item in list(news.why)[: max(0, len(news.why) - _REMEMBERED)]:
                del news.why[item]

    def _begin(self) -> None:
        if self._started and time.monotonic() - self._started < _CALM:
            time.sleep(1)
        self._started = time.monotonic()
        context = multiprocessing.get_context("spawn")
        self._end, other = context.Pipe()
        self._process = context.Process(
            target=self._target, args=(other,), name="teeter trainer", daemon=True
        )
        self._process.start()
        other.close()

    def _again(self, job: _Job) -> None:
        """Start anew after the process died; what it was doing is tried once more."""
        news = self.news(job.path)
        news.doing, news.trouble = (
            None,
            "The trainer stopped and is being started again; no answer is lost.",
        )
        log.warning("The trainer stopped while it did %r; it is started again.", job.what)
        self._process = None
        job.tried += 1
        if job.tried > 2:
            news.trouble = f"The trainer stops again and again at {job.what}; answers are kept, models are not trained."
            job.future.set_exception(InputError(news.trouble))
            return
        with self._change:
            self._queue.appendleft(job)


def work(end: Connection) -> None:
    """Do what is asked for over a pipe until its other end is gone."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the page's process says when to stop
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if hasattr(os, "nice"):
        os.nice(10)
    from teeter.threads import limit_threads
    from teeter.web.background_tasks import JOBS, TaskHandlers

    bench = TaskHandlers(lambda **told: end.send(("say", told)))
    with limit_threads(1, blas=True):
        while True:
            try:
                what, path, told = end.recv()
            except (EOFError, OSError):
                return
            try:
                if what == "ready":
                    _warm_up()
                end.send(("done", getattr(bench, what)(path, **told) if what in JOBS else None))
            except TeeterError as error:
                end.send(("refused", str(error)))
            except (BrokenPipeError, KeyboardInterrupt):
                return
            except (
                Exception
            ) as error:  # a campaign that cannot be worked on must not take the others with it
                log.exception("%s failed", what)
                end.send(("refused", f"{what} failed: {type(error).__name__}: {error}"))


def _end_with_parent() -> None:
    """End at once when the page's process is gone, however it went; what is half written is not written."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)


def _warm_up() -> None:
    """Load what the first round needs."""
    import sklearn.cluster
    import sklearn.linear_model  # noqa: F401
