"""The examples in docstrings run and print what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "teeter"


def modules_with_examples() -> list[str]:
    """Return the names of the modules whose docstrings hold an example."""
    modules = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if ">>>" in path.read_text(encoding="utf-8"):
            relative = path.relative_to(PACKAGE.parent).with_suffix("")
            modules.append(".".join(relative.parts).removesuffix(".__init__"))
    return modules


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0
