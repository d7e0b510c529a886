"""A change that is made a second time, as after a lost reply, does nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.integrations.webhooks import add_webhook, list_webhooks, remove_webhook

Change = Callable[[Campaign], Any]

URL = "https://example.org/labels"

CHANGES: dict[str, Change] = {
    "answer": lambda c: c.tell("t0", "spam", comment="sure").number,
    "confirmation": lambda c: c.confirm_label("t1").number,
    "decision": lambda c: c.review.decide("t1", "ham"),
    "class": lambda c: c.classes.add("maybe"),
    "name of a class": lambda c: c.classes.rename("spam", "ads", description="Offers."),
    "description": lambda c: c.classes.describe({"ham": "All the rest."}),
    "names": lambda c: c.change_settings(names=False),
    "setting": lambda c: c.change_settings(instructions="Read.", keys=["s", "h"]),
    "consensus": lambda c: c.change_settings(consensus="dawid-skene"),
    "item": lambda c: c.items.change("t2", text="Another text", columns={"n": 5}),
    "withdrawn item": lambda c: c.items.withdraw(["t2"], reason="private"),
    "item put back": lambda c: c.items.put_back(["t3"]),
    "removed source": lambda c: c.suggestions.remove("rules"),
    "role": lambda c: c.people.change_role("ann", "reviewer"),
    "revoked token": lambda c: c.people.revoke("ann"),
    "removed member": lambda c: c.people.remove("ann"),
    "webhook": lambda c: add_webhook(c, URL),
    "removed webhook": lambda c: remove_webhook(c, 1),
}
"""What may be sent twice, by what it changes."""


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    campaign = Campaign.make([], ("spam", "ham"), at=tmp_path / "texts.teeter")
    campaign.add((f"t{n}", f"text number {n}") for n in range(5))
    campaign.tell("t1", "spam")
    campaign.items.withdraw(["t3"])
    campaign.suggestions.add([{"id": "t0", "label": "ham"}], "rules")
    campaign.people.add("olga", "owner")
    campaign.people.add("ann")
    add_webhook(campaign, f"{URL}/old")
    return campaign


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_that_is_made_again_does_nothing(name: str, campaign: Campaign) -> None:
    change = CHANGES[name]
    before = campaign.history()
    first = change(campaign)
    history = campaign.history()
    assert len(history) > len(before), "the first call changes something"

    repeated = change(campaign)

    assert campaign.history() == history
    # Numbers of answers name them. Other results say how much this call changed.
    if name in ("answer", "confirmation", "webhook"):
        assert repeated == first


def test_another_webhook_for_the_same_address_may_have_other_events(campaign: Campaign) -> None:
    add_webhook(campaign, URL, ["labelled"])
    add_webhook(campaign, URL, ["labelled", "trained"])
    add_webhook(campaign, URL, ["trained", "labelled"])

    assert [sorted(hook.events) for hook in list_webhooks(campaign)][1:] == [
        ["labelled"],
        ["labelled", "trained"],
    ]
