"""Every line of teeter's that the README and the docs show is one that teeter takes."""

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


def typed(page: Path) -> list[str]:
    """Lines of a page's blocks, such as somebody would type."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(
        r"^```(?:console|sh|bash)?\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL
    )
    lines = [
        line.removeprefix("$ ")
        for block in blocks
        for line in block.replace("\\\n", " ").splitlines()
    ]
    parts = [
        part.strip() for line in lines for part in re.split(r" && | \| ", line.split("  #")[0])
    ]
    return [
        re.sub(r"^(\w+=\S+ )+", "", part) for part in parts if re.match(r"(\w+=\S+ )*teeter ", part)
    ]


def mentioned(page: Path) -> list[str]:
    """Commands in the middle of sentences, which need not be whole."""
    outside = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    return [" ".join(code.split()) for code in re.findall(r"`(teeter [^`]+)`", outside)]


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words begin with, and the words after it."""
    command: Any = build_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def parse(line: str) -> None:
    """Let teeter's own parser read a line; what it does not know, it refuses."""
    command, words = command_of(shlex.split(line)[1:])
    command.make_context(command.name, list(words))


@pytest.mark.parametrize(
    "page", [page for page in PAGES if typed(page)], ids=lambda page: page.name
)
def test_what_is_typed_is_taken(page: Path) -> None:
    for line in typed(page):
        try:
            parse(line)
        except Exception as error:
            raise AssertionError(f"{page.name}: {line}: {error}") from error


@pytest.mark.parametrize(
    "page", [page for page in PAGES if mentioned(page)], ids=lambda page: page.name
)
def test_what_is_mentioned_is_there(page: Path) -> None:
    for line in mentioned(page):
        command, words = command_of(line.split()[1:])
        known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {
            "--help",
            "--version",
        }
        assert [word for word in words if word.startswith("--") and word not in known] == [], (
            f"{page.name}: {line}"
        )
        group = hasattr(command, "commands") and words and re.fullmatch(r"[a-z-]+", words[0])
        assert not group or words[0].startswith("-"), f"{page.name}: {line}"


def test_a_wrong_option_would_be_seen() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse("teeter campaign backup a.teeter b.teeter --ovrwrite")
