"""The command line as a process of its own: what only an operating system can show."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

COMMAND = [sys.executable, "-c", "from teeter.cli import main; main()"]
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(sys.path), "TERM": "dumb"}  # and no PYTHONUNBUFFERED


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    features = np.random.default_rng(0).normal(size=(30_000, 2)).astype(np.float32)
    names = np.array([f"é{row}" for row in range(len(features))])
    np.savez(tmp_path / "pool.npz", features=features, ids=names, weight=np.eye(2))
    return tmp_path / "pool.npz"


def test_picks_come_out_in_utf_8_and_the_summary_apart(pool: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "select", str(pool), "-n", "2", "--strategy", "random"],
        env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=True,
    )
    assert [line.split(",")[1][0] for line in done.stdout.decode().splitlines()] == ["i", "é", "é"]
    assert done.stderr.startswith(b"Picked 2 of 30000 candidates by random")


def test_a_reader_that_leaves_is_no_error(pool: Path) -> None:
    command = [*COMMAND, "select", str(pool), "-n", "30000", "--strategy", "margin", "--rays", "2"]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_one_sentence(pool: Path) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        command = [*COMMAND, "select", str(pool), "-n", "5", "--strategy", "random", "--rays", "2"]
        done = subprocess.run(command, env=ENVIRONMENT, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert done.stderr == b"Error: Cannot read or write the output: No space left on device.\n"
