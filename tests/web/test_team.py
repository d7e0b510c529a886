"""A team on the page: who may do what, disagreements and decisions, people and tokens, agreement and consensus."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from fastapi.testclient import TestClient

from teeter.campaigns.campaign import Campaign
from teeter.web.auth import SecurityConfig
from teeter.web.tokens import Tokens
from web.servers import make_text_campaign, serve_campaigns

AT = "/api/v1/campaigns/texts"
NAMES = {"ann": "annotator", "bob": "annotator", "rey": "reviewer", "olga": "owner"}
SERVERS = "a-token-of-the-server"

REFUSED = {
    "annotator": {"review", "decide", "export", "manage"},
    "reviewer": {"manage"},
    "owner": set[str](),
}
ASKED: list[tuple[str, str, str, Any]] = [
    ("answer", "GET", AT, None),
    ("answer", "GET", f"{AT}/questions", None),
    ("answer", "POST", f"{AT}/answers", {"item": "t9", "label": "ham"}),
    ("answer", "GET", f"{AT}/answers", None),
    ("answer", "POST", f"{AT}/undo", {}),
    ("answer", "GET", f"{AT}/item?id=t1", None),
    ("answer", "GET", f"{AT}/progress", None),
    ("answer", "GET", "/c/texts", None),
    ("answer", "GET", "/c/texts/progress", None),
    ("answer", "GET", "/c/texts/item?id=t1", None),
    ("review", "POST", f"{AT}/keep", {"item": "t1"}),
    ("review", "GET", f"{AT}/suspects", None),
    ("review", "GET", f"{AT}/items", None),
    ("review", "GET", f"{AT}/flipped", None),
    ("review", "GET", f"{AT}/labels", None),
    ("review", "GET", f"{AT}/map", None),
    ("review", "GET", f"{AT}/team", None),
    ("review", "GET", f"{AT}/agreement", None),
    ("review", "GET", "/c/texts/second-look", None),
    ("review", "GET", "/c/texts/items", None),
    ("review", "GET", "/c/texts/map", None),
    ("review", "GET", "/c/texts/team", None),
    ("decide", "GET", f"{AT}/disagreements", None),
    ("decide", "GET", f"{AT}/decisions", None),
    ("decide", "POST", f"{AT}/decisions", {"item": "t1", "label": "ham"}),
    ("decide", "POST", f"{AT}/decisions/undo", {}),
    ("decide", "GET", "/c/texts/disagreements", None),
    ("export", "GET", f"{AT}/export?form=csv", None),
    ("export", "GET", "/c/texts/export", None),
    ("manage", "POST", f"{AT}/train", None),
    ("manage", "POST", f"{AT}/consensus", {"way": "dawid-skene"}),
    ("manage", "POST", f"{AT}/people", {"name": "zoe"}),
    ("manage", "POST", f"{AT}/people/token", {"name": "bob"}),
    ("manage", "POST", f"{AT}/people/role", {"name": "bob", "role": "reviewer"}),
    ("manage", "POST", f"{AT}/people/give-back", {"name": "bob"}),
    ("manage", "POST", f"{AT}/people/revoke", {"name": "bob"}),
    ("manage", "POST", f"{AT}/people/remove", {"name": "bob"}),
    ("manage", "POST", "/c/texts/train", None),
    ("manage", "POST", "/c/texts/people", None),
    ("manage", "POST", "/c/texts/people/change", None),
    ("manage", "POST", "/c/texts/consensus", None),
    ("manage", "GET", "/new", None),
]


def said(file: Path, **by: dict[str, str]) -> None:
    campaign = Campaign.open(file)
    for name, answers in by.items():
        for item, label in answers.items():
            campaign.tell(item, label, name)
    campaign.database.close()


class People:
    """A serve_campaigns campaign, and what each of its people sends along."""

    def __init__(self, file: Path, client: TestClient, tokens: dict[str, str]) -> None:
        self.file, self.client, self.tokens = file, client, tokens

    def ask(self, name: str, method: str, path: str, told: Any = None) -> Any:
        headers = {"authorization": f"Bearer {self.tokens[name]}"}
        return self.client.request(method, path, json=told, headers=headers, follow_redirects=False)


@cache
def team_campaign() -> tuple[bytes, bytes, dict[str, str]]:
    """Return the file of a campaign with answers of two, the same with people named, and their tokens."""
    with TemporaryDirectory() as folder:
        path = make_text_campaign(Path(folder) / "texts.teeter", 30, overlap=1.0)
        said(
            path,
            ann={"t1": "ham", "t2": "spam", "t3": "ham"},
            bob={"t1": "spam", "t2": "spam", "t3": "ham"},
        )
        with_answers = path.read_bytes()
        campaign = Campaign.open(path)
        tokens = {name: campaign.people.add(name, role) for name, role in NAMES.items()}
        campaign.database.close()
        return with_answers, path.read_bytes(), tokens


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A campaign that two annotators have answered in, and that names nobody."""
    path = tmp_path / "texts.teeter"
    path.write_bytes(team_campaign()[0])
    return path


@pytest.fixture
def people(tmp_path: Path) -> Iterator[People]:
    file = tmp_path / "texts.teeter"
    _, with_people, tokens = team_campaign()
    file.write_bytes(with_people)
    own = Tokens()
    for name in ("ann", "stranger"):
        own.add(name, f"{SERVERS}-of-{name}")
    with serve_campaigns(
        file, folder=file.parent, security=SecurityConfig(b"secret", own)
    ) as client:
        more = {f"server's {name}": f"{SERVERS}-of-{name}" for name in ("ann", "stranger")}
        yield People(file, client, tokens | more)


@pytest.mark.parametrize("name", ["bob", "rey", "olga"])
def test_everybody_may_do_what_their_role_allows(people: People, name: str) -> None:
    role = NAMES[name]
    for right, method, path, told in ASKED:
        answer = people.ask(name, method, path, told)
        if right in REFUSED[role]:
            assert answer.status_code == 403, (right, path, answer.text)
            assert "ask an owner" in answer.text or "ask a reviewer" in answer.text
        else:
            assert answer.status_code < 400 or answer.status_code == 422, (right, path, answer.text)


def test_the_menu_has_what_is_somebody_s_to_do(people: People) -> None:
    def menu(name: str) -> list[str]:
        nav = people.ask(name, "GET", "/c/texts").text.split("<nav")[1].split("</nav>")[0]
        return [part.split("<")[0].split(">")[1] for part in nav.split("<a ")[1:]]

    assert menu("ann") == ["Label", "Progress"]
    full = ["Label", "Review", "Disagreements", "Team", "Progress", "Map", "Items", "Export"]
    assert menu("rey") == menu("olga") == full
    assert "Train a model" not in people.ask("rey", "GET", "/c/texts/progress").text
    assert "Train a model" in people.ask("olga", "GET", "/c/texts/progress").text
    assert people.ask("ann", "GET", AT).json()["rights"] == ["answer"]


def test_an_annotator_sees_their_own_answer_alone(people: People) -> None:
    for path in (f"{AT}/item?id=t1", "/c/texts/item?id=t1"):
        assert "bob" in people.ask("rey", "GET", path).text
        assert "bob" not in people.ask("ann", "GET", path).text
    told = people.ask("bob", "GET", f"{AT}/item?id=t1").json()
    assert (told["label"], told["annotators"], len(told["answers"])) == ("spam", 1, 1)
    told = people.ask("rey", "GET", f"{AT}/item?id=t1").json()
    assert (told["annotators"], len(told["answers"])) == (2, 2)


@pytest.mark.parametrize(("name", "first"), [("bob", "/c/texts"), ("rey", "/c/texts/progress")])
def test_who_reviews_takes_no_questions_by_coming_in(file: Path, name: str, first: str) -> None:
    campaign = Campaign.open(file)
    token = campaign.people.add(name, NAMES[name])
    with serve_campaigns(file, security=SecurityConfig(b"secret")) as client:
        csrf = client.get("/login").text.split('name="csrf" content="')[1].split('"')[0]
        assert client.post("/login", data={"csrf": csrf, "token": token}).url.path == first
    assert (campaign.status().open > 0) == (first == "/c/texts")
    campaign.database.close()


def test_a_lone_user_s_pages_are_as_they_were(tmp_path: Path) -> None:
    with serve_campaigns(make_text_campaign(tmp_path / "texts.teeter", 30)) as client:
        page = client.get("/c/texts").text
        assert "Disagreements" not in page
        assert "Team" not in page
        assert client.get(f"{AT}/export").status_code == 200
        assert client.get(f"{AT}/items").status_code == 200
        assert client.get(AT).json()["team"] is False
        assert client.get("/c/texts/disagreements").status_code == 200
        assert "nothing to decide" not in page


def test_several_who_answered_are_a_team(tmp_path: Path) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 30)
    said(file, ann={"t1": "ham"}, bob={"t2": "ham"})
    with serve_campaigns(file) as client:
        assert "Disagreements" in client.get("/c/texts").text


def test_a_campaign_that_names_people_lets_nobody_in_without_a_token(file: Path) -> None:
    campaign = Campaign.open(file)
    token = campaign.people.add("olga", "owner")
    with serve_campaigns(file, security=SecurityConfig(b"secret")) as client:
        assert client.get(AT).status_code == 401
        assert client.get("/c/texts", follow_redirects=False).headers["location"] == "/login"
        page = client.get("/login").text
        csrf = page.split('name="csrf" value="')[1].split('"')[0]
        client.post("/login", data={"csrf": csrf, "token": token})
        assert client.get(AT).status_code == 200
        assert client.get("/c/texts/team").status_code == 200
        assert client.get(AT, headers={"host": "label.example"}).status_code == 200, (
            "a proxy has a name of its own"
        )
        campaign.people.revoke("olga")
        assert client.get(AT).status_code == 401, "a revoked token ends its sessions"
        campaign.people.remove("olga")
        assert client.get(AT).status_code == 401, "removing the last opens nothing"
    campaign.database.close()


def test_the_server_s_tokens_have_the_roles_that_campaigns_give(people: People) -> None:
    assert people.ask("server's ann", "GET", AT).json()["rights"] == ["answer"]
    assert people.ask("server's stranger", "GET", AT).status_code == 403
    assert (
        "Only members of this campaign" in people.ask("server's stranger", "GET", "/c/texts").text
    )
    assert people.ask("server's stranger", "GET", "/api/v1/campaigns").json() == []
    assert people.ask("server's stranger", "GET", "/new").status_code == 403


def test_a_campaign_s_token_opens_that_campaign_alone(people: People) -> None:
    other = Campaign.open(make_text_campaign(people.file.parent / "other.teeter", 10))
    other.people.add("olga", "annotator")
    make_text_campaign(people.file.parent / "free.teeter", 10)
    seen = {one["slug"] for one in people.ask("olga", "GET", "/api/v1/campaigns").json()}
    assert seen == {"texts"}, "olga of another campaign may be somebody else"
    assert people.ask("olga", "GET", "/api/v1/campaigns/other").status_code == 403
    assert people.ask("olga", "GET", "/api/v1/campaigns/free").status_code == 403
    seen = {one["slug"] for one in people.ask("server's ann", "GET", "/api/v1/campaigns").json()}
    assert seen == {"texts", "free"}
    other.database.close()


def test_who_makes_a_campaign_owns_it(people: People) -> None:
    given = {
        "data": {"name": "mail", "classes": "a,b"},
        "files": {"file": ("a.csv", "text\none\ntwo\n")},
    }
    for name in ("ann", "rey"):
        headers = {"authorization": f"Bearer {people.tokens[name]}"}
        told = people.client.post("/api/v1/campaigns", headers=headers, **given)
        assert told.status_code == 403
        assert "may not create one" in told.json()["detail"]
    headers = {"authorization": f"Bearer {people.tokens['olga']}"}
    job = people.client.post("/api/v1/campaigns", headers=headers, **given).json()["job"]
    assert people.ask("olga", "GET", f"/api/v1/jobs/{job}").json()["state"] == "done"
    assert "manage" in people.ask("olga", "GET", "/api/v1/campaigns/mail").json()["rights"]
    assert people.ask("rey", "GET", "/api/v1/campaigns/mail").status_code == 403


def test_a_disagreement_is_decided_and_taken_back(people: People) -> None:
    told = people.ask("rey", "GET", f"{AT}/disagreements").json()
    assert told["waiting"] == 1
    (one,) = told["disagreements"]
    assert one["answers"] == [
        {"annotator": "ann", "said": "ham"},
        {"annotator": "bob", "said": "spam"},
    ]
    assert (one["item"], one["counts_as"], one["confidence"]) == ("t1", "spam", 0.5)
    decided = {"item": "t1", "label": "ham", "comment": "seen closely"}
    assert people.ask("rey", "POST", f"{AT}/decisions", decided).json()["new"] is True
    assert people.ask("rey", "POST", f"{AT}/decisions", decided).json()["new"] is False, (
        "sent twice, stored once"
    )
    assert people.ask("rey", "GET", f"{AT}/disagreements").json()["waiting"] == 0
    (last,) = people.ask("rey", "GET", f"{AT}/decisions").json()
    assert (last["item"], last["said"], last["comment"]) == ("t1", "ham", "seen closely")
    assert people.ask("olga", "GET", f"{AT}/decisions").json() == []
    assert people.ask("olga", "POST", f"{AT}/decisions/undo", {}).json()["undone"] is None
    assert (
        people.ask("rey", "POST", f"{AT}/decisions/undo", {"item": "t2"}).json()["undone"] is None
    )
    assert (
        people.ask("rey", "POST", f"{AT}/decisions/undo", {"item": "t1"}).json()["undone"]["said"]
        == "ham"
    )
    assert people.ask("rey", "GET", f"{AT}/disagreements").json()["waiting"] == 1
    people.ask("rey", "POST", f"{AT}/decisions", {"item": "t1", "label": None})
    assert "flag" in people.ask("rey", "GET", f"{AT}/item?id=t1").json()["state"]
    assert (
        people.ask("rey", "POST", f"{AT}/decisions", {"item": "t1", "label": "hm"}).status_code
        == 422
    )


def test_how_a_team_works(people: People) -> None:
    people.ask("bob", "GET", f"{AT}/questions")
    team = {one["name"]: one for one in people.ask("rey", "GET", f"{AT}/team").json()}
    assert list(team) == ["ann", "bob", "rey", "olga"]
    assert (team["ann"]["role"], team["ann"]["answers"], team["rey"]["answers"]) == (
        "annotator",
        3,
        0,
    )
    assert team["ann"]["with_consensus"]["share"] == pytest.approx(2 / 3)
    assert team["bob"]["with_consensus"]["share"] == 1
    assert team["bob"]["open"] > 0
    returned = people.ask("olga", "POST", f"{AT}/people/give-back", {"name": "bob"}).json()[
        "returned"
    ]
    assert returned == team["bob"]["open"]
    assert {one["open"] for one in people.ask("rey", "GET", f"{AT}/team").json()} == {0}
    found = people.ask("rey", "GET", f"{AT}/agreement").json()
    assert (found["items"], found["consensus"], found["alpha"]) == (3, "majority", None)
    assert [(pair["first"], pair["second"], pair["items"]) for pair in found["pairs"]] == [
        ("ann", "bob", 3)
    ]


def test_another_consensus_holds_for_all_that_reads_the_campaign(people: People) -> None:
    handlers = people.client.app.state.workspace.trainer.process.handlers  # type: ignore[attr-defined]
    assert handlers.campaign(str(people.file)).settings.consensus == "majority"
    people.ask("rey", "GET", f"{AT}/items")
    told = people.ask("olga", "POST", f"{AT}/consensus", {"way": "dawid-skene"}).json()
    assert told["consensus"] == "dawid-skene"
    assert people.ask("olga", "POST", f"{AT}/consensus", {"way": "loudest"}).status_code == 422
    assert people.ask("rey", "GET", f"{AT}/item?id=t2").json()["by"] == "dawid-skene"
    assert handlers.campaign(str(people.file)).settings.consensus == "dawid-skene"
    campaign = Campaign.open(people.file)
    assert campaign.history()[-1]["way"] == "dawid-skene"
    campaign.database.close()


def test_people_come_and_go(people: People) -> None:
    told = people.ask("olga", "POST", f"{AT}/people", {"name": "zoe", "role": "reviewer"})
    assert told.status_code == 201
    people.tokens["zoe"] = told.json()["token"]
    assert people.ask("zoe", "GET", f"{AT}/disagreements").status_code == 200
    people.ask("olga", "POST", f"{AT}/people/role", {"name": "zoe", "role": "annotator"})
    assert people.ask("zoe", "GET", f"{AT}/disagreements").status_code == 403
    renewed = people.ask("olga", "POST", f"{AT}/people/token", {"name": "zoe"}).json()["token"]
    assert people.ask("zoe", "GET", AT).status_code == 401
    people.tokens["zoe"] = renewed
    assert people.ask("zoe", "GET", AT).status_code == 200
    people.ask("olga", "POST", f"{AT}/people/revoke", {"name": "zoe"})
    assert people.ask("zoe", "GET", AT).status_code == 401
    assert (
        people.ask("olga", "POST", f"{AT}/people/remove", {"name": "zoe"}).json()["name"] == "zoe"
    )
    assert "zoe" not in people.ask("olga", "GET", f"{AT}/team").text
    assert people.ask("olga", "POST", f"{AT}/people", {"name": "olga"}).status_code == 422
    assert people.ask("olga", "POST", f"{AT}/people", {"name": "import"}).status_code == 422
    assert people.ask("olga", "POST", f"{AT}/people/token", {"name": "nobody"}).status_code == 404


@pytest.mark.parametrize(
    ("path", "told"),
    [("revoke", {}), ("remove", {}), ("role", {"role": "annotator"})],
    ids=lambda one: str(one),
)
def test_a_campaign_keeps_an_owner(people: People, path: str, told: dict[str, str]) -> None:
    answer = people.ask("olga", "POST", f"{AT}/people/{path}", {"name": "olga", **told})
    assert answer.status_code == 403
    assert "only owner" in answer.json()["detail"]
    people.ask("olga", "POST", f"{AT}/people", {"name": "zoe", "role": "owner"})
    assert (
        people.ask("olga", "POST", f"{AT}/people/{path}", {"name": "olga", **told}).status_code
        == 200
    )


def logged_in(people: People, name: str) -> str:
    """Come in by a browser, and return what goes with forms."""
    page = people.client.get("/login").text
    csrf = page.split('name="csrf" value="')[1].split('"')[0]
    people.client.post("/login", data={"csrf": csrf, "token": people.tokens[name]})
    csrf = people.client.get("/api/v1/session").json()["csrf"]
    return str(csrf)


def test_the_team_s_page_shows_a_token_once(people: People) -> None:
    csrf = logged_in(people, "olga")
    page = people.client.post(
        "/c/texts/people", data={"csrf": csrf, "name": "<b>zoe</b>", "role": "annotator"}
    )
    assert page.status_code == 200
    token = page.text.split('class="token">')[1].split("<")[0]
    people.tokens["zoe"] = token
    assert people.ask("zoe", "GET", AT).json()["rights"] == ["answer"]
    again = people.client.get("/c/texts/team").text
    assert token not in again
    assert "&lt;b&gt;zoe" in again
    assert "<b>zoe" not in again
    for what, told in (
        ("role", "has the role reviewer"),
        ("token", "shown only once"),
        ("revoke", "lets nobody in"),
        ("give back", "0 open questions"),
        ("remove", "is removed"),
    ):
        given = {"csrf": csrf, "name": "<b>zoe</b>", "what": what, "role": "reviewer"}
        assert told in people.client.post("/c/texts/people/change", data=given).text
    wrong = (
        {"what": "dance"},
        {"what": "remove", "name": "olga"},
        {"what": "role", "name": "bob", "role": "boss"},
    )
    for given in wrong:
        answer = people.client.post("/c/texts/people/change", data={"csrf": csrf, **given})
        assert answer.status_code == 422
        assert 'role="alert"' in answer.text
    assert (
        "dawid-skene"
        in people.client.post("/c/texts/consensus", data={"csrf": csrf, "way": "dawid-skene"}).text
    )
    assert (
        people.client.post("/c/texts/consensus", data={"csrf": csrf, "way": "x"}).status_code == 422
    )
    assert people.client.post("/c/texts/people", data={"name": "eve"}).status_code == 403, (
        "without the page's mark"
    )


def test_the_first_person_is_whoever_names_them(tmp_path: Path) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter", 30)
    with serve_campaigns(file) as client:
        csrf = client.headers["x-csrf-token"]
        told = client.post(f"{AT}/people", json={"name": "zoe", "role": "annotator"})
        assert "first person is an owner" in told.json()["detail"]
        page = client.post("/c/texts/people", data={"csrf": csrf, "name": "zoe", "role": "owner"})
        token = page.text.split('class="token">')[1].split("<")[0]
        session = client.get("/api/v1/session").json()
        assert (session["annotator"], session["needs_token"]) == ("zoe", True)
        assert client.get("/c/texts/team").status_code == 200
        client.cookies.clear()
        assert client.get(AT).status_code == 401, "from now on nobody comes in without a token"
        assert client.get(AT, headers={"authorization": f"Bearer {token}"}).status_code == 200


def test_whoever_has_a_token_of_the_server_names_themselves_first(tmp_path: Path) -> None:
    own = Tokens()
    own.add("ann", SERVERS)
    with serve_campaigns(
        make_text_campaign(tmp_path / "texts.teeter", 30), security=SecurityConfig(b"secret", own)
    ) as client:
        client.headers["authorization"] = f"Bearer {SERVERS}"
        told = client.post(f"{AT}/people", json={"name": "zoe", "role": "owner"})
        assert told.status_code == 422, "ann could not see the token, nor name anybody any more"
        assert (
            client.post("/c/texts/people", data={"name": "zoe", "role": "owner"}).status_code == 422
        )
        page = client.post("/c/texts/people", data={"name": "ann", "role": "owner"})
        assert 'class="token"' in page.text
        assert "manage" in client.get(AT).json()["rights"]


def test_labels_that_came_with_the_items_are_nobody_s(tmp_path: Path) -> None:
    campaign = Campaign.create(tmp_path / "texts.teeter", "texts", ("spam", "ham"))
    campaign.add({"id": f"t{k}", "text": f"text {k}", "label": "ham"} for k in range(10))
    for k in range(10):
        campaign.tell(f"t{k}", "spam" if k < 5 else "ham", "ann")
    assert campaign.agreement().items == 0
    assert [one.name for one in campaign.team()] == ["ann"]
    assert campaign.team()[0].quality.with_others is None
    assert campaign.disagreements() == []
    campaign.database.close()
    with serve_campaigns(tmp_path / "texts.teeter") as client:
        assert client.get(AT).json()["team"] is False
        assert [one["name"] for one in client.get(f"{AT}/team").json()] == ["ann"]


def test_what_was_picked_ahead_is_given_without_the_trainer(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = people.client.app.state.workspace  # type: ignore[attr-defined]
    monkeypatch.setattr(site.trainer, "ensure_questions", lambda *_: None)
    campaign = Campaign.open(people.file)
    assert people.ask("ann", "GET", f"{AT}/questions").json()["questions"] == []
    campaign.pick_ahead(24)
    campaign.database.close()
    ann, bob = (
        [one["item"] for one in people.ask(name, "GET", f"{AT}/questions?n=20").json()["questions"]]
        for name in ("ann", "bob")
    )
    assert len(ann) == len(bob) == 20
    assert set(ann) == set(bob), "two people answer each item"
    again = people.ask("ann", "GET", f"{AT}/questions?n=20").json()["questions"]
    assert [one["item"] for one in again] == ann, "what is open with somebody stays with them"
    assert "start" in people.ask("rey", "GET", "/c/texts").text
    team = {one["name"]: one["open"] for one in people.ask("rey", "GET", f"{AT}/team").json()}
    assert team["rey"] > 0, "whoever opens the page has questions at once"


def test_questions_are_picked_before_the_first_asks(people: People) -> None:
    site = people.client.app.state.workspace  # type: ignore[attr-defined]
    site.warm_up([people.file])
    campaign = Campaign.open(people.file)
    with campaign.database.reading() as connection:
        assert campaign.repository.picks.count_ready(connection) > 20
        assert campaign.repository.picks.open_picks(connection) == []
    campaign.database.close()
