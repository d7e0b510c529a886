"""teeter strategies: list the strategies that pick rows."""

from __future__ import annotations

import inspect
import json
from typing import Annotated, Any

import typer

from teeter.cli.output import print_table

__all__ = ["strategies"]


def strategies(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the strategies: what each needs, its options and their defaults, and what it picks."""
    from teeter.strategies import names

    descriptions = [_describe(name) for name in names()]
    if as_json:
        typer.echo(json.dumps(descriptions, ensure_ascii=False, indent=2))
    else:
        rows = [_table_row(description) for description in descriptions]
        print_table(["name", "needs", "options", "picks"], rows, has_sentences=True)


def _describe(name: str) -> dict[str, Any]:
    """Return a strategy's entry in the list. Its keys are those of the JSON output."""
    from teeter.errors import PluginError
    from teeter.strategies import get

    try:
        strategy_class = get(name)
    except PluginError as error:
        # A broken plugin must not hide the others.
        return {
            "name": name,
            "needs": [],
            "options": {},
            "about": str(error),
        }

    # A strategy is a dataclass: the parameters of its constructor are its options.
    parameters = inspect.signature(strategy_class).parameters
    docstring = inspect.getdoc(strategy_class) or ""
    first_line, _, _ = docstring.partition("\n")
    return {
        "name": name,
        "needs": sorted(strategy_class.needs),
        "options": {option: parameter.default for option, parameter in parameters.items()},
        "about": first_line,
    }


def _table_row(description: dict[str, Any]) -> list[str]:
    """Return the cells of a strategy."""
    options = [f"{name}={default!r}" for name, default in description["options"].items()]
    return [
        description["name"],
        ", ".join(description["needs"]),
        ", ".join(options),
        description["about"],
    ]
