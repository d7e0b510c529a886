"""The scripts of the pages are JavaScript that a browser reads."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

STATIC = Path(__file__).parents[2] / "src" / "teeter" / "server" / "static"


def test_scripts_have_no_syntax_errors(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed")

    # As modules, whatever they are: an import is an error in a classic script only.
    scripts = []
    for script in sorted(STATIC.glob("*.js")):
        module = tmp_path / f"{script.stem}.mjs"
        module.write_bytes(script.read_bytes())
        scripts.append(module)
    assert scripts

    for module in scripts:
        check = subprocess.run(
            [node, "--check", str(module)], capture_output=True, text=True, check=False
        )
        assert check.returncode == 0, check.stderr
