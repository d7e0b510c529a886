from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from campaigns.finish.small_campaigns import (
    CLASSES,
    KnownItems,
    answer_draws,
    label_batches,
    make_campaign,
)
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.finish.certificate import certificate_id, certificate_page
from teeter.campaigns.finish.report import describe_error, wrong_share
from teeter.campaigns.records import GroupPromise
from teeter.campaigns.settings import Settings
from teeter.campaigns.store import Database
from teeter.campaigns.store.copies import copy_campaign
from teeter.errors import InputError


@pytest.fixture(scope="module")
def items() -> KnownItems:
    return KnownItems()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory, items: KnownItems) -> Path:
    """A campaign with a model and forty labels, made once and copied for every test."""
    campaign = make_campaign(tmp_path_factory.mktemp("finish"), items)
    label_batches(campaign, items, 1, size=40)
    campaign.database.close()
    return Path(str(campaign.database.path))


@pytest.fixture
def campaign(tmp_path: Path, template: Path) -> Campaign:
    path = tmp_path / "small.teeter"
    shutil.copy(template, path)
    return Campaign.open(path)


@pytest.fixture(scope="module")
def answered_template(
    tmp_path_factory: pytest.TempPathFactory, template: Path, items: KnownItems
) -> Path:
    """A campaign with a promise whose random items are all labelled."""
    path = tmp_path_factory.mktemp("answered") / "small.teeter"
    shutil.copy(template, path)
    campaign = Campaign.open(path)
    campaign.finish.start()
    answer_draws(campaign, items)
    campaign.database.close()
    return path


@pytest.fixture
def answered_campaign(tmp_path: Path, answered_template: Path) -> Campaign:
    path = tmp_path / "answered.teeter"
    shutil.copy(answered_template, path)
    return Campaign.open(path)


def first_draws(campaign: Campaign, count: int) -> list[str]:
    with campaign.reading() as view:
        return view.finishes.drawn_items()[:count]


def read_export(campaign: Campaign, folder: Path) -> dict[str, dict[str, str]]:
    path = folder / "labels.csv"
    campaign.export(path)
    with path.open(newline="") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    # Programs read which certificate it is.
    campaign.export(folder / "labels.jsonl")
    for line in (folder / "labels.jsonl").read_text().splitlines():
        fields = json.loads(line)
        rows[fields["id"]]["certificate"] = fields["certificate"] or ""
    return rows


def other_label(items: KnownItems, item: str) -> str:
    return "bee" if items.label(item) == "ant" else "ant"


def test_a_campaign_is_finished_by_its_model(
    campaign: Campaign, items: KnownItems, tmp_path: Path
) -> None:
    plan = campaign.finish.look()
    assert not plan.is_started
    assert plan.covered == 0
    assert plan.plan

    started = campaign.finish.start()
    assert started.is_started
    assert started.waiting_draws == started.asked_draws == plan.plan[0].labels

    questions = campaign.ask(10)
    assert {question.arm for question in questions} == {"finish"}
    answer_draws(campaign, items)
    # The draws are over, so the strategy picks again.
    assert "picked" in {question.arm for question in campaign.ask(10)}

    report = campaign.finish.look()
    assert report.wrong == 0
    assert report.draws == started.asked_draws
    assert report.coverage == 1
    assert report.sentences[0].startswith("You can stop now for 100% of the items")

    certificate = campaign.finish.certify()
    assert campaign.finish.certify() == certificate
    rows = read_export(campaign, tmp_path)
    by_model = [row for row in rows.values() if row["source"] == "model"]
    assert len(by_model) == report.covered
    for row in by_model:
        assert row["label"] == row["predicted"] == items.label(row["id"])
        assert row["certificate"] == certificate.id
        assert row["who"] == f"model {report.model_version}"
        assert row["when"] == certificate.issued
    by_person = [row for row in rows.values() if row["source"] == "person"]
    assert len(by_person) + len(by_model) == len(rows)
    assert all(row["label"] and row["who"] == "me" for row in by_person)


def test_without_a_model_there_is_nothing_to_promise(tmp_path: Path, items: KnownItems) -> None:
    campaign = make_campaign(tmp_path, items)

    with pytest.raises(InputError, match="no model yet"):
        campaign.finish.look()
    with pytest.raises(InputError, match="No item has a label yet"):
        campaign.finish.start()


def test_labels_of_one_class_are_not_enough(tmp_path: Path, items: KnownItems) -> None:
    campaign = make_campaign(tmp_path, items)
    for question in campaign.ask(20):
        campaign.tell(question.item, "ant")

    with pytest.raises(InputError, match="only 1 of 2 classes"):
        campaign.finish.start()


def test_a_promise_needs_items_that_are_left(tmp_path: Path) -> None:
    few = KnownItems(count=30)
    campaign = make_campaign(tmp_path, few)
    label_batches(campaign, few, 2, size=10)

    with pytest.raises(
        InputError, match="items without a label, and this campaign has 10: label the rest"
    ):
        campaign.finish.start()


@pytest.mark.slow
def test_a_model_that_errs_too_often_promises_nothing(tmp_path: Path) -> None:
    blurred = KnownItems(distance=0.5)
    campaign = make_campaign(tmp_path, blurred)
    label_batches(campaign, blurred, 2, size=20)

    campaign.finish.start(draws=150)
    answer_draws(campaign, blurred)

    report = campaign.finish.look()
    assert report.covered == 0
    assert report.class_shares
    assert "No number of random labels is likely to be enough" in report.sentences[0]
    assert "150 random labels do not show" in report.sentences[1]
    with pytest.raises(InputError, match="nothing to certify"):
        campaign.finish.certify()


def test_a_looser_promise_cannot_be_tried_on_the_same_draws(campaign: Campaign) -> None:
    campaign.finish.start(error=0.02)

    assert campaign.finish.look().error == 0.02
    assert campaign.finish.look(error=0.02).error == 0.02
    # What is not given is that of the promise.
    assert campaign.finish.look(confidence=0.95).error == 0.02
    with pytest.raises(InputError, match=r"an error of 0\.02 .* was started"):
        campaign.finish.look(error=0.1)


def test_an_error_of_zero_is_not_the_default(campaign: Campaign) -> None:
    with pytest.raises(InputError, match="error is 0: the share of wrong labels"):
        campaign.finish.look(0)


def test_an_error_that_no_number_of_labels_could_show_is_refused(campaign: Campaign) -> None:
    with pytest.raises(InputError, match=r"must be at least 0\.0001 and below 0\.5"):
        campaign.finish.start(error=5e-324)


def test_promises_are_not_rounded(campaign: Campaign) -> None:
    report = replace(
        campaign.finish.look(error=0.0025, confidence=0.999),
        covered=1,
        promises=(GroupPromise(None, 1, 0.9, 1, 0, 1, 0, 1),),
    )

    assert "With 99.9% confidence, at most 0.25% of its labels are wrong" in describe_error(report)


def test_a_second_attempt_has_less_to_spend(campaign: Campaign, items: KnownItems) -> None:
    first = campaign.finish.start()
    (question,) = campaign.ask(1)
    campaign.tell(question.item, items.label(question.item))
    second = campaign.finish.start()

    assert (first.attempt, second.attempt) == (1, 2)
    assert second.attempt_confidence > first.attempt_confidence
    assert second.plan[0].labels > first.plan[0].labels


def test_a_promise_that_is_started_again_spends_nothing(campaign: Campaign) -> None:
    first = campaign.finish.start(draws=10)
    lines = len(campaign.history())

    repeated = campaign.finish.start(draws=10)
    assert (repeated.attempt, repeated.waiting_draws) == (1, first.waiting_draws)
    assert campaign.finish.draw(10).waiting_draws == first.waiting_draws
    assert len(campaign.history()) == lines

    assert campaign.finish.start(error=0.1).attempt == 2, "other terms are another promise"


def test_draws_count_in_their_order_only(campaign: Campaign, items: KnownItems) -> None:
    campaign.finish.start(draws=10)
    questions = [question.item for question in campaign.ask(10)]

    for item in questions[1:]:
        campaign.tell(item, items.label(item))
    assert campaign.finish.look().draws == 0

    campaign.tell(questions[0], items.label(questions[0]))
    assert campaign.finish.look().draws == 10


@pytest.mark.parametrize("kind", ["unsure", "flag", "skip", "withdraw"])
def test_draws_without_a_label_count_as_wrong(
    campaign: Campaign, items: KnownItems, kind: str
) -> None:
    campaign.finish.start(draws=10)
    first, *rest = [question.item for question in campaign.ask(10)]
    for item in rest:
        campaign.tell(item, items.label(item))
    left_before = campaign.finish.look().left

    answers = {"unsure": campaign.mark_unsure, "flag": campaign.flag, "skip": campaign.skip}
    if kind == "withdraw":
        campaign.items.withdraw([first])
    else:
        answers[kind](first)

    report = campaign.finish.look()
    assert (report.draws, report.wrong) == (10, 1)
    # A skipped item is still to be labelled, by a person or by the model.
    assert report.left == left_before - (kind != "skip")


@pytest.mark.slow
def test_a_certificate_ends_with_the_labels_that_it_rests_on(
    answered_campaign: Campaign, items: KnownItems, tmp_path: Path
) -> None:
    campaign = answered_campaign
    drawn = first_draws(campaign, 40)
    assert campaign.finish.note() is None
    campaign.finish.certify()
    note = str(campaign.finish.note())
    assert "more items are labelled by the model" in note
    assert "with 95% confidence, at most 16 of the" in note

    for item in drawn:
        campaign.tell(item, other_label(items, item))

    assert campaign.finish.look().wrong == 40
    assert "is refuted: people have found 40 wrong labels" in str(campaign.finish.note())
    rows = read_export(campaign, tmp_path)
    assert {row["source"] for row in rows.values()} == {"person", ""}


def test_a_certificate_needs_the_draws_that_it_rests_on(
    answered_campaign: Campaign, items: KnownItems
) -> None:
    campaign = answered_campaign
    drawn = first_draws(campaign, 20)
    campaign.finish.certify()

    # Within the limit of 16, but too many for so few draws.
    for item in drawn[:16]:
        campaign.tell(item, other_label(items, item))

    assert "labels that it rests on were changed" in str(campaign.finish.note())


def test_a_certificate_stays_true_when_people_label_the_rest(
    answered_campaign: Campaign, items: KnownItems
) -> None:
    campaign = answered_campaign
    campaign.finish.certify()

    labelled = campaign.labels()
    for k in range(len(items.truth)):
        if str(k) not in labelled:
            campaign.tell(str(k), items.label(str(k)))

    report = campaign.finish.look()
    assert (report.left, report.covered) == (0, 0)
    assert report.promises[0].threshold is not None
    assert report.sentences == ["Every item has a label."]
    assert campaign.finish.note() is None


def test_items_that_are_added_later_are_not_promised(
    answered_campaign: Campaign, tmp_path: Path
) -> None:
    campaign = answered_campaign
    campaign.finish.certify()

    campaign.add([{"id": "new", "features": [9.0, 1.0, 1.0, 1.0]}])

    report = campaign.finish.look()
    assert (report.share_items, report.share_left_out) == (400, 1)
    assert "The shares refer to 400 items; 1 is left out." in report.shares_note
    rows = read_export(campaign, tmp_path)
    assert rows["new"]["source"] == ""
    assert rows["new"]["certificate"] == ""


def test_labels_of_a_class_that_is_added_later_are_errors(
    campaign: Campaign, items: KnownItems
) -> None:
    campaign.finish.start(draws=10)
    campaign.classes.add("cat")
    for question in campaign.ask(10):
        campaign.tell(question.item, "cat")

    assert campaign.finish.look().wrong == 10


@pytest.mark.slow
def test_duplicates_of_a_text_get_its_label(tmp_path: Path) -> None:
    texts = [f"{('ant hill', 'bee hive')[k % 2]} number {k}" for k in range(300)]
    settings = Settings(strategy="margin", encoder="tfidf")
    campaign = Campaign.make([], CLASSES, at=tmp_path / "texts.teeter", settings=settings)
    campaign.add([{"id": str(k), "text": text} for k, text in enumerate(texts)])
    copies = [{"id": f"copy {k}", "text": text} for k, text in enumerate(texts)]
    assert campaign.add(copies).new == 0
    for k in range(40):
        campaign.tell(str(k), CLASSES[k % 2])

    report = campaign.finish.start(error=0.1)
    # A duplicate is not drawn beside its item, where it would count twice.
    assert report.items == 260
    with campaign.reading() as view:
        draws = view.finishes.drawn_items()
    for item in draws:
        campaign.tell(item, CLASSES[int(item) % 2])
    campaign.finish.certify()

    rows = read_export(campaign, tmp_path)
    assert {row["source"] for row in rows.values()} == {"person", "model"}
    for k in range(300):
        assert rows[f"copy {k}"]["source"] == rows[str(k)]["source"]
        assert rows[f"copy {k}"]["label"] == CLASSES[k % 2]


@pytest.mark.slow
def test_equal_features_may_be_drawn_and_left(tmp_path: Path, items: KnownItems) -> None:
    # Such items are not recognized as duplicates. The model is frozen, so that does no harm.
    campaign = make_campaign(tmp_path, items)
    campaign.add([{"id": f"copy {k}", "features": row} for k, row in enumerate(items.features)])
    for k in range(40):
        campaign.tell(str(k), items.label(str(k)))

    report = campaign.finish.start()
    with campaign.reading() as view:
        draws = view.finishes.drawn_items()
    for item in draws:
        campaign.tell(item, items.label(item.removeprefix("copy ")))

    assert report.items == 760
    assert campaign.finish.look().coverage == 1


@pytest.mark.slow
def test_control_items_since_the_model_are_draws(tmp_path: Path, items: KnownItems) -> None:
    campaign = make_campaign(tmp_path, items, control=0.9)
    label_batches(campaign, items, 1, size=20)
    for _ in range(10):
        for question in campaign.ask(20):
            campaign.tell(question.item, items.label(question.item))
    campaign.train()

    # What the control items show is seen after the terms are chosen, not before.
    plan = campaign.finish.look(error=0.1)
    assert (plan.draws, plan.covered) == (0, 0)
    assert "since model 1 already count as random labels" in plan.sentences[-1]

    report = campaign.finish.start(error=0.1)
    # The first model was tested by the control items after it, the second by none.
    assert report.model_version == 1
    assert report.draws >= plan.asked_draws > 100
    assert report.wrong == 0
    assert report.covered == report.left
    assert report.waiting_draws == 0


@pytest.mark.slow
def test_past_control_items_have_a_smaller_share_of_the_error(
    tmp_path: Path, items: KnownItems
) -> None:
    campaign = make_campaign(tmp_path, items, control=0.9)
    label_batches(campaign, items, 1, size=20)
    with_new_draws = campaign.finish.look(error=0.1)
    for _ in range(10):
        for question in campaign.ask(20):
            campaign.tell(question.item, items.label(question.item))
    campaign.train()

    with_past_controls = campaign.finish.look(error=0.1)

    assert with_past_controls.attempt_confidence > with_new_draws.attempt_confidence


@pytest.mark.slow
def test_picked_items_are_no_draws(tmp_path: Path, items: KnownItems) -> None:
    campaign = make_campaign(tmp_path, items, control=0.0)
    label_batches(campaign, items, 6, size=20)

    assert campaign.finish.look().draws == 0


@pytest.mark.slow
def test_holdout_items_are_no_draws(tmp_path: Path, items: KnownItems) -> None:
    # The strategy could not pick them, so they are not like what it left over.
    campaign = make_campaign(tmp_path, items, control=0.0, holdout=100)
    label_batches(campaign, items, 6, size=20)

    assert campaign.finish.look().draws == 0


@pytest.mark.slow
def test_a_promise_for_each_class(campaign: Campaign, items: KnownItems) -> None:
    campaign.finish.start(per_class=True, draws=320)
    answer_draws(campaign, items)

    report = campaign.finish.look()
    assert [promise.label for promise in report.promises] == ["ant", "bee"]
    assert all(promise.items > 0 for promise in report.promises)
    assert sum(promise.items for promise in report.promises) == report.covered


@pytest.mark.slow
def test_a_promise_survives_renamed_classes_and_withdrawn_items(
    campaign: Campaign, items: KnownItems, tmp_path: Path
) -> None:
    campaign.finish.start(per_class=True, draws=320)
    answer_draws(campaign, items)
    certificate = campaign.finish.certify()
    before = read_export(campaign, tmp_path)
    by_model = [item for item, row in before.items() if row["source"] == "model"]

    campaign.classes.rename("ant", "termite")
    campaign.items.withdraw(by_model[:1])

    report = campaign.finish.look()
    assert [promise.label for promise in report.promises] == ["termite", "bee"]
    after = read_export(campaign, tmp_path)
    assert after[by_model[0]]["source"] == "left_out"
    for item in by_model[1:]:
        assert after[item]["certificate"] == certificate.id
        assert after[item]["label"] == before[item]["label"].replace("ant", "termite")
    with pytest.raises(InputError, match=r"The promise of .* rests on"):
        campaign.items.change(by_model[1], features=[0.0] * len(items.features[0]))


def test_labels_of_the_draws_correct_the_class_shares(
    campaign: Campaign, items: KnownItems
) -> None:
    campaign.finish.start(draws=100)
    answer_draws(campaign, items)

    shares = {share.label: share for share in campaign.finish.look().class_shares}

    truth = float((items.truth == 0).mean())
    assert shares["ant"].low <= truth <= shares["ant"].high
    assert shares["ant"].share + shares["bee"].share == pytest.approx(1)


def test_draws_can_be_stopped_and_resumed(campaign: Campaign) -> None:
    campaign.finish.start(draws=0)
    assert "finish" not in {question.arm for question in campaign.ask(5)}

    campaign.people.release()
    campaign.finish.draw(5)
    assert {question.arm for question in campaign.ask(5)} == {"finish"}
    with pytest.raises(InputError, match="Cannot ask about -1 random items"):
        campaign.finish.draw(-1)


def test_draws_need_a_promise(campaign: Campaign) -> None:
    with pytest.raises(InputError, match="No promise is started"):
        campaign.finish.draw(5)
    with pytest.raises(InputError, match="No promise is started"):
        campaign.finish.certify()


@pytest.mark.slow
def test_labels_beyond_the_reserve_are_mentioned(campaign: Campaign, items: KnownItems) -> None:
    campaign.finish.start(draws=250)
    answer_draws(campaign, items)

    report = campaign.finish.look()

    # Of 360 items, 36 are reserved for people. The promise cannot lose 250 right labels.
    promise = report.promises[0]
    assert promise.items == 110
    assert promise.counted > 300
    assert promise.limit <= 0.05 * promise.counted
    assert f"for {promise.counted} items are wrong" in report.sentences[0]
    assert f"People have since labelled {promise.counted - 110} of these" in report.sentences[0]
    assert f"up to {wrong_share(promise.limit, 110)} of those" in report.sentences[0]
    content = campaign.finish.certify().content
    assert content["wrong_labels_at_most"] == promise.limit
    assert wrong_share(promise.limit, 110) in str(campaign.finish.note())


@pytest.mark.slow
def test_copies_and_backups_keep_the_promise(
    campaign: Campaign, items: KnownItems, tmp_path: Path
) -> None:
    campaign.finish.start()
    answer_draws(campaign, items)
    certificate = campaign.finish.certify()

    target = Database(tmp_path / "copy.teeter", create=True)
    copy_campaign(campaign.database, target, "small")
    target.close()
    campaign.back_up(tmp_path / "backup.teeter")

    for name in ("copy", "backup"):
        copied = Campaign.open(tmp_path / f"{name}.teeter")
        assert copied.finish.certificates() == [certificate]
        assert copied.finish.look() == campaign.finish.look()


@pytest.mark.slow
def test_a_certificate_says_everything_and_fits_its_id(
    campaign: Campaign, items: KnownItems
) -> None:
    campaign.finish.start()
    answer_draws(campaign, items)
    content = campaign.finish.certify().content

    assert content["id"] == certificate_id(content)
    assert certificate_id({**content, "wrong_draws": 1}) != content["id"]
    page = certificate_page({**content, "campaign": "<b>bees</b>"})
    assert "&lt;b&gt;bees" in page
    assert content["model"]["sha256"] in page
    assert "What the certificate does not promise" in page
    assert "<script" not in page


def test_a_promise_for_the_file_counts_what_people_answered_one_by_one(
    campaign: Campaign, items: KnownItems
) -> None:
    plan = campaign.finish.look(labelled=0.9)
    assert plan.labelled == 0.9
    assert not plan.covered

    started = campaign.finish.start(labelled=0.9, draws=100)
    assert campaign.finish.start(labelled=0.9).attempt == started.attempt == 1
    answer_draws(campaign, items)

    report = campaign.finish.look()
    singles = 40 + report.draws
    (promise,) = report.promises
    assert promise.counted == singles + report.covered
    assert 40 + report.draws + report.covered >= 0.9 * 400
    assert f"at most 5% of {promise.counted} labels in the file are wrong" in report.sentences[0]
    content = campaign.finish.certify().content
    assert content["labelled"] == 0.9
    assert "given in bulk" in content["not_promised"][-1]
    assert f"of the {promise.counted} items that the certificate" in str(campaign.finish.note())

    with pytest.raises(InputError, match="of all labels in the file"):
        campaign.finish.look(error=0.05, confidence=0.9)


def test_a_promise_for_the_file_ends_if_labels_of_people_are_taken_back(
    campaign: Campaign, items: KnownItems
) -> None:
    early = list(campaign.labels())
    campaign.finish.start(labelled=0.9, draws=100)
    answer_draws(campaign, items)
    campaign.finish.certify()

    # A hundredth may be lost.
    campaign.items.withdraw(early[:4])
    assert "more items are labelled" in str(campaign.finish.note())
    campaign.items.withdraw(early)

    assert "labels that it rests on were changed" in str(campaign.finish.note())
    assert not campaign.finish.look().covered


def test_labels_that_came_with_the_items_or_in_bulk_allow_for_no_errors(
    campaign: Campaign,
) -> None:
    campaign.add([{"id": "known", "features": [0, 0, 0, 0], "label": "ant"}])
    assert campaign.labels()["known"].label == "ant"
    with campaign.reading() as view:
        singles = campaign.review.snapshot(view).single_labels()
    assert len(singles) == 40
    rest = [str(k) for k in range(400) if str(k) not in singles]

    campaign.tell_all(rest[:5], "ant")
    campaign.flag(rest[6])
    campaign.items.withdraw([next(iter(singles))])

    with campaign.reading() as view:
        assert campaign.review.snapshot(view).single_labels() == singles - {next(iter(singles))}
