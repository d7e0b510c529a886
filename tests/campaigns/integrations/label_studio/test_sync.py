"""A whole sync: every answer arrives once, whatever fails in between."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, insert

from campaigns.fake_clock import FakeClock
from campaigns.fake_label_studio import LEGACY_TOKEN, FakeLabelStudio, count_waiting_tasks
from campaigns.history_replay import replay_answers
from campaigns.label_studio_backends import (
    LabelStudioBackend,
    fake_backend,
    recorded_backend,
    result_with,
)
from campaigns.label_studio_scenarios import SCENARIOS, true_label, valid_answers
from campaigns.stores import POSTGRESQL_SLOW, new_place
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.integrations.label_studio import LabelStudio
from teeter.campaigns.integrations.label_studio.sync import FULL_READ_INTERVAL
from teeter.campaigns.settings import Settings
from teeter.campaigns.store import Database, LockName, schema
from teeter.campaigns.store.copies import copy_campaign
from teeter.campaigns.store.database import format_time
from teeter.errors import InputError, ServerError, ServerUnavailableError


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_with_the_fake(name: str, backend: LabelStudioBackend) -> None:
    SCENARIOS[name](backend)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_with_recorded_responses(name: str, tmp_path: Path) -> None:
    with recorded_backend(tmp_path, name) as backend:
        SCENARIOS[name](backend)


# A sync that is killed


class Killed(BaseException):
    """The process that syncs was killed."""


def kill_at_request(studio: FakeLabelStudio, number: int, *, is_processed: bool) -> None:
    """Kill the sync at its n-th request: before it arrives, or before the response does."""
    request_numbers = itertools.count(1)

    def kill(_: object) -> None:
        if next(request_numbers) == number:
            raise Killed

    let_it_live(studio)
    if is_processed:
        studio.after_request = kill
    else:
        studio.before_request = kill


def let_it_live(studio: FakeLabelStudio) -> None:
    studio.before_request = studio.after_request = lambda _: None


def leave_lock_behind(campaign: Campaign, clock: FakeClock, *, is_expired: bool) -> None:
    """Write the lock that a killed sync leaves."""
    expires_at = clock() + timedelta(seconds=30)
    if is_expired:
        expires_at = expires_at.replace(year=2029)
    lock = {
        "campaign_id": campaign.campaign_id,
        "name": LockName.LABEL_STUDIO,
        "holder": "another-host/1/killed",
        "expires": format_time(expires_at),
    }

    with campaign.writing() as change:
        change.connection.execute(delete(schema.locks))
        change.connection.execute(insert(schema.locks).values(lock))


def sync_and_die_at(number: int, *, is_processed: bool, folder: Path) -> int:
    """Sync three times, killed at the n-th request each time; return how often that happened."""
    studio = FakeLabelStudio()
    clock = FakeClock()
    folder.mkdir()
    backend = fake_backend(folder, studio)
    campaign = backend.create_campaign(count=30)
    campaign.clock = clock
    options = {"n": 4, "sleep": clock.wait, "train": False}

    kill_count = 0
    for _ in range(3):
        kill_at_request(studio, number, is_processed=is_processed)
        try:
            backend.sync(campaign, **options)
        except Killed:
            kill_count += 1
            leave_lock_behind(campaign, clock, is_expired=kill_count % 2 == 1)
            let_it_live(studio)
            backend.sync(campaign, **options)

        waiting = count_waiting_tasks(studio)
        assert max(waiting.values()) == 1, "no item is sent twice"
        assert sum(waiting.values()) == 4
        assert len(studio.projects) == 1

        backend.project_id = next(iter(studio.projects))
        backend.annotate(4, true_label)

    let_it_live(studio)
    backend.sync(campaign, **options)
    assert valid_answers(campaign) == {f"n{k}": true_label(f"n{k}") for k in range(12)}
    answers = [entry for entry in campaign.history() if entry["what"] == "answer"]
    assert len(answers) == 12, "each annotation was imported once"
    campaign.database.close()
    return kill_count


@pytest.mark.slow
@pytest.mark.parametrize("is_processed", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", [2, 6])
def test_a_killed_sync_is_continued(number: int, is_processed: bool, tmp_path: Path) -> None:
    folder = tmp_path / "campaign"
    assert sync_and_die_at(number, is_processed=is_processed, folder=folder) > 0


@pytest.mark.slow
@pytest.mark.parametrize("is_processed", [False, True], ids=["before", "after"])
def test_a_sync_killed_at_any_request_is_continued(is_processed: bool, tmp_path: Path) -> None:
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        if sync_and_die_at(number, is_processed=is_processed, folder=folder) == 0:
            break
    assert number > 8, "a sync makes several requests"


# Any sequence of actions

ACTIONS = ["label", "skip", "unknown label", "change", "delete", "delete task", "sync", "undo"]
STEPS = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, 7), st.sampled_from(["even", "odd"])),
    max_size=20,
)

UNDONE_ANNOTATIONS = """
select annotation from label_studio_answers l join answers a on a.id = l.answer_id
where l.id in (select max(id) from label_studio_answers group by annotation) and a.undone
"""


class Play:
    """One sequence of actions in Label Studio and in the campaign."""

    def __init__(self, folder: Path) -> None:
        self.studio = FakeLabelStudio()
        self.backend = fake_backend(folder, self.studio)
        self.campaign = self.backend.create_campaign(count=16)
        self.undone_annotations: set[int] = set()
        """Annotations whose answer was undone in the campaign."""
        self.sync()

    def sync(self) -> None:
        self.backend.sync(self.campaign, n=4, train=False)

    def act(self, action: str, index: int, label: str) -> None:
        """Do one step; an action that is impossible now does nothing."""
        annotation_ids = list(self.studio.annotations)
        task_ids = list(self.studio.tasks)

        if action == "sync":
            self.sync()
        elif action in ("label", "skip", "unknown label"):
            if count_waiting_tasks(self.studio):
                answers = {"label": label, "skip": None, "unknown label": "neither"}
                self.backend.annotate_task(self.backend.next_task(), lambda _: answers[action])
        elif action == "change" and annotation_ids:
            self.change(annotation_ids[index % len(annotation_ids)], label)
        elif action == "delete" and annotation_ids:
            annotation_id = annotation_ids[index % len(annotation_ids)]
            self.backend.browsers[0].delete(f"/api/annotations/{annotation_id}/")
        elif action == "delete task" and task_ids:
            self.delete_unanswered_task(task_ids[index % len(task_ids)])
        elif action == "undo":
            self.undo()

    def change(self, annotation_id: int, label: str) -> None:
        annotation = self.studio.annotations[annotation_id]
        body = {"result": result_with(label), "was_cancelled": False}
        if any(annotation[key] != value for key, value in body.items()):
            self.undone_annotations.discard(annotation_id)  # It counts again.
        self.backend.browsers[0].patch(f"/api/annotations/{annotation_id}/", json=body)

    def delete_unanswered_task(self, task_id: int) -> None:
        item_id = self.studio.tasks[task_id]["data"]["teeter_item"]
        if item_id not in self.annotated_items():
            self.backend.browsers[0].delete(f"/api/tasks/{task_id}/")

    def undo(self) -> None:
        self.sync()
        if self.campaign.undo("ann@example.com") is not None:
            with self.campaign.reading() as view:
                rows = view.connection.exec_driver_sql(UNDONE_ANNOTATIONS)
                self.undone_annotations |= set(rows.scalars())

    def annotated_items(self) -> set[str]:
        return {
            self.studio.tasks[annotation["task"]]["data"]["teeter_item"]
            for annotation in self.studio.annotations.values()
        }

    def check(self) -> None:
        """Check that the campaign holds what the annotations say."""
        answers = valid_answers(self.campaign)
        assert set(answers) <= self.annotated_items(), "a deleted annotation is no answer"

        labels_by_item: dict[str, list[str]] = {}
        unknown_items = set()
        for annotation in self.studio.annotations.values():
            item_id = self.studio.tasks[annotation["task"]]["data"]["teeter_item"]
            label = "skip"
            if not annotation["was_cancelled"]:
                (label,) = annotation["result"][0]["value"]["choices"]

            if label == "neither":
                unknown_items.add(item_id)
            elif annotation["id"] not in self.undone_annotations:
                labels_by_item.setdefault(item_id, []).append(label)

        # An item may have several tasks over time; then the order of changes decides.
        for item_id, labels in labels_by_item.items():
            if len(labels) == 1:
                assert answers[item_id] == labels[0]

        waiting = count_waiting_tasks(self.studio)
        assert max(waiting.values(), default=1) == 1

        with self.campaign.reading() as view:
            stored = {(answer.item, answer.annotator): answer for answer in view.answers.live()}
            picks = view.picks.open_picks("label-studio")
        assert replay_answers(self.campaign.history()) == stored
        assert {pick.item for pick in picks} <= set(waiting) | unknown_items, (
            "every open pick has a task"
        )


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_the_campaign_holds_what_annotations_say(steps: list[tuple[str, int, str]]) -> None:
    with TemporaryDirectory() as folder:
        play = Play(Path(folder))
        for action, index, label in steps:
            play.act(action, index, label)
        play.sync()
        play.check()
        play.campaign.database.close()


# Repeated and simultaneous syncs


def test_a_long_watch_reads_changes_and_at_times_everything(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.create_campaign()
    with LabelStudio(
        campaign, LEGACY_TOKEN, backend.url, n=8, transport=studio.transport, sleep=lambda _: None
    ) as label_studio:
        label_studio.sync()
        backend.project_id = next(iter(studio.projects))
        studio.advance_clock(10)
        backend.annotate(1, true_label)
        label_studio.sync()

        studio.requests.clear()
        backend.annotate(2, true_label)
        result = label_studio.sync()
        assert (result.labels, result.sent, result.withdrawn) == (2, 0, 0)
        (query,) = [
            request.url.params for request in studio.requests if request.url.path == "/api/tasks/"
        ]
        listed = studio.client().get("/api/tasks/", params=query).json()["tasks"]
        assert len(listed) == 3, "only changed tasks are listed, of eight"

        task_id = next(id_ for id_, task in studio.tasks.items() if not task["is_labeled"])
        backend.browsers[0].delete(f"/api/tasks/{task_id}/")
        sent = [label_studio.sync().sent for _ in range(FULL_READ_INTERVAL)]
        assert sum(sent) == 1, "the deleted task is noticed by the next full read"

        studio.projects.clear()
        with pytest.raises(ServerError, match="no longer has project"):
            label_studio.sync()


@pytest.mark.slow
def test_simultaneous_syncs_send_every_item_once(tmp_path: Path) -> None:
    studio = FakeLabelStudio()
    backend = fake_backend(tmp_path, studio)
    backend.create_campaign(count=80).database.close()

    never = threading.Event()

    def slow_down_creation(request: httpx2.Request) -> None:
        creates = request.url.path.endswith(("/import", "/projects/"))
        if creates and request.method == "POST":
            never.wait(0.3)

    studio.before_request = slow_down_creation
    failures: list[BaseException] = []

    def sync() -> None:
        campaign = Campaign.open(tmp_path / "numbers.teeter")
        try:
            with LabelStudio(
                campaign, LEGACY_TOKEN, backend.url, n=12, transport=studio.transport
            ) as label_studio:
                label_studio.sync()
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
    with campaign.reading() as view:
        items = {pick.item for pick in view.picks.open_picks()}
    campaign.database.close()
    assert len(items) == 12
    assert count_waiting_tasks(studio) == Counter(items)
    assert len(studio.tasks) == len(items)


# The project


def test_a_project_that_was_created_but_not_stored_is_found(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.create_campaign()
    backend.sync(campaign, n=2)
    creations = itertools.count()

    def die_after_creation(request: httpx2.Request) -> None:
        is_creation = (request.method, request.url.path) == ("POST", "/api/projects/")
        if is_creation and next(creations) == 0:
            raise SystemExit

    studio.after_request = die_after_creation
    with pytest.raises(SystemExit):
        backend.sync(campaign, n=2, new_project=True)

    result = backend.sync(campaign, n=2, new_project=True)
    assert (result.created, result.sent) == (False, 2)
    assert len(studio.projects) == 2


def test_a_foreign_project_with_the_same_id_is_not_touched(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.create_campaign()
    backend.sync(campaign, n=2)
    studio.projects[backend.project_id]["description"] = "the birds"

    with pytest.raises(
        ServerError,
        match=r"does not belong to this campaign: its description lacks \[teeter:backend-0\]",
    ):
        backend.sync(campaign, n=2)
    assert len(studio.tasks) == 2


def test_the_url_is_stored_and_may_change(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.create_campaign()
    with pytest.raises(InputError, match="not linked to a Label Studio server yet: pass url="):
        backend.sync(campaign, url=None)

    backend.sync(campaign, n=2)
    assert backend.sync(campaign, n=2, url=None).url == backend.url

    page = "http://localhost:8080/projects/1/data?tab=3"
    assert backend.sync(campaign, n=2, url=page).url == "http://localhost:8080"
    assert backend.sync(campaign, n=2, url=None).url == "http://localhost:8080"
    assert len(studio.projects) == 1


def test_changes_of_the_project_stay(backend: LabelStudioBackend, studio: FakeLabelStudio) -> None:
    campaign = backend.create_campaign()
    backend.sync(campaign, n=2)
    project = studio.projects[backend.project_id]
    project["label_config"] = project["label_config"].replace(
        "<Text", '<Header value="Look!"/><Text'
    )
    project["model_version"] = "another"
    campaign.classes.add("neither")

    backend.sync(campaign, n=2)
    assert '<Header value="Look!" />' in project["label_config"]
    assert project["label_config"].count("<Choice ") == 3
    assert project["model_version"] == "another", "nothing was sent"

    backend.sync(campaign, n=8)
    assert project["model_version"] == "teeter", "otherwise Label Studio ignores the scores"

    project["label_config"] = "<View/>"
    with pytest.raises(ServerError, match="has no <Choices"):
        backend.sync(campaign, n=8)


# Models and picks


def test_without_training_no_model_is_trained(backend: LabelStudioBackend) -> None:
    campaign = backend.create_campaign()
    backend.sync(campaign, n=4)
    backend.annotate(4, true_label)

    result = backend.sync(campaign, n=4, train=False)
    assert (result.labels, result.model, result.sent) == (4, None, 4)
    assert campaign.status().version == 0


def test_labels_of_a_single_class_train_no_model(backend: LabelStudioBackend) -> None:
    campaign = backend.create_campaign()
    backend.sync(campaign, n=4)
    backend.annotate(4, lambda _: "even")
    assert backend.sync(campaign, n=4).model is None


def test_new_items_are_picked_when_half_of_them_wait(backend: LabelStudioBackend) -> None:
    campaign = backend.create_campaign()
    backend.sync(campaign, n=6)

    backend.annotate(2, true_label)
    early = backend.sync(campaign, n=6)
    assert (early.model, early.sent, early.waiting) == (None, 0, 4)

    backend.annotate(1, true_label)
    due = backend.sync(campaign, n=6)
    assert (due.model, due.sent, due.waiting) == (1, 3, 6)


# The database


@pytest.fixture(params=POSTGRESQL_SLOW)
def two_databases(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "other").mkdir()
    return new_place(request.param, tmp_path), new_place(request.param, tmp_path / "other")


def test_the_link_moves_with_the_campaign(
    two_databases: tuple[str, str], backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    source, target = two_databases
    campaign = Campaign.make(
        [], ("even", "odd"), at=source, name="numbers", settings=Settings(kind="features")
    )
    campaign.add({"id": f"n{k}", "features": [k % 2, k]} for k in range(20))
    assert backend.sync(campaign, n=4).sent == 4
    backend.annotate(3, true_label)
    assert backend.sync(campaign, n=4).labels == 3

    target_database = Database(target, create=True)
    row_counts = copy_campaign(campaign.database, target_database, "numbers")
    assert (row_counts["label_studio"], row_counts["label_studio_answers"]) == (1, 3)
    target_database.close()
    campaign.database.close()

    moved = Campaign.open(target, "numbers")
    assert not backend.sync(moved, n=4, url=None).has_changes
    backend.change_annotation("n0", "odd")
    backend.delete_annotation("n1")
    result = backend.sync(moved, n=4, url=None)
    assert (result.corrected, result.withdrawn) == (1, 1)
    assert valid_answers(moved) == {"n0": "odd", "n2": "even"}

    unchanged = backend.sync(moved, n=4, url=None)
    assert not unchanged.has_changes, "an answer is withdrawn once"
    assert len(studio.projects) == 1
    moved.database.close()


def test_the_token_is_not_stored(backend: LabelStudioBackend) -> None:
    campaign = backend.create_campaign()
    backend.sync(campaign, n=2)
    campaign.database.close()
    for file in backend.folder.glob("numbers.teeter*"):
        assert LEGACY_TOKEN.encode() not in file.read_bytes()


def test_a_server_that_is_unavailable_leaves_the_campaign_unchanged(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.create_campaign()
    history = campaign.history()
    studio.before_request = lambda _: httpx2.Response(503)

    with pytest.raises(
        ServerUnavailableError, match=r"responded with status 503\. Nothing is lost"
    ):
        backend.sync(campaign, n=2)
    assert campaign.history() == history


def test_at_least_one_item_must_wait(backend: LabelStudioBackend) -> None:
    campaign = backend.create_campaign()
    with pytest.raises(InputError, match="Cannot keep 0 items in Label Studio"):
        backend.sync(campaign, n=0)
