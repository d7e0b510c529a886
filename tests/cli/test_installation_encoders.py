"""teeter encoders: what can be chosen, and what is installed."""

from __future__ import annotations

import json

import pytest

from cli.commands import run_teeter
from teeter.encoders import names


def test_every_encoder_is_listed_with_its_licence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("teeter.encoders.encoder.find_spec", lambda name: None)

    rows = json.loads(run_teeter("encoders", "--json").stdout)

    assert [row["name"] for row in rows] == names()
    for row in rows:
        assert row["about"]
        assert row["is_installed"] is (row["package"] is None)
        assert (row["licence"] is None) is (row["package"] is None)


def test_the_table_says_what_auto_takes() -> None:
    printed = run_teeter("encoders").stdout

    assert "auto for texts: The encoder is tfidf" in printed
    assert "auto for images: The encoder is pixels" in printed
