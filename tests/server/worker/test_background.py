"""The background worker picks ahead, trains, and survives the death of its process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from server.labelled_campaigns import true_label
from server.servers import PATIENCE, make_text_campaign
from server.worker_processes import (
    DIE,
    FAIL,
    PROCESS_ID,
    REFUSE,
    make_handler_at_full_priority,
    make_light_handler,
)
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.records import Activity, Explanation, QuestionsReady, StatusReport
from teeter.errors import InputError, StoreError
from teeter.server.worker.background import (
    ENSURE_QUESTIONS,
    FIND_SUSPECTS,
    PICK_AHEAD,
    TRAIN,
    BackgroundTaskError,
    BackgroundWorker,
    WorkerStatus,
)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


@pytest.fixture
def light_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[BackgroundWorker]:
    """A worker whose process is real, loads no library, and is restarted without a pause."""
    monkeypatch.setattr("teeter.server.worker.background.RESTART_PAUSE", 0.0)
    worker = BackgroundWorker(batch=10, make_handler=make_light_handler)
    yield worker
    worker.stop()


@pytest.fixture
def worker() -> Iterator[BackgroundWorker]:
    worker = BackgroundWorker(batch=10, make_handler=make_handler_at_full_priority)
    yield worker
    worker.stop()
    wait_for(lambda: not is_alive(worker))


def open_items(campaign: Campaign) -> list[str]:
    with campaign.reading() as view:
        return [pick.item for pick in view.picks.open_picks("me")]


def is_alive(worker: BackgroundWorker) -> bool:
    assert worker.process_id is not None
    return Path(f"/proc/{worker.process_id}/status").exists()


@pytest.mark.xdist_group("worker")
def test_it_picks_ahead_and_trains(tmp_path: Path, worker: BackgroundWorker) -> None:
    path = str(make_text_campaign(tmp_path / "texts.teeter"))
    first = worker.submit(ENSURE_QUESTIONS, path, annotator="me", batch=10).result(PATIENCE)
    assert not first.is_finished

    campaign = Campaign.open(path)
    waiting = open_items(campaign)
    assert len(waiting) == 10
    for item in waiting[:6]:
        campaign.tell(item, true_label(item))

    worker.ensure_questions(path, "me")
    worker.ensure_questions(path, "me")
    wait_for(lambda: worker.status(path).version == 1)
    wait_for(lambda: campaign.status().open >= 14)
    assert worker.status(path).trained_at is not None
    assert campaign.status().version == 1
    campaign.database.close()

    missing = str(tmp_path / "none.teeter")
    with pytest.raises(InputError, match="no campaign"):
        worker.submit(ENSURE_QUESTIONS, missing, annotator="me", batch=10).result(PATIENCE)


@pytest.mark.slow
@pytest.mark.xdist_group("worker")
def test_it_continues_after_its_process_was_killed(
    tmp_path: Path, worker: BackgroundWorker
) -> None:
    path = str(make_text_campaign(tmp_path / "texts.teeter"))
    worker.submit(ENSURE_QUESTIONS, path, annotator="me", batch=10).result(PATIENCE)
    campaign = Campaign.open(path)
    for item in open_items(campaign)[:6]:
        campaign.tell(item, true_label(item))

    assert worker.process_id is not None
    os.kill(worker.process_id, signal.SIGKILL)
    worker.ensure_questions(path, "me")
    worker.ensure_questions(path, "me")

    wait_for(lambda: worker.status(path).version == 1)
    wait_for(lambda: campaign.status().open >= 14)
    wait_for(lambda: worker.status(path).error is None)
    assert campaign.status().version == 1
    campaign.database.close()


def test_a_process_that_was_killed_is_restarted(light_worker: BackgroundWorker) -> None:
    first = light_worker.submit(PROCESS_ID, "a").result(PATIENCE)
    assert light_worker.process_id == first

    os.kill(first, signal.SIGKILL)
    wait_for(lambda: not light_worker._process.is_alive())
    second = light_worker.submit(PROCESS_ID, "a").result(PATIENCE)
    assert second != first
    assert light_worker.status("a").error is None

    light_worker.stop()
    wait_for(lambda: not is_alive(light_worker))


def test_errors_of_users_and_of_ours_are_distinguished(
    light_worker: BackgroundWorker, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InputError, match="does not exist"):
        light_worker.submit(REFUSE, "a").result(PATIENCE)
    assert "failed" not in caplog.text

    with pytest.raises(BackgroundTaskError, match="fail failed: ValueError: an unexpected value"):
        light_worker.submit(FAIL, "a").result(PATIENCE)
    assert "worker_processes.py" in caplog.text, "the traceback of the worker process"


@pytest.mark.slow
def test_a_request_that_kills_the_process_every_time_is_given_up(
    light_worker: BackgroundWorker,
) -> None:
    with pytest.raises(BackgroundTaskError, match="stopped 3 times while handling die"):
        light_worker.submit(DIE, "a").result(PATIENCE)
    assert "no models are trained" in light_worker.status("a").describe()

    questions = light_worker.submit(ENSURE_QUESTIONS, "b", annotator="me", batch=10)
    assert questions.result(PATIENCE).is_finished is False


def test_a_cancelled_request_does_not_stop_the_next(light_worker: BackgroundWorker) -> None:
    first = light_worker.submit(ENSURE_QUESTIONS, "a", annotator="me", batch=10)
    second = light_worker.submit(FIND_SUSPECTS, "a", count=3)
    first.cancel()
    second.cancel()

    questions = light_worker.submit(ENSURE_QUESTIONS, "a", annotator="you", batch=10)
    assert questions.result(PATIENCE).is_finished is False
    light_worker.submit(FIND_SUSPECTS, "a", count=3).result(PATIENCE)


@pytest.mark.slow
@pytest.mark.xdist_group("worker")
def test_a_cancelled_request_does_not_stop_the_next_of_a_real_campaign(
    tmp_path: Path, worker: BackgroundWorker
) -> None:
    path = str(make_text_campaign(tmp_path / "texts.teeter"))
    first = worker.submit(ENSURE_QUESTIONS, path, annotator="me", batch=10)
    second = worker.submit(FIND_SUSPECTS, path, count=3)
    first.cancel()
    second.cancel()

    questions = worker.submit(ENSURE_QUESTIONS, path, annotator="you", batch=10)
    assert questions.result(PATIENCE).is_finished is False
    worker.submit(FIND_SUSPECTS, path, count=3).result(PATIENCE)


def test_a_fault_in_the_server_does_not_stop_the_next_request(
    light_worker: BackgroundWorker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("an unforeseen value")

    annotator = {"annotator": "me", "batch": 10}
    with monkeypatch.context() as patch:
        patch.setattr(WorkerStatus, "add_questions", fail)
        with pytest.raises(BackgroundTaskError, match="an unforeseen value"):
            light_worker.submit(ENSURE_QUESTIONS, "a", **annotator).result(PATIENCE)

    assert (
        light_worker.submit(ENSURE_QUESTIONS, "a", **annotator).result(PATIENCE).is_finished
        is False
    )
    assert "ensure_questions failed" in caplog.text


def test_requests_wait_once_and_urgent_ones_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.Thread.start", lambda thread: None)
    worker = BackgroundWorker()
    suspects = worker.submit(FIND_SUSPECTS, "a", count=3)
    questions = worker.submit(ENSURE_QUESTIONS, "a", annotator="me", batch=10)
    assert worker.submit(FIND_SUSPECTS, "a", count=3) is suspects
    assert worker.submit(ENSURE_QUESTIONS, "a", annotator="me", batch=10) is questions
    worker.submit(PICK_AHEAD, "a", count=3)
    worker.submit(TRAIN, "a")

    waiting = [request.task for request, _ in worker._queue]
    assert waiting == [ENSURE_QUESTIONS, TRAIN, FIND_SUSPECTS, PICK_AHEAD]

    suspects.cancel()
    assert worker.submit(FIND_SUSPECTS, "a", count=3) is not suspects


def test_stopping_cancels_what_waits(light_worker: BackgroundWorker) -> None:
    light_worker.submit(PROCESS_ID, "a").result(PATIENCE)
    waiting = [light_worker.submit(DIE, str(number)) for number in range(20)]
    light_worker.stop()
    wait_for(lambda: all(future.done() for future in waiting))
    assert any(future.cancelled() for future in waiting)


def test_the_status_is_described_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1e9
    monkeypatch.setattr("teeter.server.worker.background.time", SimpleNamespace(time=lambda: now))
    status = WorkerStatus()
    assert status.describe() == ""

    status.update(StatusReport(Activity.TRAINING, labels=140, version=7))
    assert status.describe() == "Model 7 is being trained on 140 labels."
    status.update(StatusReport(None, version=7, is_trained=True))
    assert status.describe() == "Model 7 was trained 0 seconds ago."

    now += 600
    assert status.describe() == "Model 7 was trained 10 minutes ago."
    now += 7200
    assert status.describe() == "Model 7 was trained 2 hours ago."

    for activity in Activity:
        status.update(StatusReport(activity))
        assert status.describe().endswith(".")

    status.is_restarting = True
    assert "No answers were lost" in status.describe()
    status.error = str(StoreError("The disk is full."))
    assert status.describe() == "The disk is full."


def test_old_explanations_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("teeter.server.worker.background._MAX_EXPLANATIONS", 3)
    status = WorkerStatus()
    explanation = Explanation([("ham", 1.0)], [])
    for item in "abcde":
        status.add_questions("me", QuestionsReady(False, {item: explanation}))
    assert list(status.explanations) == ["c", "d", "e"]

    status.add_questions("me", QuestionsReady(True, {}))
    assert status.finished_annotators == {"me"}
    status.add_questions("me", QuestionsReady(False, {}))
    assert status.finished_annotators == set()
