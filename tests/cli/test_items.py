"""Items and classes are corrected on the command line."""

from __future__ import annotations

from pathlib import Path

from cli.commands import invoke_campaign, refuse_campaign, run_campaign
from teeter.campaigns import Campaign


def test_items_are_changed_withdrawn_and_put_back(campaign_file: Path) -> None:
    changes = ("--text", "A quince", "--set", "stars=4", "--set", "customer=ACME")
    assert run_campaign("change", campaign_file, "t1", *changes) == "Changed t1.\n"
    repeated = run_campaign("change", campaign_file, "t1", *changes)
    assert repeated == "t1 already has these values.\n"
    printed = run_campaign("withdraw", campaign_file, "t1", "t2", "--reason", "private")
    assert printed == "Withdrew 2 items.\n"
    assert "2 withdrawn items left out." in run_campaign("status", campaign_file)
    assert run_campaign("put-back", campaign_file, "t1") == "Put back 1 item.\n"

    campaign = Campaign.open(campaign_file)
    row = campaign.row("t1")
    assert (row["text"], row["stars"], row["customer"]) == ("A quince", 4, "ACME")
    assert campaign.status().withdrawn == 1
    campaign.database.close()
    assert "No item is called 'lost'" in refuse_campaign("change", campaign_file, "lost", *changes)
    assert "COLUMN=VALUE" in refuse_campaign("change", campaign_file, "t1", "--set", "stars")
    assert "--text or --set" in refuse_campaign("change", campaign_file, "t1")


def test_a_value_has_the_type_of_its_column(campaign_file: Path) -> None:
    run_campaign("change", campaign_file, "t1", "--set", "customer=ACME", "--set", "x=NaN")
    run_campaign("change", campaign_file, "t1", "--set", "customer=12")

    campaign = Campaign.open(campaign_file)
    row = campaign.row("t1")
    campaign.database.close()
    assert (row["customer"], row["x"]) == ("12", "NaN")


def test_a_class_is_renamed(campaign_file: Path) -> None:
    run_campaign("tell", campaign_file, "t1", "fruit")
    printed = run_campaign("rename-class", campaign_file, "fruit", "food")
    assert printed == "Renamed the class fruit to food.\n"
    run_campaign("tell", campaign_file, "t3", "food")
    assert run_campaign("rename-class", campaign_file, "fruit", "food") == printed
    assert "No class is called 'fruit'" in refuse_campaign(
        "rename-class", campaign_file, "fruit", "plant"
    )
    assert invoke_campaign("status", campaign_file).exit_code == 0
