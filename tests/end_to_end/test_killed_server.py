"""The server may be killed at any moment while an annotator labels: every acknowledged
answer is saved, once.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from pathlib import Path

import httpx2
import numpy as np
import pytest

from campaigns.history_replay import replay_answers
from server.restartable_server import RestartableServer
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks"),
    pytest.mark.xdist_group("killed servers"),
]

PATIENCE = 600
"""Seconds. On a busy machine the trainer, which is nice to others, takes minutes to start."""

KNOWN = 20
LONG = 8
"""Every eighth server lives until a model was trained."""

EARLY = 5
"""Every fifth server is killed while it starts."""

QUOTA = 100
"""Answers given to each server: however fast the machine is, the items do not run out."""


def truth(item: str) -> str:
    return "even" if int(item[1:]) % 2 == 0 else "odd"


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

    labels = {k: truth(f"n{k}") for k in range(KNOWN)}
    campaign.add(
        {"id": f"n{k}", "features": vectors[k], "label": labels.get(k)} for k in range(items)
    )

    campaign.ask(items - KNOWN - 50)
    campaign.database.close()


def label(
    address: str, acknowledged: list[str], ready: threading.Event, gone: threading.Event
) -> None:
    """Answer until the server is gone or the quota is used up; note what it acknowledged."""
    at = "/api/v1/campaigns/numbers"
    last = len(acknowledged) + QUOTA

    with httpx2.Client(base_url=address, timeout=PATIENCE) as client:
        try:
            csrf = _wait_for_csrf_token(client, gone)
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

                for question in questions:
                    while len(acknowledged) >= last:
                        if gone.wait(0.01):
                            return

                    body = {"item": question["item"], "label": truth(question["item"])}
                    response = client.post(f"{at}/answers", json=body)
                    while response.status_code == 503:  # the database is busy
                        time.sleep(0.02)
                        response = client.post(f"{at}/answers", json=body)

                    assert response.status_code == 200, response.text
                    acknowledged.append(question["item"])
        except httpx2.TransportError:
            return


def _wait_for_csrf_token(client: httpx2.Client, gone: threading.Event) -> str | None:
    while not gone.is_set():
        try:
            return str(client.get("/api/v1/session").json()["csrf"])
        except httpx2.ConnectError:
            time.sleep(0.02)
    return None


def wait_for_a_model(path: Path, version: int) -> None:
    """Wait until a newer model than this version was trained."""
    campaign = Campaign.open(path)
    ends = time.monotonic() + PATIENCE
    while campaign.status().version <= version:
        assert time.monotonic() < ends, "no model was trained"
        time.sleep(0.1)
    campaign.database.close()


def check_answers(path: Path, acknowledged: list[str], kills: int) -> int:
    """Compare the campaign with the acknowledged answers, and return how many models it has."""
    campaign = Campaign.open(path)
    with campaign.reading() as view:
        answers = view.answers.live()
        open_items = {pick.item for pick in view.picks.open_picks()}
        models = view.models.summaries()

    labels = {answer.item: answer.label for answer in answers}

    assert set(acknowledged) <= set(labels), "every acknowledged answer is saved"
    assert max(Counter(answer.item for answer in answers).values()) == 1
    assert max(Counter(acknowledged).values(), default=1) == 1, "no item is asked about twice"
    assert all(label == truth(item) for item, label in labels.items())
    assert len(labels) - KNOWN - len(acknowledged) <= kills, (
        "at most one answer a kill was written and not acknowledged"
    )
    assert not open_items & set(labels)

    assert replay_answers(campaign.history()) == {
        (answer.item, answer.annotator): answer for answer in answers
    }

    campaign.database.close()
    return len(models)


def wait_for_answers(acknowledged: list[str], count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while len(acknowledged) < count:
        assert time.monotonic() < deadline, (
            f"{len(acknowledged)} of {count} answers were acknowledged"
        )
        time.sleep(0.01)


def test_killed_after_a_few_answers(tmp_path: Path) -> None:
    path = tmp_path / "numbers.teeter"
    create_campaign(path, 200)
    acknowledged: list[str] = []

    with RestartableServer(path, tmp_path / "home") as server:
        server.start()

        ready = threading.Event()
        gone = threading.Event()
        annotator = threading.Thread(
            target=label, args=(server.address, acknowledged, ready, gone), daemon=True
        )
        annotator.start()

        wait_for_answers(acknowledged, 3)

        server.kill()
        gone.set()
        annotator.join(PATIENCE)
        assert not annotator.is_alive()

    check_answers(path, acknowledged, kills=1)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [10, 100])
def test_killed_while_an_annotator_labels(kills: int, tmp_path: Path) -> None:
    path = tmp_path / "numbers.teeter"
    create_campaign(path, KNOWN + 2 * QUOTA * kills)
    moments = random.Random(kills)
    models = 0
    acknowledged: list[str] = []

    with RestartableServer(path, tmp_path / "home") as server:
        for life in range(1, kills + 1):
            server.start()

            ready = threading.Event()
            gone = threading.Event()
            annotator = threading.Thread(
                target=label, args=(server.address, acknowledged, ready, gone), daemon=True
            )
            annotator.start()

            if life % EARLY:  # others are killed while they start
                assert ready.wait(PATIENCE)
                wait_for_answers(acknowledged, len(acknowledged) + moments.randrange(5))
            if life % LONG == 0:
                wait_for_a_model(path, models)

            time.sleep(moments.uniform(0, 0.6))
            server.kill()
            gone.set()
            annotator.join(PATIENCE)
            assert not annotator.is_alive()

            models = check_answers(path, acknowledged, life)

    assert len(acknowledged) > kills
    assert models > 0, "models were trained meanwhile"
