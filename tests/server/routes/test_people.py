"""Permissions, members and tokens, the page of the team, and the assignments of several people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.labelled_campaigns import AT
from server.servers import find_csrf_token, make_text_campaign, serve_campaigns
from server.teams import ROLES, SERVER_TOKEN, Team, log_in, record_labels, team_campaign
from teeter.campaigns.asking.assignment import pick_ahead
from teeter.campaigns.campaign import Campaign
from teeter.server.access import SecurityConfig
from teeter.server.access.tokens import Tokens

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
    ("answer", "GET", f"{AT}/finish/certificates", None),
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
    ("review", "GET", "/c/texts/find", None),
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
    ("manage", "PATCH", f"{AT}/settings", {"consensus": "dawid-skene"}),
    ("manage", "POST", f"{AT}/people", {"name": "zoe"}),
    ("manage", "POST", f"{AT}/people/token", {"name": "bob"}),
    ("manage", "POST", f"{AT}/people/role", {"name": "bob", "role": "reviewer"}),
    ("manage", "POST", f"{AT}/people/release", {"name": "bob"}),
    ("manage", "POST", f"{AT}/people/revoke", {"name": "bob"}),
    ("manage", "POST", f"{AT}/people/remove", {"name": "bob"}),
    ("manage", "POST", f"{AT}/finish", {"error": 0.05}),
    ("manage", "POST", f"{AT}/finish/draws", {"count": 1}),
    ("manage", "POST", f"{AT}/finish/certificates", None),
    ("manage", "POST", "/c/texts/train", None),
    ("manage", "GET", "/new", None),
]
"""The permission that each request needs."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A campaign without members in which two annotators have answered."""
    path = tmp_path / "texts.teeter"
    path.write_bytes(team_campaign()[0])
    return path


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

    assert read_menu("ann") == ["Label", "Progress", "Model", "Classes"]
    for name in ("rey", "olga"):
        assert " ".join(read_menu(name)) == (
            "Label Review Disagreements Team Progress Model Map Find Classes Export"
        ).replace("Classes", "Classes Settings" if name == "olga" else "Classes")

    assert "Train a model" not in team.send("rey", "GET", "/c/texts/model").text
    assert "Train a model" in team.send("olga", "GET", "/c/texts/model").text
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
    assert (state["result"]["slug"], state["result"]["imported"]["new"]) == ("mail", 2)
    assert "manage" in team.get("olga", "/api/v1/campaigns/mail")["permissions"]
    assert team.send("rey", "GET", "/api/v1/campaigns/mail").status_code == 403


# Members


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


def test_a_token_is_on_no_page(team: Team) -> None:
    headers = {"x-csrf-token": log_in(team, "olga")}
    body = {"name": "<b>zoe</b>", "role": "annotator"}
    added = team.client.post(f"{AT}/people", json=body, headers=headers)
    assert added.status_code == 201
    team.tokens["zoe"] = added.json()["token"]
    assert team.get("zoe", AT)["permissions"] == ["answer"]

    page = team.client.get("/c/texts/team").text
    assert team.tokens["zoe"] not in page
    assert "&lt;b&gt;zoe" in page
    assert "<b>zoe" not in page

    without_csrf = team.client.post(f"{AT}/people", json={"name": "eve"})
    assert without_csrf.status_code == 403


def test_only_owners_get_the_forms_of_the_team(team: Team) -> None:
    assert "data-api" in team.send("olga", "GET", "/c/texts/team").text
    assert "data-api" not in team.send("rey", "GET", "/c/texts/team").text


def test_the_first_member_is_the_user_as_an_owner(tmp_path: Path) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 30)
    with serve_campaigns(file) as client:
        refused = client.post(f"{AT}/people", json={"name": "zoe", "role": "annotator"})
        assert "Add yourself first, as an owner" in refused.json()["detail"]

        added = client.post(f"{AT}/people", json={"name": "zoe", "role": "owner"})
        token = added.json()["token"]
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

        added = client.post(f"{AT}/people", json={"name": "ann", "role": "owner"})
        assert added.status_code == 201
        assert "manage" in client.get(AT).json()["permissions"]


# Answers and assignments of a team


def test_items_picked_ahead_are_assigned_without_the_worker(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = team.client.app.state.workspace  # type: ignore[attr-defined]
    monkeypatch.setattr(workspace.trainer, "ensure_questions", lambda *_: None)
    assert team.get("ann", f"{AT}/questions")["questions"] == []

    campaign = Campaign.open(team.file)
    pick_ahead(campaign, 24)
    campaign.database.close()

    def list_questions(name: str) -> list[str]:
        questions = team.get(name, f"{AT}/questions?n=20")["questions"]
        return [question["item"] for question in questions]

    ann = list_questions("ann")
    bob = list_questions("bob")
    assert len(ann) == len(bob) == 20
    assert set(ann) == set(bob), "two annotators answer each item"
    assert list_questions("ann") == ann, "open items stay with their annotator"

    campaign = Campaign.open(team.file)
    pick_ahead(campaign, 24)
    campaign.database.close()
    for name in ("ann", "rey", "olga"):
        assert "start" in team.send(name, "GET", "/c/texts").text
    open_items = {member["name"]: member["open"] for member in team.get("rey", f"{AT}/team")}
    assert open_items["ann"] > 0, "opening the page assigns items at once"
    assert (open_items["rey"], open_items["olga"]) == (0, 0), "who only looks holds none"
    list_questions("olga")
    open_items = {member["name"]: member["open"] for member in team.get("rey", f"{AT}/team")}
    assert open_items["olga"] > 0, "who asks gets some"


def test_items_are_picked_before_the_first_annotator_comes(team: Team) -> None:
    workspace = team.client.app.state.workspace  # type: ignore[attr-defined]
    workspace.warm_up([team.file])

    campaign = Campaign.open(team.file)
    with campaign.reading() as view:
        assert view.picks.count_ready() > 20
        assert view.picks.open_picks() == []
    campaign.database.close()
