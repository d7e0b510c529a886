"""The server may be killed at any moment while somebody labels: what it acknowledged is there,
once.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from pathlib import Path

import httpx
import numpy as np
import pytest

from campaigns.history_replay import replay_answers
from teeter.campaigns.campaign import Campaign, Settings
from web.restartable_server import RestartableServer

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks"),
    pytest.mark.xdist_group("killed servers"),
]

PATIENCE = 600
"""Seconds. On a busy machine the trainer, which is nice to others, takes minutes to start."""

KNOWN = 20
LONG = 8
"""One in so many lives lasts until a model was trained."""

EARLY = 5
"""One in so many is killed before it may have answered at all."""

QUOTA = 100
"""So many answers are given in a life: however fast the machine is, the items do not run out."""


def truth(item: str) -> str:
    return "even" if int(item[1:]) % 2 == 0 else "odd"


def begin(path: Path, items: int) -> None:
    vectors = np.random.default_rng(0).normal(size=(items, 6)).astype(np.float32)
    vectors[::2, 0] += 2
    campaign = Campaign.create(
        path, "numbers", ("even", "odd"), Settings(kind="features", strategy="margin")
    )
    known = {k: truth(f"n{k}") for k in range(KNOWN)}
    campaign.add(
        {"id": f"n{k}", "features": vectors[k], "label": known.get(k)} for k in range(items)
    )
    campaign.ask(items - KNOWN - 50)
    campaign.database.close()


def label(address: str, told: list[str], ready: threading.Event, gone: threading.Event) -> None:
    """Answer until the server is gone or the quota is used up; note what it acknowledged."""
    at = "/api/v1/campaigns/numbers"
    last = len(told) + QUOTA
    with httpx.Client(base_url=address, timeout=PATIENCE) as client:
        try:
            csrf = _session(client, gone)
            if csrf is None:
                return
            client.headers["x-csrf-token"] = csrf
            ready.set()
            while True:
                response = client.get(f"{at}/questions?n=20")
                is_busy = response.status_code == 503
                questions = [] if is_busy else response.json()["questions"]
                if not questions:
                    time.sleep(0.05)
                for one in questions:
                    while len(told) >= last:
                        if gone.wait(0.01):
                            return
                    body = {"item": one["item"], "label": truth(one["item"])}
                    answer = client.post(f"{at}/answers", json=body)
                    while answer.status_code == 503:  # the database is busy
                        time.sleep(0.02)
                        answer = client.post(f"{at}/answers", json=body)
                    assert answer.status_code == 200, answer.text
                    told.append(one["item"])
        except httpx.TransportError:
            return


def _session(client: httpx.Client, gone: threading.Event) -> str | None:
    while not gone.is_set():
        try:
            return str(client.get("/api/v1/session").json()["csrf"])
        except httpx.ConnectError:
            time.sleep(0.02)
    return None


def wait_for_a_model(path: Path, known: int) -> None:
    campaign = Campaign.open(path)
    ends = time.monotonic() + PATIENCE
    while campaign.status().version <= known:
        assert time.monotonic() < ends, "no model was trained"
        time.sleep(0.1)
    campaign.database.close()


def check(path: Path, told: list[str], kills: int) -> int:
    campaign = Campaign.open(path)
    with campaign.database.reading() as connection:
        answers = campaign.repository.answers.live(connection)
        opened = {pick.item for pick in campaign.repository.picks.open_picks(connection)}
        models = campaign.repository.models.summaries(connection)
    held = {one.item: one.label for one in answers}
    assert set(told) <= set(held), "what was acknowledged is there"
    assert max(Counter(one.item for one in answers).values()) == 1
    assert max(Counter(told).values(), default=1) == 1, "nobody is asked twice"
    assert all(said == truth(item) for item, said in held.items())
    assert len(held) - KNOWN - len(told) <= kills, (
        "at most one answer a kill was written and not acknowledged"
    )
    assert not opened & set(held)
    assert replay_answers(campaign.history()) == {(one.item, one.annotator): one for one in answers}
    campaign.database.close()
    return len(models)


def wait_for_answers(told: list[str], count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while len(told) < count:
        assert time.monotonic() < deadline, f"{len(told)} of {count} answers were acknowledged"
        time.sleep(0.01)


def test_killed_after_a_few_answers(tmp_path: Path) -> None:
    path = tmp_path / "numbers.teeter"
    begin(path, 200)
    told: list[str] = []
    with RestartableServer(path, tmp_path / "home") as server:
        server.start()
        ready, gone = threading.Event(), threading.Event()
        person = threading.Thread(target=label, args=(server.address, told, ready, gone))
        person.start()
        wait_for_answers(told, 3)
        server.kill()
        gone.set()
        person.join(PATIENCE)
        assert not person.is_alive()
    check(path, told, kills=1)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [10, 100])
def test_killed_while_somebody_labels(kills: int, tmp_path: Path) -> None:
    path = tmp_path / "numbers.teeter"
    begin(path, KNOWN + 2 * QUOTA * kills)
    moments, models = random.Random(kills), 0
    told: list[str] = []
    with RestartableServer(path, tmp_path / "home") as server:
        for life in range(1, kills + 1):
            server.start()
            ready, gone = threading.Event(), threading.Event()
            person = threading.Thread(target=label, args=(server.address, told, ready, gone))
            person.start()
            if life % EARLY:  # others are killed while they start
                assert ready.wait(PATIENCE)
                wait_for_answers(told, len(told) + moments.randrange(5))
            if life % LONG == 0:
                wait_for_a_model(path, models)
            time.sleep(moments.uniform(0, 0.6))
            server.kill()
            gone.set()
            person.join(PATIENCE)
            assert not person.is_alive()
            models = check(path, told, life)
    assert len(told) > kills
    assert models > 0, "models were trained meanwhile"
