"""Run commands in this process, and return what they print."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer.testing
from typer.main import get_command
from typer.testing import CliRunner, Result

from teeter.campaigns import Campaign
from teeter.campaigns.records import Question
from teeter.cli import app

__all__ = [
    "CommandRunner",
    "ask",
    "build_command",
    "invoke_campaign",
    "refuse_campaign",
    "refuse_teeter",
    "run_campaign",
    "run_teeter",
    "tell",
    "true_label",
]

build_command = cache(get_command)
"""Return the commands of an app as Typer parses them."""


class CommandRunner(CliRunner):
    """A runner that builds the commands of an app once.

    Building takes Typer 65 ms, and many commands take 1 ms.
    """

    def invoke(self, *arguments: Any, **options: Any) -> Result:
        with patch.object(typer.testing, "_get_command", build_command):
            return super().invoke(*arguments, **options)


def run_teeter(*arguments: object, fails: int = 0) -> Result:
    """Run ``teeter``; the exit code must be 0 unless ``fails`` says otherwise."""
    result = CommandRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == fails, result.output
    assert "Traceback" not in result.output
    return result


def invoke_campaign(*arguments: object, typed: str | None = None) -> Result:
    """Run ``teeter campaign``, whatever comes of it.

    Args:
        arguments: the command and its arguments.
        typed: the keys that are typed.
    """
    words = [str(argument) for argument in arguments]
    return CommandRunner().invoke(app, ["campaign", *words], input=typed)


def run_campaign(*arguments: object, typed: str | None = None) -> str:
    """Run ``teeter campaign``, which must succeed, and return its stdout."""
    result = invoke_campaign(*arguments, typed=typed)
    assert result.exit_code == 0, result.output
    return result.stdout


def refuse_campaign(*arguments: object) -> str:
    """Run ``teeter campaign``, which must fail with one sentence, and return the sentence."""
    return refuse_teeter("campaign", *arguments)


def refuse_teeter(*arguments: object) -> str:
    """Run ``teeter``, which must fail with one sentence, and return the sentence."""
    result = run_teeter(*arguments, fails=2)
    assert len(result.stderr.strip().splitlines()) == 1
    return result.stderr


def ask(location: Path | str, n: int = 20, annotator: str = "me") -> list[Question]:
    """Return the items that a campaign asks about next."""
    campaign = Campaign.open(location)
    try:
        return campaign.ask(n, annotator)
    finally:
        campaign.database.close()


def tell(location: Path | str, item: str, label: str, annotator: str = "me") -> None:
    """Record the class of an item."""
    campaign = Campaign.open(location)
    try:
        campaign.tell(item, label, annotator)
    finally:
        campaign.database.close()


def true_label(item: str) -> str:
    """Return the right label of an item of ``conftest.items_file``."""
    return "fruit" if int(item[1:]) % 2 else "tool"
