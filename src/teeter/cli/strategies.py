"""teeter strategies: list the strategies that pick rows."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from teeter.cli.output import print_table
from teeter.cli.strategy_list import StrategyEntry, list_strategies

__all__ = ["strategies"]


def strategies(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the strategies: what each needs, its options and their defaults, and what it picks."""
    entries = list_strategies()
    if as_json:
        typer.echo(json.dumps(entries, ensure_ascii=False, indent=2))
    else:
        rows = [_table_row(entry) for entry in entries]
        print_table(["name", "needs", "options", "picks"], rows, has_sentences=True)


def _table_row(entry: StrategyEntry) -> list[str]:
    """Return the cells of a strategy."""
    options = [f"{name}={default!r}" for name, default in entry["options"].items()]
    return [
        entry["name"],
        ", ".join(entry["needs"]),
        ", ".join(options),
        entry["about"],
    ]
