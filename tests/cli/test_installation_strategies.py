"""teeter strategies."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import EntryPoint

import pytest
from typer.testing import Result

import teeter as library
from teeter.cli import installation
from teeter.strategies.base import registry

Teeter = Callable[..., Result]


def test_every_strategy_is_listed_with_what_it_needs(teeter: Teeter) -> None:
    listed = {
        strategy["name"]: strategy for strategy in json.loads(teeter("strategies", "--json").stdout)
    }

    assert list(listed) == library.strategies.names()
    assert listed["margin"] == {
        "name": "margin",
        "group": "strategy",
        "needs": ["logits"],
        "options": {},
        "best": "smallest",
        "about": (
            "Pick the rows whose two most probable classes are closest [Scheffer et al. 2001]."
        ),
    }

    assert listed["ldm-s"]["options"]["patience"] == 10
    ablations = {name for name, entry in listed.items() if entry["group"] == "ablation"}
    assert ablations == library.strategies.ABLATIONS
    assert ablations == {
        "entropy-s",
        "ldm",
        "ldm-cluster-margin",
        "ldm-fass",
        "margin-s",
        "seeding-cosine",
        "seeding-l2",
    }


def test_the_table_shows_names_options_and_first_lines(teeter: Teeter) -> None:
    shown = " ".join(teeter("strategies").stdout.split())
    for words in (
        "ldm-s",
        "features, head",
        "patience=10",
        "Pick rows uniformly at random",
        "smallest scores",
    ):
        assert words in shown


def test_a_broken_plugin_does_not_hide_the_others(
    teeter: Teeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {"mine": EntryPoint("mine", "no_such_module:Mine", registry.plugins.group)}
    monkeypatch.setattr(installation, "entry_points_by_name", {registry.plugins.group: broken}.get)
    monkeypatch.setitem(registry.plugins.__dict__, "_entry_points", broken)

    entries = json.loads(teeter("strategies", "--json").stdout)
    about = {entry["name"]: entry["about"] for entry in entries}
    assert "cannot be loaded" in about["mine"]
    assert "margin" in about
