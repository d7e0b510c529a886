"""The one write path: an answer is recorded once however often it is sent, and validated before it
is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from campaigns.stores import POSTGRESQL_SLOW, new_place
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.records import Answer, AnswerKind
from teeter.campaigns.settings import Settings
from teeter.errors import (
    InputError,
    PermissionDeniedError,
    UnknownNameError,
    UnknownResourceError,
)

VECTORS = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)


@pytest.fixture(params=POSTGRESQL_SLOW)
def campaign(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Campaign]:
    settings = Settings(kind="features", strategy="margin", control=0)
    location = new_place(request.param, tmp_path)
    campaign = Campaign.make([], ["left", "right"], at=location, name="points", settings=settings)
    campaign.add({"id": f"p{k}", "features": row} for k, row in enumerate(VECTORS))
    yield campaign
    campaign.database.close()


def count_answers(campaign: Campaign) -> int:
    return sum(line["what"] == "answer" for line in campaign.history())


def left(item: str = "p0", comment: str | None = None) -> Answer:
    return Answer(item, "ann", AnswerKind.LABEL, "left", comment)


def test_an_answer_that_is_sent_twice_is_recorded_once(campaign: Campaign) -> None:
    first = campaign.answer(left())
    second = campaign.answer(left())
    assert (first.recorded, second.recorded) == (True, False)
    assert second.number == first.number
    assert count_answers(campaign) == 1
    assert campaign.undo("ann") is not None
    assert campaign.status().labelled == 0


def test_every_way_to_answer_is_idempotent(campaign: Campaign) -> None:
    for _ in range(2):
        campaign.tell("p0", "left", "ann")
        campaign.skip("p1", "ann")
        campaign.mark_unsure("p2", "ann", comment="too dark")
        campaign.flag("p3", "ann")
        campaign.review.decide("p4", "left", "rey")
    assert count_answers(campaign) == 4
    assert sum(line["what"] == "decided" for line in campaign.history()) == 1


def test_an_answer_that_says_something_else_is_recorded(campaign: Campaign) -> None:
    answers = [
        left(),
        left(comment="seen twice"),
        Answer("p0", "ann", AnswerKind.LABEL, "right"),
        Answer("p0", "ann", AnswerKind.SKIP),
        left(),
        Answer("p0", "bob", AnswerKind.LABEL, "left"),
    ]
    assert all(campaign.answer(answer).recorded for answer in answers)
    assert count_answers(campaign) == len(answers)


def test_an_empty_comment_is_no_comment(campaign: Campaign) -> None:
    campaign.answer(left())
    assert not campaign.answer(left(comment="")).recorded


def test_the_same_answer_to_an_item_that_was_asked_about_again_closes_it(
    campaign: Campaign,
) -> None:
    (question,) = campaign.ask(1, "ann")
    campaign.skip(question.item, "ann")
    other_items = [f"p{k}" for k in range(12) if f"p{k}" != question.item]
    campaign.tell(other_items[0], "left", "bob")
    campaign.tell(other_items[1], "right", "bob")
    campaign.train()
    open_items = [item.item for item in campaign.ask(12, "ann")]
    assert question.item in open_items, "skipped items come back after a training"

    assert campaign.skip(question.item, "ann").recorded
    assert question.item not in [item.item for item in campaign.ask(len(open_items) - 1, "ann")]


def test_an_answer_that_many_requests_send_at_once_is_recorded_once(campaign: Campaign) -> None:
    with ThreadPoolExecutor(8) as requests:
        receipts = list(requests.map(lambda _: campaign.answer(left()), range(16)))
    assert sum(receipt.recorded for receipt in receipts) == 1
    assert len({receipt.number for receipt in receipts}) == 1
    assert count_answers(campaign) == 1


def test_a_confirmation_is_a_second_answer(campaign: Campaign) -> None:
    campaign.tell("p0", "left", "ann")
    receipt = campaign.confirm_label("p0", "ann")
    assert count_answers(campaign) == 2
    repeated = campaign.confirm_label("p0", "ann")
    assert (repeated.number, repeated.recorded) == (receipt.number, False)
    assert count_answers(campaign) == 2
    campaign.undo("ann")
    assert campaign.labels()["p0"].label == "left", "the label stays, the confirmation is gone"


def test_an_answer_inside_a_transaction_is_stored_with_it(campaign: Campaign) -> None:
    def answer_and_fail() -> None:
        with campaign.writing() as change:
            change.answers.record(left())
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError):
        answer_and_fail()
    assert count_answers(campaign) == 0


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer("p0", "ann", AnswerKind.LABEL), "A label needs a class"),
        (Answer("p0", "ann", AnswerKind.SKIP, "left"), "skip, unsure and flag must not have one"),
        (
            Answer("p0", "ann", "bad"),  # type: ignore[arg-type]
            "'bad' is not a kind of answer: choose from label, skip",
        ),
        (Answer("p0", " ", AnswerKind.SKIP), "The name of the annotator is blank"),
        (Answer("p0", "import", AnswerKind.SKIP), "reserved for labels that came with the items"),
        (left(comment="\ud800"), "half a character|surrogate"),
        (Answer("p99", "ann", AnswerKind.SKIP), "No item is called 'p99'"),
        (Answer("p0", "ann", AnswerKind.LABEL, "lft"), "No class is called 'lft'"),
    ],
)
def test_an_impossible_answer_is_refused_and_nothing_is_stored(
    answer: Answer, message: str, campaign: Campaign
) -> None:
    with pytest.raises((InputError, UnknownNameError), match=message):
        campaign.answer(answer)
    assert count_answers(campaign) == 0


def test_undo_takes_back_the_answer_that_it_names_once(campaign: Campaign) -> None:
    older = campaign.tell("p0", "right", "ann").number
    number = campaign.tell("p0", "left", "ann").number
    assert campaign.undo("ann", number=older) is None, "ann has answered since"

    undone = campaign.undo("ann", number=number)
    assert undone is not None
    assert (undone.answer.number, undone.before and undone.before.number) == (number, older)
    assert campaign.undo("ann", number=number) == undone, "sent again"
    assert campaign.labels()["p0"].label == "right"

    with pytest.raises(PermissionDeniedError, match=f"Answer {number} is not by bob"):
        campaign.undo("bob", number=number)
    with pytest.raises(UnknownResourceError, match="There is no answer 999"):
        campaign.undo("ann", number=999)

    campaign.tell("p1", "left", "ann")
    assert campaign.undo("ann", number=number) is None, "ann has answered since"


def test_undo_takes_back_the_decision_that_it_names_once(campaign: Campaign) -> None:
    campaign.review.decide("p0", "left", "rey")
    undone = campaign.review.undo_decision("rey")
    assert undone is not None

    assert campaign.review.undo_decision("rey", number=undone.number) == undone, "sent again"
    campaign.review.decide("p1", "left", "rey")
    assert campaign.review.undo_decision("rey", number=undone.number) is None, (
        "rey has decided since"
    )
    with pytest.raises(PermissionDeniedError, match="is not by olga"):
        campaign.review.undo_decision("olga", number=undone.number)
    with pytest.raises(UnknownResourceError, match="There is no decision 999"):
        campaign.review.undo_decision("rey", number=999)
