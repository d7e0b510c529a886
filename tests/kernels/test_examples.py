"""The examples in the docstrings of the kernels run and print what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import teeter.kernels

MODULES = [info.name for info in pkgutil.iter_modules(teeter.kernels.__path__) if not info.ispkg]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    module = importlib.import_module(f"teeter.kernels.{name}")
    assert doctest.testmod(module).failed == 0


def test_the_package_offers_what_it_lists() -> None:
    for name in teeter.kernels.__all__:
        assert callable(getattr(teeter.kernels, name)) or name == "Directions"
