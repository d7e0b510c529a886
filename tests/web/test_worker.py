"""The trainer: a process of its own that picks ahead, trains, and is started again when it dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from teeter.campaigns.campaign import Campaign
from teeter.errors import InputError
from teeter.web.worker import News, Trainer
from web.servers import begin

pytestmark = pytest.mark.xdist_group("worker")


def wait_for(what: Callable[[], bool], seconds: float = 60) -> None:
    ends = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < ends, "waited too long"
        time.sleep(0.05)


def test_it_picks_ahead_trains_and_survives_being_killed(tmp_path: Path) -> None:
    path = begin(tmp_path / "texts.teeter")
    trainer = Trainer(batch=10)
    try:
        first = trainer.do("look", str(path), annotator="me", batch=10).result(60)
        assert not first["finished"]
        campaign = Campaign.open(path)
        with campaign.store.reading() as connection:
            waiting = [pick.item for pick in campaign.ledger.open_picks(connection, "me")]
        assert len(waiting) == 10
        for item in waiting[:6]:
            campaign.tell(item, "ham" if item == "html" or int(item[1:]) % 2 else "spam")
        assert trainer.process_id is not None
        os.kill(trainer.process_id, signal.SIGKILL)
        trainer.look(str(path), "me")
        trainer.look(str(path), "me")
        wait_for(lambda: trainer.news(str(path)).version == 1)
        wait_for(lambda: campaign.status().open >= 14)
        assert trainer.news(str(path)).trained is not None
        wait_for(lambda: trainer.news(str(path)).trouble is None)
        assert campaign.status().version == 1
        with pytest.raises(InputError, match="no campaign"):
            trainer.do("look", str(tmp_path / "none.teeter"), annotator="me", batch=10).result(60)
        campaign.store.close()
    finally:
        trainer.stop()
    assert trainer.process_id is not None
    wait_for(lambda: not Path(f"/proc/{trainer.process_id}/status").exists(), 5)


def test_what_goes_on_is_told_in_words() -> None:
    news = News()
    assert news.sentence() == ""
    news.learn({"doing": "training", "labels": 140, "version": 7})
    assert news.sentence() == "Model 7 is being trained on 140 labels."
    news.learn({"doing": None, "version": 7, "trained": True})
    assert news.sentence() == "Model 7 was trained 0 s ago."
    news.trouble = "The disk is full."
    assert news.sentence() == "The disk is full."


def test_work_that_nobody_waits_for_any_more_does_not_stop_the_rest(tmp_path: Path) -> None:
    path = begin(tmp_path / "texts.teeter")
    trainer = Trainer(batch=10)
    try:
        first = trainer.do("look", str(path), annotator="me", batch=10)
        left = trainer.do("suspects", str(path), count=3)
        first.cancel()
        left.cancel()
        assert trainer.do("look", str(path), annotator="you", batch=10).result(60)["finished"] is False
        trainer.do("suspects", str(path), count=3).result(60)
    finally:
        trainer.stop()


def test_whatever_goes_wrong_with_one_job_the_next_has_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = begin(tmp_path / "texts.teeter")
    trainer = Trainer(batch=10)

    def broken(*_: object) -> None:
        raise ValueError("nobody thought of this")

    try:
        with monkeypatch.context() as changed:
            changed.setattr(trainer, "_take_in", broken)
            with pytest.raises(InputError, match="nobody thought of this"):
                trainer.do("look", str(path), annotator="me", batch=10).result(60)
        assert trainer.do("look", str(path), annotator="me", batch=10).result(60)["finished"] is False
    finally:
        trainer.stop()
    assert "look failed" in caplog.text
