"""The help of a group lists its commands by what they are for."""

from __future__ import annotations

import re

import pytest
import typer

from cli.commands import CommandRunner, build_command, run_teeter
from teeter.cli import app
from teeter.cli.output import Commands, Panel


def panels_of(text: str) -> dict[str, list[str]]:
    """Return the names of the commands below each title of a help text."""
    panels: dict[str, list[str]] = {}
    for line in text.splitlines():
        if title := re.fullmatch(r"(\w+):", line):
            panels[title[1]] = []
        elif (name := re.match(r"  ([a-z][\w-]*)  ", line)) and panels:
            list(panels.values())[-1].append(name[1])
    panels.pop("Options")
    return panels


def test_the_commands_of_teeter() -> None:
    assert panels_of(run_teeter("--help").stdout) == {
        "Start": ["try", "serve", "audit", "status", "export", "predict"],
        "More": ["campaign", "bench", "select", "strategies", "encoders", "doctor"],
    }


def test_the_commands_of_a_campaign() -> None:
    panels = panels_of(run_teeter("campaign", "--help").stdout)

    assert panels == {
        "Label": ["new", "add", "encode", "classes", "train", "label", "review"],
        "Team": ["people", "agreement"],
        "Suggestions": ["suggest", "sources", "sync"],
        "Results": ["finish", "model"],
        "Files": ["backup", "restore"],
    }


@pytest.mark.parametrize("words", [(), ("campaign",)])
def test_no_command_is_forgotten(words: tuple[str, ...]) -> None:
    group = build_command(app)
    for word in words:
        group = group.commands[word]  # type: ignore[attr-defined]
    panels = panels_of(run_teeter(*words, "--help").stdout)
    listed = [name for names in panels.values() for name in names]
    assert sorted(listed) == sorted(group.commands)  # type: ignore[attr-defined]


def test_a_command_without_a_panel_is_listed_last() -> None:
    plain = typer.Typer(cls=Commands, rich_markup_mode=None)

    @plain.command()
    def first() -> None:
        """Do something."""

    @plain.command(rich_help_panel=Panel.FILES)
    def second() -> None:
        """Do something else."""

    result = CommandRunner().invoke(plain, ["--help"])
    panels = panels_of(result.stdout)
    assert list(panels.items()) == [("Files", ["second"]), ("Commands", ["first"])]
