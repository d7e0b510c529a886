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
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from campaigns import annotator_process
from campaigns.history_replay import replay_answers
from campaigns.killed_process import Report, kill_after, needs_fork
from teeter.campaigns.campaign import Campaign, Settings

pytestmark = needs_fork

KNOWN = 20
KILLS = 100


def begin(path: Path, items: int) -> None:
    vectors = np.random.default_rng(0).normal(size=(items, 6)).astype(np.float32)
    vectors[::2, 0] += 2
    campaign = Campaign.create(
        path, "numbers", ("even", "odd"), Settings(kind="features", strategy="margin")
    )
    known = {k: annotator_process.truth(f"n{k}") for k in range(KNOWN)}
    campaign.add(
        {"id": f"n{k}", "features": vectors[k], "label": known.get(k)} for k in range(items)
    )
    campaign.train()
    campaign.database.close()


def check(path: Path, reported: list[str], version: int, kills: int, items: int) -> None:
    """Check that every reported answer is stored once and right, and that the history agrees."""
    campaign = Campaign.open(path)
    with campaign.database.reading() as connection:
        answers = campaign.repository.answers.live(connection)
        opened = {pick.item for pick in campaign.repository.picks.open_picks(connection)}
        there = {item.item_id for item in campaign.repository.items.all(connection)}
        models = campaign.repository.models.summaries(connection)
    held = {one.item: one.label for one in answers}
    assert set(reported) <= set(held)
    assert max(Counter(one.item for one in answers).values(), default=1) == 1
    assert max(Counter(reported).values(), default=1) == 1, "no item is asked about twice"
    assert all(label == annotator_process.truth(item) for item, label in held.items())
    assert len(held) - KNOWN - len(reported) <= kills, (
        "at most one answer per kill was stored and not reported"
    )
    assert there == {f"n{k}" for k in range(items)}
    assert not opened & set(held), "an answered item is not open"
    assert len(opened) <= annotator_process.BATCH
    assert len(models) >= version
    assert replay_answers(campaign.history()) == {(one.item, one.annotator): one for one in answers}
    campaign.database.close()


def label_items(path: Path, report: Report) -> None:
    campaign = Campaign.open(path)
    while True:
        for question in campaign.ask(annotator_process.BATCH, "ann"):
            campaign.tell(question.item, annotator_process.truth(question.item), "ann")
            report(question.item)


def test_killed_in_the_first_and_in_the_second_batch(tmp_path: Path) -> None:
    path = tmp_path / "numbers.teeter"
    items = 100
    begin(path, items)
    reported: list[str] = []
    for kills, answers in enumerate((3, annotator_process.BATCH + 2), start=1):
        reported += kill_after(partial(label_items, path), answers)
        check(path, reported, 1, kills, items)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [20, KILLS])
def test_killed_while_labelling(kills: int, tmp_path: Path) -> None:
    path = tmp_path / "numbers.teeter"
    items = 60 * kills
    begin(path, items)
    moments, reported, version = random.Random(kills), [], 0
    command = [sys.executable, annotator_process.__file__ or "", str(path)]
    alone = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }  # threads and fork do not mix
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, env=alone, text=True, bufsize=1) as people:
        assert people.stdin is not None
        assert people.stdout is not None
        for killed in range(1, kills + 1):
            people.stdin.write("go\n")
            _, number = people.stdout.readline().split()
            # However slow the machine is, the moment comes after so many reports, and somewhere in
            # what comes next.
            lines = [
                people.stdout.readline()
                for _ in range(moments.randrange(2 * annotator_process.BATCH))
            ]
            time.sleep(moments.uniform(0, 0.1))
            os.kill(int(number), signal.SIGKILL)
            lines += iter(people.stdout.readline, "ended\n")
            for line in lines:
                what, which = line.split()
                if what == "told":
                    reported.append(which)
                else:
                    version = int(which)
            check(path, reported, version, killed, items)
        people.stdin.close()
    assert len(reported) > kills
    assert version > 2
    connection = sqlite3.connect(path)
    assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    connection.close()
