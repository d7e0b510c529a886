"""The command line as a function, and a campaign to run it on."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from typer.testing import Result

from cli.commands import done, run_teeter

Teeter: TypeAlias = Callable[..., Result]

WORDS = {
    "fruit": ["apple", "pear", "plum", "cherry", "fig"],
    "tool": ["saw", "hammer", "nail", "drill", "file"],
}


@pytest.fixture
def teeter() -> Teeter:
    """Run ``teeter`` with these arguments, exit code 0 expected unless ``fails`` says otherwise."""
    return run_teeter


def write_things(path: Path) -> None:
    """Write a table of 60 texts, of which four have a label."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "text", "known"])
        for k in range(60):
            kind = "fruit" if k % 2 else "tool"
            words = [WORDS[kind][(k + step) % 5] for step in range(3)]
            table.writerow([f"t{k}", f"{' '.join(words)} number {k}", kind if k < 4 else ""])


@pytest.fixture
def things(tmp_path: Path) -> Path:
    path = tmp_path / "things.csv"
    write_things(path)
    return path


@pytest.fixture(scope="session")
def campaign_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a campaign of ``things``, made once and copied for every test."""
    things = tmp_path_factory.mktemp("template") / "things.csv"
    write_things(things)
    done("new", things, "--classes", "fruit,tool")
    return things.with_suffix(".teeter")


@pytest.fixture
def made(things: Path, campaign_template: Path) -> Path:
    return Path(shutil.copyfile(campaign_template, things.with_suffix(".teeter")))
