"""teeter doctor: what is installed and missing, without anything private."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path

import pytest

from cli.conftest import Teeter
from teeter.base.version import __version__
from teeter.cli import installation

TITLES = ["Versions", "Packages", "Devices", "Extras", "Encoders", "Folders"]


@pytest.fixture
def label_lacks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set the packages that the extra for labelling lacks."""

    def lack(*packages: str) -> None:
        extras = {"hf": ("no-such-package",), "label": packages}
        monkeypatch.setattr(installation, "_check_extras", lambda requirements: extras)
        monkeypatch.setattr(installation, "_find_cuda_packages", dict)

    return lack


def test_one_line_says_that_all_is_there(teeter: Teeter, label_lacks: Callable[..., None]) -> None:
    label_lacks()
    printed = teeter("doctor").stdout
    assert printed == "All that labelling needs is installed. To begin, run teeter try.\n"


def test_one_line_says_what_is_missing(teeter: Teeter, label_lacks: Callable[..., None]) -> None:
    label_lacks("fastapi", "uvicorn")
    printed = teeter("doctor").stdout
    assert printed == "To label, run pip install 'teeter[label]'. It adds fastapi, uvicorn.\n"


def test_cuda_without_a_gpu_is_named_with_its_size(
    teeter: Teeter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("nvidia_cublas", "cuda_bindings", "triton", "numpy_for_tests"):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {name.replace('_', '-')}\nVersion: 1.0\n")
        (folder / "RECORD").write_text(f"{name}/library.so,,800000000\n{name}/__init__.py,,\n")
    monkeypatch.setattr(installation, "distributions", lambda: distributions(path=[str(tmp_path)]))

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    printed = " ".join(teeter("doctor").stdout.split())
    assert "finds no GPU here, but CUDA packages take 2.4 GB" in printed
    assert (
        "pip uninstall torch cuda-bindings nvidia-cublas triton, then pip install torch" in printed
    )

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert "CUDA" not in teeter("doctor").stdout


def test_the_report_has_all_sections(teeter: Teeter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "_find_cuda_packages", dict)
    _, *lines = teeter("doctor", "--all").stdout.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == TITLES
    assert f"teeter        {__version__}" in lines[1]
    assert any(line.startswith("  cpu ") for line in lines)


def test_the_report_as_json(teeter: Teeter) -> None:
    report = json.loads(teeter("doctor", "--json").stdout)
    assert report["teeter"] == __version__
    assert report["packages"]["numpy"]
    assert "cpu" in report["devices"]
    assert {"label", "hf"} <= set(report["extras"])


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

    for arguments in (("doctor", "--all"), ("doctor", "--json")):
        output = teeter(*arguments).stdout
        assert "lovelace" not in output
        assert "a-secret-key" not in output
        assert str(Path("~") / "keys") in output
        assert str(Path("~") / "data") in output
