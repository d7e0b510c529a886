"""Scenarios that run with every backend: the fake, a real Label Studio and recorded responses.

With recorded responses annotators do nothing, so a scenario only checks what a sync does.
"""

from __future__ import annotations

import pytest
from PIL import Image

from campaigns.label_studio_backends import LabelStudioBackend
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings
from teeter.errors import ServerError

__all__ = ["SCENARIOS", "true_label", "valid_answers"]


def true_label(item_id: str) -> str:
    return ("even", "odd")[int(item_id[1:]) % 2]


def wrong_label(item_id: str) -> str:
    return ("odd", "even")[int(item_id[1:]) % 2]


def valid_answers(campaign: Campaign) -> dict[str, str]:
    """Return the label of each answered item, or "skip", if ann@example.com alone answered."""
    with campaign.reading() as view:
        answers = view.answers.live()

    assert len({(answer.item, answer.annotator) for answer in answers}) == len(answers)
    assert {answer.annotator for answer in answers} <= {"ann@example.com"}
    return {answer.item: answer.label or answer.kind for answer in answers}


def open_items(campaign: Campaign, n: int) -> list[str]:
    """Return the items that wait in Label Studio, best first."""
    return [question.item for question in campaign.ask(n, "label-studio")]


def sync_two_rounds(backend: LabelStudioBackend) -> None:
    """Two rounds with a skip, a change and a deletion, and a sync that finds nothing to do."""
    campaign = backend.create_campaign()

    first = backend.sync(campaign, n=6)
    assert (first.created, first.sent, first.waiting, first.model) == (True, 6, 6, None)

    items = open_items(campaign, 6)
    skipped = items[2]
    answered = backend.annotate(6, lambda item: None if item == skipped else true_label(item))
    assert answered in (items, []), "Label Studio serves the best item first"

    second = backend.sync(campaign, n=6)
    assert (second.labels, second.skips, second.model, second.sent) == (5, 1, 1, 6)
    expected = {item: true_label(item) for item in items}
    expected[skipped] = "skip"
    assert valid_answers(campaign) == expected

    unchanged = backend.sync(campaign, n=6)
    assert not unchanged.has_changes
    assert unchanged.waiting == 6

    changed = items[0]
    deleted = items[1]
    if backend.has_annotators:
        backend.change_annotation(changed, wrong_label(changed))
        backend.change_annotation(skipped, true_label(skipped))
        backend.delete_annotation(deleted)

    third = backend.sync(campaign, n=6)
    assert (third.labels, third.corrected, third.withdrawn) == (0, 2, 1)
    assert (third.waiting, third.sent) == (6, 0)
    assert deleted in open_items(campaign, 20), "the deleted answer is asked for again"

    expected = {item: true_label(item) for item in items if item != deleted}
    expected[changed] = wrong_label(changed)
    assert valid_answers(campaign) == expected


def ignore_foreign_tasks_and_labels(backend: LabelStudioBackend) -> None:
    """Foreign tasks, unknown labels, an added class, and class names with special characters."""
    classes = ("even", "odd", '<a> & "b"', "US$5")
    campaign = backend.create_campaign(classes, instructions="Look <closely>.\nThen choose.")
    backend.sync(campaign, n=4)

    if backend.has_annotators:
        backend.add_foreign_task()
    items = open_items(campaign, 4)
    labels = {items[0]: classes[2], items[1]: classes[3], items[2]: "neither"}
    backend.annotate(3, lambda item: labels[item])

    second = backend.sync(campaign, n=4)
    assert second.labels == 2
    assert second.notes[0] == "Ignored 1 task that teeter did not create for this campaign."
    assert second.notes[1].startswith(
        "Ignored 1 annotation with the label 'neither', which is not a class of this campaign "
        "(even, odd,"
    )
    assert valid_answers(campaign) == {items[0]: classes[2], items[1]: classes[3]}

    campaign.classes.add("neither")
    third = backend.sync(campaign, n=4)
    assert (third.labels, len(third.notes)) == (1, 1)
    assert valid_answers(campaign)[items[2]] == "neither"
    if backend.has_annotators:
        project = backend.browsers[0].get(f"/api/projects/{backend.project_id}/").json()
        assert 'value="neither"' in project["label_config"]


def sync_with_a_personal_token(backend: LabelStudioBackend) -> None:
    """A personal access token is exchanged for an access token."""
    campaign = backend.create_campaign()
    assert backend.sync(campaign, "personal", n=2).sent == 2


def upload_images(backend: LabelStudioBackend) -> None:
    """Images are uploaded; those that browsers do not show become PNG files."""
    names = ["a b.png", "deep/ü.jpg", "c.tiff"]
    folder = backend.folder / "images"
    (folder / "deep").mkdir(parents=True)
    for k, name in enumerate(names):
        Image.new("RGB", (8, 8), (80 * k, 10, 10)).save(folder / name)

    campaign = Campaign.make(
        [],
        ("red", "black"),
        at=backend.folder / "images.teeter",
        settings=Settings(kind="image", folder=str(folder)),
    )
    campaign.add(names)

    assert backend.sync(campaign, n=3).sent == 3
    if backend.has_annotators:
        urls = {task["data"]["teeter_item"]: task["data"]["image"] for task in backend.list_tasks()}
        assert set(urls) == set(names)
        assert urls["c.tiff"].endswith(".png")


def answer_with_two_annotators(backend: LabelStudioBackend) -> None:
    """Two annotators answer the same items; an item that one of them skips waits for both."""
    backend.invite("bob@example.com")
    campaign = backend.create_campaign(overlap=1.0, people=2)
    backend.sync(campaign, n=4)

    backend.annotate(4, true_label, annotator=0)
    half = backend.sync(campaign, n=4)
    assert (half.labels, half.sent, half.waiting) == (4, 0, 4), "all four wait for Bob"

    items = open_items(campaign, 4)
    bobs_answers = {item: true_label(item) for item in items}
    bobs_answers[items[1]] = wrong_label(items[1])
    backend.annotate(4, lambda item: None if item == items[2] else bobs_answers[item], annotator=1)

    last = backend.sync(campaign, n=4)
    assert (last.labels, last.skips, last.waiting) == (3, 1, 4)
    assert campaign.status().disagreements == 1
    stats = campaign.people.stats()
    answer_counts = {member.name: member.answers for member in stats if member.answers}
    assert answer_counts == {"ann@example.com": 4, "bob@example.com": 4}


def refuse_wrong_tokens_and_projects(backend: LabelStudioBackend) -> None:
    """Wrong tokens, a wrong URL, and a project that is deleted and replaced: nothing is lost."""
    campaign = backend.create_campaign()
    with pytest.raises(
        ServerError,
        match=r"rejects the token \(Invalid token.\)\. The token is wrong or has expired",
    ):
        backend.sync(campaign, "f" * 40)
    with pytest.raises(
        ServerError,
        match=r"rejects the token \(Token is invalid\)\. The token is wrong or has expired",
    ):
        backend.sync(campaign, "wrong.wrong.wrong")
    with pytest.raises(
        ServerError, match=r"There is no Label Studio at http://127.0.0.1:\d+/elsewhere\. Check"
    ):
        backend.sync(campaign, url=f"{backend.url}/elsewhere")

    backend.sync(campaign, n=4)
    items = open_items(campaign, 4)
    backend.annotate(1, true_label)
    backend.sync(campaign, n=4)

    if backend.has_annotators:
        backend.delete_project()
    with pytest.raises(
        ServerError, match=r"no longer has project \d+\. To continue, .* new_project="
    ):
        backend.sync(campaign, n=4)

    replaced = backend.sync(campaign, n=4, new_project=True)
    assert (replaced.created, replaced.sent) == (True, 3)
    assert (replaced.labels, replaced.withdrawn) == (0, 0)
    assert valid_answers(campaign) == {items[0]: true_label(items[0])}


SCENARIOS = {
    "rounds": sync_two_rounds,
    "strangers": ignore_foreign_tasks_and_labels,
    "personal": sync_with_a_personal_token,
    "images": upload_images,
    "together": answer_with_two_annotators,
    "refusals": refuse_wrong_tokens_and_projects,
}
