from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.finish.small_campaigns import KnownItems, make_campaign
from teeter.campaigns.asking.preparing import Preparation
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.finish.goal import Outlook, foresee, plan_answers
from teeter.campaigns.finish.promise import PromiseTerms, make_steps
from teeter.campaigns.records import Purpose
from teeter.campaigns.settings import Settings
from teeter.errors import InputError

OUTLOOK = Outlook(
    labels=100,
    needed=4400,
    set_size=4900,
    step_size=4400,
    limit=220,
    level=0.04,
    allowed=0.05,
    expected_wrong=0.005,
    worth=40,
)


def after(labels: int, expected_wrong: float) -> Outlook:
    return replace(OUTLOOK, labels=labels, expected_wrong=expected_wrong)


def test_a_model_that_learns_fast_is_taught_first() -> None:
    plan = plan_answers([after(40, 0.12), after(80, 0.03)])

    assert plan.purpose is Purpose.TEACH
    assert plan.low <= plan.answers <= plan.high


def test_a_model_that_learned_enough_is_certified() -> None:
    plan = plan_answers([after(80, 0.006), after(100, 0.005)])

    assert plan.purpose is Purpose.START
    # Items outside of the step are drawn too.
    assert plan.answers >= 72 * 4900 / 4400
    assert plan.answers < 200


def test_an_attempt_that_is_not_expected_to_pass_is_not_started() -> None:
    # More labels hardly help, but as many are wrong as may be.
    plan = plan_answers([after(400, 0.046), after(500, 0.046)])

    assert plan.purpose is Purpose.TEACH


def test_a_running_attempt_goes_on_until_even_luck_would_not_save_it() -> None:
    outlooks = [after(90, 0.006), after(100, 0.005)]
    few_wrong = replace(OUTLOOK, drawn=40, wrong=1)
    many_wrong = replace(OUTLOOK, drawn=80, wrong=12)

    assert plan_answers(outlooks, few_wrong).purpose is Purpose.CERTIFY
    # What is left of the level is less.
    outlooks[-1] = replace(outlooks[-1], level=0.004)
    assert plan_answers(outlooks, many_wrong).purpose is Purpose.START
    hopeless = [after(90, 0.3), after(100, 0.29)]
    assert plan_answers(hopeless, many_wrong).purpose is Purpose.TEACH


def test_a_goal_that_people_would_have_to_reach_alone_is_out_of_reach() -> None:
    plan = plan_answers([after(400, 0.40), after(800, 0.39)])

    assert plan.purpose is Purpose.TEACH
    assert not plan.in_reach
    assert plan.answers <= OUTLOOK.needed


def test_few_draws_are_left_shortly_before_the_end() -> None:
    draws = [replace(OUTLOOK, drawn=drawn).draws(0.0) for drawn in (0, 40, 60, 80)]

    assert draws == sorted(draws, reverse=True)
    assert draws[-1] == 0
    assert OUTLOOK.draws(0.06) == math.inf


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.0001, 0.9), min_size=1, max_size=6),
    st.integers(1, 3000),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_a_plan_is_always_possible(
    shares: list[float], labels: int, drawn: int, wrong: int
) -> None:
    outlooks = [after(labels * (k + 1), share) for k, share in enumerate(shares)]
    attempt = replace(OUTLOOK, drawn=drawn, wrong=min(drawn, wrong))

    for plan in (plan_answers(outlooks), plan_answers(outlooks, attempt)):
        assert 1 <= plan.low <= plan.answers <= plan.high <= OUTLOOK.needed
    assert plan_answers(outlooks).purpose is not Purpose.CERTIFY


def test_only_random_items_in_the_step_say_what_is_wrong_in_it() -> None:
    confidences = np.linspace(0.6, 1, 1000)
    terms = PromiseTerms(labelled=0.9)
    steps = make_steps(confidences, terms, 0.04, needed=800)
    facts = {"labels": 50, "needed": 800, "level": 0.04, "allowed": 0.05}

    inside = foresee(confidences, steps, [(0.3, 0), (0.4, 1)], **facts)
    outside = foresee(confidences, steps, [(0.9, 0), (0.4, 1)], **facts)

    assert inside.step_size == outside.step_size == 800
    assert inside.worth == outside.worth + 1
    assert inside.share_wrong > outside.share_wrong


@pytest.mark.parametrize(
    "goal",
    ["5", "5% right", "wrong", "60% wrong", "0% wrong", "5% wrong, 0% labelled", "5% wrong;"],
)
def test_what_is_no_goal_is_refused_with_an_example(goal: str) -> None:
    with pytest.raises(InputError, match=r"goal is .*5% wrong"):
        Settings(goal=goal)


def pursue(campaign: Campaign, items: KnownItems, most: int) -> list[str]:
    """Answer as a server asks until the goal is reached; return what the questions were for."""
    preparation = Preparation(campaign)
    purposes = []
    for _ in range(most // 10):
        preparation.ensure_questions("ann", 10, lambda _: None)
        report = campaign.finish.goal()
        assert report is not None
        purposes.append(report.purpose)
        if report.purpose is Purpose.DONE:
            return purposes
        for question in campaign.ask(10, "ann"):
            campaign.tell(question.item, items.label(question.item), annotator="ann")
    return purposes


@pytest.mark.slow
def test_a_campaign_reaches_its_goal_by_itself(tmp_path: Path) -> None:
    items = KnownItems(count=800, distance=12)
    campaign = make_campaign(tmp_path, items, goal="5% wrong")

    purposes = pursue(campaign, items, 400)

    assert purposes[0] is Purpose.TEACH
    assert Purpose.CERTIFY in purposes
    assert purposes[-1] is Purpose.DONE
    report = campaign.finish.goal()
    assert report is not None
    assert report.labelled >= 0.9 * 800
    assert report.answers == len(campaign.labels()) < 400
    (certificate,) = campaign.finish.certificates()
    assert certificate.id == report.certificate
    assert "more items are labelled by the model" in str(campaign.finish.note())
    # Nothing more is asked at random, and nothing is certified twice.
    assert not campaign.finish.pursue_goal()
    assert "finish" not in {question.arm for question in campaign.ask(10, "bob")}

    # The goal comes back when labels are taken back.
    campaign.items.withdraw(list(campaign.labels())[:90])
    report = campaign.finish.goal()
    assert report is not None
    assert report.purpose is not Purpose.DONE


def test_answers_of_a_campaign_with_a_goal_are_given_blind(tmp_path: Path) -> None:
    items = KnownItems(count=60, distance=12)
    counts = []
    for goal in ("", "5% wrong"):
        folder = tmp_path / (goal or "none")
        folder.mkdir()
        campaign = make_campaign(folder, items, goal=goal)
        for _ in range(2):
            for question in campaign.ask(10):
                campaign.tell(question.item, items.label(question.item))
            campaign.train()
        with campaign.reading() as view:
            counts.append(len(campaign.review.snapshot(view).single_labels()))

    assert counts[0] < 20
    assert counts[1] == 20


def test_a_goal_without_a_model_says_what_it_waits_for(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, KnownItems(count=60), goal="5% wrong, 80% labelled")

    report = campaign.finish.goal()

    assert report is not None
    assert report.to_go is None
    assert report.sentences[0] == "0 answered; how many are to go is known after a training."
    assert "80% of the items have one" in report.sentences[1]
    assert not campaign.finish.pursue_goal()


def test_without_a_goal_nothing_is_pursued(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, KnownItems(count=60))

    assert campaign.finish.goal() is None
    assert not campaign.finish.pursue_goal()


def test_a_plan_says_what_teaching_saves() -> None:
    outlooks = [after(40, 0.08), after(60, 0.05), after(80, 0.03)]
    plan = plan_answers(outlooks)
    assert plan.taught > 0
    assert plan.answers - plan.taught > 0
    assert plan.answers < plan.draws_now

    is_ready = plan_answers([after(80, 0.006), after(100, 0.005)])
    assert is_ready.taught == 0
    assert is_ready.answers == round(is_ready.draws_now)


def test_without_a_goal_a_plan_says_whether_to_train_first(tmp_path: Path) -> None:
    items = KnownItems(count=400, distance=3)
    campaign = make_campaign(tmp_path, items)
    plans = []
    for _ in range(4):
        for question in campaign.ask(10):
            campaign.tell(question.item, items.label(question.item))
        campaign.train()
        sentences = campaign.finish.look().sentences
        plans.append([sentence for sentence in sentences if "all labels in the file" in sentence])

    assert plans[:2] == [[], []], "two models are too few to know"
    assert re.search(r"(certifying now takes|then certify with) about \d+", plans[-1][0])
    sentences = campaign.finish.look(error=0.2).sentences
    assert not any("all labels in the file" in sentence for sentence in sentences)
    campaign.finish.start(error=0.05)
    assert not any("all labels in the file," in line for line in campaign.finish.look().sentences)
