"""teeter predict and teeter campaign model."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from campaigns.learning.test_saved_models_classifier import label_texts
from cli.commands import refuse_teeter, run_campaign, run_teeter


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    path = tmp_path / "mail.teeter"
    label_texts(path).database.close()
    return path


@pytest.fixture
def new_file(tmp_path: Path) -> Path:
    path = tmp_path / "new.csv"
    path.write_text("id,text\n1,claim your free cash\n2,a walk by the river\n")
    return path


def read_predicted_labels(path: Path) -> list[str]:
    with path.open() as file:
        return [row["predicted"] for row in csv.DictReader(file)]


def test_a_model_outlives_its_campaign(campaign: Path, new_file: Path, tmp_path: Path) -> None:
    printed = run_teeter("predict", campaign, new_file, tmp_path / "first.csv").stdout
    assert printed.startswith("Wrote 2 predictions of model 1 to ")
    assert "Wrote model 1, trained on 40 labels" in run_campaign(
        "model", campaign, tmp_path / "model"
    )
    campaign.unlink()

    result = run_teeter("predict", tmp_path / "model", new_file, tmp_path / "second.csv")

    assert result.stdout.startswith("Wrote 2 predictions of model 1 to ")
    assert (tmp_path / "second.csv").read_bytes() == (tmp_path / "first.csv").read_bytes()
    assert read_predicted_labels(tmp_path / "second.csv") == ["spam", "ham"]


def test_mistakes_are_explained(campaign: Path, new_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    assert "none.csv" in refuse_teeter("predict", campaign, tmp_path / "none.csv", out)
    (tmp_path / "numbers.csv").write_text("a,b\n1,2\n")
    refused = refuse_teeter("predict", campaign, tmp_path / "numbers.csv", out)
    assert "Which column" in refused
    assert "--text" in refused
    assert "is not a model" in refuse_teeter("predict", tmp_path, new_file, out)
    assert "There is no campaign" in refuse_teeter("predict", tmp_path / "lost", new_file, out)
    assert not out.exists()
