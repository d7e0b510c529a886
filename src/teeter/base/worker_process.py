"""A supervised worker process: runs one request at a time and reports while it works.

The trainer beside the labelling page and the executor of distributed plans need the same thing: a
process that keeps its libraries and caches loaded, and that may be killed at any moment (by the
kernel when memory runs out, or by an operator) without taking its parent along. This module starts
it, talks to it and notices its death. What follows from a death (try again, give up) is the
caller's decision.

    parent                                      worker
    run(request) ---- request ----------------> handler(request, report)
                 <--- _Reply, not final -------   report(content), any number of times
                 <--- _Reply, final -----------   return, or raise
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

__all__ = [
    "Handler",
    "Report",
    "WorkerDiedError",
    "WorkerProcess",
    "prepare_workers",
    "worker_context",
]

Report = Callable[[Any], None]
"""Sends the parent a message while a request is being handled."""

Handler = Callable[[Any, Report], Any]
"""Handles one request in the worker and returns its result."""

_JOIN_SECONDS = 5.0
"""How long to wait for a killed process to disappear."""

_START_LOCK = threading.Lock()
"""Several threads may each start a worker, but multiprocessing's list of children has no lock."""


class WorkerDiedError(Exception):
    """The worker process ended before it answered the request."""


@dataclass(frozen=True)
class _Reply:
    content: Any = None
    """A report, or the result if it is final."""
    is_final: bool = True
    error: Exception | None = None
    """What the handler raised instead of returning a result."""
    remote_traceback: str = ""


@dataclass(frozen=True)
class _StartedProcess:
    process: BaseProcess
    connection: Connection
    """This end of the pipe to the process."""


class _RemoteTraceback(Exception):  # noqa: N818
    """The traceback of an error in the worker, shown as the cause of the same error here."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


def worker_context() -> BaseContext:
    """Return the multiprocessing context that starts workers.

    On Linux a fork server imports torch once and each worker is forked from it, which saves 3 s of
    CPU time per worker. On other systems forking after importing torch may be unsafe: spawn.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch"])
    return context


def prepare_workers() -> None:
    """Begin to import torch for workers that are started soon, where a fork server does that.

    It takes seconds, in which the caller can do other work.
    """
    if worker_context().get_start_method() == "forkserver":
        from multiprocessing import forkserver

        with _START_LOCK:
            forkserver.ensure_running()


class WorkerProcess:
    """A process that handles requests one after the other, started when it is first needed.

    Args:
        make_handler: called once in each new process; returns the handler. Must be importable by
            name (a function of a module, or a ``functools.partial`` of one).
        name: name of the process, for logs and process lists.
        daemon: whether Python may exit while the process runs. A daemon cannot start processes of
            its own.

    Example:
        ``make_handler`` is imported by the process, so it must be a function of a module::

            worker = WorkerProcess(make_handler, name="example")
            result = worker.run(request)
            worker.close()
    """

    def __init__(
        self, make_handler: Callable[[], Handler], *, name: str, daemon: bool = False
    ) -> None:
        self._make_handler = make_handler
        self._name = name
        self._daemon = daemon
        self._newest: _StartedProcess | None = None
        self.is_closed = False
        self._lock = threading.Lock()

    @property
    def process_id(self) -> int | None:
        """The id of the newest process, which may have ended; None before the first one."""
        if self._newest is None:
            return None
        return self._newest.process.pid

    def is_alive(self) -> bool:
        """Return whether a process is running."""
        if self._newest is None:
            return False
        return self._newest.process.is_alive()

    def run(self, request: Any, on_report: Report = lambda content: None) -> Any:
        """Have a request handled, and wait for the result.

        A process that died since the last request is replaced first.

        Args:
            request: sent to the handler; must be picklable.
            on_report: called in this thread with each report.

        Raises:
            WorkerDiedError: the process ended before it answered, or ``close`` was called.
            Exception: what the handler raised, with the worker's traceback as its cause.
        """
        worker = self._newest
        if worker is None or not worker.process.is_alive():
            worker = self._start()

        try:
            reply = self._exchange(worker, request, on_report)
        except BaseException:
            # The process may still work on this request, and its late replies must not be taken
            # for those of the next one.
            self._kill()
            raise

        if reply.error is not None:
            raise reply.error from _RemoteTraceback(reply.remote_traceback)
        return reply.content

    def close(self) -> None:
        """End the process for good, in the middle of a request if need be.

        May be called from another thread than ``run``, which then raises ``WorkerDiedError``.
        """
        with self._lock:
            self.is_closed = True
        self._kill()

    def _start(self) -> _StartedProcess:
        context = worker_context()
        connection, worker_end = context.Pipe()
        process = context.Process(  # type: ignore[attr-defined]
            target=_handle_requests,
            args=(worker_end, self._make_handler, dict(os.environ)),
            name=self._name,
            daemon=self._daemon,
        )

        with self._lock:
            if self.is_closed:
                raise WorkerDiedError(f"{self._name} was closed.")
            with _START_LOCK:
                process.start()
            worker = _StartedProcess(process, connection)
            self._newest = worker

        # Only the worker may hold this end: otherwise its death would not close the pipe.
        worker_end.close()
        return worker

    def _kill(self) -> None:
        # The connection stays open: another thread may be waiting on it. The next start replaces
        # it.
        if self._newest is not None:
            self._newest.process.kill()
            self._newest.process.join(_JOIN_SECONDS)

    def _exchange(self, worker: _StartedProcess, request: Any, on_report: Report) -> _Reply:
        """Send a request, pass reports on, and return the final reply."""
        try:
            worker.connection.send(request)
        except ConnectionError as error:
            raise WorkerDiedError(f"{self._name} ended before it received a request.") from error

        while True:
            try:
                # Watch the process as well as the pipe: a process that the worker started may
                # outlive it and hold the pipe open.
                wait([worker.connection, worker.process.sentinel])
                if not worker.connection.poll() and not worker.process.is_alive():
                    raise EOFError
                reply: _Reply = worker.connection.recv()
            except (EOFError, ConnectionError) as error:
                raise WorkerDiedError(f"{self._name} ended while it was working.") from error

            if reply.is_final:
                return reply
            on_report(reply.content)


def _handle_requests(
    connection: Connection, make_handler: Callable[[], Handler], environment: dict[str, str]
) -> None:
    """Handle requests until the parent closes its end of the pipe. Runs in the worker."""
    # Ctrl+C reaches every process of a terminal; the parent decides when its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()

    # A fork server keeps the environment it was started with, which may be out of date.
    os.environ.clear()
    os.environ.update(environment)
    handler = make_handler()

    while True:
        try:
            request = connection.recv()
        except (EOFError, OSError):
            return

        try:
            result = handler(request, lambda content: connection.send(_Reply(content, False)))
            reply = _Reply(result)
        except Exception as error:
            reply = _describe_failure(error)

        try:
            connection.send(reply)
        except ConnectionError:
            return
        except Exception as error:
            # The result cannot be pickled. Nothing of it was sent: pickling comes first.
            connection.send(_describe_failure(error))


def _describe_failure(error: Exception) -> _Reply:
    """Return an error and its traceback as they can be sent to the parent."""
    text = "".join(traceback.format_exception(error))

    try:
        # Some exceptions can be pickled but not unpickled: their arguments are not those of their
        # constructor.
        ForkingPickler.loads(ForkingPickler.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")

    return _Reply(error=error, remote_traceback=text)


def _exit_with_parent() -> None:
    """Exit as soon as the parent is gone, even if it was killed.

    Nothing is lost: whatever workers write is written in transactions or renamed into place.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)
