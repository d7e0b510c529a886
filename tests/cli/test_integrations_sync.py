"""teeter campaign sync: where the token comes from, what is printed, and how it watches."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx2
import pytest

from campaigns.fake_label_studio import (
    LEGACY_TOKEN,
    PERSONAL_TOKEN,
    FakeLabelStudio,
    serve_on_loopback,
)
from campaigns.label_studio_backends import result_with
from cli.conftest import Teeter
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LABEL_STUDIO_API_KEY", "LABEL_STUDIO_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def studio() -> FakeLabelStudio:
    return FakeLabelStudio()


@pytest.fixture
def url(studio: FakeLabelStudio) -> Iterator[str]:
    with serve_on_loopback(studio) as url:
        yield url


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a campaign of sixty texts."""
    path = tmp_path / "texts.teeter"
    campaign = Campaign.make([], ("even", "odd"), at=path, name="texts", settings=Settings())
    campaign.add([(f"n{k}", f"the number {k} is {('even', 'odd')[k % 2]}") for k in range(60)])
    campaign.database.close()
    return path


def annotate(studio: FakeLabelStudio, count: int, *, skip: bool = False) -> None:
    """Answer the next tasks of the only project."""
    client = studio.client()
    project_id = next(iter(studio.projects))
    for _ in range(count):
        task = client.get(f"/api/projects/{project_id}/next").json()
        label = ("even", "odd")[int(task["data"]["teeter_item"][1:]) % 2]
        body = {"result": [] if skip else result_with(label), "was_cancelled": skip}
        client.post(f"/api/tasks/{task['id']}/annotations/", json=body)


def make_unavailable(studio: FakeLabelStudio) -> None:
    """Let no personal access token be exchanged; a legacy token is not accepted either."""
    studio.before_request = lambda request: httpx2.Response(
        502 if "refresh" in request.url.path else 401
    )


def make_available(studio: FakeLabelStudio) -> None:
    studio.before_request = lambda _: None


def count_labelled(file: Path) -> int:
    campaign = Campaign.open(file)
    labelled = campaign.status().labelled
    campaign.database.close()
    return labelled


@pytest.mark.slow
def test_every_step_is_printed(
    teeter: Teeter, file: Path, studio: FakeLabelStudio, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", LEGACY_TOKEN)
    first = teeter("campaign", "sync", file, "--url", url, "-n", 6)
    assert first.stdout == (
        f"Created project {url}/projects/1.\n"
        "Imported 0 labels and 0 skips.\n"
        "Sent 6 tasks; 6 items waiting for answers.\n"
    )

    annotate(studio, 1, skip=True)
    annotate(studio, 5)
    second = teeter("campaign", "sync", file, "-n", 6)
    assert second.stdout == (
        f"Synced with project {url}/projects/1.\n"
        "Imported 5 labels and 1 skip.\n"
        "Trained model 1.\n"
        "Sent 6 tasks; 6 items waiting for answers.\n"
    )

    labels = [id_ for id_, entry in studio.annotations.items() if not entry["was_cancelled"]]
    studio.client().delete(f"/api/annotations/{labels[0]}/")
    studio.client().patch(
        f"/api/annotations/{labels[1]}/", json={"result": [], "was_cancelled": True}
    )
    studio.client().post("/api/projects/1/import", json=[{"data": {"text": "foreign"}}])
    third = teeter("campaign", "sync", file, "-n", 6)
    assert "Imported 0 labels and 0 skips, corrected 1, withdrew 1.\n" in third.stdout
    assert "Ignored 1 task that teeter did not create for this campaign." in third.stderr


def test_the_result_as_json(
    teeter: Teeter, file: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", PERSONAL_TOKEN)
    printed = teeter("campaign", "sync", file, "--url", url, "--json")

    assert json.loads(printed.stdout) == {
        "url": url,
        "project": 1,
        "created": True,
        "labels": 0,
        "skips": 0,
        "corrected": 0,
        "withdrawn": 0,
        "model": None,
        "sent": 20,
        "waiting": 20,
        "notes": [],
    }


def test_a_token_file_must_be_private(teeter: Teeter, file: Path, url: str, tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(f"{LEGACY_TOKEN}\n")
    command = ("campaign", "sync", file, "--url", url, "--token-file", token_file)

    if os.name == "posix":
        for mode in (0o644, 0o640, 0o604):
            token_file.chmod(mode)
            error = teeter(*command, fails=2).stderr
            assert f"Other users can read the token in {token_file}. Run: chmod 600" in error

    token_file.chmod(0o600)
    assert "Sent 20 tasks" in teeter(*command).stdout


def test_a_token_file_that_cannot_be_read_is_an_error(
    teeter: Teeter, file: Path, url: str, tmp_path: Path
) -> None:
    token_file = tmp_path / "token"
    command = ("campaign", "sync", file, "--url", url, "--token-file", token_file)

    error = teeter(*command, fails=2).stderr
    assert f"Cannot read the token in {token_file}: No such file" in error

    token_file.write_bytes(b"\xff")
    token_file.chmod(0o600)
    assert "the file is not UTF-8 text" in teeter(*command, fails=2).stderr


def test_missing_options_are_errors(
    teeter: Teeter, file: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_token = teeter("campaign", "sync", file, "--url", url, fails=2).stderr
    assert "set LABEL_STUDIO_API_KEY or pass --token-file" in no_token

    monkeypatch.setenv("LABEL_STUDIO_API_KEY", LEGACY_TOKEN)
    no_url = teeter("campaign", "sync", file, fails=2).stderr
    assert "not linked to a Label Studio server yet: pass --url." in no_url


def test_a_wrong_token_is_not_printed(
    teeter: Teeter, file: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = "f" * 40
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", token)
    error = teeter("campaign", "sync", file, "--url", url, fails=2).stderr
    assert error.startswith(f"Error: {url} rejects the token")
    assert token not in error
    assert len(error.splitlines()) == 1


@pytest.mark.slow
def test_a_deleted_project_is_replaced_by_an_option(
    teeter: Teeter, file: Path, studio: FakeLabelStudio, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", LEGACY_TOKEN)
    command = ("campaign", "sync", file, "--url", url)
    teeter(*command)
    studio.projects.clear()
    assert "create another project with --new-project;" in teeter(*command, fails=2).stderr
    assert "Created project" in teeter(*command, "--new-project").stdout


def test_the_url_may_come_from_the_environment(
    teeter: Teeter, file: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABEL_STUDIO_URL", url)
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", LEGACY_TOKEN)
    assert "Sent 20 tasks" in teeter("campaign", "sync", file).stdout


@pytest.mark.slow
def test_watching_survives_an_outage_and_stops_at_ctrl_c(
    teeter: Teeter, file: Path, studio: FakeLabelStudio, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything happens in the pauses between two syncs, so the test does not wait."""

    def begin_outage() -> None:
        make_unavailable(studio)

    def end_outage() -> None:
        annotate(studio, 4)
        make_available(studio)

    def do_nothing() -> None:
        pass

    def press_ctrl_c() -> None:
        raise KeyboardInterrupt

    pauses = iter([begin_outage, do_nothing, end_outage, do_nothing, press_ctrl_c])
    module = importlib.import_module("teeter.cli.integrations")
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=lambda _: next(pauses)()))

    monkeypatch.setenv("LABEL_STUDIO_API_KEY", PERSONAL_TOKEN)
    options = ("--url", url, "-n", 4, "--watch", 1, "--json")
    result = teeter("campaign", "sync", file, *options, fails=130)

    first, second = map(json.loads, result.stdout.splitlines())
    assert (first["sent"], second["labels"]) == (4, 4)
    assert result.stderr.count("responded with status 502") == 1, "the outage is reported once"
    assert result.stderr.endswith("Stopped. Run the same command to continue.\n")
    assert count_labelled(file) == 4


@contextmanager
def kill_at_the_end(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill a process that still runs after the block; otherwise a failed test would wait for it."""
    try:
        yield
    finally:
        process.kill()


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_a_process_watches_and_stops_at_ctrl_c(
    file: Path, studio: FakeLabelStudio, url: str
) -> None:
    # A background process of a shell may ignore SIGINT, so the handler is set.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from teeter.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "campaign", "sync", str(file)]
    command += ["--url", url, "-n", "4", "--watch", "1", "--json"]

    with (
        subprocess.Popen(
            command,
            env={**os.environ, "LABEL_STUDIO_API_KEY": PERSONAL_TOKEN, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
        kill_at_the_end(process),
    ):
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["sent"] == 4

        make_unavailable(studio)
        deadline = time.monotonic() + 600
        requests_before = len(studio.requests)
        while len(studio.requests) < requests_before + 6 and time.monotonic() < deadline:
            time.sleep(0.1)

        # Annotate before the outage ends: a sync in between would import fewer than four.
        annotate(studio, 4)
        make_available(studio)
        assert json.loads(process.stdout.readline())["labels"] == 4

        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=600)
        assert process.returncode == 130

    assert output == ""
    assert errors.count("responded with status 502") == 1
    assert errors.endswith("Stopped. Run the same command to continue.\n")
    assert "Traceback" not in errors
    assert count_labelled(file) == 4
