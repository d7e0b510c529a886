"""The command line as a function."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from typer.testing import CliRunner, Result

from cli.commands import done
from teeter.cli import app

Teeter: TypeAlias = Callable[..., Result]

WORDS = {"fruit": ["apple", "pear", "plum", "cherry", "fig"], "tool": ["saw", "hammer", "nail", "drill", "file"]}


@pytest.fixture
def teeter() -> Teeter:
    """Run ``teeter`` with these arguments, exit code 0 expected unless ``fails`` says otherwise."""

    def run(*arguments: object, fails: int = 0) -> Result:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == fails, result.output
        assert "Traceback" not in result.output
        return result

    return run


@pytest.fixture
def things(tmp_path: Path) -> Path:
    path = tmp_path / "things.csv"
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "text", "known"])
        for k in range(60):
            kind = "fruit" if k % 2 else "tool"
            words = [WORDS[kind][(k + step) % 5] for step in range(3)]
            table.writerow([f"t{k}", f"{' '.join(words)} number {k}", kind if k < 4 else ""])
    return path


@pytest.fixture
def made(things: Path) -> Path:
    done("new", things, "--classes", "fruit,tool")
    return things.with_suffix(".teeter")
