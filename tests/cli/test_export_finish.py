"""teeter campaign finish: plan, start, look and certify in the terminal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from campaigns.finish.small_campaigns import (
    KnownItems,
    answer_draws,
    label_batches,
    make_campaign,
)
from cli.commands import ask, refuse_campaign, run_campaign, run_teeter
from teeter.campaigns import Campaign

ITEMS = KnownItems()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign with a model, created once and copied for every test."""
    campaign = make_campaign(tmp_path_factory.mktemp("finish"), ITEMS)
    label_batches(campaign, ITEMS, 1, size=40)
    campaign.database.close()
    return Path(str(campaign.database.path))


@pytest.fixture
def file(tmp_path: Path, template: Path) -> Path:
    path = tmp_path / "small.teeter"
    shutil.copy(template, path)
    return path


def test_the_way_from_the_plan_to_the_certificate(file: Path, tmp_path: Path) -> None:
    planned = run_campaign("finish", file, "--error", "5%")
    assert "The model cannot label the 360 items that are left yet" in planned
    assert "items the model could label" in planned
    assert f"teeter campaign finish {file} --error 5% --start" in planned

    started = json.loads(run_campaign("finish", file, "--error", "5%", "--start", "--json"))
    assert started["is_started"]
    assert started["asked_draws"] > 0

    campaign = Campaign.open(file)
    answer_draws(campaign, ITEMS)
    campaign.database.close()
    looked = run_campaign("finish", file)
    assert "You can stop now for 100% of the items" in looked
    assert "--certificate promise.html" in looked

    page = tmp_path / "promise.html"
    printed = run_campaign("finish", file, "--certificate", page)
    assert "Wrote certificate" in printed
    assert "What the certificate does not promise" in page.read_text()

    content = tmp_path / "promise.json"
    run_campaign("finish", file, "--certificate", content)
    code = json.loads(content.read_text())["id"]
    assert code in printed

    labels = tmp_path / "labels.jsonl"
    run_teeter("export", file, labels)
    rows = [json.loads(line) for line in labels.read_text().splitlines()]
    assert {row["source"] for row in rows} == {"person", "model"}
    assert {row["certificate"] for row in rows} == {None, code}


def test_draws_are_asked_for(file: Path) -> None:
    run_campaign("finish", file, "--start", "--ask", 7)

    assert [question.arm for question in ask(file, 5)] == ["finish"] * 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--error", "five"), "--error is 'five': write a share such as 5% or 0.05"),
        (("--error", "5"), "--error is '5': it must be above 0% and below 100%"),
        (("--error", "60%"), "error is 0.6: the share of wrong labels must be at least 0.0001"),
        (("--confidence", "100%"), "--confidence is '100%': it must be above 0% and below 100%"),
        (("--certificate", "promise.pdf"), "use the suffix .html or .json"),
        (("--certificate", "promise.html"), "No promise is started"),
        (("--ask", "5"), "No promise is started"),
        (
            ("--start", "--certificate", "promise.html"),
            "--start and --certificate cannot",
        ),
        (("--ask", "5", "--error", "1%"), "--ask continues the promise that was started"),
        (("--ask", "5", "--per-class"), "--ask continues the promise that was started"),
    ],
)
def test_bad_input_is_answered_with_a_sentence(
    file: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(file.parent)

    assert message in " ".join(refuse_campaign("finish", file, *options).split())


def test_a_promise_for_each_class_is_a_table(file: Path) -> None:
    printed = run_campaign("finish", file, "--per-class", "--confidence", "0.9")

    assert f"teeter campaign finish {file} --confidence 0.9 --per-class --start" in printed
    assert "wrong draws" in printed
    assert "ant" in printed


def test_a_promise_for_the_whole_file_is_planned(file: Path) -> None:
    printed = run_campaign("finish", file, "--labelled", "95%")

    assert "can show that at most 5% of all labels in the file are wrong" in " ".join(
        printed.split()
    )
    assert f"teeter campaign finish {file} --labelled 95% --start" in printed
