"""What the model thinks is not told where it would lead people: of shared items."""

from __future__ import annotations

from pathlib import Path

from teeter.campaigns.campaign import Campaign
from web.servers import begin, served
from web.test_api import AT, asked, label


def test_what_the_model_thinks_of_shared_items_is_not_told(tmp_path: Path) -> None:
    """Two people who are shown the same guess would agree by it."""
    file = begin(tmp_path / "texts.teeter", 120, overlap=0.5)
    with served(file) as client:
        label(client, 40)
        told = [one for one in asked(client, 100) if one["arm"] == "picked"]
        campaign = Campaign.open(file)
        shared = [one for one in told if campaign.is_shared(one["item"])]
        assert shared
        assert len(shared) < len(told)
        for one in told:
            hidden = set(one) <= {"item", "kind", "text", "arm", "rank", "characters", "shared"}
            assert hidden == campaign.is_shared(one["item"])
        last = client.get(f"{AT}/answers").json()
        assert not any({"predicted", "probability"} & set(one) for one in last if campaign.is_shared(one["item"]))
