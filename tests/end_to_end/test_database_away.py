"""PostgreSQL restarted under a page that is in use: it says so, loses nothing, and goes on by
itself.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from campaigns.postgres_server import Server as PostgresServer
from campaigns.postgres_server import running_server
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.copies import copy_campaign
from teeter.campaigns.db import Database
from teeter.web import campaign_tokens
from web.servers import Server, make_text_campaign, serve_campaigns

pytestmark = pytest.mark.xdist_group("servers")

AT = "/api/v1/campaigns/texts"
PEOPLE = 6
QUOTA = 10
"""So many answers a person may give between two outages: fast people do not use up the items."""

PATIENCE = 600_000
"""Milliseconds. On a busy machine the trainer, which is nice to others, takes minutes to start."""


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    with running_server() as made:
        yield made


@pytest.fixture
def place(database: PostgresServer, tmp_path: Path) -> str:
    """A campaign on the database's server."""
    return begin_on(database, tmp_path, 900)


def begin_on(database: PostgresServer, folder: Path, items: int) -> str:
    """Make a campaign of texts in a new database, and return its URL."""
    file = make_text_campaign(folder / "texts.teeter", items)
    url = database.new_database()
    source, target = Database(file), Database(url, create=True)
    copy_campaign(source, target, "texts")
    source.close()
    target.close()
    return url


def held(place: str) -> dict[str, str | None]:
    campaign = Campaign.open(place)
    with campaign.database.reading() as connection:
        found = {
            one.item: one.label or one.kind for one in campaign.repository.answers.live(connection)
        }
    campaign.database.close()
    return found


class Annotator(threading.Thread):
    """Asks and answers until it is told to stop, whatever the server says; notes what it says."""

    def __init__(self, address: str, token: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.address, self.token, self.stop = address, token, stop
        self.told: list[str] = []
        self.limit = 0
        """It answers no more when it has told so much, but goes on asking."""
        self.answers: Counter[int] = Counter()
        self.sentences: set[str] = set()

    def run(self) -> None:
        headers = {"authorization": f"Bearer {self.token}"}
        with httpx.Client(
            base_url=self.address, headers=headers, timeout=PATIENCE / 1000
        ) as client:
            while not self.stop.is_set():
                found = self.noted(client.get(f"{AT}/questions?n=5"))
                self.noted(client.get("/c/texts/progress"))
                for one in found.json().get("questions", []) if found.status_code == 200 else []:
                    if len(self.told) >= self.limit:
                        break
                    body = {"item": one["item"], "label": "ham"}
                    if self.noted(client.post(f"{AT}/answers", json=body)).status_code == 200:
                        self.told.append(one["item"])
                time.sleep(0.05)

    def noted(self, answer: httpx.Response) -> httpx.Response:
        self.answers[answer.status_code] += 1
        if answer.status_code != 200:
            self.sentences.add(answer.text)
        return answer


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [2, 10])
def test_the_page_goes_on_by_itself(
    restarts: int, database: PostgresServer, place: str, tmp_path: Path
) -> None:
    campaign = Campaign.open(place)
    tokens = [
        campaign.people.add(f"person {k}", "owner" if k == 0 else "annotator")
        for k in range(PEOPLE)
    ]
    campaign.database.close()
    server = Server(tmp_path / "home", place).start()
    stop = threading.Event()
    people = [Annotator(server.address, token, stop) for token in tokens]
    try:
        for person in people:
            person.start()
        for _ in range(restarts):
            wait_for_more(people)
            database.stop("immediate")
            wait_for_refusals(people)
            database.start()
        wait_for_more(people)
        stop.set()
        for person in people:
            person.join(PATIENCE / 1000)
        assert not any(person.is_alive() for person in people)
    finally:
        stop.set()
        server.stop()
    states = sum((person.answers for person in people), Counter[int]())
    sentences = set().union(*(person.sentences for person in people))
    assert set(states) == {200, 503}, (states, sentences)
    assert all("is not responding" in one for one in sentences), sentences
    assert not any("127.0.0.1" in one or "postgresql" in one for one in sentences), sentences
    told = [item for person in people for item in person.told]
    assert set(told) <= set(held(place)), "what was acknowledged is there"
    assert max(Counter(told).values()) == 1, "nobody is asked what another has"


def wait_for_more(people: list[Annotator], count: int = 3) -> None:
    """Wait until everybody has had more answers acknowledged."""
    for person in people:
        person.limit = len(person.told) + QUOTA
    goals = [len(person.told) + count for person in people]
    ends = time.monotonic() + PATIENCE / 1000
    while any(len(person.told) < goal for person, goal in zip(people, goals, strict=True)):
        assert time.monotonic() < ends, [person.sentences for person in people]
        time.sleep(0.1)


def wait_for_refusals(people: list[Annotator]) -> None:
    """Wait until everybody has been told that the database is away."""
    goals = [person.answers[503] + 1 for person in people]
    ends = time.monotonic() + PATIENCE / 1000
    while any(person.answers[503] < goal for person, goal in zip(people, goals, strict=True)):
        assert time.monotonic() < ends, [person.answers for person in people]
        time.sleep(0.1)


CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_keeps_answers_until_the_database_is_back(
    database: PostgresServer, place: str, tmp_path: Path
) -> None:
    sync_api: Any = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    server = Server(tmp_path / "home", place).start()
    try:
        with sync_api.sync_playwright() as player:
            browser = player.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE
            )
            page = browser.new_page()
            page.set_default_timeout(PATIENCE)
            page.goto(server.address)
            page.locator("#stage .words").wait_for()
            page.keyboard.press("1")
            sync_api.expect(page.locator("#saved")).to_have_text("All saved", timeout=PATIENCE)
            database.stop("immediate")
            for key in ("1", "2", "1"):
                page.keyboard.press(key)
            sync_api.expect(page.locator("#alarm")).to_contain_text(
                "is not responding", timeout=PATIENCE
            )
            sync_api.expect(page.locator("#alarm")).to_contain_text(
                "in this browser", timeout=PATIENCE
            )
            sync_api.expect(page.locator("#saved")).to_contain_text("NOT SAVED", timeout=PATIENCE)
            database.start()
            sync_api.expect(page.locator("#saved")).to_have_text("All saved", timeout=PATIENCE)
            sync_api.expect(page.locator("#alarm")).to_be_hidden(timeout=PATIENCE)
            browser.close()
    finally:
        server.stop()
    assert len(held(place)) == 4


@pytest.mark.slow
def test_every_page_says_that_the_database_is_away(
    database: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        campaign_tokens, "REFRESH_SECONDS", 0.0
    )  # with every request, look whether people are named by now
    place = begin_on(database, tmp_path, 20)
    with serve_campaigns(place) as client:
        assert client.get(AT).status_code == 200
        database.stop("immediate")
        for path in (AT, "/c/texts", "/"):
            answer = client.get(path)
            assert answer.status_code == 503
            assert "is not responding" in answer.text
        assert client.get("/static/label.js").status_code == 200
        database.start()
        assert client.get(AT).status_code == 200
