"""Finish on the page and over REST: look, start, draw and certify."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from campaigns.finish.small_campaigns import (
    KnownItems,
    answer_draws,
    label_batches,
    make_campaign,
)
from server.servers import make_text_campaign, serve_campaigns
from teeter.campaigns import Campaign

AT = "/api/v1/campaigns/small"
ITEMS = KnownItems()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    campaign = make_campaign(tmp_path_factory.mktemp("finish"), ITEMS)
    label_batches(campaign, ITEMS, 1, size=40)
    campaign.database.close()
    return Path(str(campaign.database.path)).read_bytes()


@pytest.fixture
def file(tmp_path: Path, template: bytes) -> Path:
    path = tmp_path / "small.teeter"
    path.write_bytes(template)
    return path


@pytest.fixture
def client(file: Path) -> Iterator[TestClient]:
    with serve_campaigns(file) as client:
        yield client


def answer_all_draws(file: Path) -> None:
    """Answer all draws that are waiting, as another process would."""
    campaign = Campaign.open(file)
    answer_draws(campaign, ITEMS)
    campaign.database.close()


@pytest.mark.slow
def test_a_promise_is_made_over_rest(client: TestClient, file: Path) -> None:
    before = client.get(f"{AT}/finish").json()
    assert not before["is_started"]
    assert before["plan"]
    assert before["coverage"] == 0

    started = client.post(f"{AT}/finish", json={"error": 0.05})
    assert started.status_code == 201
    assert started.json()["asked_draws"] > 0

    answer_all_draws(file)
    after = client.get(f"{AT}/finish").json()
    assert after["coverage"] == 1
    assert after["certificate"] is None

    certified = client.post(f"{AT}/finish/certificates")
    assert certified.status_code == 201
    code = certified.json()["id"]
    assert client.get(f"{AT}/finish").json()["certificate"] == code
    assert client.get(f"{AT}/finish/certificates/{code}").json() == certified.json()
    assert client.get(f"{AT}/finish/certificates").json() == [certified.json()]
    assert client.get(f"{AT}/finish/certificates/none").status_code == 404

    page = client.get(f"/c/small/certificate?id={code}")
    assert page.headers["content-disposition"].startswith("attachment")
    assert code in page.text


@pytest.mark.parametrize(
    "body", [{"error": 0}, {"error": 0.6}, {"confidence": 1}, {"errors": 1}, {"labelled": 2}]
)
def test_terms_that_cannot_be_promised_are_refused(
    client: TestClient, body: dict[str, float]
) -> None:
    assert client.post(f"{AT}/finish", json=body).status_code == 422


def test_a_model_that_does_not_know_all_answers_is_not_frozen(
    client: TestClient, file: Path
) -> None:
    campaign = Campaign.open(file)
    item = next(str(k) for k in range(400) if str(k) not in campaign.labels())
    campaign.tell(item, ITEMS.label(item))
    campaign.database.close()

    response = client.post(f"{AT}/finish", json={})

    assert response.status_code == 422
    assert "1 answer is newer than model 1: train first." in response.text


def test_nothing_is_certified_before_it_is_promised(client: TestClient) -> None:
    response = client.post(f"{AT}/finish/certificates")

    assert response.status_code == 422
    assert "No promise is started" in response.text


def test_the_progress_page_says_what_the_model_may_label(client: TestClient, file: Path) -> None:
    page = client.get("/c/small/progress").text
    assert "Let the model label the rest" in page
    assert "Label about " in page
    assert "Ask about random items next" in page
    assert "The model cannot label the 360 items that are left yet" in page
    assert "<caption>Plan</caption>" not in page, "its only step is in the sentence"

    started = client.post(f"{AT}/finish", json={"error": 0.05}).json()
    assert "random items are waiting for an answer" in started["sentences"][-1]

    page = client.get("/c/small/progress").text
    assert f"Label {started['waiting_draws']} random items</a>" in page

    answer_all_draws(file)
    page = client.get("/c/small/progress").text
    assert "<button>Certify</button>" in page
    assert "You can stop now for 100% of the items" in page
    assert "The shares refer to 400 items. Each interval is valid for a single look" in page

    assert client.post(f"{AT}/finish/certificates").status_code == 201
    assert "certificate?id=" in client.get("/c/small/progress").text


def test_a_campaign_without_a_model_says_so(tmp_path: Path) -> None:
    with serve_campaigns(make_text_campaign(tmp_path / "texts.teeter")) as client:
        for _ in range(2):
            refused = client.get("/api/v1/campaigns/texts/finish")
            assert refused.status_code == 422
            assert "There is no model yet" in refused.json()["detail"]
        assert "There is no model yet" in client.get("/c/texts/progress").text
