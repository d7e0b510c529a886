"""The server may be killed at any moment while sixteen annotators label: no answer is lost, and no
item is asked about again but those that were drawn to measure and not answered blind.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import httpx2
import numpy as np
import pytest

from campaigns.history_replay import replay_answers, replay_repeats
from campaigns.stores import new_place, stores_in_groups
from server.restartable_server import RestartableServer
from teeter.campaigns.asking.assignment import pick_ahead
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")

AT = "/api/v1/campaigns/numbers"
PATIENCE = 600
"""Seconds. On a busy machine the trainer, which is nice to others, takes minutes to start."""

ANNOTATORS = 16
KNOWN = 20
LONG = 10
"""Every tenth server lives until a model was trained, so that new picks are made."""

CHECKED = 10
"""All answers are checked after every tenth kill."""

QUOTA = 10
"""Answers of an annotator to each server, or until a model was trained: however fast the machine
is, the items do not run out."""


def truth(item: str) -> str:
    return "even" if int(item[1:]) % 2 == 0 else "odd"


def create_campaign(place: str, items: int) -> list[str]:
    """Create a campaign with annotators, and return their tokens."""
    vectors = np.random.default_rng(0).normal(size=(items, 6)).astype(np.float32)
    vectors[::2, 0] += 2

    campaign = Campaign.make(
        [],
        ("even", "odd"),
        at=place,
        name="numbers",
        settings=Settings(kind="features", strategy="margin"),
    )

    labels = {k: truth(f"n{k}") for k in range(KNOWN)}
    campaign.add(
        {"id": f"n{k}", "features": vectors[k], "label": labels.get(k)} for k in range(items)
    )

    tokens = [
        campaign.people.add(f"person {k}", "owner" if k == 0 else "annotator")
        for k in range(ANNOTATORS)
    ]

    pick_ahead(campaign, items)
    campaign.database.close()
    return tokens


class RetryingAnnotator(threading.Thread):
    """Asks and answers; sends an answer again that a killed server did not acknowledge, as the
    page does.
    """

    def __init__(self, address: str, token: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.token = token
        self.stop = stop
        self.quota = threading.Semaphore(0)
        self.acknowledged: list[str] = []
        """The items whose answers the server confirmed."""
        self.refusals: list[str] = []
        self.lost_connections = 0

    def run(self) -> None:
        headers = {"authorization": f"Bearer {self.token}"}
        with httpx2.Client(base_url=self.address, headers=headers, timeout=PATIENCE) as client:
            while not self.stop.is_set():
                response = self.send(client, "GET", f"{AT}/questions?n=10")
                questions = [] if response is None else response.json()["questions"]

                for question in questions:
                    if not self.may_answer():
                        return
                    body = {"item": question["item"], "label": truth(question["item"])}
                    if self.send(client, "POST", f"{AT}/answers", body) is not None:
                        self.acknowledged.append(question["item"])

                if not questions:
                    time.sleep(0.05)

    def may_answer(self) -> bool:
        """Wait until the quota allows an answer; return False if the test ends before."""
        while not self.stop.is_set():
            if self.quota.acquire(timeout=0.05):
                return True
        return False

    def send(
        self, client: httpx2.Client, method: str, path: str, body: object = None
    ) -> httpx2.Response | None:
        """Return the response to a request, or None at the end.

        The request is sent again while there is no server, and while the server is busy (503).
        """
        while True:
            try:
                response = client.request(method, path, json=body)
            except httpx2.TransportError:
                self.lost_connections += 1
                if self.stop.is_set():
                    return None
                time.sleep(0.02)
                continue

            if response.status_code == 503:
                if self.stop.is_set():
                    return None
                time.sleep(0.02)
                continue

            if response.status_code != 200:
                self.refusals.append(f"{method} {path}: {response.status_code} {response.text}")
            return response if response.status_code == 200 else None


def check_answers(place: str, acknowledged: list[str], kills: int) -> int:
    """Compare the campaign with the acknowledged answers, and return how many models it has."""
    campaign = Campaign.open(place)
    with closing(campaign.database), campaign.reading() as view:
        history = view.history.lines()
        answers = view.answers.live()
        open_items = [pick.item for pick in view.picks.open_picks()]
        models = view.models.summaries()

    items = Counter(answer.item for answer in answers)
    repeats = Counter(replay_repeats(history))
    recorded = sum(line["what"] == "answer" for line in history)

    assert items.keys() >= set(acknowledged), "every acknowledged answer is saved"
    assert items <= Counter(set(items)) + repeats, "another annotator answers what is asked again"
    assert Counter(acknowledged) <= Counter(set(acknowledged)) + repeats

    assert len(open_items) == len(set(open_items)), "an item is with one annotator at a time"
    assert set(open_items) & set(items) <= set(repeats), (
        "an answered item is open only if asked again"
    )
    assert all(answer.label == truth(answer.item) for answer in answers)
    assert 0 <= recorded - KNOWN - len(acknowledged) <= ANNOTATORS * kills, (
        "one answer per annotator may be written and not acknowledged"
    )

    assert replay_answers(history) == {
        (answer.item, answer.annotator): answer for answer in answers
    }

    return len(models)


def wait_for_a_model(place: str, version: int) -> None:
    """Wait until a newer model than this version was trained."""
    campaign = Campaign.open(place)
    ends = time.monotonic() + PATIENCE
    while campaign.status().version <= version:
        assert time.monotonic() < ends, "no model was trained"
        time.sleep(0.2)
    campaign.database.close()


@pytest.mark.slow
@pytest.mark.parametrize("kills", [3, 100])
@pytest.mark.parametrize("kind", stores_in_groups("killed team"))
def test_killed_while_sixteen_people_label(kind: str, kills: int, tmp_path: Path) -> None:
    place = new_place(kind, tmp_path)
    quotas = kills + kills // LONG + 2  # one in each life, one after each model, one at the end
    tokens = create_campaign(place, KNOWN + ANNOTATORS * QUOTA * (quotas + 1))
    moments = random.Random(kills)
    models = 0
    stop = threading.Event()

    with RestartableServer(place, tmp_path / "home") as server:
        annotators = [RetryingAnnotator(server.address, token, stop) for token in tokens]
        for annotator in annotators:
            annotator.start()

        for life in range(1, kills + 1):
            server.start()

            before = sum(len(annotator.acknowledged) for annotator in annotators)
            raise_quotas(annotators)
            if life % 5:
                wait_for_answers(
                    annotators, before + ANNOTATORS + moments.randrange(5 * ANNOTATORS)
                )
            else:  # killed while it starts
                time.sleep(moments.uniform(0, 0.6))

            if life % LONG == 2:
                wait_for_a_model(place, models)
                raise_quotas(annotators)

            server.kill()
            if life % CHECKED == 0:
                models = check_answers(
                    place,
                    [item for annotator in annotators for item in list(annotator.acknowledged)],
                    life,
                )

        server.start()
        raise_quotas(annotators)
        wait_for_every_annotator(annotators)
        stop.set()
        for annotator in annotators:
            annotator.join(PATIENCE)
        assert not any(annotator.is_alive() for annotator in annotators)

    acknowledged = [item for annotator in annotators for item in annotator.acknowledged]
    assert [refusal for annotator in annotators for refusal in annotator.refusals] == []
    assert check_answers(place, acknowledged, kills) > 0, "models were trained meanwhile"
    assert sum(annotator.lost_connections for annotator in annotators) >= kills, (
        "they were at work when it was killed"
    )
    assert len(acknowledged) > ANNOTATORS * kills // 2


def raise_quotas(annotators: list[RetryingAnnotator]) -> None:
    for annotator in annotators:
        annotator.quota.release(QUOTA)


def wait_for_answers(annotators: list[RetryingAnnotator], count: int) -> None:
    ends = time.monotonic() + PATIENCE
    while sum(len(annotator.acknowledged) for annotator in annotators) < count:
        assert time.monotonic() < ends, [annotator.refusals[-1:] for annotator in annotators]
        time.sleep(0.02)


def wait_for_every_annotator(annotators: list[RetryingAnnotator]) -> None:
    """Wait until the server has acknowledged three more answers of every annotator."""
    goals = [len(annotator.acknowledged) + 3 for annotator in annotators]
    ends = time.monotonic() + PATIENCE
    while any(
        len(annotator.acknowledged) < goal
        for annotator, goal in zip(annotators, goals, strict=True)
    ):
        assert time.monotonic() < ends, [annotator.refusals[-1:] for annotator in annotators]
        time.sleep(0.02)
