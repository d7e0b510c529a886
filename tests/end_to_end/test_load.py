"""Many annotators at once, each a process of its own: nobody is asked what another has, and nothing
is lost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from campaigns.stores import STORES, shared_server

BENCH = Path(__file__).parents[2] / "benchmarks" / "speed" / "bench_teams.py"


ANSWERS_EACH = 8
"""Everybody answers so often, however long it takes."""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")
@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("through", ["store", "web"])
def test_sixteen_at_once(kind: str, through: str, tmp_path: Path) -> None:
    out = tmp_path / "result.json"
    command = [sys.executable, str(BENCH), "--seconds", "900", "--answers-each", str(ANSWERS_EACH)]
    command += ["--items", "4000", "--only", kind, "--through", through, "--out", str(out)]
    if kind == "postgresql":
        command += ["--url", shared_server().new_database()]
    alone = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=alone, capture_output=True, timeout=1200)
    (found,) = json.loads(out.read_text())["teams"]
    assert found["first error"] == ""
    assert (found["errors"], found["asked twice"], found["answered twice"], found["lost"]) == (
        0,
        0,
        0,
        0,
    )
    assert (found["people"], found["through"]) == (16, through)
    assert found["answers"] == 16 * ANSWERS_EACH
