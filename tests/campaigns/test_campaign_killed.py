"""A process that labels may be killed at any moment: every acknowledged answer is there, once."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from campaigns import annotator_process
from campaigns.history_replay import replay_answers, replay_repeats
from campaigns.killed_process import Report, kill_after, needs_fork
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings

pytestmark = needs_fork

KNOWN = 20
KILLS = 100


def create_campaign(path: Path, items: int) -> None:
    vectors = np.random.default_rng(0).normal(size=(items, 6)).astype(np.float32)
    vectors[::2, 0] += 2

    campaign = Campaign.make(
        [],
        ("even", "odd"),
        at=path,
        name="numbers",
        settings=Settings(kind="features", strategy="margin"),
    )

    labels = {k: annotator_process.truth(f"n{k}") for k in range(KNOWN)}
    campaign.add(
        {"id": f"n{k}", "features": vectors[k], "label": labels.get(k)} for k in range(items)
    )

    campaign.train()
    campaign.database.close()


def check_answers(path: Path, reported: list[str], version: int, kills: int, items: int) -> None:
    """Check that every reported answer is stored once and right, and that the history agrees."""
    campaign = Campaign.open(path)
    with closing(campaign.database), campaign.reading() as view:
        history = view.history.lines()
        answers = view.answers.live()
        open_items = {pick.item for pick in view.picks.open_picks()}
        item_ids = {item.item_id for item in view.items.all()}
        models = view.models.summaries()

    labels = {answer.item: answer.label for answer in answers}
    repeats = Counter(replay_repeats(history))
    recorded = sum(line["what"] == "answer" for line in history)

    assert set(reported) <= set(labels)
    assert max(Counter(answer.item for answer in answers).values(), default=1) == 1
    assert Counter(reported) <= Counter(set(reported)) + repeats, "once for each time it was asked"
    assert all(label == annotator_process.truth(item) for item, label in labels.items())
    assert 0 <= recorded - KNOWN - len(reported) <= kills, (
        "at most one answer per kill was stored and not reported"
    )

    assert item_ids == {f"n{k}" for k in range(items)}
    assert open_items & set(labels) <= set(repeats), "an answered item is open only if asked again"
    assert len(open_items) <= annotator_process.BATCH
    assert len(models) >= version

    assert replay_answers(history) == {
        (answer.item, answer.annotator): answer for answer in answers
    }


def label_items(path: Path, report: Report) -> None:
    campaign = Campaign.open(path)
    while True:
        for question in campaign.ask(annotator_process.BATCH, "ann"):
            campaign.tell(question.item, annotator_process.truth(question.item), "ann")
            report(question.item)


def test_killed_in_the_first_and_in_the_second_batch(tmp_path: Path) -> None:
    path = tmp_path / "numbers.teeter"
    items = 100
    create_campaign(path, items)

    reported: list[str] = []
    for kills, answers in enumerate((3, annotator_process.BATCH + 2), start=1):
        reported += kill_after(partial(label_items, path), answers)
        check_answers(path, reported, 1, kills, items)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [20, KILLS])
def test_killed_while_labelling(kills: int, tmp_path: Path) -> None:
    path = tmp_path / "numbers.teeter"
    items = 60 * kills
    create_campaign(path, items)

    moments = random.Random(kills)
    reported: list[str] = []
    version = 0

    command = [sys.executable, annotator_process.__file__ or "", str(path)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }  # threads and fork do not mix
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}

    with subprocess.Popen(command, **pipes, env=environment, text=True, bufsize=1) as annotator:
        assert annotator.stdin is not None
        assert annotator.stdout is not None

        for killed in range(1, kills + 1):
            annotator.stdin.write("go\n")
            _, process_id = annotator.stdout.readline().split()

            # Kill after a number of reports and a short pause, however slow the machine is.
            lines = [
                annotator.stdout.readline()
                for _ in range(moments.randrange(2 * annotator_process.BATCH))
            ]

            time.sleep(moments.uniform(0, 0.1))
            os.kill(int(process_id), signal.SIGKILL)
            lines += iter(annotator.stdout.readline, "ended\n")

            for line in lines:
                event, value = line.split()
                if event == "answered":
                    reported.append(value)
                else:
                    version = int(value)

            check_answers(path, reported, version, killed, items)

        annotator.stdin.close()

    assert len(reported) > kills
    assert version > 2

    connection = sqlite3.connect(path)
    assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    connection.close()
