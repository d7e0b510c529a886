"""Many annotators at once, each a process of its own: no item is given to two of them, and no
answer is lost.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from campaigns.stores import STORES, shared_server

BENCH = Path(__file__).parents[2] / "research" / "speed" / "bench_teams.py"


ANSWERS_EACH = 8
"""The answers of each annotator, however long they take."""


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

    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment, capture_output=True, timeout=1200)

    (team,) = json.loads(out.read_text())["teams"]
    assert team["first error"] == ""
    assert (team["errors"], team["asked twice"], team["answered twice"], team["lost"]) == (
        0,
        0,
        0,
        0,
    )

    assert (team["people"], team["through"]) == (16, through)
    assert team["answers"] == 16 * ANSWERS_EACH
