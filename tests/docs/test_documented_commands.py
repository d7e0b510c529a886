"""Every command line that the README and the docs show is one that teeter accepts."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from cli.commands import build_command
from teeter.cli import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

BLOCK = re.compile(r"^```(?:console|sh|bash)?\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
ANY_BLOCK = re.compile(r"^```.*?^```", flags=re.MULTILINE | re.DOTALL)

# Environment variables that are set in front of a command.
ASSIGNMENTS = re.compile(r"^(\w+=\S+ )+")


def typed_commands(page: Path) -> list[str]:
    """Return the teeter commands in the blocks of a page."""
    commands = []
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for line in block.replace("\\\n", " ").splitlines():
            without_comment = line.removeprefix("$ ").split("  #")[0]
            for part in re.split(r" && | \| ", without_comment):
                command = ASSIGNMENTS.sub("", part.strip())
                if command.startswith("teeter "):
                    commands.append(command)
    return commands


def mentioned_commands(page: Path) -> list[str]:
    """Return the teeter commands in the sentences of a page, which need not be complete."""
    sentences = ANY_BLOCK.sub("", page.read_text(encoding="utf-8"))
    return [" ".join(code.split()) for code in re.findall(r"`(teeter\s[^`]+)`", sentences)]


def find_command(words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that words begin with, and the words after it."""
    command: Any = build_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words[0]]
        words = words[1:]
    return command, words


def parse_command(line: str) -> None:
    """Let teeter's own parser read a command; it raises on what it does not know."""
    command, words = find_command(shlex.split(line)[1:])
    command.make_context(command.name, list(words))


def option_names(command: Any) -> set[str]:
    names = {"--help", "--version"}
    for parameter in command.params:
        names.update(parameter.opts, parameter.secondary_opts)
    return names


@pytest.mark.parametrize(
    "page", [page for page in PAGES if typed_commands(page)], ids=lambda page: page.name
)
def test_typed_commands_are_accepted(page: Path) -> None:
    for line in typed_commands(page):
        try:
            parse_command(line)
        except Exception as error:
            raise AssertionError(f"{page.name}: {line}: {error}") from error


@pytest.mark.parametrize(
    "page", [page for page in PAGES if mentioned_commands(page)], ids=lambda page: page.name
)
def test_mentioned_commands_and_options_exist(page: Path) -> None:
    for line in mentioned_commands(page):
        command, words = find_command(line.split()[1:])
        options = [word for word in words if word.startswith("--")]
        assert set(options) <= option_names(command), f"{page.name}: {line}"

        # After the name of a group, a plain word would be a command that does not exist.
        is_group = hasattr(command, "commands")
        assert not (is_group and words and re.fullmatch(r"[a-z][a-z-]*", words[0])), (
            f"{page.name}: {line}"
        )


def test_a_wrong_option_would_be_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse_command("teeter campaign backup a.teeter b.teeter --ovrwrite")
