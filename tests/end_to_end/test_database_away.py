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

import httpx2
import pytest

from campaigns.postgres_server import PostgresServer, running_server
from server.servers import TeeterServeProcess, make_text_campaign, serve_campaigns
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.store import Database
from teeter.campaigns.store.copies import copy_campaign
from teeter.server.access import tokens as campaign_tokens

pytestmark = pytest.mark.xdist_group("servers")

AT = "/api/v1/campaigns/texts"
ANNOTATORS = 6
QUOTA = 10
"""Answers of an annotator between two outages: fast annotators do not use up the items."""

PATIENCE = 600_000
"""Milliseconds. On a busy machine the trainer, which is nice to others, takes minutes to start."""


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def place(database: PostgresServer, tmp_path: Path) -> str:
    """A campaign on the database's server."""
    return create_campaign_on(database, tmp_path, 900)


def create_campaign_on(database: PostgresServer, folder: Path, items: int) -> str:
    """Make a campaign of texts in a new database, and return its URL."""
    file = make_text_campaign(folder / "texts.teeter", items)
    url = database.new_database()

    source = Database(file)
    target = Database(url, create=True)
    copy_campaign(source, target, "texts")
    source.close()
    target.close()
    return url


def read_answers(place: str) -> dict[str, str | None]:
    """Return what the campaign's database holds: the label, or the kind of answer, of each item."""
    campaign = Campaign.open(place)
    with campaign.reading() as view:
        answers = {answer.item: answer.label or answer.kind for answer in view.answers.live()}
    campaign.database.close()
    return answers


class AnnotatorDuringOutages(threading.Thread):
    """Asks and answers until ``stop`` is set, and counts the responses of the server by status."""

    def __init__(self, address: str, token: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.token = token
        self.stop = stop
        self.acknowledged: list[str] = []
        """The items whose answers the server confirmed."""
        self.limit = 0
        """After this many acknowledged answers it only asks."""
        self.statuses: Counter[int] = Counter()
        self.refusals: set[str] = set()

    def run(self) -> None:
        headers = {"authorization": f"Bearer {self.token}"}
        with httpx2.Client(
            base_url=self.address, headers=headers, timeout=PATIENCE / 1000
        ) as client:
            while not self.stop.is_set():
                response = self.count_status(client.get(f"{AT}/questions?n=5"))
                self.count_status(client.get("/c/texts/progress"))

                questions = []
                if response.status_code == 200:
                    questions = response.json().get("questions", [])
                for question in questions:
                    if len(self.acknowledged) >= self.limit:
                        break
                    body = {"item": question["item"], "label": "ham"}
                    response = self.count_status(client.post(f"{AT}/answers", json=body))
                    if response.status_code == 200:
                        self.acknowledged.append(question["item"])

                time.sleep(0.05)

    def count_status(self, response: httpx2.Response) -> httpx2.Response:
        self.statuses[response.status_code] += 1
        if response.status_code != 200:
            self.refusals.add(response.text)
        return response


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [2, 10])
def test_the_page_goes_on_by_itself(
    restarts: int, database: PostgresServer, place: str, tmp_path: Path
) -> None:
    campaign = Campaign.open(place)
    tokens = [
        campaign.people.add(f"person {k}", "owner" if k == 0 else "annotator")
        for k in range(ANNOTATORS)
    ]
    campaign.database.close()

    server = TeeterServeProcess(tmp_path / "home", place).start()
    stop = threading.Event()
    annotators = [AnnotatorDuringOutages(server.address, token, stop) for token in tokens]

    try:
        for annotator in annotators:
            annotator.start()

        for _ in range(restarts):
            wait_for_more_answers(annotators)
            database.stop("immediate")
            wait_for_refusals(annotators)
            database.start()

        wait_for_more_answers(annotators)
        stop.set()
        for annotator in annotators:
            annotator.join(PATIENCE / 1000)
        assert not any(annotator.is_alive() for annotator in annotators)
    finally:
        stop.set()
        server.stop()

    statuses = sum((annotator.statuses for annotator in annotators), Counter[int]())
    refusals = set().union(*(annotator.refusals for annotator in annotators))
    assert set(statuses) == {200, 503}, (statuses, refusals)
    assert all("is not responding" in refusal for refusal in refusals), refusals
    assert not any("127.0.0.1" in refusal or "postgresql" in refusal for refusal in refusals), (
        refusals
    )

    acknowledged = [item for annotator in annotators for item in annotator.acknowledged]
    assert set(acknowledged) <= set(read_answers(place)), "every acknowledged answer is saved"
    assert max(Counter(acknowledged).values()) == 1, "no item is given to two annotators"


def wait_for_more_answers(annotators: list[AnnotatorDuringOutages], count: int = 3) -> None:
    """Wait until the server has acknowledged more answers of every annotator."""
    goals = [len(annotator.acknowledged) + count for annotator in annotators]
    for annotator, goal in zip(annotators, goals, strict=True):
        annotator.limit = goal + QUOTA - count

    ends = time.monotonic() + PATIENCE / 1000
    while any(
        len(annotator.acknowledged) < goal
        for annotator, goal in zip(annotators, goals, strict=True)
    ):
        assert time.monotonic() < ends, [annotator.refusals for annotator in annotators]
        time.sleep(0.1)


def wait_for_refusals(annotators: list[AnnotatorDuringOutages]) -> None:
    """Wait until every annotator has got the response that the database is away."""
    goals = [annotator.statuses[503] + 1 for annotator in annotators]
    ends = time.monotonic() + PATIENCE / 1000
    while any(
        annotator.statuses[503] < goal for annotator, goal in zip(annotators, goals, strict=True)
    ):
        assert time.monotonic() < ends, [annotator.statuses for annotator in annotators]
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
    server = TeeterServeProcess(tmp_path / "home", place).start()

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

    assert len(read_answers(place)) == 4


@pytest.mark.slow
def test_every_page_says_that_the_database_is_away(
    database: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Check with every request whether members have been added.
    monkeypatch.setattr(campaign_tokens, "REFRESH_SECONDS", 0.0)

    place = create_campaign_on(database, tmp_path, 20)

    with serve_campaigns(place) as client:
        assert client.get(AT).status_code == 200

        database.stop("immediate")
        for path in (AT, "/c/texts", "/"):
            response = client.get(path)
            assert response.status_code == 503
            assert "is not responding" in response.text
        assert client.get("/static/label.js").status_code == 200

        database.start()
        assert client.get(AT).status_code == 200
