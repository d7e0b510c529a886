"""A team on the page: what people disagree on, who decides, how everybody works and agrees, and who belongs to it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

from teeter.campaigns.consensus import ConsensusMethod
from teeter.campaigns.enums import AnswerKind, Permission, Role
from teeter.campaigns.people import role_allows
from teeter.campaigns.settings import IMPORTED, change_consensus
from teeter.campaigns.snapshot import CampaignSnapshot
from teeter.campaigns.stopping import estimate_accuracy
from teeter.errors import InputError, PermissionDeniedError
from teeter.web.service import CampaignService

__all__ = [
    "add_person",
    "agreement",
    "change_role",
    "choose_consensus",
    "decide",
    "disagreements",
    "give_back",
    "last_decisions",
    "members",
    "new_token",
    "remove_person",
    "revoke",
    "take_back",
]


def disagreements(desk: CampaignService, count: int) -> dict[str, Any]:
    """Return items on which people differ, the least clear first, with who says what; and how many there are in all."""
    campaign = desk.campaign
    with campaign.database.reading() as connection:
        standing = desk.standing(connection)
        waiting = standing.disagreements()
        rows = campaign.repository.items.by_id(connection, [item for item, _ in waiting[:count]])
        told = [
            {
                **desk.shown(rows[item], connection),
                "answers": [
                    {"annotator": name, "said": label} for name, label in sorted(said.items())
                ],
                "counts_as": standing.labels.get(item) if item not in standing.left_out else None,
                "confidence": standing.confidence(item),
            }
            for item, said in waiting[:count]
            if item in rows
        ]
    return {"disagreements": told, "waiting": len(waiting)}


def decide(
    desk: CampaignService, reviewer: str, item: str, label: str | None, comment: str | None = None
) -> bool:
    """Settle what an item is; None: it does not belong. False if the same was decided already, as when sent twice."""
    return desk.campaign.decide(item, label, reviewer, comment=comment)


def take_back(
    desk: CampaignService, reviewer: str, item: str | None = None
) -> dict[str, Any] | None:
    """Take back a reviewer's last decision, if it is of ``item``; None if there is none, or it is of another."""
    repository = desk.campaign.repository
    undone = desk.campaign.undo_decision(reviewer, item=item)
    if undone is None:
        return None
    with desk.campaign.database.reading() as connection:
        shown = desk.shown(repository.items.get(connection, undone.item), connection)
    return {**shown, "said": undone.label or AnswerKind.FLAG}


def last_decisions(desk: CampaignService, reviewer: str, count: int = 10) -> list[dict[str, Any]]:
    """Return a reviewer's last decisions as the page shows them, the newest first."""
    repository = desk.campaign.repository
    with desk.campaign.database.reading() as connection:
        found = repository.decisions.recent(connection, reviewer, count)
        rows = repository.items.by_id(connection, [one.item for one in found])
        return [
            {
                **desk.shown(rows[one.item], connection),
                "said": one.label or AnswerKind.FLAG,
                "comment": one.comment,
            }
            for one in found
        ]


def members(desk: CampaignService) -> list[dict[str, Any]]:
    """Return everybody who is named or has answered: their role, how much and how fast, how right, and what is open."""
    campaign = desk.campaign
    named = {one.name: one for one in campaign.people.list()}
    worked = {one.name: one for one in campaign.team()}
    with campaign.database.reading() as connection:
        same = _with_consensus(desk.standing(connection))
        still_open = campaign.repository.picks.count_open_by_annotator(connection)
    names = [*named, *(name for name in sorted({*worked, *still_open}) if name not in named)]
    told = []
    for name in names:
        work, person = worked.get(name), named.get(name)
        told.append(
            {
                "name": name,
                "role": None if person is None else person.role,
                "has_token": person is not None and person.has_token,
                "answers": 0 if work is None else work.answers,
                "per_hour": None
                if work is None or work.speed is None
                else round(work.speed.per_hour),
                "with_consensus": _share(*same[name]) if name in same else None,
                "as_decided": None if work is None else _told(work.quality.with_decisions),
                "open": still_open.get(name, 0),
            }
        )
    return told


def _with_consensus(standing: CampaignSnapshot) -> dict[str, tuple[int, int]]:
    """Return of everybody how many of how many labels are what items count as, where two people or more labelled."""
    said = [
        one
        for one in standing.answers
        if one.kind is AnswerKind.LABEL and one.annotator != IMPORTED
    ]
    people = Counter(one.item for one in said)
    labels, found = standing.labels, dict[str, tuple[int, int]]()
    for one in said:
        if people[one.item] > 1 and one.item in labels:
            right, total = found.get(one.annotator, (0, 0))
            found[one.annotator] = right + (labels[one.item] == one.label), total + 1
    return found


def _share(right: int, total: int) -> dict[str, float] | None:
    return _told(estimate_accuracy(right, total))


def _told(found: Any) -> dict[str, float] | None:
    if found is None:
        return None
    return {"share": found.share, "low": found.low, "high": found.high, "of": found.total}


def agreement(desk: CampaignService) -> dict[str, Any]:
    """Return how far people agree: over all, by class and by pair; and how several answers become one."""
    return {
        **asdict(desk.agreement()),
        "consensus": desk.campaign.settings.consensus,
        "ways": list(ConsensusMethod),
    }


def choose_consensus(desk: CampaignService, way: str, who: str) -> None:
    """Say how several answers become one label."""
    campaign = desk.campaign
    campaign.settings = change_consensus(
        campaign.database, campaign.repository, campaign.settings, way, who=who
    )
    desk.forget_standing()


def add_person(
    desk: CampaignService, name: str, role: str, who: str, *, alone: bool = False
) -> str:
    """Name somebody, and return their token; the first is whoever asks, as an owner, who could name nobody else then.

    Whoever is ``alone``, without a token, chooses the name that they go by from now on.
    """
    people = desk.campaign.people
    if not people.list() and (role != Role.OWNER or not (alone or name.strip() == who)):
        raise InputError("The first person is an owner, who names the others: add yourself.")
    return people.add(name, role, who=who)


def new_token(desk: CampaignService, name: str, who: str) -> str:
    """Make somebody a token in the place of the one they had, and return it."""
    return desk.campaign.people.new_token(name, who=who)


def revoke(desk: CampaignService, name: str, who: str) -> None:
    """Take somebody's token away."""
    _require_other_owner(desk, name)
    desk.campaign.people.revoke(name, who=who)


def change_role(desk: CampaignService, name: str, role: str, who: str) -> None:
    """Give somebody another role."""
    if role != Role.OWNER:
        _require_other_owner(desk, name)
    desk.campaign.people.change_role(name, role, who=who)


def remove_person(desk: CampaignService, name: str, who: str) -> int:
    """Let somebody go, and return how many open questions of theirs went back."""
    _require_other_owner(desk, name)
    return desk.campaign.people.remove(name, who=who)


def give_back(desk: CampaignService, name: str, who: str) -> int:
    """Let others have somebody's open questions; return how many there were."""
    return desk.campaign.release_items(name, who=who)


def _require_other_owner(desk: CampaignService, name: str) -> None:
    """Refuse to leave a campaign without an owner: nobody could name one from the page."""
    owners = [
        one for one in desk.campaign.people.list() if role_allows(one.role, Permission.MANAGE)
    ]
    if [one.name for one in owners] == [name]:
        raise PermissionDeniedError(f"{name} is the only owner: name another first.")
