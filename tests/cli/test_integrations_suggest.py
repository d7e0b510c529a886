"""teeter campaign suggest and sources."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.fake_language_model import FakeLanguageModel, fake_language_model
from cli.commands import ask, refuse_campaign, run_campaign, tell, true_label


@pytest.fixture
def llm() -> Iterator[FakeLanguageModel]:
    with fake_language_model() as running:
        running.reply = lambda text: json.dumps({"label": "fruit" if "apple" in text else "tool"})
        yield running


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_predictions_are_added_measured_and_removed(campaign_file: Path, tmp_path: Path) -> None:
    rows = [f"t{number},{true_label(f't{number}')}" for number in range(60)]
    table = write(tmp_path / "old.csv", "\n".join(["id,label", *rows, "t99,fruit", "t1x,nut"]))
    printed = run_campaign("suggest", campaign_file, table)
    assert "Added 60 suggestions by old." in printed
    assert "Left out 2 predictions for items that the campaign does not have." in printed

    for question in ask(campaign_file, 30):
        tell(campaign_file, question.item, true_label(question.item))
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
        (("suggest", "none.csv"), "There is no file none.csv"),
        (("suggest", "http://127.0.0.1:1/v1"), "A language model needs its name: add --model"),
        (("suggest", "old.csv", "--budget", "1"), "are for a language model"),
        (("sources", "--remove", "x"), "No source is called 'x'. There are no sources yet."),
    ],
)
def test_a_mistake_is_one_sentence(
    campaign_file: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    command, *rest = arguments
    assert sentence in refuse_campaign(command, campaign_file, *rest)
