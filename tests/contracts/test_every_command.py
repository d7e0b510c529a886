"""The contract over every command: it has help, it is in the documentation, and a mistake is no traceback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.commands import CommandRunner, build_command
from teeter.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "command_line.md"


def commands(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with the words that call it."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, one in inner.items():
        yield from commands(one, *path, name)


COMMANDS = dict(commands(build_command(app)))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_it_has_help_and_so_has_each_option(path: tuple[str, ...]) -> None:
    result = CommandRunner().invoke(app, [*path, "--help"])
    assert result.exit_code == 0
    assert COMMANDS[path].help
    assert [parameter.name for parameter in COMMANDS[path].params if not parameter.help] == []


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_documentation_names_it_and_its_options(path: tuple[str, ...]) -> None:
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")
    (section,) = [
        section for section in sections if section.startswith(f"`teeter {' '.join(path)}`\n")
    ]
    options = [
        name
        for parameter in COMMANDS[path].params
        for name in parameter.opts
        if name.startswith("-")
    ]
    assert [name for name in options if f"`{name}" not in section] == []
    assert f"<!-- teeter {' '.join(path)} -->" in section, (
        "its help is filled in by docs/reference/generate.py"
    )


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_wrong_option_is_no_traceback(path: tuple[str, ...]) -> None:
    result = CommandRunner().invoke(app, [*path, "--no-such-option"])
    assert result.exit_code == 2
    assert "--no-such-option" in result.stderr
    assert "Traceback" not in result.output
