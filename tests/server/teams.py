"""A served campaign of a team: an annotator or two, a reviewer and an owner, with their tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastapi.testclient import TestClient

from server.servers import find_csrf_token, make_text_campaign
from teeter.campaigns.campaign import Campaign

ROLES = {"ann": "annotator", "bob": "annotator", "rey": "reviewer", "olga": "owner"}
SERVER_TOKEN = "a-token-of-the-server"


def record_labels(file: Path, **labels_by_annotator: dict[str, str]) -> None:
    campaign = Campaign.open(file)
    for annotator, labels in labels_by_annotator.items():
        for item, label in labels.items():
            campaign.tell(item, label, annotator)
    campaign.database.close()


@dataclass(frozen=True)
class Team:
    """A served campaign with members, and their tokens."""

    file: Path
    client: TestClient
    tokens: dict[str, str]

    def send(self, name: str, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Send a request with the token of a member."""
        headers = {"authorization": f"Bearer {self.tokens[name]}"}
        return self.client.request(method, path, json=body, headers=headers, follow_redirects=False)

    def get(self, name: str, path: str) -> Any:
        """Return what a member gets from the REST API."""
        return self.send(name, "GET", path).json()

    def post(self, name: str, path: str, body: dict[str, Any]) -> Any:
        """Return what a member gets for a change."""
        return self.send(name, "POST", path, body).json()


@cache
def team_campaign() -> tuple[bytes, bytes, dict[str, str]]:
    """Return a campaign with answers of two, the same with members, and their tokens."""
    with TemporaryDirectory() as folder:
        path = make_text_campaign(Path(folder) / "texts.teeter", 30, overlap=1.0)
        record_labels(
            path,
            ann={"t1": "ham", "t2": "spam", "t3": "ham"},
            bob={"t1": "spam", "t2": "spam", "t3": "ham"},
        )
        without_members = path.read_bytes()

        campaign = Campaign.open(path)
        tokens = {name: campaign.people.add(name, role) for name, role in ROLES.items()}
        campaign.database.close()
        return without_members, path.read_bytes(), tokens


def log_in(team: Team, name: str) -> str:
    """Log in with a browser, and return the CSRF token."""
    csrf = find_csrf_token(team.client.get("/login").text)
    team.client.post("/login", data={"csrf": csrf, "token": team.tokens[name]})
    return str(team.client.get("/api/v1/session").json()["csrf"])
