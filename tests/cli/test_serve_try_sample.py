"""teeter try: a sample campaign in the browser, continued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Teeter
from teeter import samples
from teeter.campaigns import Campaign

pytest.importorskip("fastapi")
uvicorn = pytest.importorskip("uvicorn")


@pytest.fixture(autouse=True)
def workspaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The workspaces of the servers that would run, in a folder of this test."""
    monkeypatch.setenv("TEETER_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    workspaces: list[Any] = []

    def stop_at_once(server: Any, sockets: Any) -> None:
        workspaces.append(server.config.app.state.workspace)
        workspaces[-1].close()

    monkeypatch.setattr(uvicorn.Server, "run", stop_at_once)
    return workspaces


@pytest.fixture
def made_samples(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the samples that are made. They are small, which is much faster."""
    names: list[str] = []

    def make_small(sample: samples.Sample, folder: Path, **options: Any) -> Path:
        names.append(sample.name)
        folder.mkdir(exist_ok=True)
        path = samples.sample_file(sample, folder)
        campaign = Campaign.make([], sample.classes, at=path, name=sample.title)
        campaign.add(["a lost card", "a transfer"])
        campaign.database.close()
        return path

    monkeypatch.setattr(samples, "make_sample", make_small)
    return names


def test_the_browser_opens_at_the_first_question(
    teeter: Teeter, workspaces: list[Any], made_samples: list[str]
) -> None:
    output = teeter("try", "--no-open").stdout
    assert "Created a sample campaign in teeter-try" in output
    assert "/c/messages  (Press Ctrl+C to stop" in output
    (workspace,) = workspaces
    assert list(workspace.campaigns) == ["messages"]
    assert not workspace.auth.requires_login()


def test_a_second_call_continues(
    teeter: Teeter, workspaces: list[Any], made_samples: list[str]
) -> None:
    teeter("try", "--no-open")
    assert "Created" not in teeter("try", "--no-open").stdout
    assert made_samples == ["texts"]

    teeter("try", "images", "--no-open")
    assert list(workspaces[-1].campaigns) == ["messages", "clothes"]


def test_an_unknown_sample_is_refused(teeter: Teeter, tmp_path: Path) -> None:
    message = teeter("try", "sounds", fails=2).stderr
    assert "No sample is called 'sounds'" in message
    assert not (tmp_path / "teeter-try").exists()
