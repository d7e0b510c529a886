"""The commands of a campaign as functions: what they say, or what they refuse."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner, Result

from teeter.cli import app


def run(*words: Any, typed: str | None = None) -> Result:
    return CliRunner().invoke(app, ["campaign", *map(str, words)], input=typed)


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
