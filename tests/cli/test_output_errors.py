"""Errors at the edge: a reader that leaves, a full disk, and arguments that become options.

Only a process of its own can show what happens to its output.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cli.conftest import Teeter
from teeter.cli.output import use_option_names

# Without PYTHONUNBUFFERED, which would change when the output is written.
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(sys.path), "TERM": "dumb"}

COUNTING_APP = """
import typer
from teeter.cli.output import Commands

app = typer.Typer(cls=Commands)

@app.command()
def count():
    for k in range(100_000):
        typer.echo(k)

@app.command()
def stop():
    pass

app()
"""
"""An app with our error handling that loads nothing else."""

needs_full_device = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="no device that is always full"
)


@pytest.fixture
def select_command(tmp_path: Path) -> list[str]:
    """The command that selects 30,000 rows."""
    features = np.random.default_rng(0).normal(size=(30_000, 2)).astype(np.float32)
    np.savez(tmp_path / "pool.npz", features=features, weight=np.eye(2))
    program = [sys.executable, "-c", "from teeter.cli import main; main()"]
    arguments = ["select", str(tmp_path / "pool.npz"), "-n", "30000"]
    return [*program, *arguments, "--strategy", "margin", "--option", "rays=2"]


def check_that_a_reader_may_leave(command: list[str]) -> None:
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def check_that_a_full_disk_is_one_sentence(command: list[str]) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full_device:
        process = subprocess.run(
            command, env=ENVIRONMENT, stdout=full_device, stderr=subprocess.PIPE, check=False
        )
    assert process.returncode == 2
    assert process.stderr == b"Error: Cannot read or write the output: No space left on device.\n"


def test_a_reader_that_leaves_is_no_error() -> None:
    check_that_a_reader_may_leave([sys.executable, "-c", COUNTING_APP, "count"])


@needs_full_device
def test_a_full_disk_is_one_sentence() -> None:
    check_that_a_full_disk_is_one_sentence([sys.executable, "-c", COUNTING_APP, "count"])


@pytest.mark.slow
def test_a_reader_that_leaves_select_is_no_error(select_command: list[str]) -> None:
    check_that_a_reader_may_leave(select_command)


@pytest.mark.slow
@needs_full_device
def test_a_full_disk_is_one_sentence_of_select(select_command: list[str]) -> None:
    check_that_a_full_disk_is_one_sentence(select_command)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (
            "Give only one of head= and model=: each ...",
            "Give only one of --head and --model: each ...",
        ),
        (
            "Leave id_column= out, or pass engine='local'.",
            "Leave --id out, or pass --engine local.",
        ),
        ("Pass sigma_max= instead of head=", "Pass sigma_max= instead of --head"),
        ("There is no file runs/head=3/model=x.npz.", "There is no file runs/head=3/model=x.npz."),
    ],
)
def test_arguments_become_options(message: str, shown: str) -> None:
    options = {"head": "--head", "model": "--model", "id_column": "--id", "engine": "--engine"}
    assert use_option_names(message, options) == shown


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ("label", "mail.csv"),
            "There is no command teeter label: run teeter campaign label to label in the terminal, "
            "or teeter serve to label on a page.",
        ),
        (("new", "mail.csv"), "There is no command teeter new: run teeter campaign new."),
        (("unknown",), "No such command 'unknown'"),
    ],
)
def test_a_command_without_its_group_is_told_where_it_is(
    teeter: Teeter, command: tuple[str, ...], message: str
) -> None:
    assert message in teeter(*command, fails=2).stderr
