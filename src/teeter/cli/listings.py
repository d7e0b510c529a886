"""``teeter strategies`` and ``teeter encoders``: list what can be chosen."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from teeter.base.registry import entry_points_by_name
from teeter.cli.options import JsonOption
from teeter.cli.output import echo_json, print_table
from teeter.errors import PluginError

__all__ = [
    "STRATEGY_LIST",
    "StrategyEntry",
    "describe_built_in_strategies",
    "encoders",
    "list_strategies",
    "strategies",
    "write_strategy_list",
]


STRATEGY_LIST = Path(__file__).with_name("strategy_list.json")
"""The file that describes the built-in strategies."""

StrategyEntry: TypeAlias = dict[str, Any]
"""A strategy as JSON: its name, group, needs, options with their defaults, and a sentence."""

_ABLATIONS = "teeter.strategies.ablations"

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
            "group": "strategy",
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
        "group": "ablation" if strategy.__module__ == _ABLATIONS else "strategy",
        "needs": sorted(strategy.needs),
        "options": {option: parameter.default for option, parameter in parameters.items()},
        "about": first_line,
    }


def strategies(
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the strategies: what each needs, its options and their defaults, and what it picks."""
    entries = list_strategies()
    if as_json:
        typer.echo(json.dumps(entries, ensure_ascii=False, indent=2))
    else:
        header = ["name", "needs", "options", "picks"]
        rows = [_table_row(entry) for entry in entries if entry["group"] == "strategy"]
        print_table(header, rows, has_sentences=True)

        typer.echo("\nAblations of LDM-S in its paper, for comparisons:\n")
        rows = [_table_row(entry) for entry in entries if entry["group"] == "ablation"]
        print_table(header, rows, has_sentences=True)


def _table_row(entry: StrategyEntry) -> list[str]:
    """Return the cells of a strategy."""
    options = [f"{name}={default!r}" for name, default in entry["options"].items()]
    return [
        entry["name"],
        ", ".join(entry["needs"]),
        ", ".join(options),
        entry["about"],
    ]


@dataclass(frozen=True)
class _EncoderRow:
    """An encoder in the list."""

    name: str
    reads: str
    is_installed: bool
    package: str | None
    """The package with its weights."""
    licence: str | None
    """The licence of its weights."""
    about: str


def encoders(as_json: JsonOption = False) -> None:
    """List the encoders, with what they read, their weights and their licences.

    auto stands for the best installed encoder. The option --encoder also accepts a
    sentence-transformers or transformers model, given by its folder, its package or its name on the
    hub; a Python function, written package.module:function; or a model behind an OpenAI-compatible
    embeddings endpoint, written http://HOST/v1#MODEL.
    """
    from teeter.encoders import ContentKind, choose_encoder, names

    rows = [_describe_encoder(name) for name in names()]
    if as_json:
        echo_json(rows)
        return

    table = []
    for row in rows:
        package = row.package or ""
        if not row.is_installed:
            package += " (not installed)"
        table.append([row.name, row.reads, package, row.licence or "", row.about])
    print_table(["name", "reads", "weights", "licence", "about"], table, has_sentences=True)

    for kind in ContentKind:
        typer.echo(f"auto for {kind}s: {choose_encoder(kind).sentence}")


def _describe_encoder(name: str) -> _EncoderRow:
    from teeter.encoders import encoders as registry
    from teeter.encoders import is_installed
    from teeter.errors import PluginError

    try:
        encoder_class = registry.get(name)
    except PluginError as error:
        # A broken plugin must not hide the others.
        return _EncoderRow(name, "", False, None, None, str(error))

    package = encoder_class.package
    docstring = inspect.getdoc(encoder_class) or ""
    return _EncoderRow(
        name=name,
        reads=f"{encoder_class.kind}s",
        is_installed=is_installed(name),
        package=None if package is None else package.distribution,
        licence=None if package is None else package.licence,
        # The first line is a summary. A table has no room for more.
        about=docstring.partition("\n")[0],
    )
