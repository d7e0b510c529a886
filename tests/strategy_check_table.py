"""Write the table of what each strategy is checked against, from the marks of the tests.

A test says ``@pytest.mark.checks("badge", against="k-means++ on the embedding")``, or names no
strategy if it holds for all; this file collects the marks by reading the tests, and fills the table
into the docs:

    python tests/strategy_check_table.py
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))

from research.page_blocks import fill_blocks

PAGE = ROOT / "docs" / "explanation" / "checked.md"


def marks() -> dict[str, list[tuple[str, str]]]:
    """Return, for each strategy, what it is checked against and by which test file."""
    checks: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for names, against, path in _marked():
        for name in names:
            checks[name].append((against, path))
    return checks


def _marked() -> Iterator[tuple[list[str], str, str]]:
    """Yield each mark's strategies, what they are checked against, and by which test file."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text()
        if "pytest.mark.checks(" not in text:
            continue  # parsing all test files takes seconds

        for node in ast.parse(text).body:
            for call in getattr(node, "decorator_list", []):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.checks":
                    names = [ast.literal_eval(argument) for argument in call.args]
                    against = ast.literal_eval(
                        next(k.value for k in call.keywords if k.arg == "against")
                    )
                    yield names, against, str(path.relative_to(ROOT))


def fill_page(text: str) -> str:
    """Return the page with the table: a row for the checks of the same strategies."""
    checks_by_strategies: dict[str, list[str]] = defaultdict(list)
    checks_by_strategies["all"] = [against for names, against, _ in _marked() if not names]

    strategies_by_check: dict[str, list[str]] = defaultdict(list)
    for name, checks in sorted(marks().items()):
        for against, _ in checks:
            if f"`{name}`" not in strategies_by_check[against]:
                strategies_by_check[against].append(f"`{name}`")

    for against, names in sorted(strategies_by_check.items(), key=lambda item: item[1]):
        checks_by_strategies[", ".join(names)].append(against)

    rows = [f"| {names} | {'; '.join(checks)} |" for names, checks in checks_by_strategies.items()]
    head = "| strategies | checked against |\n| --- | --- |\n"
    return fill_blocks(text, {"checks": head + "\n".join(rows)})


if __name__ == "__main__":
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
