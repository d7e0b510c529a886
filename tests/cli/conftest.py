"""The command line as a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from typer.testing import CliRunner, Result

from teeter.cli import app

Teeter: TypeAlias = Callable[..., Result]


@pytest.fixture
def teeter() -> Teeter:
    """Run ``teeter`` with these arguments, exit code 0 expected unless ``fails`` says otherwise."""

    def run(*arguments: object, fails: int = 0) -> Result:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == fails, result.output
        assert "Traceback" not in result.output
        return result

    return run
