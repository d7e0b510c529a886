"""The list of strategies that the command line reads instead of importing them."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint

import pytest

from teeter.cli import installation
from teeter.cli.installation import STRATEGY_LIST, describe_built_in_strategies, list_strategies
from teeter.strategies import names
from teeter.strategies.base import registry


def test_the_list_is_up_to_date() -> None:
    """If this fails, run ``python docs/reference/generate.py``."""
    stored = json.loads(STRATEGY_LIST.read_text(encoding="utf-8"))
    assert stored == describe_built_in_strategies()
    assert {entry["name"] for entry in stored} <= set(names())


def test_strategies_of_other_packages_are_described_among_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = {
        "mine": EntryPoint("mine", "teeter.strategies.uncertainty:Margin", registry.plugins.group)
    }
    monkeypatch.setattr(installation, "entry_points_by_name", {registry.plugins.group: points}.get)
    monkeypatch.setitem(registry.plugins.__dict__, "_entry_points", points)
    monkeypatch.setattr(registry, "_classes", dict(registry._classes))

    entries = {entry["name"]: entry for entry in list_strategies()}
    assert list(entries) == sorted(entries)
    assert {**entries["mine"], "name": "margin"} == entries["margin"]
