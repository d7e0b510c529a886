"""How the tests themselves are run: groups that share a worker, and what each tier holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent

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
    options = [
        "-p",
        "xdist",
        "-n",
        "2",
        "--dist",
        "loadgroup",
        "--basetemp",
        str(tmp_path / "base"),
        "-p",
        "no:cacheprovider",
    ]

    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },  # the other plugins take seconds to load
        capture_output=True,
        text=True,
        check=False,
    )

    assert "12 passed" in run.stdout, run.stdout + run.stderr
    used = [path.read_text() for path in tmp_path.rglob("case-*")]
    assert len(used) == 6
    assert len(set(used)) == 1


NOT_MIRRORED = {"contracts", "deploy", "docs", "end_to_end", "reference", "research"}
ABOUT_THE_PROJECT = {"test_docs.py", "test_docs_big_pools.py", "test_packaging.py", "test_tiers.py"}


def test_every_test_file_is_named_after_what_it_tests() -> None:
    """``tests/X/test_Y.py``, or ``test_Y_topic.py``, tests ``src/teeter/X/Y.py`` or the package
    ``X/Y``.
    """
    strangers = []
    for path in sorted(TESTS.rglob("test_*.py")):
        relative = path.relative_to(TESTS)
        if relative.parts[0] in NOT_MIRRORED or str(relative) in ABOUT_THE_PROJECT:
            continue

        folder = TESTS.parent / "src" / "teeter" / relative.parent
        modules = [
            module.stem for module in folder.glob("*") if module.suffix == ".py" or module.is_dir()
        ]
        topic = path.stem.removeprefix("test_")
        if not any(topic == module or topic.startswith(f"{module}_") for module in modules):
            strangers.append(str(relative))

    assert strangers == []
