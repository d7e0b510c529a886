"""teeter strategies: what there is to pick by."""

from __future__ import annotations

import inspect
import json
import sys
from typing import Annotated, Any

import typer

__all__ = ["strategies"]


def strategies(
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON instead of a table.")] = False,
) -> None:
    """List the strategies: what each needs, its options and their defaults, and what it picks."""
    from teeter.strategies import names

    described = [_described(name) for name in names()]
    if as_json:
        typer.echo(json.dumps(described, ensure_ascii=False, indent=2))
    else:
        _draw(described)


def _described(name: str) -> dict[str, Any]:
    from teeter.errors import PluginError
    from teeter.strategies import get

    try:
        cls = get(name)
    except PluginError as error:  # a broken plugin must not hide the others
        return {"name": name, "needs": [], "options": {}, "about": str(error)}
    options = {
        option: parameter.default for option, parameter in inspect.signature(cls).parameters.items()
    }
    about = (inspect.getdoc(cls) or "").split("\n")[0]
    return {"name": name, "needs": sorted(cls.needs), "options": options, "about": about}


def _draw(described: list[dict[str, Any]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "needs", "options", "picks", box=SIMPLE_HEAD)
    for strategy in described:
        options = ", ".join(f"{name}={default!r}" for name, default in strategy["options"].items())
        table.add_row(strategy["name"], ", ".join(strategy["needs"]), options, strategy["about"])
    Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else 140).print(table)
