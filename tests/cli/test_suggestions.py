"""teeter campaign describe, predictions, suggest and sources."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.fake_language_model import FakeLanguageModel, fake_language_model
from cli.commands import refuse_campaign, run_campaign, true_label


@pytest.fixture
def llm() -> Iterator[FakeLanguageModel]:
    with fake_language_model() as running:
        running.reply = lambda text: json.dumps({"label": "fruit" if "apple" in text else "tool"})
        yield running


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_classes_are_described_from_the_start(items_file: Path, tmp_path: Path) -> None:
    toml = write(tmp_path / "classes.toml", 'fruit = "To eat."\n')
    printed = run_campaign("new", items_file, "--classes", "fruit,tool", "--describe", toml)
    assert "Models also learn from the class names" in printed

    file = items_file.with_suffix(".teeter")
    assert "fruit: To eat.\n1 of 2 classes are described." in run_campaign("describe", file)
    described = json.loads(run_campaign("describe", file, "--json"))
    assert described == {"fruit": {"description": "To eat.", "examples": []}}


def test_descriptions_beside_the_class_names_are_read(items_file: Path, tmp_path: Path) -> None:
    table = write(tmp_path / "classes.csv", "name,description\nfruit,To eat.\ntool,To use.\n")
    run_campaign("new", items_file, "--classes", table)
    printed = run_campaign("describe", items_file.with_suffix(".teeter"))
    assert "tool: To use." in printed


def test_names_can_be_left_out(items_file: Path) -> None:
    printed = run_campaign("new", items_file, "--classes", "fruit,tool", "--no-names")
    assert "class names" not in printed
    file = items_file.with_suffix(".teeter")
    assert "as you asked with --no-names" in run_campaign("describe", file)
    assert "Models also learn from the class names" in run_campaign("describe", file, "--names")


def test_names_that_mean_nothing_are_reported(items_file: Path) -> None:
    printed = run_campaign("new", items_file, "--classes", "class_a,class_b")
    assert "Describe class_a, class_b with teeter campaign describe" in " ".join(printed.split())


def test_a_description_of_an_unknown_class_creates_nothing(
    items_file: Path, tmp_path: Path
) -> None:
    toml = write(tmp_path / "classes.toml", 'fruits = "To eat."\n')
    sentence = refuse_campaign("new", items_file, "--classes", "fruit,tool", "--describe", toml)
    assert "There is a description of 'fruits', which is not a class" in sentence
    assert not items_file.with_suffix(".teeter").exists()


def test_predictions_are_added_measured_and_removed(campaign_file: Path, tmp_path: Path) -> None:
    rows = [f"t{number},{true_label(f't{number}')}" for number in range(60)]
    table = write(tmp_path / "old.csv", "\n".join(["id,label", *rows, "t99,fruit", "t1x,nut"]))
    printed = run_campaign("predictions", campaign_file, table)
    assert "Added 60 suggestions by old." in printed
    assert "Left out 2 predictions for items that the campaign does not have." in printed

    for question in json.loads(run_campaign("ask", campaign_file, "-n", 30, "--json")):
        run_campaign("tell", campaign_file, question["item"], true_label(question["item"]))
    (report,) = json.loads(run_campaign("sources", campaign_file, "--json"))
    assert report["accuracy"]["right"] == report["accuracy"]["total"] > 0
    assert "100% of" in run_campaign("sources", campaign_file)

    removed = run_campaign("sources", campaign_file, "--remove", "old")
    assert removed == "There are no suggestions.\n"


def test_a_language_model_is_asked_and_its_cost_is_printed(
    campaign_file: Path, llm: FakeLanguageModel
) -> None:
    options = ["--model", "tiny", "--input-price", 10, "--output-price", 20]
    printed = run_campaign("suggest", campaign_file, llm.url, *options, "-n", 10)
    assert "tiny was asked about 10 texts and gave 10 suggestions" in printed
    assert "So far: 1,100 tokens, cost 0.012." in printed

    repeated = run_campaign("suggest", campaign_file, llm.url, *options, "--budget", 0.05)
    assert "0.05" not in repeated
    assert "of the budget left" in repeated
    assert max(llm.charged.values()) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("suggest", "llm.example.org", "--model", "m"), "is not the address of a language model"),
        (
            ("suggest", "http://127.0.0.1:1/v1", "--model", "m", "--budget", "1"),
            "A budget needs the input and output prices",
        ),
        (("suggest", "http://127.0.0.1:1/v1", "--model", " "), "name of a source"),
        (("predictions", "none.csv"), "There is no file none.csv"),
        (("describe", "none.toml"), "There is no file none.toml"),
        (("sources", "--remove", "x"), "No source is called 'x'. There are no sources yet."),
    ],
)
def test_a_mistake_is_one_sentence(
    campaign_file: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    command, *rest = arguments
    assert sentence in refuse_campaign(command, campaign_file, *rest)
