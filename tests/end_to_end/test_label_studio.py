"""A real Label Studio: every answer arrives exactly once, although both sides are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from campaigns.fake_label_studio import LEGACY_TOKEN
from campaigns.history_replay import replay_answers
from campaigns.label_studio_backends import (
    LabelStudioBackend,
    RealLabelStudio,
    real_backend,
    run_label_studio,
)
from campaigns.label_studio_scenarios import SCENARIOS, true_label
from teeter.campaigns.campaign import Campaign

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("label-studio"),  # One worker, so one server.
    pytest.mark.skipif(os.name != "posix", reason="servers are ended by their process group"),
]

COMMAND = [sys.executable, "-c", "from teeter.cli import main; main()", "campaign", "sync"]
ENVIRONMENT = {**os.environ, "LABEL_STUDIO_API_KEY": LEGACY_TOKEN, "OMP_NUM_THREADS": "1"}

PATIENCE = 600.0
"""Seconds that a test waits for a response or a process."""

ANN = "ann@example.com"
BOB = "bob@example.com"

ExpectedAnswers = dict[tuple[str, str], str]
"""Label, or "skip", by item and annotator."""


@pytest.fixture(scope="module")
def studio() -> Iterator[RealLabelStudio]:
    with run_label_studio() as running_studio:
        yield running_studio


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_with_a_real_server(
    name: str, studio: RealLabelStudio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine Label Studio may take longer than users should wait.
    monkeypatch.setattr("teeter.campaigns.integrations.label_studio.client.TIMEOUT", PATIENCE)
    with real_backend(tmp_path, studio, name) as backend:
        SCENARIOS[name](backend)


def run_sync(file: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own; it must never print the token."""
    process = subprocess.run(
        [*COMMAND, str(file), *options],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert LEGACY_TOKEN not in process.stdout + process.stderr
    return process


def sync_as_json(file: Path, *options: str) -> dict[str, Any]:
    process = run_sync(file, "--json", *options)
    assert process.returncode == 0, process.stderr
    return dict(json.loads(process.stdout))


def kill_sync_after(seconds: float, file: Path) -> None:
    """Run the command, and kill it if it still runs after some seconds."""
    with subprocess.Popen(
        [*COMMAND, str(file)],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)


def test_every_answer_arrives_once(studio: RealLabelStudio, tmp_path: Path) -> None:
    with (
        studio.client() as ann,
        studio.sign_in(BOB) as bob,
        real_backend(tmp_path, studio, "unused") as backend,
    ):
        backend.browsers = [ann, bob]
        campaign = backend.create_campaign(count=100)
        file = Path(str(campaign.database.path))
        campaign.database.close()

        first = sync_as_json(file, "--url", studio.url)
        assert (first["created"], first["sent"], first["labels"]) == (True, 20, 0)
        backend.project_id = first["project"]
        expected: ExpectedAnswers = {}

        def answer(count: int, annotator: int, *, skip: bool = False) -> None:
            items = backend.annotate(
                count, lambda item: None if skip else true_label(item), annotator
            )
            for item in items:
                expected[item, (ANN, BOB)[annotator]] = "skip" if skip else true_label(item)

        answer(1, annotator=0, skip=True)
        answer(8, annotator=0)
        half = sync_as_json(file)
        assert (half["labels"], half["skips"], half["sent"], half["waiting"]) == (8, 1, 0, 11)

        # The server is killed: the command fails with one sentence, and continues later.
        studio.stop(signal.SIGKILL)
        failed = run_sync(file)
        assert failed.returncode == 2
        assert failed.stderr.startswith(f"Error: Cannot connect to {studio.url}")
        assert len(failed.stderr.splitlines()) == 1
        studio.start()

        # The command is killed: the next one completes its work.
        answer(1, annotator=0)
        answer(10, annotator=1)
        kill_sync_after(3.0, file)
        second = sync_as_json(file)
        assert (second["waiting"], len(backend.list_tasks())) == (20, 40)

        # An annotation changes, and the server is restarted.
        changed = next(place for place, label in expected.items() if label != "skip")
        expected[changed] = "odd" if expected[changed] == "even" else "even"
        backend.change_annotation(changed[0], expected[changed])
        studio.stop()
        studio.start()

        answer(10, annotator=0)
        answer(10, annotator=1)
        third = sync_as_json(file, "-n", "1")
        assert (third["labels"], third["corrected"]) == (20, 1)

        last = sync_as_json(file, "-n", "1")
        for count in ("labels", "skips", "corrected", "withdrawn", "sent"):
            assert last[count] == 0
        check_stored_answers(backend, file, expected)


def check_stored_answers(
    backend: LabelStudioBackend, file: Path, expected: ExpectedAnswers
) -> None:
    """Check that each annotation is one answer with its annotator and time; the changed one two."""
    tasks = backend.list_tasks()
    annotations = {
        annotation["id"]: annotation for task in tasks for annotation in task["annotations"]
    }

    campaign = Campaign.open(file)
    with campaign.reading() as view:
        answers = view.answers.live()
        rows = view.connection.exec_driver_sql(
            "select l.annotation, a.annotator, a.at "
            "from label_studio_answers l join answers a on a.id = l.answer_id"
        ).all()
    history = campaign.history()
    campaign.database.close()

    stored = {(answer.item, answer.annotator): answer.label or answer.kind for answer in answers}
    assert stored == expected
    assert replay_answers(history) == {
        (answer.item, answer.annotator): answer for answer in answers
    }

    assert len(annotations) == 40
    assert {row.annotation for row in rows} == set(annotations)
    answers_per_annotation = Counter(row.annotation for row in rows)
    assert Counter(answers_per_annotation.values()) == {1: 39, 2: 1}
    assert Counter(row.annotator for row in rows) == {ANN: 21, BOB: 20}

    for row in rows:
        annotation = annotations[row.annotation]
        seconds = (annotation["created_at"][:19], annotation["updated_at"][:19])
        assert row.at[:19] in seconds
