"""The error of a module whose library is not installed."""

from __future__ import annotations

import importlib
import sys

import pytest

from teeter.errors import MissingExtraError


@pytest.mark.parametrize(
    ("module", "missing", "extra"),
    [
        ("training.lightning", "lightning", "lightning"),
        ("models.huggingface", "transformers", "hf"),
        ("models.huggingface", "datasets", "hf"),
        ("models.sentence_transformers", "sentence_transformers", "hf"),
    ],
)
def test_it_says_what_to_install(
    module: str, missing: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, f"teeter.{module}", raising=False)
    with pytest.raises(MissingExtraError, match=rf"pip install 'teeter\[{extra}\]'"):
        importlib.import_module(f"teeter.{module}")
