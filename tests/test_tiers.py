"""How the tests themselves are run: groups that share a worker, and what each tier holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

GROUPED = """
import os
import pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("case", range(6))
def test_case(case, tmp_path_factory):
    shared = tmp_path_factory.getbasetemp().parent
    (shared / f"case-{case}").write_text(os.environ["PYTEST_XDIST_WORKER"])

@pytest.mark.parametrize("case", range(6))
def test_other(case):
    pass
"""


def test_cases_of_one_group_run_on_one_worker(tmp_path: Path) -> None:
    """Some pairs of versions of pytest and pytest-xdist ignore groups without a word."""
    (tmp_path / "test_grouped.py").write_text(GROUPED)
    options = ["-n", "2", "--dist", "loadgroup", "--basetemp", str(tmp_path / "base"), "-p", "no:cacheprovider"]

    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert "12 passed" in run.stdout, run.stdout + run.stderr
    workers = [path.read_text() for path in tmp_path.rglob("case-*")]
    assert len(workers) == 6
    assert len(set(workers)) == 1
