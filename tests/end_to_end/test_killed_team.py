"""The server may be killed at any moment while sixteen people label: nothing is lost, and nobody is
asked twice.
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
from campaigns.stores import new_place, stores_in_groups
from teeter.campaigns.campaign import Campaign, Settings
from web.restartable_server import RestartableServer

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")

AT = "/api/v1/campaigns/numbers"
PATIENCE = 600
"""Seconds. On a busy machine the trainer, which is nice to others, takes minutes to start."""

PEOPLE = 16
KNOWN = 20
LONG = 10
"""One in so many lives lasts until a model was trained, so that new picks are made."""

CHECKED = 10
"""So many kills go by between two looks at everything."""

QUOTA = 10
"""So many answers a person may give in a life, or until a model was trained: however fast the
machine is, the items do not run out."""


def truth(item: str) -> str:
    return "even" if int(item[1:]) % 2 == 0 else "odd"


def begin(place: str, items: int) -> list[str]:
    """Make a campaign with people, and return their tokens."""
    vectors = np.random.default_rng(0).normal(size=(items, 6)).astype(np.float32)
    vectors[::2, 0] += 2
    campaign = Campaign.create(
        place, "numbers", ("even", "odd"), Settings(kind="features", strategy="margin")
    )
    known = {k: truth(f"n{k}") for k in range(KNOWN)}
    campaign.add(
        {"id": f"n{k}", "features": vectors[k], "label": known.get(k)} for k in range(items)
    )
    tokens = [
        campaign.people.add(f"person {k}", "owner" if k == 0 else "annotator")
        for k in range(PEOPLE)
    ]
    campaign.pick_ahead(items)
    campaign.database.close()
    return tokens


class Annotator(threading.Thread):
    """Asks and answers; what a server that is gone did not acknowledge is sent again, as the page
    does.
    """

    def __init__(self, address: str, token: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.address, self.token, self.stop = address, token, stop
        self.quota = threading.Semaphore(0)
        self.told: list[str] = []
        self.troubles: list[str] = []
        self.cut_off = 0

    def run(self) -> None:
        headers = {"authorization": f"Bearer {self.token}"}
        with httpx.Client(base_url=self.address, headers=headers, timeout=PATIENCE) as client:
            while not self.stop.is_set():
                found = self.sent(client, "GET", f"{AT}/questions?n=10")
                questions = [] if found is None else found.json()["questions"]
                for one in questions:
                    if not self.may_answer():
                        return
                    body = {"item": one["item"], "label": truth(one["item"])}
                    if self.sent(client, "POST", f"{AT}/answers", body) is not None:
                        self.told.append(one["item"])
                if not questions:
                    time.sleep(0.05)

    def may_answer(self) -> bool:
        """Wait until the quota allows an answer; return False if the test ends before."""
        while not self.stop.is_set():
            if self.quota.acquire(timeout=0.05):
                return True
        return False

    def sent(
        self, client: httpx.Client, method: str, path: str, body: object = None
    ) -> httpx.Response | None:
        """Return the answer to a request, or None at the end.

        It is sent again while there is no server, and while the server is too busy (status 503).
        """
        while True:
            try:
                answer = client.request(method, path, json=body)
            except httpx.TransportError:
                self.cut_off += 1
                if self.stop.is_set():
                    return None
                time.sleep(0.02)
                continue
            if answer.status_code == 503 and not self.stop.is_set():
                time.sleep(0.02)
                continue
            if answer.status_code != 200:
                self.troubles.append(f"{method} {path}: {answer.status_code} {answer.text}")
            return answer if answer.status_code == 200 else None


def asked_twice(campaign: Campaign) -> int:
    """Return how often an item was given to somebody while another had it, or after it was
    answered.
    """
    holder: set[str] = set()
    doubles = 0
    for line in campaign.history():
        if line["what"] == "asked":
            doubles += (
                len(holder & set(line["items"])) + len(line["items"]) - len(set(line["items"]))
            )
            holder |= set(line["items"])
        elif line["what"] == "returned":
            holder -= set(line["items"])
    return doubles


def check(place: str, told: list[str], kills: int) -> int:
    """Look at everything, and return how many models were trained."""
    campaign = Campaign.open(place)
    with campaign.database.reading() as connection:
        answers = campaign.repository.answers.live(connection)
        opened = [pick.item for pick in campaign.repository.picks.open_picks(connection)]
        models = campaign.repository.models.summaries(connection)
    held = {one.item: one.label for one in answers}
    assert set(told) <= set(held), "what was acknowledged is there"
    assert max(Counter(one.item for one in answers).values()) == 1, "each item has one answer"
    assert max(Counter(told).values(), default=1) == 1, "nobody answers what another has answered"
    assert len(opened) == len(set(opened)), "an item is with one person at a time"
    assert not set(opened) & set(held), "what is answered is asked no more"
    assert asked_twice(campaign) == 0
    assert all(said == truth(item) for item, said in held.items())
    assert len(held) - KNOWN - len(told) <= PEOPLE * kills, (
        "one answer a person may be written and not acknowledged"
    )
    assert replay_answers(campaign.history()) == {(one.item, one.annotator): one for one in answers}
    campaign.database.close()
    return len(models)


def wait_for_a_model(place: str, known: int) -> None:
    campaign = Campaign.open(place)
    ends = time.monotonic() + PATIENCE
    while campaign.status().version <= known:
        assert time.monotonic() < ends, "no model was trained"
        time.sleep(0.2)
    campaign.database.close()


@pytest.mark.slow
@pytest.mark.parametrize("kills", [3, 100])
@pytest.mark.parametrize("kind", stores_in_groups("killed team"))
def test_killed_while_sixteen_people_label(kind: str, kills: int, tmp_path: Path) -> None:
    place = new_place(kind, tmp_path)
    quotas = kills + kills // LONG + 2  # one in each life, one after each model, one at the end
    tokens = begin(place, KNOWN + PEOPLE * QUOTA * (quotas + 1))
    moments, models, stop = random.Random(kills), 0, threading.Event()
    with RestartableServer(place, tmp_path / "home") as server:
        people = [Annotator(server.address, token, stop) for token in tokens]
        for person in people:
            person.start()
        for life in range(1, kills + 1):
            server.start()
            before = sum(len(person.told) for person in people)
            raise_quotas(people)
            if life % 5:
                wait_for_answers(people, before + PEOPLE + moments.randrange(5 * PEOPLE))
            else:  # killed while it starts
                time.sleep(moments.uniform(0, 0.6))
            if life % LONG == 2:
                wait_for_a_model(place, models)
                raise_quotas(people)
            server.kill()
            if life % CHECKED == 0:
                models = check(
                    place, [item for person in people for item in list(person.told)], life
                )
        server.start()
        raise_quotas(people)
        wait_for_everybody(people)
        stop.set()
        for person in people:
            person.join(PATIENCE)
        assert not any(person.is_alive() for person in people)
    told = [item for person in people for item in person.told]
    assert [one for person in people for one in person.troubles] == []
    assert check(place, told, kills) > 0, "models were trained meanwhile"
    assert sum(person.cut_off for person in people) >= kills, "they were at work when it was killed"
    assert len(told) > PEOPLE * kills // 2


def raise_quotas(people: list[Annotator]) -> None:
    for person in people:
        person.quota.release(QUOTA)


def wait_for_answers(people: list[Annotator], count: int) -> None:
    ends = time.monotonic() + PATIENCE
    while sum(len(person.told) for person in people) < count:
        assert time.monotonic() < ends, [person.troubles[-1:] for person in people]
        time.sleep(0.02)


def wait_for_everybody(people: list[Annotator]) -> None:
    """Wait until everybody has had three more answers acknowledged."""
    goals = [len(person.told) + 3 for person in people]
    ends = time.monotonic() + PATIENCE
    while any(len(person.told) < goal for person, goal in zip(people, goals, strict=True)):
        assert time.monotonic() < ends, [person.troubles[-1:] for person in people]
        time.sleep(0.02)
