"""The list of strategies, without importing them: they load torch, which takes seconds.

What ``teeter strategies`` prints about the built-in strategies is kept in ``strategy_list.json``,
which ``python docs/reference/generate.py`` writes. A test fails if it is out of date. Strategies of
other packages are imported to describe them, if there are any.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any, TypeAlias

from teeter.base.registry import entry_points_by_name
from teeter.errors import PluginError

__all__ = [
    "STRATEGY_LIST",
    "StrategyEntry",
    "describe_built_in_strategies",
    "list_strategies",
    "write_strategy_list",
]

STRATEGY_LIST = Path(__file__).with_name("strategy_list.json")
"""The file that describes the built-in strategies."""

StrategyEntry: TypeAlias = dict[str, Any]
"""A strategy's name, needs, options with their defaults, and a sentence about it, as JSON."""

_PLUGIN_GROUP = "teeter.strategies"


def list_strategies() -> list[StrategyEntry]:
    """Return all strategies in alphabetical order: the built-in ones and those of plugins.

    Example:
        >>> [entry["name"] for entry in list_strategies()][:3]
        ['badge', 'bait', 'batchbald']
    """
    entries: list[StrategyEntry] = json.loads(STRATEGY_LIST.read_text(encoding="utf-8"))

    built_in_names = {entry["name"] for entry in entries}
    plugin_names = entry_points_by_name(_PLUGIN_GROUP).keys() - built_in_names
    entries += [_describe_plugin(name) for name in plugin_names]

    return sorted(entries, key=lambda entry: str(entry["name"]))


def describe_built_in_strategies() -> list[StrategyEntry]:
    """Return what ``strategy_list.json`` should hold, from the strategies themselves."""
    from teeter.strategies.base import registry

    entries = []
    for name, strategy in sorted(registry.loaded_classes().items()):
        # Programs and plugins may have registered strategies of their own.
        if strategy.__module__.startswith("teeter.strategies."):
            entries.append(_describe(name, strategy))
    return entries


def write_strategy_list() -> None:
    """Write ``strategy_list.json`` from the strategies."""
    text = json.dumps(describe_built_in_strategies(), ensure_ascii=False, indent=2)
    STRATEGY_LIST.write_text(f"{text}\n", encoding="utf-8")


def _describe_plugin(name: str) -> StrategyEntry:
    from teeter.strategies import get

    try:
        return _describe(name, get(name))
    except PluginError as error:
        # A broken plugin must not hide the others.
        return {
            "name": name,
            "needs": [],
            "options": {},
            "about": str(error),
        }


def _describe(name: str, strategy: type[Any]) -> StrategyEntry:
    # A strategy is a dataclass: the parameters of its constructor are its options.
    parameters = inspect.signature(strategy).parameters
    docstring = inspect.getdoc(strategy) or ""
    first_line, _, _ = docstring.partition("\n")
    return {
        "name": name,
        "needs": sorted(strategy.needs),
        "options": {option: parameter.default for option, parameter in parameters.items()},
        "about": first_line,
    }
