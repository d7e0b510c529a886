"""Every example runs as it is written, from a folder that is not the repository."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from teeter.strategies.base import registry

LIBRARIES = {
    "hf": "sentence_transformers",
    "lightning": "lightning",
    "scikit-activeml": "skactiveml",
    "skorch": "skorch",
}
"""What an extra, or a library without one, brings that an example may need."""

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[0-9]*.py"))


def require_libraries(script: Path) -> None:
    """Skip an example whose library is not installed."""
    for extra in re.findall(r"pip install '?(?:teeter\[)?([\w-]+)", script.read_text()):
        pytest.importorskip(LIBRARIES[extra], reason=f"{LIBRARIES[extra]} is not installed")


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_example_runs(
    script: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    require_libraries(script)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_classes", dict(registry._classes))  # one registers a strategy
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip()
    assert len(script.read_text().splitlines()) <= 60, "an example fits on a screen"


@pytest.mark.slow
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_example_runs_in_a_process_of_its_own(script: Path, tmp_path: Path) -> None:
    require_libraries(script)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.strip()


def test_the_examples_are_numbered_without_gaps() -> None:
    assert [int(script.name[:2]) for script in EXAMPLES] == list(range(1, len(EXAMPLES) + 1))
