"""Campaigns labelled in Label Studio: every answer arrives once, whatever breaks in between."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, insert

from campaigns.fake_clock import FakeClock
from campaigns.fake_label_studio import LEGACY, FakeLabelStudio, waiting_tasks
from campaigns.history_replay import replay_answers
from campaigns.label_studio_backends import LabelStudioBackend, chosen, imaginary, recorded
from campaigns.label_studio_scenarios import SCENARIOS, held, truth
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.clock import format_time
from teeter.campaigns.db import LockName, schema
from teeter.campaigns.label_studio import LabelStudio, sync
from teeter.campaigns.label_studio.client import Server
from teeter.campaigns.label_studio.tasks import Project
from teeter.errors import ServerError, ServerUnavailableError


@pytest.fixture
def studio() -> FakeLabelStudio:
    return FakeLabelStudio()


@pytest.fixture
def backend(studio: FakeLabelStudio, tmp_path: Path) -> LabelStudioBackend:
    return imaginary(tmp_path, studio)


@pytest.mark.parametrize("name", SCENARIOS)
def test_as_the_one_in_memory_answers(name: str, backend: LabelStudioBackend) -> None:
    SCENARIOS[name](backend)


@pytest.mark.parametrize("name", SCENARIOS)
def test_as_a_real_one_answered(name: str, tmp_path: Path) -> None:
    with recorded(tmp_path, name) as backend:
        SCENARIOS[name](backend)


class Killed(BaseException):
    """The process is gone."""


def dies(studio: FakeLabelStudio, at: int, *, after: bool) -> None:
    """Let whoever syncs die with a request: before it is sent, or when it is done and nobody heard the answer."""
    count = itertools.count(1)

    def die(_: object) -> None:
        if next(count) == at:
            raise Killed

    studio.before = studio.after = lambda _: None
    if after:
        studio.after = die
    else:
        studio.before = die


def sync_and_die_at(at: int, *, after: bool, folder: Path) -> int:
    """Sync three times and die each time with the same request; return how often there was such a request."""
    studio, watch = FakeLabelStudio(), FakeClock()
    folder.mkdir()
    backend = imaginary(folder, studio)
    campaign = backend.campaign(count=30)
    campaign.repository.scope.clock = watch
    slowly = {"n": 4, "sleep": watch.wait, "train": False}
    died = 0
    for _ in range(3):
        dies(studio, at, after=after)
        try:
            backend.sync(campaign, **slowly)
        except Killed:
            died += 1
            with campaign.database.writing() as connection:  # nobody tidies up after a kill
                late = watch().replace(year=2029) if died % 2 else watch()
                lock = {
                    "campaign_id": campaign.repository.scope.campaign_id,
                    "name": LockName.LABEL_STUDIO,
                    "holder": "another-host/1/killed",
                    "expires": format_time(late),
                }
                connection.execute(delete(schema.locks))
                connection.execute(insert(schema.locks).values(lock))
            dies(studio, 0, after=after)
            backend.sync(campaign, **slowly)
        assert max(waiting_tasks(studio).values()) == 1
        assert sum(waiting_tasks(studio).values()) == 4
        assert len(studio.projects) == 1
        backend.project = next(iter(studio.projects))
        backend.annotate(4, truth)
    studio.before = studio.after = lambda _: None
    backend.sync(campaign, **slowly)
    assert held(campaign) == {f"n{k}": truth(f"n{k}") for k in range(12)}
    said = [line for line in campaign.history() if line["what"] == "answer"]
    assert len(said) == 12, "each came once"
    campaign.database.close()
    return died


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", [2, 6])
def test_killed_at_a_request_it_goes_on(at: int, after: bool, tmp_path: Path) -> None:
    assert sync_and_die_at(at, after=after, folder=tmp_path / "campaign") > 0


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_request_it_goes_on(after: bool, tmp_path: Path) -> None:
    for at in itertools.count(1):
        if sync_and_die_at(at, after=after, folder=tmp_path / str(at)) == 0:
            break
    assert at > 8, "there are several requests to die at"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["label", "skip", "odd one", "change", "delete", "delete task", "sync", "undo", "train"]
        ),
        st.integers(0, 7),
        st.sampled_from(["even", "odd"]),
    ),
    max_size=20,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_what_holds_is_what_annotations_say(steps: list[tuple[str, int, str]]) -> None:
    with TemporaryDirectory() as folder:
        studio = FakeLabelStudio()
        backend = imaginary(Path(folder), studio)
        campaign = backend.campaign(count=16)
        backend.sync(campaign, n=4, train=False)
        undone: set[int] = set()
        for what, which, label in steps:
            _step(backend, studio, campaign, undone, (what, which, label))
        backend.sync(campaign, n=4, train=False)
        _check(studio, campaign, undone)
        campaign.database.close()


def _step(
    backend: LabelStudioBackend,
    studio: FakeLabelStudio,
    campaign: Campaign,
    undone: set[int],
    step: tuple[str, int, str],
) -> None:
    what, which, label = step
    given, tasks = list(studio.annotations), list(studio.tasks)
    if what == "sync":
        backend.sync(campaign, n=4, train=False)
    elif what in ("label", "skip", "odd one") and waiting_tasks(studio):
        told = {"label": label, "skip": None, "odd one": "neither"}[what]
        backend.answer(backend.next(), lambda _: told)
    elif what == "change" and given:
        number = given[which % len(given)]
        before = studio.annotations[number]
        if (before["result"], before["was_cancelled"]) != (chosen(label), False):
            undone.discard(number)
        backend.people[0].patch(
            f"/api/annotations/{number}/", json={"result": chosen(label), "was_cancelled": False}
        )
    elif what == "delete" and given:
        backend.people[0].delete(f"/api/annotations/{given[which % len(given)]}/")
    elif what == "delete task" and tasks:
        item = studio.tasks[tasks[which % len(tasks)]]["data"]["teeter_item"]
        if not any(
            studio.tasks[one["task"]]["data"]["teeter_item"] == item
            for one in studio.annotations.values()
        ):
            backend.people[0].delete(f"/api/tasks/{tasks[which % len(tasks)]}/")
    elif what == "undo":
        backend.sync(campaign, n=4, train=False)
        back = campaign.undo("ann@example.com")
        if back is not None:
            with campaign.database.reading() as connection:
                undone |= set(connection.exec_driver_sql(UNDONE).scalars())


UNDONE = """select annotation from label_studio_answers l join answers a on a.id = l.answer_id
where l.id in (select max(id) from label_studio_answers group by annotation) and a.undone"""


def _check(studio: FakeLabelStudio, campaign: Campaign, undone: set[int]) -> None:
    """What the one annotator says last of each item holds, unless it was taken back here."""
    says: dict[str, list[tuple[str, int, str]]] = {}
    for one in studio.annotations.values():
        told = "skip" if one["was_cancelled"] else one["result"][0]["value"]["choices"][0]
        item = studio.tasks[one["task"]]["data"]["teeter_item"]
        if told != "neither" and one["id"] not in undone:
            says.setdefault(item, []).append((one["updated_at"], one["id"], told))
    found = held(campaign)
    there = {
        studio.tasks[one["task"]]["data"]["teeter_item"] for one in studio.annotations.values()
    }
    assert set(found) <= there, "what is deleted holds no longer"
    once = {item for item, given in says.items() if len(given) == 1}
    assert {item: label for item, label in found.items() if item in once} == {
        item: says[item][0][2] for item in once
    }
    assert max(waiting_tasks(studio).values(), default=1) == 1
    with campaign.database.reading() as connection:
        answers = {
            (one.item, one.annotator): one for one in campaign.repository.answers.live(connection)
        }
        opened = {
            pick.item for pick in campaign.repository.picks.open_picks(connection, "label-studio")
        }
    assert replay_answers(campaign.history()) == answers
    pending = {
        studio.tasks[one["task"]]["data"]["teeter_item"]
        for one in studio.annotations.values()
        if not one["was_cancelled"] and one["result"][0]["value"]["choices"] == ["neither"]
    }
    assert opened <= set(waiting_tasks(studio)) | pending, "what is asked is there to be answered"


def test_more_than_a_page_of_tasks(
    backend: LabelStudioBackend, studio: FakeLabelStudio, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = backend.campaign(count=300)
    backend.sync(campaign, n=250)
    assert len(studio.tasks) == 250
    assert [
        len(request.content) > 100 for request in studio.asked if "/import" in request.url.path
    ] == [True] * 3
    monkeypatch.setattr("teeter.campaigns.label_studio.tasks._PAGE", 70)
    backend.annotate(180, truth)
    assert backend.sync(campaign, n=250, train=False).labels == 180
    assert backend.sync(campaign, n=250, train=False).is_news is False


def test_a_listing_that_shrinks_while_it_is_read_is_read_again(
    backend: LabelStudioBackend, studio: FakeLabelStudio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("teeter.campaigns.label_studio.tasks._PAGE", 4)
    campaign = backend.campaign()
    backend.sync(campaign, n=12)
    pages = itertools.count()

    def shrink(request: httpx.Request) -> None:
        if request.url.path == "/api/tasks/" and next(pages) == 0:
            studio.tasks.pop(min(studio.tasks))

    studio.after = shrink
    project = Project(Server(backend.url, LEGACY, transport=studio.transport), backend.project)
    project.read()
    assert set(project.tasks) == set(studio.tasks), "nothing slipped to a page that was read before"
    studio.after = lambda request: (
        studio.tasks.pop(min(studio.tasks)) if "/tasks/" in request.url.path else None
    )
    with pytest.raises(
        ServerUnavailableError, match="lists changed while it was read: run it again"
    ):
        project.read(whole=True)


def test_a_long_watch_reads_what_changed_and_now_and_then_all(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.campaign()
    follow = LabelStudio(
        campaign, LEGACY, backend.url, n=8, transport=studio.transport, sleep=lambda _: None
    )
    follow.sync()
    backend.project = next(iter(studio.projects))
    studio.wait(10)
    backend.annotate(1, truth)
    follow.sync()
    studio.asked.clear()
    backend.annotate(2, truth)
    found = follow.sync()
    assert (found.labels, found.sent, found.withdrawn) == (2, 0, 0)
    (listing,) = [
        request.url.params for request in studio.asked if request.url.path == "/api/tasks/"
    ]
    assert len(studio.client().get("/api/tasks/", params=listing).json()["tasks"]) == 3, "of eight"
    number = next(number for number, task in studio.tasks.items() if not task["is_labeled"])
    backend.people[0].delete(f"/api/tasks/{number}/")
    sent = [follow.sync().sent for _ in range(sync._WHOLE)]
    assert sum(sent) == 1, "a task that is deleted is noticed by and by"
    studio.projects.clear()
    with pytest.raises(ServerError, match="has no project"):
        follow.sync()
    follow.close()


def test_two_syncs_at_once_send_every_question_once(tmp_path: Path) -> None:
    studio = FakeLabelStudio()
    backend = imaginary(tmp_path, studio)
    backend.campaign(count=80).database.close()
    slow = threading.Event()

    def pause(request: httpx.Request) -> None:
        if request.url.path.endswith(("/import", "/projects/")) and request.method == "POST":
            slow.wait(0.3)

    studio.before = pause
    failures: list[BaseException] = []

    def sync() -> None:
        campaign = Campaign.open(tmp_path / "numbers.teeter")
        try:
            follow = LabelStudio(campaign, LEGACY, backend.url, n=12, transport=studio.transport)
            follow.sync()
            follow.close()
        except BaseException as error:
            failures.append(error)
        finally:
            campaign.database.close()

    threads = [threading.Thread(target=sync) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(studio.projects) == 1

    campaign = Campaign.open(tmp_path / "numbers.teeter")
    with campaign.database.reading() as connection:
        questions = {pick.item for pick in campaign.repository.picks.open_picks(connection)}
    campaign.database.close()
    assert len(questions) == 12
    assert waiting_tasks(studio) == Counter(questions)
    assert len(studio.tasks) == len(questions)
