"""teeter campaign sync: where the token comes from, what it writes, and how it watches and stops."""

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

import httpx
import pytest

from campaigns.fake_label_studio import LEGACY, PERSONAL, FakeLabelStudio, serving
from cli.conftest import Teeter
from teeter.campaigns.campaign import Campaign, Settings


@pytest.fixture(autouse=True)
def _no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LABEL_STUDIO_API_KEY", "LABEL_STUDIO_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def studio() -> FakeLabelStudio:
    return FakeLabelStudio()


@pytest.fixture
def url(studio: FakeLabelStudio) -> Iterator[str]:
    with serving(studio) as address:
        yield address


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "texts.teeter"
    campaign = Campaign.create(path, "texts", ("even", "odd"), Settings())
    campaign.add([(f"n{k}", f"the number {k} is {('even', 'odd')[k % 2]}") for k in range(60)])
    campaign.database.close()
    return path


def annotate(studio: FakeLabelStudio, count: int, *, skip: bool = False) -> None:
    client = studio.client()
    project = next(iter(studio.projects))
    for _ in range(count):
        task = client.get(f"/api/projects/{project}/next").json()
        name = ("even", "odd")[int(task["data"]["teeter_item"][1:]) % 2]
        result = [{"from_name": "label", "value": {"choices": [name]}}]
        body = {"result": [] if skip else result, "was_cancelled": skip}
        client.post(f"/api/tasks/{task['id']}/annotations/", json=body)


def test_a_round_in_words(
    teeter: Teeter, file: Path, studio: FakeLabelStudio, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABEL_STUDIO_API_KEY", LEGACY)
    first = teeter("campaign", "sync", file, "--url", url, "-n", 6)
    where = f"{url}/projects/1"
    assert (
        first.stdout
        == f"{where} is made: 0 labels and 0 skips in.\n6 tasks sent, 6 questions waiting.\n"
    )
    annotate(studio, 1, skip=True)
    annotate(studio, 5)
    second = teeter("campaign", "sync", file, "-n", 6)
    told = f"{where}: 5 labels and 1 skip in.\nModel 1 is trained. 6 tasks sent, 6 questions waiting.\n"
    assert second.stdout == told
    number = next(number for number, one in studio.annotations.items() if not one["was_cancelled"])
    studio.client().delete(f"/api/annotations/{number}/")
    studio.client().post("/api/projects/1/import", json=[{"data": {"text": "another's"}}])
    third = teeter("campaign", "sync", file, "-n", 6, "--once")
    assert "0 labels and 0 skips in, 1 taken back." in third.stdout
    assert "Not of this campaign, and left alone: 1 task of the project." in third.stderr


def test_as_json(teeter: Teeter, file: Path, url: str) -> None:
    found = json.loads(
        teeter("campaign", "sync", file, "--url", url, "--token", PERSONAL, "--json").stdout
    )
    assert (found["url"], found["made"], found["sent"], found["notes"]) == (url, True, 20, [])
    assert set(found) >= {
        "project",
        "labels",
        "skips",
        "corrected",
        "withdrawn",
        "model",
        "waiting",
    }


def test_a_token_in_a_file_is_its_owner_s_alone(
    teeter: Teeter, file: Path, url: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(f"{LEGACY}\n")
    words = ("campaign", "sync", file, "--url", url, "--token-file", token)
    if os.name == "posix":
        for mode in (0o644, 0o640, 0o604):
            token.chmod(mode)
            assert (
                f"Others can read the token in {token}: chmod 600" in teeter(*words, fails=2).stderr
            )
    token.chmod(0o600)
    assert "20 tasks sent" in teeter(*words).stdout
    token.write_bytes(b"\xff")
    assert "it is not a text" in teeter(*words, fails=2).stderr
    token.unlink()
    assert f"Cannot read the token in {token}: No such file" in teeter(*words, fails=2).stderr


def test_what_is_missing_is_told(teeter: Teeter, file: Path, url: str) -> None:
    assert (
        "put it into LABEL_STUDIO_API_KEY"
        in teeter("campaign", "sync", file, "--url", url, fails=2).stderr
    )
    assert (
        "Where is Label Studio?"
        in teeter("campaign", "sync", file, "--token", LEGACY, fails=2).stderr
    )
    both = ("campaign", "sync", file, "--url", url, "--token", LEGACY, "--once", "--watch", 5)
    assert "exclude each other" in teeter(*both, fails=2).stderr
    wrong = teeter("campaign", "sync", file, "--url", url, "--token", "f" * 40, fails=2).stderr
    assert wrong.startswith(f"Error: {url} refuses the token")
    assert "f" * 40 not in wrong
    assert len(wrong.splitlines()) == 1


def test_without_httpx_it_says_what_to_install(
    teeter: Teeter, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    told = teeter(
        "campaign", "sync", file, "--url", "http://localhost:1", "--token", LEGACY, fails=2
    ).stderr
    assert "pip install 'teeter[label-studio]'" in told


def test_the_address_may_be_in_the_environment(
    teeter: Teeter, file: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABEL_STUDIO_URL", url)
    assert "20 tasks sent" in teeter("campaign", "sync", file, "--token", LEGACY).stdout


def test_watching_goes_on_after_a_trouble_and_stops_at_ctrl_c(
    teeter: Teeter, file: Path, studio: FakeLabelStudio, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pauses between two syncs are when things happen, and nobody waits for them."""

    def go_away() -> None:
        studio.before = lambda request: httpx.Response(
            502 if "refresh" in request.url.path else 401
        )

    def come_back() -> None:
        annotate(studio, 4)
        studio.before = lambda _: None

    def press_ctrl_c() -> None:
        raise KeyboardInterrupt

    def stay() -> None:
        pass

    pauses = iter([go_away, stay, come_back, stay, press_ctrl_c])
    watched = importlib.import_module("teeter.cli.sync")
    monkeypatch.setattr(watched, "time", SimpleNamespace(sleep=lambda _: next(pauses)()))
    words = ("--url", url, "--token", PERSONAL, "-n", 4, "--watch", 1, "--json")
    result = teeter("campaign", "sync", file, *words, fails=130)

    first, second = map(json.loads, result.stdout.splitlines())
    assert (first["sent"], second["labels"]) == (4, 4)
    assert result.stderr.count("answers with 502") == 1, "the same trouble is told once"
    assert result.stderr.endswith("Stopped; the same command goes on.\n")
    campaign = Campaign.open(file)
    assert campaign.status().labelled == 4
    campaign.database.close()


@contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """Kill a process that is still there in the end, or leaving it would wait for ever."""
    try:
        yield
    finally:
        process.kill()


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_a_process_watches_and_stops_at_ctrl_c(
    file: Path, studio: FakeLabelStudio, url: str
) -> None:
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # in the background, too
    code = f"{heard}; from teeter.cli import main; main()"
    command = [
        sys.executable,
        "-c",
        code,
        "campaign",
        "sync",
        str(file),
        "--url",
        url,
        "-n",
        "4",
        "--watch",
        "1",
    ]
    env = {**os.environ, "LABEL_STUDIO_API_KEY": PERSONAL, "OMP_NUM_THREADS": "1"}
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(
            [*command, "--json"], env=env, stdout=pipe, stderr=pipe, text=True
        ) as watching,
        ended(watching),
    ):
        assert watching.stdout is not None
        assert json.loads(watching.stdout.readline())["sent"] == 4
        studio.before = lambda request: httpx.Response(
            502 if "refresh" in request.url.path else 401
        )
        until, begun = time.monotonic() + 600, len(studio.asked)
        while len(studio.asked) < begun + 6 and time.monotonic() < until:
            time.sleep(0.1)
        annotate(
            studio, 4
        )  # before the trouble ends: a sync between two of them would tell of fewer
        studio.before = lambda _: None
        assert json.loads(watching.stdout.readline())["labels"] == 4
        watching.send_signal(signal.SIGINT)
        out, told = watching.communicate(timeout=600)
        assert watching.returncode == 130
    assert out == ""
    assert told.count("answers with 502") == 1
    assert told.endswith("Stopped; the same command goes on.\n")
    assert "Traceback" not in told
    campaign = Campaign.open(file)
    assert campaign.status().labelled == 4
    campaign.database.close()
