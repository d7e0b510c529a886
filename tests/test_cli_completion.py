"""Completion in bash, zsh and fish: the script is shown, installed where the shell looks, and knows
the commands.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from teeter.cli import app

SHELLS = ("bash", "zsh", "fish")
INSTALLED = {
    "bash": (".bash_completions/teeter.sh", ".bashrc"),
    "zsh": (".zfunc/_teeter", ".zshrc"),
    "fish": (".config/fish/completions/teeter.fish", ".config/fish/completions/teeter.fish"),
}
"""The script's file, and the one by which the shell finds it."""

ASKED = {
    "bash": "source {script}; COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
    "_teeter_completion teeter; echo ${{COMPREPLY[@]}}",
    "zsh": "compdef() {{ }}; _arguments() {{ echo $@ }}; words=({line}); CURRENT=$#words; "
    "source {script}; _teeter_completion",
    "fish": "source {script}; complete --do-complete '{line}'",
}
"""How to ask a shell, without a terminal, what it would complete a line to."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A home of its own, and a `teeter` on the path that runs this one."""
    command = tmp_path / "bin" / "teeter"
    command.parent.mkdir()
    command.write_text(
        f'#!/bin/sh\nexec {sys.executable} -c "from teeter.cli import main; main()" "$@"\n'
    )
    command.chmod(0o755)

    return {
        "HOME": str(tmp_path),
        "PATH": os.pathsep.join([str(command.parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",  # the shell of a test is any
    }


def run(*command: str, environment: dict[str, str], **more: str) -> str:
    done = subprocess.run(
        command, env={**environment, **more}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def teeter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run ``teeter`` in this process, with a home of its own, and return what it prints."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")

    def run_here(*arguments: str, **environment: str) -> str:
        # Not the cached commands: whether they detect the shell is settled when they are built.
        result = CliRunner().invoke(app, arguments, env=environment, prog_name="teeter")
        assert result.exit_code == 0, result.output
        return result.stdout

    return run_here


@pytest.mark.parametrize("shell", SHELLS)
def test_it_is_installed_where_the_shell_looks(
    shell: str, tmp_path: Path, teeter: Callable[..., str]
) -> None:
    printed = teeter("--install-completion", shell)
    script, finder = (tmp_path / name for name in INSTALLED[shell])
    assert str(script) in printed
    assert teeter("--show-completion", shell).strip() == script.read_text().strip()
    assert finder.exists()

    before = finder.read_text()
    teeter("--install-completion", shell)
    assert finder.read_text().count("_TEETER_COMPLETE") == before.count("_TEETER_COMPLETE"), (
        "twice is as good as once"
    )


@pytest.mark.parametrize(
    "shell",
    ["bash", *(pytest.param(shell, marks=pytest.mark.slow) for shell in ("zsh", "fish"))],
)
def test_the_shell_completes(shell: str, tmp_path: Path, environment: dict[str, str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")

    script = tmp_path / "script"
    script.write_text(run("teeter", "--show-completion", shell, environment=environment))

    for line, expected, other in [
        ("teeter se", "select serve", "doctor"),
        ("teeter campaign re", "review restore", "label"),
    ]:
        answer = run(
            shell, "-c", ASKED[shell].format(script=script, line=line), environment=environment
        )
        assert all(word in answer for word in expected.split()), answer
        assert not re.search(rf"\b{other}\b", answer)


@pytest.mark.parametrize("shell", SHELLS)
def test_options_are_known_to_every_shell(shell: str, teeter: Callable[..., str]) -> None:
    """What the scripts call, for shells that are not here as well."""
    asked = {
        "COMP_WORDS": "teeter select --str",
        "COMP_CWORD": "2",
        "_TYPER_COMPLETE_ARGS": "teeter select --str",
    }
    more = {"_TEETER_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    answer = teeter(**asked, **more)
    assert "--strategy" in answer
    assert "--seed" not in answer
