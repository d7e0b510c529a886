"""teeter strategies: list the strategies that pick rows."""

from __future__ import annotations

import inspect
import json
import sys
from typing import Annotated, Any

import typer

__all__ = ["strategies"]

_WIDTH_WITHOUT_TERMINAL = 140


def strategies(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the strategies: what each needs, its options and their defaults, and what it picks."""
    from teeter.strategies import names

    descriptions = [_describe(name) for name in names()]
    if as_json:
        typer.echo(json.dumps(descriptions, ensure_ascii=False, indent=2))
    else:
        _print_table(descriptions)


def _describe(name: str) -> dict[str, Any]:
    from teeter.errors import PluginError
    from teeter.strategies import get

    try:
        strategy_class = get(name)
    except PluginError as error:
        # A broken plugin must not hide the others.
        return {"name": name, "needs": [], "options": {}, "about": str(error)}

    parameters = inspect.signature(strategy_class).parameters
    docstring = inspect.getdoc(strategy_class) or ""
    return {
        "name": name,
        "needs": sorted(strategy_class.needs),
        "options": {option: parameter.default for option, parameter in parameters.items()},
        "about": docstring.split("\n")[0],
    }


def _print_table(descriptions: list[dict[str, Any]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "needs", "options", "picks", box=SIMPLE_HEAD)
    for strategy in descriptions:
        options = ", ".join(f"{name}={default!r}" for name, default in strategy["options"].items())
        needs = ", ".join(strategy["needs"])
        table.add_row(strategy["name"], needs, options, strategy["about"])

    # Without a terminal, Rich would wrap at 80 columns.
    width = None if sys.stdout.isatty() else _WIDTH_WITHOUT_TERMINAL
    Console(markup=False, highlight=False, width=width).print(table)
