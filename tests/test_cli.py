"""teeter itself: its version, hints for a wrong command, and the command line as a process of its
own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import teeter
from cli.commands import run_teeter


def test_the_version() -> None:
    assert run_teeter("--version").stdout == f"teeter {teeter.__version__}\n"


def test_a_wrong_command_gets_a_hint() -> None:
    assert "Did you mean 'select'?" in run_teeter("selct", fails=2).stderr


def test_picks_come_out_in_utf_8_and_the_summary_apart(tmp_path: Path) -> None:
    """In a real process, whose streams are not UTF-8 by themselves."""
    pool = tmp_path / "pool.npz"
    features = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    np.savez(
        pool, features=features, ids=np.array([f"é{row}" for row in range(50)]), weight=np.eye(2)
    )

    command = [sys.executable, "-c", "from teeter.cli import main; main()"]
    environment = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TERM": "dumb",
        "PYTHONIOENCODING": "ascii",
    }

    done = subprocess.run(
        [*command, "select", str(pool), "-n", "2", "--strategy", "random"],
        env=environment,
        capture_output=True,
        check=True,
    )

    assert [line.split(",")[1][0] for line in done.stdout.decode().splitlines()] == ["i", "é", "é"]
    assert done.stderr.startswith(b"Picked 2 of 50 candidates by random")
