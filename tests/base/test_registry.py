"""The registry: names, plugins that load when asked for, and plugins that cannot be loaded."""

from __future__ import annotations

from collections import OrderedDict
from importlib.metadata import EntryPoint

import pytest

from teeter.base.registry import Registry
from teeter.errors import InputError, PluginError, UnknownNameError


def make_registry() -> Registry[object]:
    registry: Registry[object] = Registry("animal", "teeter.animals")
    registry.plugins.__dict__["_entry_points"] = {
        "ant": EntryPoint("ant", "collections:OrderedDict", "teeter.animals"),
        "bee": EntryPoint("bee", "no_such_module_at_all:Bee", "teeter.animals"),
    }
    registry.register("cat")(dict)
    return registry


def test_names_have_plugins_without_loading_them() -> None:
    assert make_registry().names() == ["ant", "bee", "cat"]


def test_plugins_load_when_asked_for() -> None:
    assert make_registry().get("ant") is OrderedDict


def test_a_broken_plugin_takes_nothing_down_but_itself() -> None:
    registry = make_registry()
    with pytest.raises(
        PluginError, match="The animal 'bee' of an unknown package cannot be loaded"
    ):
        registry.get("bee")
    assert registry.get("cat") is dict


def test_a_name_is_given_once() -> None:
    registry = make_registry()
    with pytest.raises(InputError, match=r"There is already a .* called 'cat'"):
        registry.register("cat")(list)


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(
        UnknownNameError, match=r"No animal is called 'zebra'\. Known: ant, bee, cat\."
    ):
        make_registry().get("zebra")
