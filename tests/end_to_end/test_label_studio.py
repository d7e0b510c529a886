"""A real Label Studio: two rounds of 20 tasks, a skip, a change, restarts of both sides; every answer arrives once."""

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

from campaigns.fake_label_studio import LEGACY
from campaigns.history_replay import replay_answers
from campaigns.label_studio_backends import (
    LabelStudioBackend,
    RealLabelStudio,
    real,
    running_studio,
)
from campaigns.label_studio_scenarios import SCENARIOS, truth
from teeter.campaigns.campaign import Campaign

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("label-studio"),  # one worker, so one server
    pytest.mark.skipif(os.name != "posix", reason="servers are ended by their group of processes"),
]


@pytest.fixture(scope="module")
def studio() -> Iterator[RealLabelStudio]:
    with running_studio() as running:
        yield running


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios_are_as_in_memory(name: str, studio: RealLabelStudio, tmp_path: Path) -> None:
    with real(tmp_path, studio, name) as backend:
        SCENARIOS[name](backend)


COMMAND = [sys.executable, "-c", "from teeter.cli import main; main()", "campaign", "sync"]
ENVIRONMENT = {**os.environ, "LABEL_STUDIO_API_KEY": LEGACY, "OMP_NUM_THREADS": "1"}


def run(file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own; it never tells the token."""
    command = [*COMMAND, str(file), *words]
    done = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False
    )
    assert LEGACY not in done.stdout + done.stderr
    return done


def synced(file: Path, *words: str) -> dict[str, Any]:
    done = run(file, "--json", *words)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def killed(file: Path, after: float) -> None:
    """Run the command, and kill it so many seconds later."""
    silent = subprocess.DEVNULL
    with subprocess.Popen(
        [*COMMAND, str(file)], env=ENVIRONMENT, stdout=silent, stderr=silent
    ) as process:
        try:
            process.wait(timeout=after)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)


def test_every_answer_arrives_once(studio: RealLabelStudio, tmp_path: Path) -> None:
    with (
        studio.client() as ann,
        studio.user("bob@example.com") as bob,
        real(tmp_path, studio, "unused") as backend,
    ):
        backend.people = [ann, bob]
        campaign = backend.campaign(count=100)
        file = Path(str(campaign.database.path))
        campaign.database.close()
        first = synced(file, "--url", studio.url)
        assert (first["made"], first["sent"], first["labels"]) == (True, 20, 0)
        backend.project = first["project"]
        said: dict[tuple[str, str], str] = {}

        def answer(count: int, who: int, *, skip: bool = False) -> None:
            for item in backend.annotate(count, lambda item: None if skip else truth(item), who):
                said[item, ("ann@example.com", "bob@example.com")[who]] = (
                    "skip" if skip else truth(item)
                )

        answer(1, 0, skip=True)
        answer(8, 0)
        half = synced(file)
        assert (half["labels"], half["skips"], half["sent"], half["waiting"]) == (8, 1, 0, 11)
        studio.stop(signal.SIGKILL)
        away = run(file)
        assert away.returncode == 2
        assert away.stderr.startswith(f"Error: Nobody answers at {studio.url}")
        assert len(away.stderr.splitlines()) == 1
        studio.start()
        answer(1, 0)
        answer(10, 1)
        killed(file, 3.0)
        second = synced(file)
        assert (second["waiting"], len(backend.tasks())) == (20, 40)

        changed = next(place for place, label in said.items() if label != "skip")
        said[changed] = "odd" if said[changed] == "even" else "even"
        backend.change(changed[0], said[changed])
        studio.stop()
        studio.start()
        answer(10, 0)
        answer(10, 1)
        third = synced(file, "-n", "1")
        assert (third["labels"], third["corrected"]) == (20, 1)
        assert not any(
            synced(file, "-n", "1")[key]
            for key in ("labels", "skips", "corrected", "withdrawn", "sent")
        )
        check(backend, file, said)


def check(backend: LabelStudioBackend, file: Path, said: dict[tuple[str, str], str]) -> None:
    """Every annotation is one answer, with who gave it and when; the changed one is two, of which the last holds."""
    tasks = backend.tasks()
    there = {one["id"]: one for task in tasks for one in task["annotations"]}
    campaign = Campaign.open(file)
    with campaign.database.reading() as connection:
        answers = campaign.repository.answers.live(connection)
        noted = connection.exec_driver_sql(
            "select l.annotation, a.annotator, a.at from label_studio_answers l join answers a on a.id = l.answer_id"
        ).all()
    history = campaign.history()
    campaign.database.close()
    assert {(one.item, one.annotator): one.label or one.kind for one in answers} == said
    assert len(there) == 40
    assert Counter(Counter(row.annotation for row in noted).values()) == {1: 39, 2: 1}
    assert {row.annotation for row in noted} == set(there)
    assert Counter(row.annotator for row in noted) == {"ann@example.com": 21, "bob@example.com": 20}
    for row in noted:
        assert row.at[:19] in (
            there[row.annotation]["created_at"][:19],
            there[row.annotation]["updated_at"][:19],
        )
    assert replay_answers(history) == {(one.item, one.annotator): one for one in answers}
    print(
        f"{len(tasks)} tasks, {len(there)} annotations, {len(noted)} answers, {len(answers)} of them hold"
    )
