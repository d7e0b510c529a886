"""Errors, seeds, the registry, chunks, and what `import teeter` costs and offers."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import numpy as np
import pytest
import torch

import teeter
from teeter import arrays, errors, seeds
from teeter.errors import InputError, PluginError, UnknownNameError
from teeter.registry import Registry


def test_everything_raised_is_a_teeter_error() -> None:
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.TeeterError)
        assert name in (errors.__doc__ or ""), "the tree at the top of the file shows it"


def test_the_public_names_stay() -> None:
    assert {"Outputs", "ldm", "scores", "select", "strategies"} <= set(teeter.__all__)
    assert all(hasattr(teeter, name) for name in teeter.__all__)


def test_importing_teeter_imports_no_more_than_torch_and_numpy() -> None:
    code = "import sys, teeter; teeter.ldm, teeter.Learner; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert {"torch", "numpy", "teeter"} <= loaded
    assert not loaded & {"sklearn", "scipy", "matplotlib", "typer", "rich", "pandas", "pyarrow"}


def test_streams_depend_on_seed_and_name_alone() -> None:
    draw = lambda *name: torch.rand(3, generator=seeds.stream(*name)).tolist()  # noqa: E731
    assert draw(0, "a", 1) == draw(0, "a", 1) == draw(np.int64(0), "a", 1)
    assert len({tuple(draw(*name)) for name in [(0, "a", 1), (0, "a", 2), (0, "b", 1), (1, "a", 1), (0, "a")]}) == 5


def test_a_fork_moves_the_stream_on() -> None:
    generator = seeds.stream(0, "x")
    assert seeds.derive_seed(generator) != seeds.derive_seed(generator)


def test_tiles_cover_every_row_once() -> None:
    for rows in (0, 1, 191, 192, 193, 1000):
        for memory in (1, 192 * 8, 192 * 8 * 3, 1 << 30):
            with teeter.working_memory(memory):
                cut = list(arrays.tiles(rows, 8, torch.device("cpu")))
            assert [i for piece in cut for i in range(rows)[piece]] == list(range(rows))
            assert all((piece.stop - piece.start) % arrays.TILE == 0 for piece in cut[:-1])


def test_a_working_memory_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="positive number of bytes"), teeter.working_memory(0):
        pass


def make_registry() -> Registry[object]:
    registry: Registry[object] = Registry("animal", "teeter.animals")
    registry.__dict__["_plugins"] = {
        "ant": EntryPoint("ant", "collections:OrderedDict", "teeter.animals"),
        "bee": EntryPoint("bee", "no_such_module_at_all:Bee", "teeter.animals"),
    }
    registry.register("cat")(dict)
    return registry


def test_names_have_plugins_without_loading_them() -> None:
    assert make_registry().names() == ["ant", "bee", "cat"]


def test_plugins_load_when_asked_for() -> None:
    from collections import OrderedDict

    assert make_registry().get("ant") is OrderedDict


def test_a_broken_plugin_takes_nothing_down_but_itself() -> None:
    registry = make_registry()
    with pytest.raises(PluginError, match="The animal 'bee' of an unknown package cannot be loaded"):
        registry.get("bee")
    assert registry.get("cat") is dict


def test_a_name_is_given_once() -> None:
    registry = make_registry()
    with pytest.raises(InputError, match="already called 'cat'"):
        registry.register("cat")(list)


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(UnknownNameError, match=r"No animal is called 'zebra'\. Known: ant, bee, cat\."):
        make_registry().get("zebra")
