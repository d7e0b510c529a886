"""The command line as functions: what commands say, or what they refuse."""

from __future__ import annotations

from functools import cache
from typing import Any
from unittest.mock import patch

import typer.testing
from typer.main import get_command
from typer.testing import CliRunner, Result

from teeter.cli import app

build_command = cache(get_command)
"""Return the commands of an app as Typer parses them."""


class CommandRunner(CliRunner):
    """A runner that builds the commands of an app once: that takes Typer 65 ms, and many commands take 1 ms."""

    def invoke(self, *given: Any, **named: Any) -> Result:
        with patch.object(typer.testing, "_get_command", build_command):
            return super().invoke(*given, **named)


def run_teeter(*arguments: object, fails: int = 0) -> Result:
    """Run ``teeter`` with these arguments, exit code 0 expected unless ``fails`` says otherwise."""
    result = CommandRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == fails, result.output
    assert "Traceback" not in result.output
    return result


def run(*words: Any, typed: str | None = None) -> Result:
    return CommandRunner().invoke(app, ["campaign", *map(str, words)], input=typed)


def done(*words: Any, typed: str | None = None) -> str:
    result = run(*words, typed=typed)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*words: Any) -> str:
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    assert len(result.stderr.strip().splitlines()) == 1
    return result.stderr


def truth(item: str) -> str:
    return "fruit" if int(item[1:]) % 2 else "tool"
