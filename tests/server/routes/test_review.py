"""Disagreements, decisions, agreement and consensus, over REST."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cli.commands import run_campaign
from server.labelled_campaigns import (
    AT,
    LabelledCampaign,
    other_label,
    true_label,
)
from server.servers import (
    serve_campaigns,
)
from server.teams import Team
from teeter.campaigns.campaign import Campaign


def test_suspect_labels_are_found_and_can_be_confirmed(labelled: LabelledCampaign) -> None:
    client = labelled.client
    wrong = labelled.items[5]
    answer = {"item": wrong, "label": other_label(true_label(wrong))}
    client.post(f"{AT}/answers", json=answer)

    suspects = client.get(f"{AT}/suspects?again=true").json()
    assert suspects["state"] == "done"
    assert wrong in {suspect["item"] for suspect in suspects["result"]}

    assert client.post(f"{AT}/keep", json={"item": wrong}).status_code == 200
    suspects = client.get(f"{AT}/suspects?again=true").json()
    assert wrong not in {suspect["item"] for suspect in suspects["result"]}


def test_a_disagreement_shows_who_gave_which_answer(team: Team) -> None:
    listed = team.get("rey", f"{AT}/disagreements")
    assert listed["waiting"] == 1
    (disagreement,) = listed["disagreements"]
    assert disagreement["answers"] == {"ann": "ham", "bob": "spam"}
    assert disagreement["item"] == "t1"
    assert disagreement["label"] == "spam"
    assert disagreement["confidence"] == 0.5
    assert disagreement["content"]["kind"] == "text"


def test_a_disagreement_is_decided_once_and_can_be_undone(team: Team) -> None:
    decision = {"item": "t1", "label": "ham", "comment": "seen closely"}
    assert team.post("rey", f"{AT}/decisions", decision)["recorded"] is True
    repeated = team.post("rey", f"{AT}/decisions", decision)
    assert repeated["recorded"] is False, "sent twice, stored once"
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
    assert undone["label"] == "ham"
    assert team.post("rey", f"{AT}/decisions/undo", number) == undone, "sent twice, undone once"
    assert team.get("rey", f"{AT}/disagreements")["waiting"] == 1


def test_a_decision_can_be_that_an_item_does_not_belong(team: Team) -> None:
    team.post("rey", f"{AT}/decisions", {"item": "t1", "label": None})
    assert "flag" in team.get("rey", f"{AT}/item?id=t1")["state"]


def test_a_decision_needs_a_class_of_the_campaign(team: Team) -> None:
    response = team.send("rey", "POST", f"{AT}/decisions", {"item": "t1", "label": "hm"})
    assert response.status_code == 422


def test_agreement_is_measured_by_pair(team: Team) -> None:
    agreement = team.get("rey", f"{AT}/agreement")
    assert agreement["items"] == 3
    assert agreement["alpha"] is None, "three items are too few"
    (pair,) = agreement["pairs"]
    assert (pair["first"], pair["second"], pair["items"]) == ("ann", "bob", 3)


def test_a_change_of_the_consensus_is_valid_everywhere_at_once(team: Team) -> None:
    app: Any = team.client.app
    handlers = app.state.workspace.trainer.process.handlers
    assert handlers.campaign(str(team.file)).settings.consensus == "majority"
    team.get("rey", f"{AT}/items")  # caches the labels

    body = {"consensus": "dawid-skene"}
    changed = team.send("olga", "PATCH", f"{AT}/settings", body)
    assert changed.json()["consensus"] == "dawid-skene"
    assert "combined by dawid-skene." in team.send("rey", "GET", "/c/texts/team").text
    unknown = team.send("olga", "PATCH", f"{AT}/settings", {"consensus": "loudest"})
    assert unknown.status_code == 422

    assert team.get("rey", f"{AT}/item?id=t2")["by"] == "dawid-skene"
    worker_campaign = handlers.campaign(str(team.file))
    worker_campaign.load_state()
    assert worker_campaign.settings.consensus == "dawid-skene"
    campaign = Campaign.open(team.file)
    assert campaign.history()[-1]["consensus"] == "dawid-skene"
    campaign.database.close()


def test_labels_that_came_with_the_items_are_of_no_annotator(tmp_path: Path) -> None:
    campaign = Campaign.make([], ("spam", "ham"), at=tmp_path / "texts.teeter")
    campaign.add({"id": f"t{row}", "text": f"text {row}", "label": "ham"} for row in range(10))
    for row in range(10):
        campaign.tell(f"t{row}", "spam" if row < 5 else "ham", "ann")

    assert campaign.review.agreement().items == 0
    (stats,) = campaign.people.stats()
    assert stats.name == "ann"
    assert stats.matches_consensus is None
    assert campaign.review.disagreements().disagreements == []
    campaign.database.close()

    with serve_campaigns(tmp_path / "texts.teeter") as client:
        assert client.get(AT).json()["is_team"] is False
        (member,) = client.get(f"{AT}/team").json()
        assert (member["name"], member["matches_consensus"]) == ("ann", None)


def test_undecided_ties_count_for_nobody_on_the_page_and_on_the_command_line(
    tmp_path: Path,
) -> None:
    file = tmp_path / "texts.teeter"
    campaign = Campaign.make([], ("spam", "ham"), at=file, name="texts")
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
        by_command = member["matches_consensus"]
        assert (by_command["right"], by_command["total"]) == (10, 10)
        shown = on_page[member["name"]]
        assert (shown["share"], shown["total"]) == (1.0, 10)
