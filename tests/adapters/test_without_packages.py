"""What an adapter says where its library is not installed."""

from __future__ import annotations

import importlib
import sys

import pytest

from teeter.errors import MissingExtraError


def test_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "skactiveml"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "skactiveml", None)
    monkeypatch.delitem(sys.modules, "teeter.adapters.skactiveml", raising=False)
    with pytest.raises(MissingExtraError, match=r"pip install 'teeter\[skactiveml\]'"):
        importlib.import_module("teeter.adapters.skactiveml")
