"""Select rows to label from arrays, tables, model files and shards.

A ``SelectionRequest`` becomes candidates, in memory or in shards, then picks, then one
``Selection`` with its provenance. Importing this package does not load torch: the names below are
imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from teeter.base.lazy_imports import import_lazily

if TYPE_CHECKING:
    from teeter.selection.api import run_selection, select_from_file, select_from_shards
    from teeter.selection.request import SelectionRequest
    from teeter.selection.result import Provenance, SelectedRow, Selection

__all__ = [
    "Provenance",
    "SelectedRow",
    "Selection",
    "SelectionRequest",
    "run_selection",
    "select_from_file",
    "select_from_shards",
]

__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "api": ["run_selection", "select_from_file", "select_from_shards"],
        "request": ["SelectionRequest"],
        "result": ["Provenance", "SelectedRow", "Selection"],
    },
)
