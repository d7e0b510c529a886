"""People: permissions, tokens stored as hashes, decisions, and how fast and accurate annotators
are.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text

from campaigns.fake_clock import FakeClock
from campaigns.stores import POSTGRESQL_SLOW, new_place
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.people import ROLES, require_permission, role_allows
from teeter.campaigns.settings import Settings
from teeter.campaigns.store import Database
from teeter.campaigns.store.copies import copy_campaign
from teeter.errors import InputError, PermissionDeniedError, UnknownNameError

VECTORS = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=POSTGRESQL_SLOW)
def campaign(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock
) -> Iterator[Campaign]:
    settings = Settings(kind="features", strategy="margin", control=0.5, consensus="dawid-skene")
    campaign = Campaign.make(
        [],
        ["left", "right"],
        at=new_place(request.param, tmp_path),
        name="points",
        settings=settings,
        clock=clock,
    )
    campaign.add({"id": f"p{k}", "features": row} for k, row in enumerate(VECTORS))
    yield campaign
    campaign.database.close()


def test_each_role_has_the_permissions_of_the_one_before_it() -> None:
    allowed = {
        role: [what for what in ("answer", "decide", "export", "manage") if role_allows(role, what)]
        for role in ROLES
    }
    assert allowed == {
        "annotator": ["answer"],
        "reviewer": ["answer", "decide", "export"],
        "owner": ["answer", "decide", "export", "manage"],
    }


def test_a_token_is_shown_once_and_can_be_revoked(campaign: Campaign) -> None:
    first = campaign.people.add("ann")
    other = campaign.people.add("rey", "reviewer")

    with campaign.reading() as view:
        people = str(view.connection.execute(text("select * from people")).all())
    stored = people + str(campaign.history())
    assert first not in stored
    assert other not in stored

    person = campaign.people.find_by_token(first)
    assert person is not None
    assert (person.name, person.role, person.has_token) == ("ann", "annotator", True)

    second = campaign.people.new_token("ann")
    assert campaign.people.find_by_token(first) is None
    assert campaign.people.find_by_token(second) is not None

    campaign.people.revoke("ann")
    assert campaign.people.find_by_token(second) is None
    assert campaign.people.find("ann") is not None
    assert campaign.people.find_by_token("") is None

    assert [line["what"] for line in campaign.history()][-4:] == [
        "person added",
        "person added",
        "token made",
        "token revoked",
    ]


def test_a_person_who_lacks_a_permission_is_refused(campaign: Campaign) -> None:
    campaign.people.require("anybody", "manage")
    campaign.people.add("ann")
    campaign.people.add("rey", "reviewer")
    campaign.people.require("rey", "decide")

    with pytest.raises(
        PermissionDeniedError, match="ann is an annotator and may not decide: ask a reviewer"
    ):
        campaign.people.require("ann", "decide")
    with pytest.raises(
        PermissionDeniedError, match="rey is a reviewer and may not manage: ask an owner"
    ):
        require_permission(campaign.people.find("rey"), "manage")
    with pytest.raises(UnknownNameError, match=r"No member is called 'anne'. Did you mean 'ann'"):
        campaign.people.require("anne", "answer")
    with pytest.raises(PermissionDeniedError, match="Only members of this campaign may answer"):
        require_permission(campaign.people.find("eve"), "answer")

    campaign.people.change_role("ann", "owner")
    campaign.people.require("ann", "manage")


def test_a_removed_person_releases_their_items_and_may_come_back(campaign: Campaign) -> None:
    token = campaign.people.add("ann")
    asked = [question.item for question in campaign.ask(5, "ann")]
    campaign.tell(asked[0], "left", "ann")

    assert campaign.people.remove("ann", who="owner").released == 4
    assert campaign.people.find_by_token(token) is None
    assert campaign.people.list() == []
    assert campaign.status().labelled == 1
    assert set(asked[1:]) <= {question.item for question in campaign.ask(59, "bob")}

    with pytest.raises(UnknownNameError, match="No member is called 'ann'"):
        campaign.people.new_token("ann")

    campaign.people.add("ann", "reviewer")
    assert [(member.name, member.role) for member in campaign.people.list()] == [
        ("ann", "reviewer")
    ]

    for wrong, role, message in (
        ("ann", "owner", "ann is already a reviewer"),
        (" ", "owner", "name"),
        ("bo", "boss", "No role"),
    ):
        with pytest.raises(InputError, match=message):
            campaign.people.add(wrong, role)


def test_a_campaign_keeps_an_owner_over_http(campaign: Campaign) -> None:
    for name, role in (("zoe", "owner"), ("olga", "reviewer")):
        with pytest.raises(InputError, match="Add yourself first, as an owner"):
            campaign.people.add(name, role, who="olga", keep_owner=True)
    campaign.people.add("olga", "owner", who="olga", keep_owner=True)
    campaign.people.add("ann", who="olga", keep_owner=True)

    refused: list[Callable[..., object]] = [campaign.people.remove, campaign.people.revoke]
    for change in refused:
        with pytest.raises(PermissionDeniedError, match="olga is the only owner"):
            change("olga", keep_owner=True)
    with pytest.raises(PermissionDeniedError, match="olga is the only owner"):
        campaign.people.change_role("olga", "reviewer", keep_owner=True)
    assert campaign.people.list()[0].has_token

    campaign.people.add("zoe", "owner")
    assert campaign.people.change_role("olga", "reviewer", keep_owner=True).name == "olga"
    assert campaign.people.remove("ann", keep_owner=True).released == 0


def tell_labels(campaign: Campaign, item: str, **by: str) -> None:
    for who, label in by.items():
        campaign.tell(item, label, who)


def test_a_decision_settles_a_disagreement(campaign: Campaign, tmp_path: Path) -> None:
    tell_labels(campaign, "p0", ann="left", bob="right", cem="left")
    tell_labels(campaign, "p1", ann="left", bob="left")
    tell_labels(campaign, "p2", ann="left")
    campaign.flag("p2", "bob")

    waiting = campaign.review.disagreements().disagreements
    assert [disagreement.item for disagreement in waiting] == ["p2", "p0"], "least certain first"
    assert waiting[1].answers == {"ann": "left", "bob": "right", "cem": "left"}
    assert campaign.status().disagreements == 2
    assert campaign.labels()["p0"].label == "left"

    campaign.review.decide("p0", "right", "rey", comment="seen closely")
    campaign.review.decide("p2", None, "rey")
    assert campaign.review.disagreements().disagreements == []

    label = campaign.labels()["p0"]
    assert (label.label, label.confidence, label.by) == ("right", 1.0, "rey")
    assert campaign.load_state().labels == {0: "right", 1: "left"}

    campaign.export(tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert (rows["p0"]["label"], rows["p0"]["source"], rows["p0"]["who"]) == (
        "right",
        "person",
        "rey",
    )
    assert (rows["p1"]["label"], rows["p1"]["source"], rows["p1"]["who"]) == (
        "left",
        "consensus",
        "ann, bob",
    )
    assert (rows["p2"]["label"], rows["p2"]["source"]) == ("", "left_out")
    assert (rows["p3"]["source"], rows["p3"]["who"], rows["p3"]["when"]) == ("", "", "")

    campaign.export(tmp_path / "out.jsonl")
    exported = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert (exported[0]["decided_by"], exported[0]["agreement"]) == ("rey", 1.0)
    assert exported[0]["answers"] == {"ann": "left", "bob": "right", "cem": "left"}
    assert exported[1]["answers"] == {"ann": "left", "bob": "left"}
    assert (exported[2]["left_out"], exported[3]["answers"]) == (True, {})


def test_decisions_can_be_changed_and_undone(campaign: Campaign) -> None:
    tell_labels(campaign, "p0", ann="left", bob="right")
    campaign.review.decide("p0", "right", "rey")
    campaign.review.decide("p0", "left", "sam")
    assert campaign.labels()["p0"].by == "sam"

    undone = campaign.review.undo_decision("sam")
    assert undone is not None
    assert (undone.item, undone.label) == ("p0", "left")
    assert campaign.labels()["p0"].by == "rey"

    campaign.review.undo_decision("rey")
    assert [
        disagreement.item for disagreement in campaign.review.disagreements().disagreements
    ] == ["p0"]
    assert campaign.review.undo_decision("rey") is None

    events = [line["what"] for line in campaign.history() if "deci" in line["what"]]
    assert events == ["decided", "decided", "decision undone", "decision undone"]

    with pytest.raises(UnknownNameError, match="No class is called 'lft'"):
        campaign.review.decide("p0", "lft", "rey")
    with pytest.raises(UnknownNameError, match="No item is called"):
        campaign.review.decide("p999", "left", "rey")


def test_agreement_pace_and_accuracy_of_annotators(campaign: Campaign, clock: FakeClock) -> None:
    assert campaign.review.agreement().alpha is None
    control_items = [
        question.item for question in campaign.ask(30, "ann") if question.arm == "control"
    ]

    for k in range(30):
        truth = ("left", "right")[k % 2]
        wrong = ("right", "left")[k % 2]
        for who, wait in (("ann", 0.1), ("bob", 0.2), ("cem", 0.0)):
            clock.wait(wait)
            tell_labels(campaign, f"p{k}", **{who: wrong if who == "cem" and k < 12 else truth})

    campaign.review.decide("p0", "left", "rey")

    agreement = campaign.review.agreement()
    assert agreement.items == 30

    pairs = {(pair.first, pair.second): pair.kappa for pair in agreement.pairs}
    best = pairs["ann", "bob"]
    worse = pairs["ann", "cem"]
    assert best is not None
    assert worse is not None
    assert best.value == 1
    assert worse.value == pytest.approx(0.2)
    assert set(agreement.by_class) == {"left", "right"}

    team = {member.name: member for member in campaign.people.stats()}
    assert team["ann"].seconds == pytest.approx(18, abs=0.01)
    assert team["ann"].per_hour == pytest.approx(200, rel=0.01)

    cem = team["cem"]
    assert cem.matches_consensus is not None
    assert cem.matches_decisions is not None
    assert (cem.matches_consensus.right, cem.matches_consensus.total) == (18, 30)
    assert (cem.matches_decisions.right, cem.matches_decisions.total) == (0, 1)

    answered_control_items = [item for item in control_items if int(item[1:]) < 30]
    assert cem.matches_at_random is not None
    assert cem.matches_at_random.total == len(answered_control_items)


def test_people_and_decisions_are_copied_with_a_campaign(
    campaign: Campaign, tmp_path: Path
) -> None:
    token = campaign.people.add("ann", "owner")
    tell_labels(campaign, "p0", ann="left", bob="right")
    campaign.review.decide("p0", "right", "ann")

    target = Database(tmp_path / "moved.teeter", create=True)
    copy_campaign(campaign.database, target, "points")

    moved = Campaign.open(tmp_path / "moved.teeter")
    person = moved.people.find_by_token(token)
    assert person is not None
    assert person.role == "owner"
    assert moved.labels() == campaign.labels()

    moved.database.close()
    target.close()
