"""teeter campaign classes: they are listed, added, renamed and described."""

from __future__ import annotations

import json
from pathlib import Path

from cli.commands import invoke_campaign, refuse_campaign, run_campaign, run_teeter, tell


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_class_is_added(campaign_file: Path) -> None:
    printed = run_campaign("classes", campaign_file, "--add", "bird")
    assert printed.startswith("fruit\ntool\nbird\n0 of 3 classes are described.\n")
    tell(campaign_file, "t5", "bird")
    assert run_campaign("classes", campaign_file, "--add", "bird") == printed


def test_a_class_is_renamed(campaign_file: Path) -> None:
    tell(campaign_file, "t1", "fruit")
    assert run_campaign("classes", campaign_file, "--rename", "fruit=food").startswith("food\n")
    tell(campaign_file, "t3", "food")
    assert run_campaign("classes", campaign_file, "--rename", "fruit=food").startswith("food\n")
    message = refuse_campaign("classes", campaign_file, "--rename", "fruit=plant")
    assert "No class is called 'fruit'" in message
    assert "OLD=NEW" in refuse_campaign("classes", campaign_file, "--rename", "food")
    assert "food 2" in run_teeter("status", campaign_file).stdout


def test_classes_are_merged_after_a_question_and_unused_ones_removed(campaign_file: Path) -> None:
    run_campaign("classes", campaign_file, "--add", "meal", "--add", "bird")
    tell(campaign_file, "t1", "meal")
    assert "named by 1 answer" in refuse_campaign("classes", campaign_file, "--rename", "meal=")
    assert run_campaign("classes", campaign_file, "--rename", "bird=").startswith("fruit\ntool\nm")

    merge = ("classes", campaign_file, "--rename", "meal=fruit")
    asked = invoke_campaign(*merge, typed="n\n")
    assert "Merge meal (1 label) into fruit (0 labels)? This cannot be undone." in asked.output
    assert "fruit\ntool\nmeal" in run_campaign("classes", campaign_file)
    invoke_campaign(*merge, typed="y\n")
    assert run_campaign("classes", campaign_file, "--rename", "meal=fruit").startswith("fruit\nto")
    assert "fruit 1" in run_teeter("status", campaign_file).stdout


def test_classes_are_described_from_the_start(items_file: Path, tmp_path: Path) -> None:
    toml = write(tmp_path / "classes.toml", 'fruit = "To eat."\n')
    printed = run_campaign("new", items_file, "--classes", "fruit,tool", "--describe", toml)
    assert "Models also learn from the class names" in printed

    file = items_file.with_suffix(".teeter")
    assert "fruit: To eat.\ntool\n1 of 2 classes are described." in run_campaign("classes", file)
    described = json.loads(run_campaign("classes", file, "--json"))
    assert described == {
        "fruit": {"description": "To eat.", "examples": []},
        "tool": {"description": "", "examples": []},
    }


def test_descriptions_of_a_file_replace_the_earlier_ones(
    campaign_file: Path, tmp_path: Path
) -> None:
    toml = write(tmp_path / "classes.toml", '[tool]\ndescription = "To use."\nexamples = ["saw"]\n')
    printed = run_campaign("classes", campaign_file, "--describe", toml)
    assert "tool: To use.\n  saw\n" in printed
    message = refuse_campaign("classes", campaign_file, "--describe", "none.toml")
    assert "There is no file none.toml" in message


def test_descriptions_beside_the_class_names_are_read(items_file: Path, tmp_path: Path) -> None:
    table = write(tmp_path / "classes.csv", "name,description\nfruit,To eat.\ntool,To use.\n")
    run_campaign("new", items_file, "--classes", table)
    printed = run_campaign("classes", items_file.with_suffix(".teeter"))
    assert "tool: To use." in printed


def test_names_can_be_left_out(campaign_file: Path) -> None:
    printed = run_campaign("classes", campaign_file, "--no-names")
    assert "as you asked with --no-names" in printed
    printed = run_campaign("classes", campaign_file, "--names")
    assert "Models also learn from the class names" in printed


def test_names_that_mean_nothing_are_reported(items_file: Path) -> None:
    printed = run_campaign("new", items_file, "--classes", "class_a,class_b")
    sentence = "Describe class_a, class_b with teeter campaign classes --describe"
    assert sentence in " ".join(printed.split())


def test_a_description_of_an_unknown_class_creates_nothing(
    items_file: Path, tmp_path: Path
) -> None:
    toml = write(tmp_path / "classes.toml", 'fruits = "To eat."\n')
    sentence = refuse_campaign("new", items_file, "--classes", "fruit,tool", "--describe", toml)
    assert "There is a description of 'fruits', which is not a class" in sentence
    assert not items_file.with_suffix(".teeter").exists()
