"""Annotations that a sync imports: whose they are, when they were given, and what happens later."""

from __future__ import annotations

from collections import Counter

from campaigns.fake_label_studio import FakeLabelStudio, count_waiting_tasks
from campaigns.label_studio_backends import LabelStudioBackend, result_with
from campaigns.label_studio_scenarios import true_label, valid_answers
from teeter.campaigns.records import Answer, AnswerKind


def test_answers_are_credited_to_e_mail_addresses(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    for email in ("bob@example.com", "bad\x07@example.com", "import"):
        backend.invite(email)
    campaign = backend.create_campaign()
    campaign.people.add("ann@example.com")
    backend.sync(campaign, n=8)

    for annotator in range(4):
        backend.annotate(1, true_label, annotator)
    notes = backend.sync(campaign, n=8).notes
    assert notes == (
        "Imported answers from annotators who are not members: bob@example.com, label-studio.",
    )

    with campaign.reading() as view:
        answers = view.answers.live()
    answer_counts = Counter(answer.annotator for answer in answers)
    assert answer_counts == {"ann@example.com": 1, "bob@example.com": 1, "label-studio": 2}


def test_answers_have_the_time_of_their_annotation(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.create_campaign()
    backend.sync(campaign, n=2)
    backend.annotate(1, true_label)
    (annotation,) = studio.annotations.values()
    backend.sync(campaign, n=2)

    with campaign.reading() as view:
        stored = view.connection.exec_driver_sql("select at from answers").scalar()
    assert stored == annotation["created_at"].replace("Z", ".000+00:00")


def test_answers_that_arrive_out_of_order_do_not_distort_the_pace(
    backend: LabelStudioBackend,
) -> None:
    campaign = backend.create_campaign()
    with campaign.writing() as change:
        for k in range(6):
            at = f"2030-01-01T00:00:{50 - 10 * k:02}.000+00:00"
            answer = Answer(f"n{k}", "ann", AnswerKind.LABEL, "even")
            change.answers.record(answer, at=at)

    (ann,) = campaign.people.stats()
    assert ann.seconds is not None
    assert (ann.seconds, ann.per_hour) == (10, 360)


def test_a_skipped_item_becomes_another_task_after_the_next_model(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.create_campaign(count=6)
    backend.sync(campaign, n=6)
    backend.annotate(1, lambda _: None)
    backend.annotate(5, true_label)

    second = backend.sync(campaign, n=6)
    assert (second.model, second.sent, second.waiting) == (1, 1, 1)
    assert len(studio.tasks) == 7

    assert backend.annotate(1, true_label) == ["n0"]
    last = backend.sync(campaign, n=6)
    assert (last.labels, last.waiting) == (1, 0)
    assert last.notes == ("No items are left to label.",)
    assert valid_answers(campaign)["n0"] == "even"


def test_an_answer_that_is_undone_in_the_campaign_becomes_another_task(
    backend: LabelStudioBackend, studio: FakeLabelStudio
) -> None:
    campaign = backend.create_campaign()
    backend.sync(campaign, n=4)
    backend.annotate(1, true_label)
    backend.sync(campaign, n=4)

    campaign.undo("ann@example.com")
    result = backend.sync(campaign, n=4)
    assert (result.labels, result.sent, result.waiting) == (0, 1, 4)
    assert backend.annotate(1, lambda _: "odd") in (["n0"], ["n1"])
    assert count_waiting_tasks(studio)


def test_an_annotation_without_exactly_one_class_is_ignored(backend: LabelStudioBackend) -> None:
    campaign = backend.create_campaign()
    backend.sync(campaign, n=4)
    for result in (
        [],
        [*result_with("even"), *result_with("odd")],
        [{"from_name": "label", "value": {"choices": []}}],
    ):
        path = f"/api/tasks/{backend.next_task()['id']}/annotations/"
        backend.browsers[0].post(path, json={"result": result})

    synced = backend.sync(campaign, n=4)
    assert (synced.labels, synced.sent, synced.waiting) == (0, 0, 4)
    assert synced.notes == (
        "Ignored 3 annotations with no class or several classes. Choose exactly one class in Label "
        "Studio.",
    )


def test_a_changed_annotation_that_is_deleted_leaves_no_answer(backend: LabelStudioBackend) -> None:
    campaign = backend.create_campaign()
    backend.sync(campaign, n=4)
    backend.annotate(1, lambda _: "even")
    backend.sync(campaign, n=4)

    backend.change_annotation("n0", "odd")
    assert backend.sync(campaign, n=4).corrected == 1

    backend.delete_annotation("n0")
    assert backend.sync(campaign, n=4).withdrawn == 1
    assert valid_answers(campaign) == {}


def test_swapped_names_leave_imported_answers_as_they_are(backend: LabelStudioBackend) -> None:
    campaign = backend.create_campaign()
    backend.sync(campaign, n=4)
    backend.annotate(2, true_label)
    backend.sync(campaign, n=4)

    for name, new_name in (("even", "spare"), ("odd", "even"), ("spare", "odd")):
        campaign.classes.rename(name, new_name)
    assert backend.sync(campaign, n=4).corrected == 0

    # Chosen again, the name means the class that has it now.
    backend.change_annotation("n0", "even")
    backend.sync(campaign, n=4)
    assert valid_answers(campaign) == {"n0": "even", "n1": "even"}


def test_annotations_of_a_merged_class_count_for_the_other(backend: LabelStudioBackend) -> None:
    campaign = backend.create_campaign()
    campaign.classes.add("uneven")
    backend.sync(campaign, n=4)
    backend.annotate(1, lambda _: "uneven")
    backend.sync(campaign, n=4)

    campaign.classes.merge("uneven", "odd")
    synced = backend.sync(campaign, n=4)
    assert (synced.labels, synced.corrected, synced.withdrawn) == (0, 0, 0)
    assert valid_answers(campaign) == {"n0": "odd"}

    # The project still has the class.
    backend.annotate(1, lambda _: "uneven")
    assert backend.sync(campaign, n=4).labels == 1
    assert valid_answers(campaign) == {"n0": "odd", "n1": "odd"}
