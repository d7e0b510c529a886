"""The contract of every command: help for each option, documentation, and no tracebacks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.commands import CommandRunner, build_command
from teeter.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command_line.md"


def walk_commands(command: Any, *words: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command below a group, with the words that call it."""
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        yield words, command
        return

    for name, subcommand in subcommands.items():
        yield from walk_commands(subcommand, *words, name)


COMMANDS = dict(walk_commands(build_command(app)))
GROUPS = [(), ("campaign",), ("bench",)]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_command_and_its_options_have_help(words: tuple[str, ...]) -> None:
    result = CommandRunner().invoke(app, [*words, "--help"])
    assert result.exit_code == 0
    assert COMMANDS[words].help
    assert [parameter.name for parameter in COMMANDS[words].params if not parameter.help] == []


@pytest.mark.parametrize("words", [*GROUPS, *COMMANDS], ids=" ".join)
def test_the_help_fits_80_columns(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = CommandRunner().invoke(app, [*words, "--help"]).stdout.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert [line for line in lines if line.endswith("...") and "  " in line.strip()] == [], (
        "no description of a command is cut"
    )


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_documentation_has_the_command_and_its_options(words: tuple[str, ...]) -> None:
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")
    title = f"`teeter {' '.join(words)}`\n"
    (section,) = [section for section in sections if section.startswith(title)]

    options = []
    for parameter in COMMANDS[words].params:
        options += [name for name in parameter.opts if name.startswith("-")]
    assert [name for name in options if f"`{name}" not in section] == []
    assert f"<!-- teeter {' '.join(words)} -->" in section, (
        "its help is filled in by docs/reference/generate.py"
    )


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_wrong_option_is_no_traceback(words: tuple[str, ...]) -> None:
    result = CommandRunner().invoke(app, [*words, "--no-such-option"])
    assert result.exit_code == 2
    assert "--no-such-option" in result.stderr
    assert "Traceback" not in result.output
