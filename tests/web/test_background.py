"""The trainer: a process of its own that picks ahead, trains, and is started again when it dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from teeter.campaigns.campaign import Campaign
from teeter.errors import InputError
from teeter.web.background import BackgroundWorker, WorkerStatus
from web.labelled_campaigns import true_label
from web.servers import PATIENCE, begin
from web.worker_processes import answer_requests, work_at_full_priority


def wait_for(is_so: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < ends, "waited too long"
        time.sleep(0.05)


@pytest.fixture
def light_trainer(monkeypatch: pytest.MonkeyPatch) -> Iterator[BackgroundWorker]:
    """A trainer whose process is real, loads no library, and is started again without a pause."""
    monkeypatch.setattr("teeter.web.background._CALM", 0.0)
    trainer = BackgroundWorker(batch=10, target=answer_requests)
    yield trainer
    trainer.stop()


@pytest.mark.xdist_group("worker")
def test_it_picks_ahead_and_trains(tmp_path: Path) -> None:
    path = begin(tmp_path / "texts.teeter")
    trainer = BackgroundWorker(batch=10, target=work_at_full_priority)
    try:
        first = trainer.do("look", str(path), annotator="me", batch=10).result(PATIENCE)
        assert not first["finished"]
        campaign = Campaign.open(path)
        waiting = open_items(campaign)
        assert len(waiting) == 10
        for item in waiting[:6]:
            campaign.tell(item, true_label(item))
        trainer.look(str(path), "me")
        trainer.look(str(path), "me")
        wait_for(lambda: trainer.news(str(path)).version == 1)
        wait_for(lambda: campaign.status().open >= 14)
        assert trainer.news(str(path)).trained is not None
        assert campaign.status().version == 1
        with pytest.raises(InputError, match="no campaign"):
            trainer.do("look", str(tmp_path / "none.teeter"), annotator="me", batch=10).result(
                PATIENCE
            )
        campaign.database.close()
    finally:
        trainer.stop()
    wait_for(lambda: not is_alive(trainer))


def open_items(campaign: Campaign) -> list[str]:
    with campaign.database.reading() as connection:
        return [pick.item for pick in campaign.repository.picks.open_picks(connection, "me")]


def is_alive(trainer: BackgroundWorker) -> bool:
    assert trainer.process_id is not None
    return Path(f"/proc/{trainer.process_id}/status").exists()


@pytest.mark.slow
@pytest.mark.xdist_group("worker")
def test_it_survives_being_killed_with_all_it_knows(tmp_path: Path) -> None:
    path = begin(tmp_path / "texts.teeter")
    trainer = BackgroundWorker(batch=10, target=work_at_full_priority)
    try:
        trainer.do("look", str(path), annotator="me", batch=10).result(PATIENCE)
        campaign = Campaign.open(path)
        for item in open_items(campaign)[:6]:
            campaign.tell(item, true_label(item))
        assert trainer.process_id is not None
        os.kill(trainer.process_id, signal.SIGKILL)
        trainer.look(str(path), "me")
        trainer.look(str(path), "me")
        wait_for(lambda: trainer.news(str(path)).version == 1)
        wait_for(lambda: campaign.status().open >= 14)
        wait_for(lambda: trainer.news(str(path)).trouble is None)
        assert campaign.status().version == 1
        campaign.database.close()
    finally:
        trainer.stop()
    wait_for(lambda: not is_alive(trainer))


def test_a_process_that_was_killed_is_started_again(light_trainer: BackgroundWorker) -> None:
    first = light_trainer.do("look", "a", annotator="me").result(PATIENCE)["process"]
    assert light_trainer.process_id == first
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: not light_trainer._process.is_alive())
    second = light_trainer.do("look", "a", annotator="me").result(PATIENCE)["process"]
    assert second != first
    assert light_trainer.news("a").trouble is None
    with pytest.raises(InputError, match="is not there"):
        light_trainer.do("refuse", "a").result(PATIENCE)
    light_trainer.stop()
    wait_for(lambda: not is_alive(light_trainer))


def test_work_that_kills_the_process_every_time_is_given_up(
    light_trainer: BackgroundWorker,
) -> None:
    with pytest.raises(InputError, match="stops again and again at die"):
        light_trainer.do("die", "a").result(PATIENCE)
    assert "models are not trained" in light_trainer.news("a").sentence()
    assert light_trainer.do("look", "b", annotator="me").result(PATIENCE)["finished"] is False


def test_what_goes_on_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("teeter.web.background.time", SimpleNamespace(time=lambda: 1e9))
    news = WorkerStatus(since=0)
    assert news.sentence() == ""
    news.learn({"doing": "training", "labels": 140, "version": 7})
    assert news.sentence() == "Model 7 is being trained on 140 labels."
    news.learn({"doing": None, "version": 7, "trained": True})
    assert news.sentence() == "Model 7 was trained 0 s ago."
    news.trouble = "The disk is full."
    assert news.sentence() == "The disk is full."


@pytest.mark.slow
@pytest.mark.xdist_group("worker")
def test_real_work_that_nobody_waits_for_any_more_does_not_stop_the_rest(tmp_path: Path) -> None:
    path = begin(tmp_path / "texts.teeter")
    trainer = BackgroundWorker(batch=10, target=work_at_full_priority)
    try:
        first = trainer.do("look", str(path), annotator="me", batch=10)
        left = trainer.do("suspects", str(path), count=3)
        first.cancel()
        left.cancel()
        assert (
            trainer.do("look", str(path), annotator="you", batch=10).result(PATIENCE)["finished"]
            is False
        )
        trainer.do("suspects", str(path), count=3).result(PATIENCE)
    finally:
        trainer.stop()


def test_work_that_nobody_waits_for_any_more_does_not_stop_the_rest(
    light_trainer: BackgroundWorker,
) -> None:
    first = light_trainer.do("look", "a", annotator="me")
    left = light_trainer.do("suspects", "a", count=3)
    first.cancel()
    left.cancel()
    assert light_trainer.do("look", "a", annotator="you").result(PATIENCE)["finished"] is False
    light_trainer.do("suspects", "a", count=3).result(PATIENCE)


def test_whatever_goes_wrong_with_one_job_the_next_has_its_turn(
    light_trainer: BackgroundWorker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("nobody thought of this")

    with monkeypatch.context() as changed:
        changed.setattr(light_trainer, "_take_in", fail)
        with pytest.raises(InputError, match="nobody thought of this"):
            light_trainer.do("look", "a", annotator="me").result(PATIENCE)
    assert light_trainer.do("look", "a", annotator="me").result(PATIENCE)["finished"] is False
    assert "look failed" in caplog.text
