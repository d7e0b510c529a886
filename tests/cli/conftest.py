"""A table of texts, and a campaign of it to run commands on."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from typer.testing import Result

from cli.commands import run_campaign, run_teeter, true_label

Teeter: TypeAlias = Callable[..., Result]

WORDS = {
    "fruit": ["apple", "pear", "plum", "cherry", "fig"],
    "tool": ["saw", "hammer", "nail", "drill", "file"],
}


@pytest.fixture
def teeter() -> Teeter:
    """Run ``teeter``; the exit code must be 0 unless ``fails`` says otherwise."""
    return run_teeter


def write_items(path: Path) -> None:
    """Write a table of 60 texts, of which the first four have a label in the column "known"."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "text", "known"])
        for number in range(60):
            item = f"t{number}"
            label = true_label(item)
            words = [WORDS[label][(number + step) % 5] for step in range(3)]
            known_label = label if number < 4 else ""
            table.writerow([item, f"{' '.join(words)} number {number}", known_label])


@pytest.fixture
def items_file(tmp_path: Path) -> Path:
    path = tmp_path / "things.csv"
    write_items(path)
    return path


@pytest.fixture(scope="session")
def campaign_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a campaign of ``items_file``, created once and copied for every test."""
    path = tmp_path_factory.mktemp("template") / "things.csv"
    write_items(path)
    run_campaign("new", path, "--classes", "fruit,tool")
    return path.with_suffix(".teeter")


@pytest.fixture
def campaign_file(items_file: Path, campaign_template: Path) -> Path:
    return Path(shutil.copyfile(campaign_template, items_file.with_suffix(".teeter")))
