"""A server of a whole database: it finds new campaigns, and creates them there."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.stores import shared_server
from server.servers import BASE, text, use_inline_workers
from teeter.campaigns import Campaign, Settings
from teeter.errors import InputError
from teeter.server.access import SecurityConfig
from teeter.server.app import make_app
from teeter.server.workspace import CampaignDatabase

TestClient = pytest.importorskip("fastapi.testclient").TestClient


def test_campaigns_of_a_database_are_found_and_created(tmp_path: Path) -> None:
    url = shared_server().new_database()
    app = make_app(security=SecurityConfig(b"secret"), database=url, warm=False)
    use_inline_workers(app.state.workspace)
    with TestClient(app, base_url=BASE) as client:
        client.headers["x-csrf-token"] = client.get("/api/v1/session").json()["csrf"]
        assert client.get("/api/v1/campaigns").json() == [], "an empty database is no error"

        # One that another process creates.
        campaign = Campaign.make([], ("ham", "spam"), at=url, name="first", settings=Settings())
        campaign.add([("a", "one"), ("b", "two")])
        campaign.database.close()
        assert [entry["slug"] for entry in client.get("/api/v1/campaigns").json()] == ["first"]

        # One that is created on the page.
        table = "text\n" + "".join(f'"{text(number)}"\n' for number in range(12))
        form = {"name": "second", "classes": "ham,spam"}
        job = client.post("/api/v1/campaigns", data=form, files={"file": ("x.csv", table)}).json()
        result = client.get(f"/api/v1/jobs/{job['job']}").json()
        assert result["state"] == "done", result
        assert result["result"]["imported"]["new"] == 12
        repeated = client.post("/api/v1/campaigns", data=form, files={"file": ("x.csv", table)})
        assert repeated.json() == job
        other = {"file": ("x.csv", "text\nanother\n")}
        refused = client.post("/api/v1/campaigns", data=form, files=other)
        assert refused.status_code == 422
        assert "already a campaign called second" in refused.json()["detail"]

        temporary = list(app.state.workspace.temp.rglob("*.teeter"))
        assert temporary == [], "it was moved, not copied"

    campaign = Campaign.open(f"{url}#second")
    assert campaign.status().items == 12
    campaign.database.close()


@pytest.mark.parametrize("location", ["postgresql://teeter@host/campaigns#one", "file.teeter"])
def test_a_single_campaign_is_not_a_database(location: str) -> None:
    with pytest.raises(InputError, match="whole database"):
        CampaignDatabase(location)
