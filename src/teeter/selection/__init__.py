"""Select rows to label from arrays, tables, model files and shards.

A ``SelectionRequest`` becomes candidates, in memory or in shards, then picks, then one
``Selection`` with its provenance. Importing this package does not load torch: the names below are
imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from teeter.selection.api import run_selection, select_from_file, select_from_shards
    from teeter.selection.request import SelectionRequest
    from teeter.selection.result import Pick, Provenance, Selection

__all__ = [
    "Pick",
    "Provenance",
    "Selection",
    "SelectionRequest",
    "run_selection",
    "select_from_file",
    "select_from_shards",
]

_HOMES = {
    "Pick": "result",
    "Provenance": "result",
    "Selection": "result",
    "SelectionRequest": "request",
    "run_selection": "api",
    "select_from_file": "api",
    "select_from_shards": "api",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    home = _HOMES[name]
    module = import_module(f"{__name__}.{home}")
    return getattr(module, name)


def __dir__() -> list[str]:
    return __all__
