"""Tasks that a sync creates: how many, in which order, for how many annotators,
with what content.
"""

from __future__ import annotations

import pytest
from PIL import Image

from campaigns.fake_label_studio import FakeLabelStudio
from campaigns.label_studio_backends import LabelStudioBackend
from campaigns.label_studio_scenarios import true_label, valid_answers, wrong_label
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings
from teeter.campaigns.suggestions.sources import is_answered_blind


@pytest.mark.slow
def test_an_overlap_lets_several_annotators_answer_the_same_items(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    backend.invite("bob@example.com")
    campaign = backend.create_campaign(overlap=1.0, people=2)

    assert backend.sync(campaign, n=4).sent == 4
    assert {task["overlap"] for task in studio.tasks.values()} == {2}

    backend.annotate(4, true_label, annotator=0)
    half = backend.sync(campaign, n=4)
    assert (half.labels, half.sent, half.waiting) == (4, 0, 4), "all four wait for Bob"

    backend.annotate(3, true_label, annotator=1)
    backend.annotate(1, wrong_label, annotator=1)
    last = backend.sync(campaign, n=4)
    assert (last.labels, last.sent) == (4, 4)
    assert campaign.status().disagreements == 1
    assert {task["overlap"] for task in studio.tasks.values()} == {2}
    stats = campaign.people.stats()
    answer_counts = {member.name: member.answers for member in stats if member.answers}
    assert answer_counts == {"ann@example.com": 4, "bob@example.com": 4}


def test_a_deleted_task_keeps_its_answers_and_is_sent_again_for_the_missing_ones(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.create_campaign(overlap=1.0, people=2)
    backend.sync(campaign, n=2)
    backend.annotate(1, true_label)
    backend.sync(campaign, n=2)

    for task_id in list(studio.tasks):
        backend.browsers[0].delete(f"/api/tasks/{task_id}/")
    result = backend.sync(campaign, n=2)
    assert (result.withdrawn, result.sent) == (0, 2)
    assert valid_answers(campaign) == {"n0": "even"}

    overlaps = {task["data"]["teeter_item"]: task["overlap"] for task in studio.tasks.values()}
    assert overlaps == {"n0": 1, "n1": 2}


def test_suggestions_are_sent_only_if_asked_for_and_come_back_with_the_answer(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.create_campaign(count=12)
    campaign.suggestions.add([{"id": f"n{k}", "label": "even"} for k in range(12)], "old model")
    backend.sync(campaign, n=4)
    assert all("teeter_suggestion" not in task["data"] for task in studio.tasks.values())

    backend.annotate(4, true_label)
    backend.sync(campaign, n=6, suggestions=True)
    new_tasks = [task for task in studio.tasks.values() if "teeter_suggestion" in task["data"]]
    shown = {task["data"]["teeter_item"] for task in new_tasks}
    picked = {f"n{k}" for k in range(4, 10) if not is_answered_blind(f"n{k}", 0)}
    assert shown == picked
    project = next(iter(studio.projects.values()))
    assert project["show_collab_predictions"] is True

    backend.annotate(6, true_label)
    backend.sync(campaign, n=6, suggestions=True)
    (report,) = campaign.suggestions.sources()
    assert report.shown is not None
    assert report.shown.total == len(shown)
    assert report.blind is not None
    assert report.blind.total == 10 - len(shown)


@pytest.mark.slow
def test_many_tasks_are_sent_and_read_in_several_requests(
    backend: LabelStudioBackend, studio: FakeLabelStudio, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = backend.create_campaign(count=300)
    backend.sync(campaign, n=250)
    assert len(studio.tasks) == 250

    imports = [request for request in studio.requests if "/import" in request.url.path]
    assert len(imports) == 3

    monkeypatch.setattr("teeter.campaigns.integrations.label_studio.client.TASKS_PER_PAGE", 70)
    backend.annotate(180, true_label)
    assert backend.sync(campaign, n=250, train=False).labels == 180
    assert not backend.sync(campaign, n=250, train=False).has_changes


def test_images_that_are_served_already_are_not_uploaded(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    folder = backend.folder / "images"
    folder.mkdir()
    for k, name in enumerate(("a b.png", "c.png")):
        Image.new("RGB", (8, 8), (80 * k, 10, 10)).save(folder / name)
    campaign = Campaign.make(
        [],
        ("red", "black"),
        at=backend.folder / "images.teeter",
        settings=Settings(kind="image", folder=str(folder)),
    )
    campaign.add(["a b.png", "c.png"])

    backend.sync(campaign, n=2, images="/data/local-files/?d=images/")
    urls = {task["data"]["image"] for task in studio.tasks.values()}
    assert urls == {"/data/local-files/?d=images/a%20b.png", "/data/local-files/?d=images/c.png"}
    assert studio.files == {}


def test_texts_are_sent_without_nul(backend: LabelStudioBackend, studio: FakeLabelStudio) -> None:
    campaign = Campaign.make([], ("spam", "ham"), at=backend.folder / "texts.teeter")
    campaign.add([("a", "one two"), ("b", "three")])
    # A campaign refuses a NUL; a database of an older version may hold one.
    with campaign.writing() as change:
        change.connection.exec_driver_sql(
            "update items set content = 'one' || char(0) || 'two' where key = 'a'"
        )

    backend.sync(campaign, n=2)

    texts = {task["data"]["teeter_item"]: task["data"]["text"] for task in studio.tasks.values()}
    assert texts == {"a": "one\N{REPLACEMENT CHARACTER}two", "b": "three"}
