"""teeter doctor: what is installed and missing, without anything private."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.conftest import Teeter
from teeter.base.version import __version__

TITLES = ["Versions", "Packages", "Devices", "Extras", "Encoders", "Folders"]


def test_the_report_has_all_sections(teeter: Teeter) -> None:
    lines = teeter("doctor").stdout.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == TITLES
    assert f"teeter        {__version__}" in lines[1]
    assert any(line.startswith("  cpu ") for line in lines)


def test_the_report_as_json(teeter: Teeter) -> None:
    report = json.loads(teeter("doctor", "--json").stdout)
    assert report["teeter"] == __version__
    assert report["packages"]["numpy"]
    assert report["devices"][0]["name"] == "cpu"
    assert {"web", "store", "hf"} <= {extra["name"] for extra in report["extras"]}


@pytest.mark.slow
def test_nothing_private_is_shown(
    teeter: Teeter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "ada.lovelace"
    home.mkdir()

    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.setenv("TEETER_HOME", str(home / "keys"))
    monkeypatch.setenv("TEETER_DATA", str(home / "data"))
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", "a-secret-key")

    for arguments in (("doctor",), ("doctor", "--json")):
        output = teeter(*arguments).stdout
        assert "lovelace" not in output
        assert "a-secret-key" not in output
        assert str(Path("~") / "keys") in output
        assert str(Path("~") / "data") in output
