"""What becomes of people, skips, changes, deletions, images and stores when a campaign is labelled in Label Studio."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import httpx
import pytest

from campaigns.fake_label_studio import LEGACY, FakeLabelStudio, waiting_tasks
from campaigns.label_studio_backends import LabelStudioBackend, chosen, imaginary
from campaigns.label_studio_scenarios import held, truth
from campaigns.stores import POSTGRESQL_SLOW, new_place
from teeter.campaigns.campaign import Campaign, Settings
from teeter.campaigns.db import Answer, Database
from teeter.campaigns.transfer import move_campaign
from teeter.errors import InputError, ServerError, ServerUnavailableError


@pytest.fixture
def studio() -> FakeLabelStudio:
    return FakeLabelStudio()


@pytest.fixture
def backend(studio: FakeLabelStudio, tmp_path: Path) -> LabelStudioBackend:
    return imaginary(tmp_path, studio)


def test_several_people_answer_what_several_are_to(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    backend.people.append(studio.user("bob@example.com"))
    campaign = backend.campaign(overlap=1.0, people=2)
    with_overlap = backend.sync(campaign, n=4)
    assert with_overlap.sent == 4
    assert {task["overlap"] for task in studio.tasks.values()} == {2}
    backend.annotate(4, truth, 0)
    half = backend.sync(campaign, n=4)
    assert (half.labels, half.sent, half.waiting) == (4, 0, 4), (
        "the same four wait for somebody else"
    )
    backend.annotate(3, truth, 1)
    backend.annotate(1, lambda item: "even" if truth(item) == "odd" else "odd", 1)
    last = backend.sync(campaign, n=4)
    assert (last.labels, last.sent) == (4, 4)
    assert campaign.status().disagreements == 1
    assert {task["overlap"] for task in studio.tasks.values()} == {2}
    assert {one.name: one.answers for one in campaign.team()} == {
        "ann@example.com": 4,
        "bob@example.com": 4,
    }


def test_a_task_that_is_deleted_leaves_its_answers_and_is_sent_again_for_those_who_are_missing(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.campaign(overlap=1.0, people=2)
    backend.sync(campaign, n=2)
    backend.annotate(1, truth)
    backend.sync(campaign, n=2)
    for number in list(studio.tasks):
        backend.people[0].delete(f"/api/tasks/{number}/")
    found = backend.sync(campaign, n=2)
    assert (found.withdrawn, found.sent) == (0, 2)
    assert held(campaign) == {"n0": "even"}
    assert {task["data"]["teeter_item"]: task["overlap"] for task in studio.tasks.values()} == {
        "n0": 1,
        "n1": 2,
    }


def test_people_go_by_their_addresses(backend: LabelStudioBackend, studio: FakeLabelStudio) -> None:
    backend.people += [
        studio.user("bob@example.com"),
        studio.user("bad\x07@example.com"),
        studio.user("import"),
    ]
    campaign = backend.campaign()
    campaign.people.add("ann@example.com")
    backend.sync(campaign, n=8)
    for who in range(4):
        backend.annotate(1, truth, who)
    notes = backend.sync(campaign, n=8).notes
    told = (
        "Not among the campaign's people, and counted all the same: bob@example.com, label-studio."
    )
    assert notes == (told,)
    with campaign.database.reading() as connection:
        who = Counter(one.annotator for one in campaign.repository.answers.live(connection))
    assert who == {"ann@example.com": 1, "bob@example.com": 1, "label-studio": 2}


def test_answers_have_the_time_they_were_given_at(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.campaign()
    backend.sync(campaign, n=2)
    backend.annotate(1, truth)
    given = next(iter(studio.annotations.values()))["created_at"]
    backend.sync(campaign, n=2)
    with campaign.database.reading() as connection:
        assert connection.exec_driver_sql("select at from answers").scalar() == given.replace(
            "Z", ".000+00:00"
        )


def test_answers_that_come_in_late_do_not_turn_time_back(backend: LabelStudioBackend) -> None:
    campaign = backend.campaign()
    with campaign.database.writing() as connection:
        for k in range(6):
            at = f"2030-01-01T00:00:{50 - 10 * k:02}.000+00:00"
            campaign.repository.answers.record(
                connection, Answer(f"n{k}", "ann", "label", "even"), at=at
            )
    (ann,) = campaign.team()
    assert ann.speed is not None
    assert (ann.speed.seconds, ann.speed.per_hour) == (10, 360)


def test_what_is_skipped_is_asked_again_after_the_next_model_as_another_task(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.campaign(count=6)
    backend.sync(campaign, n=6)
    backend.annotate(1, lambda _: None)
    backend.annotate(5, truth)
    second = backend.sync(campaign, n=6)
    assert (second.model, second.sent, second.waiting, len(studio.tasks)) == (1, 1, 1, 7)
    assert backend.annotate(1, truth) == ["n0"]
    last = backend.sync(campaign, n=6)
    assert (last.labels, last.waiting) == (1, 0)
    assert last.notes == ("Nothing is left to ask about.",)
    assert held(campaign)["n0"] == "even"


def test_what_is_taken_back_here_is_asked_again_there(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.campaign()
    backend.sync(campaign, n=4)
    backend.annotate(1, truth)
    backend.sync(campaign, n=4)
    campaign.undo("ann@example.com")
    again = backend.sync(campaign, n=4)
    assert (again.labels, again.sent, again.waiting) == (0, 1, 4)
    assert backend.annotate(1, lambda _: "odd") in (["n0"], ["n1"])
    assert waiting_tasks(studio)


def test_an_annotation_without_one_class_waits(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.campaign()
    backend.sync(campaign, n=4)
    for result in (
        [],
        [*chosen("even"), *chosen("odd")],
        [{"from_name": "label", "value": {"choices": []}}],
    ):
        task = backend.next()
        backend.people[0].post(f"/api/tasks/{task['id']}/annotations/", json={"result": result})
    found = backend.sync(campaign, n=4)
    assert (found.labels, found.sent, found.waiting) == (0, 0, 4)
    assert found.notes == (
        "No class, or several: 3 annotations, kept in Label Studio until somebody chooses one.",
    )


def test_what_was_changed_and_then_deleted_is_taken_back_whole(backend: LabelStudioBackend) -> None:
    campaign = backend.campaign()
    backend.sync(campaign, n=4)
    backend.annotate(1, lambda _: "even")
    backend.sync(campaign, n=4)
    backend.change("n0", "odd")
    assert backend.sync(campaign, n=4).corrected == 1
    backend.delete("n0")
    assert backend.sync(campaign, n=4).withdrawn == 1
    assert held(campaign) == {}


def test_a_new_project_that_nobody_came_to_note_is_found(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.campaign()
    backend.sync(campaign, n=2)
    posted = itertools.count()

    def die(request: httpx.Request) -> None:
        if (request.method, request.url.path) == ("POST", "/api/projects/") and next(posted) == 0:
            raise SystemExit

    studio.after = die
    with pytest.raises(SystemExit):
        backend.sync(campaign, n=2, new_project=True)
    found = backend.sync(campaign, n=2, new_project=True)
    assert (found.made, found.sent, len(studio.projects)) == (False, 2, 2)


def test_another_project_of_the_same_number_is_left_alone(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.campaign()
    backend.sync(campaign, n=2)
    studio.projects[backend.project]["description"] = "the birds"
    with pytest.raises(
        ServerError, match=r"is not this campaign's \(its description lacks \[teeter:backend-0\]\)"
    ):
        backend.sync(campaign, n=2)
    assert len(studio.tasks) == 2


def test_the_address_is_remembered_and_may_change(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.campaign()
    with pytest.raises(InputError, match="Where is Label Studio"):
        backend.sync(campaign, url=None)
    backend.sync(campaign, n=2)
    assert backend.sync(campaign, n=2, url=None).url == backend.url
    assert (
        backend.sync(campaign, n=2, url="http://localhost:8080/projects/1/data?tab=3").url
        == "http://localhost:8080"
    )
    assert backend.sync(campaign, n=2, url=None).url == "http://localhost:8080"
    assert len(studio.projects) == 1


def test_what_people_changed_in_the_project_stays(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.campaign()
    backend.sync(campaign, n=2)
    project = studio.projects[backend.project]
    project["label_config"] = project["label_config"].replace(
        "<Text", '<Header value="Look!"/><Text'
    )
    project["model_version"] = "another"
    campaign.add_class("neither")
    backend.annotate(0, truth)
    backend.sync(campaign, n=2)
    assert '<Header value="Look!" />' in project["label_config"]
    assert project["label_config"].count("<Choice ") == 3
    assert project["model_version"] == "another", "nothing was sent"
    backend.sync(campaign, n=8)
    assert project["model_version"] == "teeter", "else the order of tasks is random"
    project["label_config"] = "<View/>"
    with pytest.raises(ServerError, match="has no <Choices"):
        backend.sync(campaign, n=8)


def test_images_that_are_served_already_are_not_uploaded(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    from PIL import Image

    folder = backend.folder / "images"
    folder.mkdir()
    for k, name in enumerate(("a b.png", "c.png")):
        Image.new("RGB", (8, 8), (80 * k, 10, 10)).save(folder / name)
    kind = Settings(kind="image", folder=str(folder))
    campaign = Campaign.create(backend.folder / "images.teeter", "images", ("red", "black"), kind)
    campaign.add(["a b.png", "c.png"])
    backend.sync(campaign, n=2, images="/data/local-files/?d=images/")
    shown = {task["data"]["image"] for task in studio.tasks.values()}
    assert shown == {"/data/local-files/?d=images/a%20b.png", "/data/local-files/?d=images/c.png"}
    assert studio.files == {}


def test_without_training_no_model_is_made(backend: LabelStudioBackend) -> None:
    campaign = backend.campaign()
    backend.sync(campaign, n=4)
    backend.annotate(4, truth)
    found = backend.sync(campaign, n=4, train=False)
    assert (found.labels, found.model, found.sent) == (4, None, 4)
    assert campaign.status().version == 0


def test_labels_of_one_class_are_not_trained_on(backend: LabelStudioBackend) -> None:
    campaign = backend.campaign()
    backend.sync(campaign, n=4)
    backend.annotate(4, lambda _: "even")
    assert backend.sync(campaign, n=4).model is None


def test_questions_run_low_before_others_are_picked(backend: LabelStudioBackend) -> None:
    campaign = backend.campaign()
    backend.sync(campaign, n=6)
    backend.annotate(2, truth)
    few = backend.sync(campaign, n=6)
    assert (few.model, few.sent, few.waiting) == (None, 0, 4)
    backend.annotate(1, truth)
    more = backend.sync(campaign, n=6)
    assert (more.model, more.sent, more.waiting) == (1, 3, 6)


@pytest.fixture(params=POSTGRESQL_SLOW)
def places(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "other").mkdir()
    return new_place(request.param, tmp_path), new_place(request.param, tmp_path / "other")


def test_in_every_store_and_moved_to_another(
    places: tuple[str, str], backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = Campaign.create(places[0], "numbers", ("even", "odd"), Settings(kind="features"))
    campaign.add({"id": f"n{k}", "features": [k % 2, k]} for k in range(20))
    assert backend.sync(campaign, n=4).sent == 4
    backend.annotate(3, truth)
    assert backend.sync(campaign, n=4).labels == 3
    target = Database(places[1], create=True)
    counts = move_campaign(campaign.database, target, "numbers")
    assert (counts["label_studio"], counts["label_studio_answers"]) == (1, 3)
    target.close()
    campaign.database.close()
    moved = Campaign.open(places[1], "numbers")
    assert not backend.sync(moved, n=4, url=None).is_news
    backend.change("n0", "odd")
    backend.delete("n1")
    found = backend.sync(moved, n=4, url=None)
    assert (found.corrected, found.withdrawn) == (1, 1)
    assert held(moved) == {"n0": "odd", "n2": "even"}
    assert not backend.sync(moved, n=4, url=None).is_news, "what is taken back is taken back once"
    assert len(studio.projects) == 1
    moved.database.close()


def test_the_token_is_in_no_row(backend: LabelStudioBackend) -> None:
    campaign = backend.campaign()
    backend.sync(campaign, n=2)
    campaign.database.close()
    for file in backend.folder.glob("numbers.teeter*"):
        assert LEGACY.encode() not in file.read_bytes()


def test_a_server_that_is_away_leaves_the_campaign_as_it_was(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.campaign()
    studio.before = lambda _: httpx.Response(503)
    before = campaign.history()
    with pytest.raises(
        ServerUnavailableError, match=r"answers with 503: nothing is lost, run it again later"
    ):
        backend.sync(campaign, n=2)
    assert campaign.history() == before


def test_what_is_refused_at_the_door(backend: LabelStudioBackend) -> None:
    campaign = backend.campaign()
    for bad in ("", " ", "a b", "a\nb", "ä"):
        with pytest.raises(InputError, match="The token is blank"):
            backend.sync(campaign, bad)
    with pytest.raises(InputError, match="Cannot keep 0 questions"):
        backend.sync(campaign, n=0)
