"""Teams: permissions, disagreements and decisions, members and tokens, agreement and consensus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from fastapi.testclient import TestClient

from cli.commands import run_campaign
from server.labelled_campaigns import AT
from server.servers import find_csrf_token, make_text_campaign, serve_campaigns
from teeter.campaigns.campaign import Campaign
from teeter.server.access import SecurityConfig
from teeter.server.access.tokens import Tokens

ROLES = {"ann": "annotator", "bob": "annotator", "rey": "reviewer", "olga": "owner"}
SERVER_TOKEN = "a-token-of-the-server"

DENIED = {
    "annotator": {"review", "decide", "export", "manage"},
    "reviewer": {"manage"},
    "owner": set[str](),
}

REQUESTS: list[tuple[str, str, str, dict[str, Any] | None]] = [
    ("answer", "GET", AT, None),
    ("answer", "GET", f"{AT}/questions", None),
    ("answer", "POST", f"{AT}/answers", {"item": "t9", "label": "ham"}),
    ("answer", "GET", f"{AT}/answers", None),
    ("answer", "POST", f"{AT}/undo", {"number": 999}),
    ("answer", "GET", f"{AT}/item?id=t1", None),
    ("answer", "GET", f"{AT}/progress", None),
    ("answer", "GET", f"{AT}/finish", None),
    ("answer", "GET", "/c/texts", None),
    ("answer", "GET", "/c/texts/progress", None),
    ("answer", "GET", "/c/texts/item?id=t1", None),
    ("answer", "GET", f"{AT}/classes", None),
    ("answer", "GET", "/c/texts/classes", None),
    ("review", "GET", f"{AT}/sources", None),
    ("review", "POST", f"{AT}/keep", {"item": "t1"}),
    ("review", "GET", f"{AT}/suspects", None),
    ("review", "GET", f"{AT}/items", None),
    ("review", "GET", f"{AT}/flipped", None),
    ("review", "GET", f"{AT}/labels", None),
    ("review", "GET", f"{AT}/map", None),
    ("review", "GET", f"{AT}/team", None),
    ("review", "GET", f"{AT}/agreement", None),
    ("review", "GET", "/c/texts/review", None),
    ("review", "GET", "/c/texts/items", None),
    ("review", "GET", "/c/texts/map", None),
    ("review", "GET", "/c/texts/team", None),
    ("decide", "GET", f"{AT}/disagreements", None),
    ("decide", "GET", f"{AT}/decisions", None),
    ("decide", "POST", f"{AT}/decisions", {"item": "t1", "label": "ham"}),
    ("decide", "POST", f"{AT}/decisions/undo", {"number": 999}),
    ("decide", "GET", "/c/texts/disagreements", None),
    ("export", "GET", f"{AT}/export?form=csv", None),
    ("export", "GET", "/c/texts/export", None),
    ("export", "POST", f"{AT}/predict", {"texts": ["free cash"]}),
    ("manage", "POST", f"{AT}/train", None),
    ("manage", "POST", f"{AT}/classes/describe", {"classes": {"ham": {"description": "Good."}}}),
    ("manage", "POST", f"{AT}/classes/names", {"use": True}),
    ("manage", "POST", f"{AT}/sources/remove", {"name": "none"}),
    ("manage", "POST", f"{AT}/suggest", {}),
    ("manage", "POST", "/c/texts/classes/names", None),
    ("manage", "POST", f"{AT}/consensus", {"method": "dawid-skene"}),
    ("manage", "POST", f"{AT}/people", {"name": "zoe"}),
    ("manage", "POST", f"{AT}/people/token", {"name": "bob"}),
    ("manage", "POST", f"{AT}/people/role", {"name": "bob", "role": "reviewer"}),
    ("manage", "POST", f"{AT}/people/release", {"name": "bob"}),
    ("manage", "POST", f"{AT}/people/revoke", {"name": "bob"}),
    ("manage", "POST", f"{AT}/people/remove", {"name": "bob"}),
    ("manage", "POST", f"{AT}/finish", {"error": 0.05}),
    ("manage", "POST", f"{AT}/finish/draws", {"count": 1}),
    ("manage", "POST", f"{AT}/finish/certificates", None),
    ("manage", "POST", "/c/texts/finish", None),
    ("manage", "POST", "/c/texts/finish/draws", None),
    ("manage", "POST", "/c/texts/finish/certificate", None),
    ("manage", "POST", "/c/texts/train", None),
    ("manage", "POST", "/c/texts/people", None),
    ("manage", "POST", "/c/texts/people/change", None),
    ("manage", "POST", "/c/texts/consensus", None),
    ("manage", "GET", "/new", None),
]
"""The permission that each request needs."""


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


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A campaign without members in which two annotators have answered."""
    path = tmp_path / "texts.teeter"
    path.write_bytes(team_campaign()[0])
    return path


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    file = tmp_path / "texts.teeter"
    _, with_members, tokens = team_campaign()
    file.write_bytes(with_members)

    server_tokens = Tokens()
    all_tokens = dict(tokens)
    for name in ("ann", "stranger"):
        server_tokens.add(name, f"{SERVER_TOKEN}-of-{name}")
        all_tokens[f"server's {name}"] = f"{SERVER_TOKEN}-of-{name}"

    security = SecurityConfig(b"secret", server_tokens)
    with serve_campaigns(file, folder=file.parent, security=security) as client:
        yield Team(file, client, all_tokens)


# Permissions


@pytest.mark.parametrize("name", ["bob", "rey", "olga"])
def test_members_may_do_what_their_role_allows(team: Team, name: str) -> None:
    denied = DENIED[ROLES[name]]
    for permission, method, path, body in REQUESTS:
        response = team.send(name, method, path, body)
        if permission in denied:
            assert response.status_code == 403, (permission, path, response.text)
            assert "ask an owner" in response.text or "ask a reviewer" in response.text
        else:
            is_allowed = response.status_code < 400 or response.status_code in (404, 422)
            assert is_allowed, (permission, path, response.text)


def test_the_menu_has_the_pages_that_a_member_may_open(team: Team) -> None:
    def read_menu(name: str) -> list[str]:
        page = team.send(name, "GET", "/c/texts").text
        menu = page.split("<nav")[1].split("</nav>")[0]
        return [part.split("<")[0].split(">")[1] for part in menu.split("<a ")[1:]]

    assert read_menu("ann") == ["Label", "Progress", "Classes"]
    full = ["Label", "Review", "Disagreements", "Team", "Progress", "Map", "Items", "Classes"]
    assert read_menu("rey") == read_menu("olga") == [*full, "Export"]

    assert "Train a model" not in team.send("rey", "GET", "/c/texts/progress").text
    assert "Train a model" in team.send("olga", "GET", "/c/texts/progress").text
    assert team.get("ann", AT)["permissions"] == ["answer"]


def test_annotators_see_only_their_own_answers(team: Team) -> None:
    for path in (f"{AT}/item?id=t1", "/c/texts/item?id=t1"):
        assert "bob" in team.send("rey", "GET", path).text
        assert "bob" not in team.send("ann", "GET", path).text

    item = team.get("bob", f"{AT}/item?id=t1")
    assert (item["label"], item["annotators"], len(item["answers"])) == ("spam", 1, 1)
    item = team.get("rey", f"{AT}/item?id=t1")
    assert (item["annotators"], len(item["answers"])) == (2, 2)


@pytest.mark.parametrize(("name", "first"), [("bob", "/c/texts"), ("rey", "/c/texts/progress")])
def test_the_login_of_a_reviewer_assigns_no_items(file: Path, name: str, first: str) -> None:
    campaign = Campaign.open(file)
    token = campaign.people.add(name, ROLES[name])
    with serve_campaigns(file) as client:
        csrf = find_csrf_token(client.get("/login").text)
        response = client.post("/login", data={"csrf": csrf, "token": token})
        assert response.url.path == first

    assert (campaign.status().open > 0) == (first == "/c/texts")
    campaign.database.close()


def test_without_a_team_there_are_no_pages_of_a_team(tmp_path: Path) -> None:
    with serve_campaigns(make_text_campaign(tmp_path / "texts.teeter", 30)) as client:
        page = client.get("/c/texts").text
        assert "Disagreements" not in page
        assert "Team" not in page
        assert client.get(AT).json()["is_team"] is False

        for path in (f"{AT}/export", f"{AT}/items", "/c/texts/disagreements"):
            assert client.get(path).status_code == 200


def test_several_annotators_are_a_team(tmp_path: Path) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 30)
    record_labels(file, ann={"t1": "ham"}, bob={"t2": "ham"})
    with serve_campaigns(file) as client:
        assert client.get(AT).json()["is_team"] is True
        assert "Disagreements" in client.get("/c/texts").text


# Tokens


def test_a_campaign_with_members_needs_a_token(file: Path) -> None:
    campaign = Campaign.open(file)
    token = campaign.people.add("olga", "owner")
    with serve_campaigns(file) as client:
        assert client.get(AT).status_code == 401
        redirect = client.get("/c/texts", follow_redirects=False)
        assert redirect.headers["location"] == "/login?next=%2Fc%2Ftexts"

        csrf = find_csrf_token(client.get("/login").text)
        client.post("/login", data={"csrf": csrf, "token": token})
        assert client.get(AT).status_code == 200
        assert client.get("/c/texts/team").status_code == 200
        behind_proxy = client.get(AT, headers={"host": "label.example"})
        assert behind_proxy.status_code == 200, "with tokens, any host name is allowed"

        campaign.people.revoke("olga")
        assert client.get(AT).status_code == 401, "a revoked token ends its sessions"
        campaign.people.remove("olga")
        assert client.get(AT).status_code == 401, "without members the server stays closed"
    campaign.database.close()


def test_tokens_of_the_server_have_the_role_of_the_member_with_that_name(team: Team) -> None:
    assert team.get("server's ann", AT)["permissions"] == ["answer"]

    assert team.send("server's stranger", "GET", AT).status_code == 403
    page = team.send("server's stranger", "GET", "/c/texts").text
    assert "Only members of this campaign" in page
    assert team.get("server's stranger", "/api/v1/campaigns") == []
    assert team.send("server's stranger", "GET", "/new").status_code == 403


def test_the_token_of_a_campaign_is_valid_there_only(team: Team) -> None:
    other = Campaign.open(make_text_campaign(team.file.parent / "other.teeter", 10))
    other.people.add("olga", "annotator")
    make_text_campaign(team.file.parent / "free.teeter", 10)

    def list_slugs(name: str) -> set[str]:
        return {campaign["slug"] for campaign in team.get(name, "/api/v1/campaigns")}

    assert list_slugs("olga") == {"texts"}, "olga of the other campaign may be someone else"
    assert team.send("olga", "GET", "/api/v1/campaigns/other").status_code == 403
    assert team.send("olga", "GET", "/api/v1/campaigns/free").status_code == 403
    assert list_slugs("server's ann") == {"texts", "free"}
    other.database.close()


def test_the_creator_of_a_campaign_owns_it(team: Team) -> None:
    def create(name: str) -> Any:
        return team.client.post(
            "/api/v1/campaigns",
            headers={"authorization": f"Bearer {team.tokens[name]}"},
            data={"name": "mail", "classes": "a,b"},
            files={"file": ("a.csv", "text\none\ntwo\n")},
        )

    for name in ("ann", "rey"):
        refused = create(name)
        assert refused.status_code == 403
        assert "may not create campaigns" in refused.json()["detail"]

    job = create("olga").json()["job"]
    state = team.get("olga", f"/api/v1/jobs/{job}")
    assert state["state"] == "done"
    assert (state["result"]["slug"], state["result"]["new"]) == ("mail", 2)
    assert "manage" in team.get("olga", "/api/v1/campaigns/mail")["permissions"]
    assert team.send("rey", "GET", "/api/v1/campaigns/mail").status_code == 403


# Disagreements


def test_a_disagreement_shows_who_gave_which_answer(team: Team) -> None:
    listed = team.get("rey", f"{AT}/disagreements")
    assert listed["waiting"] == 1
    (disagreement,) = listed["disagreements"]
    assert disagreement["answers"] == [
        {"annotator": "ann", "answer": "ham"},
        {"annotator": "bob", "answer": "spam"},
    ]
    assert disagreement["item"] == "t1"
    assert disagreement["label"] == "spam"
    assert disagreement["confidence"] == 0.5
    assert disagreement["content"]["kind"] == "text"


def test_a_disagreement_is_decided_once_and_can_be_undone(team: Team) -> None:
    decision = {"item": "t1", "label": "ham", "comment": "seen closely"}
    assert team.post("rey", f"{AT}/decisions", decision)["new"] is True
    repeated = team.post("rey", f"{AT}/decisions", decision)
    assert repeated["new"] is False, "sent twice, stored once"
    assert team.get("rey", f"{AT}/disagreements")["waiting"] == 0

    (recent,) = team.get("rey", f"{AT}/decisions")
    assert (recent["item"], recent["answer"], recent["comment"]) == ("t1", "ham", "seen closely")

    # Others cannot undo it.
    assert team.get("olga", f"{AT}/decisions") == []
    number = {"number": repeated["number"]}
    assert recent["number"] == repeated["number"]
    refused = team.send("olga", "POST", f"{AT}/decisions/undo", number)
    assert refused.status_code == 403

    undone = team.post("rey", f"{AT}/decisions/undo", number)
    assert undone["undone"]["answer"] == "ham"
    assert team.post("rey", f"{AT}/decisions/undo", number) == undone, "sent twice, undone once"
    assert team.get("rey", f"{AT}/disagreements")["waiting"] == 1


def test_a_decision_can_be_that_an_item_does_not_belong(team: Team) -> None:
    team.post("rey", f"{AT}/decisions", {"item": "t1", "label": None})
    assert "flag" in team.get("rey", f"{AT}/item?id=t1")["state"]


def test_a_decision_needs_a_class_of_the_campaign(team: Team) -> None:
    response = team.send("rey", "POST", f"{AT}/decisions", {"item": "t1", "label": "hm"})
    assert response.status_code == 422


# Members and agreement


def test_the_team_shows_how_its_members_work(team: Team) -> None:
    team.get("bob", f"{AT}/questions")
    members = {member["name"]: member for member in team.get("rey", f"{AT}/team")}
    assert list(members) == ["ann", "bob", "rey", "olga"]
    assert (members["ann"]["role"], members["ann"]["answers"]) == ("annotator", 3)
    assert members["rey"]["answers"] == 0

    # The tie about t1 counts only once it is decided.
    assert members["ann"]["matches_consensus"]["total"] == 2
    assert members["bob"]["matches_consensus"]["total"] == 2
    assert members["rey"]["matches_consensus"] is None
    assert members["bob"]["open"] > 0

    team.post("rey", f"{AT}/decisions", {"item": "t1", "label": "ham"})
    members = {member["name"]: member for member in team.get("rey", f"{AT}/team")}
    shares = [members[name]["matches_consensus"]["share"] for name in ("ann", "bob")]
    assert sorted(shares) == [pytest.approx(2 / 3), 1]


def test_open_items_of_an_annotator_can_be_released(team: Team) -> None:
    team.get("bob", f"{AT}/questions")
    members = {member["name"]: member for member in team.get("rey", f"{AT}/team")}

    released = team.post("olga", f"{AT}/people/release", {"name": "bob"})
    assert released == {"name": "bob", "released": members["bob"]["open"]}
    assert {member["open"] for member in team.get("rey", f"{AT}/team")} == {0}


def test_agreement_is_measured_by_pair(team: Team) -> None:
    agreement = team.get("rey", f"{AT}/agreement")
    assert agreement["items"] == 3
    assert agreement["consensus"] == "majority"
    assert agreement["methods"] == ["majority", "dawid-skene"]
    assert agreement["alpha"] is None, "three items are too few"
    (pair,) = agreement["pairs"]
    assert (pair["first"], pair["second"], pair["items"]) == ("ann", "bob", 3)


def test_a_change_of_the_consensus_is_valid_everywhere_at_once(team: Team) -> None:
    app: Any = team.client.app
    handlers = app.state.workspace.trainer.process.handlers
    assert handlers.campaign(str(team.file)).settings.consensus == "majority"
    team.get("rey", f"{AT}/items")  # caches the labels

    changed = team.post("olga", f"{AT}/consensus", {"method": "dawid-skene"})
    assert changed["consensus"] == "dawid-skene"
    unknown = team.send("olga", "POST", f"{AT}/consensus", {"method": "loudest"})
    assert unknown.status_code == 422

    assert team.get("rey", f"{AT}/item?id=t2")["by"] == "dawid-skene"
    assert handlers.campaign(str(team.file)).settings.consensus == "dawid-skene"
    campaign = Campaign.open(team.file)
    assert campaign.history()[-1]["consensus"] == "dawid-skene"
    campaign.database.close()


def test_members_are_added_changed_and_removed(team: Team) -> None:
    added = team.send("olga", "POST", f"{AT}/people", {"name": "zoe", "role": "reviewer"})
    assert added.status_code == 201
    team.tokens["zoe"] = added.json()["token"]
    assert team.send("zoe", "GET", f"{AT}/disagreements").status_code == 200

    team.post("olga", f"{AT}/people/role", {"name": "zoe", "role": "annotator"})
    assert team.send("zoe", "GET", f"{AT}/disagreements").status_code == 403

    new_token = team.post("olga", f"{AT}/people/token", {"name": "zoe"})["token"]
    assert team.send("zoe", "GET", AT).status_code == 401
    team.tokens["zoe"] = new_token
    assert team.send("zoe", "GET", AT).status_code == 200

    team.post("olga", f"{AT}/people/revoke", {"name": "zoe"})
    assert team.send("zoe", "GET", AT).status_code == 401

    assert team.post("olga", f"{AT}/people/remove", {"name": "zoe"})["name"] == "zoe"
    assert "zoe" not in team.send("olga", "GET", f"{AT}/team").text


@pytest.mark.parametrize(
    ("path", "name", "status"),
    [("people", "olga", 422), ("people", "import", 422), ("people/token", "nobody", 404)],
)
def test_names_that_are_taken_reserved_or_unknown_are_refused(
    team: Team, path: str, name: str, status: int
) -> None:
    assert team.send("olga", "POST", f"{AT}/{path}", {"name": name}).status_code == status


@pytest.mark.parametrize(
    ("path", "change"), [("revoke", {}), ("remove", {}), ("role", {"role": "annotator"})]
)
def test_a_campaign_keeps_an_owner(team: Team, path: str, change: dict[str, str]) -> None:
    body = {"name": "olga", **change}
    refused = team.send("olga", "POST", f"{AT}/people/{path}", body)
    assert refused.status_code == 403
    assert "only owner" in refused.json()["detail"]

    team.post("olga", f"{AT}/people", {"name": "zoe", "role": "owner"})
    assert team.send("olga", "POST", f"{AT}/people/{path}", body).status_code == 200


# The page of the team


def log_in(team: Team, name: str) -> str:
    """Log in with a browser, and return the CSRF token."""
    csrf = find_csrf_token(team.client.get("/login").text)
    team.client.post("/login", data={"csrf": csrf, "token": team.tokens[name]})
    return str(team.client.get("/api/v1/session").json()["csrf"])


def find_shown_token(page: str) -> str:
    return page.split('class="token">')[1].split("<")[0]


def test_the_page_shows_a_token_once(team: Team) -> None:
    csrf = log_in(team, "olga")
    fields = {"csrf": csrf, "name": "<b>zoe</b>", "role": "annotator"}
    page = team.client.post("/c/texts/people", data=fields)
    assert page.status_code == 200
    team.tokens["zoe"] = find_shown_token(page.text)
    assert team.get("zoe", AT)["permissions"] == ["answer"]

    reloaded = team.client.get("/c/texts/team").text
    assert team.tokens["zoe"] not in reloaded
    assert "&lt;b&gt;zoe" in reloaded
    assert "<b>zoe" not in reloaded

    without_csrf = team.client.post("/c/texts/people", data={"name": "eve"})
    assert without_csrf.status_code == 403


def test_the_page_changes_members(team: Team) -> None:
    csrf = log_in(team, "olga")
    for action, sentence in (
        ("role", "now has the role reviewer"),
        ("token", "shown only once"),
        ("revoke", "was revoked"),
        ("release", "0 open items of bob were released."),
        ("remove", "was removed"),
    ):
        fields = {"csrf": csrf, "name": "bob", "action": action, "role": "reviewer"}
        assert sentence in team.client.post("/c/texts/people/change", data=fields).text


@pytest.mark.parametrize(
    "fields",
    [
        {"action": "dance"},
        {"action": "remove", "name": "olga"},
        {"action": "role", "name": "bob", "role": "boss"},
    ],
    ids=lambda fields: fields["action"],
)
def test_the_page_says_why_a_change_is_refused(team: Team, fields: dict[str, str]) -> None:
    csrf = log_in(team, "olga")
    response = team.client.post("/c/texts/people/change", data={"csrf": csrf, **fields})
    assert response.status_code == 422
    assert 'role="alert"' in response.text


def test_the_page_changes_the_consensus(team: Team) -> None:
    csrf = log_in(team, "olga")
    changed = team.client.post("/c/texts/consensus", data={"csrf": csrf, "method": "dawid-skene"})
    assert "now combined by dawid-skene" in changed.text
    unknown = team.client.post("/c/texts/consensus", data={"csrf": csrf, "method": "x"})
    assert unknown.status_code == 422


def test_the_first_member_is_the_user_as_an_owner(tmp_path: Path) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 30)
    with serve_campaigns(file) as client:
        csrf = client.headers["x-csrf-token"]
        refused = client.post(f"{AT}/people", json={"name": "zoe", "role": "annotator"})
        assert "Add yourself first, as an owner" in refused.json()["detail"]

        fields = {"csrf": csrf, "name": "zoe", "role": "owner"}
        token = find_shown_token(client.post("/c/texts/people", data=fields).text)
        session = client.get("/api/v1/session").json()
        assert (session["annotator"], session["needs_token"]) == ("zoe", True)
        assert client.get("/c/texts/team").status_code == 200

        client.cookies.clear()
        assert client.get(AT).status_code == 401, "from now on everyone needs a token"
        assert client.get(AT, headers={"authorization": f"Bearer {token}"}).status_code == 200


def test_a_user_with_a_token_of_the_server_must_add_themselves_first(tmp_path: Path) -> None:
    tokens = Tokens()
    tokens.add("ann", SERVER_TOKEN)
    file = make_text_campaign(tmp_path / "texts.teeter", 30)
    with serve_campaigns(file, security=SecurityConfig(b"secret", tokens)) as client:
        client.headers["authorization"] = f"Bearer {SERVER_TOKEN}"
        zoe = {"name": "zoe", "role": "owner"}
        refused = client.post(f"{AT}/people", json=zoe)
        assert refused.status_code == 422, "ann could not open the campaign any more"
        assert client.post("/c/texts/people", data=zoe).status_code == 422

        page = client.post("/c/texts/people", data={"name": "ann", "role": "owner"})
        assert 'class="token"' in page.text
        assert "manage" in client.get(AT).json()["permissions"]


# Answers and assignments of a team


def test_labels_that_came_with_the_items_are_of_no_annotator(tmp_path: Path) -> None:
    campaign = Campaign.create(tmp_path / "texts.teeter", "texts", ("spam", "ham"))
    campaign.add({"id": f"t{row}", "text": f"text {row}", "label": "ham"} for row in range(10))
    for row in range(10):
        campaign.tell(f"t{row}", "spam" if row < 5 else "ham", "ann")

    assert campaign.agreement().items == 0
    (stats,) = campaign.team()
    assert stats.name == "ann"
    assert stats.quality.with_consensus is None
    assert campaign.disagreements() == []
    campaign.database.close()

    with serve_campaigns(tmp_path / "texts.teeter") as client:
        assert client.get(AT).json()["is_team"] is False
        (member,) = client.get(f"{AT}/team").json()
        assert (member["name"], member["matches_consensus"]) == ("ann", None)


def test_items_picked_ahead_are_assigned_without_the_worker(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = team.client.app.state.workspace  # type: ignore[attr-defined]
    monkeypatch.setattr(workspace.trainer, "ensure_questions", lambda *_: None)
    assert team.get("ann", f"{AT}/questions")["questions"] == []

    campaign = Campaign.open(team.file)
    campaign.pick_ahead(24)
    campaign.database.close()

    def list_questions(name: str) -> list[str]:
        questions = team.get(name, f"{AT}/questions?n=20")["questions"]
        return [question["item"] for question in questions]

    ann = list_questions("ann")
    bob = list_questions("bob")
    assert len(ann) == len(bob) == 20
    assert set(ann) == set(bob), "two annotators answer each item"
    assert list_questions("ann") == ann, "open items stay with their annotator"

    assert "start" in team.send("rey", "GET", "/c/texts").text
    open_items = {member["name"]: member["open"] for member in team.get("rey", f"{AT}/team")}
    assert open_items["rey"] > 0, "opening the page assigns items at once"


def test_items_are_picked_before_the_first_annotator_comes(team: Team) -> None:
    workspace = team.client.app.state.workspace  # type: ignore[attr-defined]
    workspace.warm_up([team.file])

    campaign = Campaign.open(team.file)
    with campaign.reading() as view:
        assert view.picks.count_ready() > 20
        assert view.picks.open_picks() == []
    campaign.database.close()


def test_undecided_ties_count_for_nobody_on_the_page_and_on_the_command_line(
    tmp_path: Path,
) -> None:
    file = tmp_path / "texts.teeter"
    campaign = Campaign.create(file, "texts", ("spam", "ham"))
    campaign.add({"id": f"t{row}", "text": f"text {row}"} for row in range(15))
    for row in range(15):
        campaign.tell(f"t{row}", "spam", "ann")
        campaign.tell(f"t{row}", "ham" if row < 5 else "spam", "bob")
    campaign.database.close()

    with serve_campaigns(file) as client:
        on_page = {
            member["name"]: member["matches_consensus"]
            for member in client.get(f"{AT}/team").json()
        }
    listed = json.loads(run_campaign("people", file, "--json"))

    for member in listed:
        by_command = member["quality"]["with_consensus"]
        assert (by_command["right"], by_command["total"]) == (10, 10)
        shown = on_page[member["name"]]
        assert (shown["share"], shown["total"]) == (1.0, 10)
