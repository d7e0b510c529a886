"""Write the table of what each strategy is checked against, from the marks of the tests.

A test says ``@pytest.mark.checks("badge", against="k-means++ on the embedding")``, or names no strategy if it holds for
all; this file collects the marks by reading the tests, and writes the table into the docs:

    python tests/strategy_check_table.py
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "checked.md"

HEAD = """# What each strategy is checked against

`python tests/strategy_check_table.py` writes this page from the tests, and a test fails if the page is out of date. An
entry such as "the mistake of returning a row twice" means that a test fails if the strategy makes this mistake. Every
strategy also passes the checks in `teeter.checks`.

| strategy | checked against | in |
| --- | --- | --- |
"""


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


def table() -> str:
    """Return the page."""
    lines = [f"| all | {against} | `{path}` |" for names, against, path in _marked() if not names]
    for name, checks in sorted(marks().items()):
        for against, path in dict.fromkeys(checks):
            lines.append(f"| `{name}` | {against} | `{path}` |")
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(table())
