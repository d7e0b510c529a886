"""The contract of what stands over campaigns: only a campaign opens transactions."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import teeter

PACKAGE = Path(teeter.__file__).parent


@pytest.mark.parametrize("folder", ["cli", "server"])
def test_it_opens_no_transaction(folder: str) -> None:
    opened = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in sorted((PACKAGE / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in ("reading", "writing")
    ]
    assert opened == []
