"""Settings: what is stored of them, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import select, update

from campaigns.stores import POSTGRESQL_SLOW, new_place
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings, settings_to_dict
from teeter.campaigns.store import schema
from teeter.errors import InputError, UnknownNameError


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"overlap": 1.5}, "overlap is 1.5: the share of items that several annotators answer"),
        ({"people": 1}, "people is 1: an overlap needs 2 or more annotators"),
        ({"lease": float("nan")}, "lease is nan: it must be 0 or more"),
        ({"budget": -1.0}, "budget is -1.0: it must be 0 or more"),
        ({"rows": True, "kind": "image"}, "Rows of a table are shown as texts, but kind is image"),
        ({"seed": 2**63}, "it must be a 64-bit integer"),
        ({"consensus": "mayority"}, r"No consensus is called 'mayority'. Did you mean 'majority'"),
    ],
)
def test_invalid_values_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Settings(**values)  # type: ignore[arg-type]


def test_a_folder_below_the_campaign_s_file_is_stored_relative_to_it(tmp_path: Path) -> None:
    settings = Settings(kind="image", folder=str(tmp_path / "images"))

    assert settings_to_dict(settings, tmp_path / "c.teeter")["folder"] == "images"
    assert settings_to_dict(settings, tmp_path / "a" / "c.teeter")["folder"] == settings.folder
    assert settings_to_dict(settings, None)["folder"] == settings.folder


@pytest.mark.parametrize("strategy", ["dbal", "batchbald", "ensemble"])
def test_a_strategy_that_the_head_cannot_serve_is_refused(strategy: str, tmp_path: Path) -> None:
    message = f"{strategy} needs .*, which the head pool does not provide: choose the head mlp"

    with pytest.raises(InputError, match=message):
        Campaign.make(
            [], ["a", "b"], at=tmp_path / "refused.teeter", settings=Settings(strategy=strategy)
        )

    assert not (tmp_path / "refused.teeter").exists()


@pytest.mark.parametrize("strategy", ["dbal", "of-a-missing-plugin"])
def test_an_existing_campaign_with_such_a_strategy_can_still_be_read(
    strategy: str, tmp_path: Path
) -> None:
    campaign = Campaign.make(
        [],
        ["a", "b"],
        at=tmp_path / "c.teeter",
        settings=Settings(kind="features", strategy="random"),
    )
    campaign.add({"id": str(k), "features": [k, 1.0]} for k in range(5))
    with campaign.writing() as change:
        values = json.loads(change.connection.scalar(select(schema.campaigns.c.settings)) or "")
        values["strategy"] = strategy
        change.connection.execute(update(schema.campaigns).values(settings=json.dumps(values)))
    campaign.database.close()

    reopened = Campaign.open(tmp_path / "c.teeter")

    assert reopened.export(tmp_path / "labels.csv") == 0


@pytest.mark.parametrize("kind", POSTGRESQL_SLOW)
def test_changing_the_consensus_leaves_other_settings_and_is_noted(
    kind: str, tmp_path: Path
) -> None:
    location = new_place(kind, tmp_path)
    settings = Settings(kind="features", lease=5)
    campaign = Campaign.make([], ["a", "b"], at=location, name="c", settings=settings)

    changed = campaign.change_settings(consensus="dawid-skene", who="ann")

    assert changed.consensus == "dawid-skene"
    last_line = campaign.history()[-1]
    assert (last_line["who"], last_line["what"], last_line["consensus"]) == (
        "ann",
        "settings",
        "dawid-skene",
    )
    reopened = Campaign.open(location)
    assert reopened.settings == changed
    assert reopened.settings.lease == 5

    with pytest.raises(UnknownNameError, match="No consensus is called"):
        campaign.change_settings(consensus="vote", who="ann")
    reopened.database.close()
    campaign.database.close()
