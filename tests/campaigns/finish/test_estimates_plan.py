from __future__ import annotations

import numpy as np

from teeter.campaigns.finish.estimates import plan_labels
from teeter.campaigns.finish.promise import (
    Outcomes,
    PromiseTerms,
    best_step,
    judge_steps,
    make_steps,
)
from teeter.campaigns.records import PlannedStep

TERMS = PromiseTerms()
LEVEL = 0.04


def plan_after(
    confidences: np.ndarray, is_wrong: np.ndarray, n_draws: int
) -> tuple[list[PlannedStep], bool]:
    """Return the plan after some draws, and whether something is promised already."""
    drawn = np.arange(n_draws)
    outcomes = Outcomes(drawn, is_wrong[drawn], drawn, is_wrong[drawn])
    steps = make_steps(confidences, TERMS, LEVEL)
    results = judge_steps(confidences, steps, outcomes, TERMS, LEVEL)
    plan = plan_labels(results, len(confidences), len(confidences) - n_draws, TERMS, LEVEL)
    return plan, best_step(results) is not None


def calibrated_set(seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    confidences = 1 - 0.4 * generator.random(3000) ** 4
    return confidences, generator.random(3000) > confidences


def test_more_labels_cover_more_items() -> None:
    confidences, is_wrong = calibrated_set(0)

    plan, _ = plan_after(confidences, is_wrong, 0)

    assert len(plan) > 1
    labels = [step.labels for step in plan]
    assert labels == sorted(set(labels))
    coverages = [step.coverage for step in plan]
    assert coverages == sorted(coverages)
    assert all(step.expected_error <= TERMS.error for step in plan)


def test_steps_that_cost_more_and_give_less_are_left_out() -> None:
    # The less sure half is often wrong: taking in a little more of it costs more draws than it has.
    confidences = np.concatenate([np.full(400, 0.995), np.linspace(0.99, 0.9, 60)])

    plan, _ = plan_after(confidences, np.zeros(460, bool), 0)

    items = [step.items for step in plan]
    assert items == sorted(set(items))


def test_the_plan_comes_true_more_often_than_not() -> None:
    come_true = 0
    for seed in range(20):
        confidences, is_wrong = calibrated_set(seed)
        plan, _ = plan_after(confidences, is_wrong, 0)
        _, is_promised = plan_after(confidences, is_wrong, plan[0].labels)
        come_true += is_promised

    # 75 % of 150 simulated sets; with that share, 11 or fewer of 20 have a probability of 4 %.
    assert come_true >= 11


def test_draws_replace_what_the_confidences_said() -> None:
    # The model is sure of everything and wrong about a tenth of it.
    confidences = np.full(2000, 0.999)
    is_wrong = np.arange(2000) % 10 == 0

    before, _ = plan_after(confidences, is_wrong, 0)
    after, _ = plan_after(confidences, is_wrong, 200)

    assert before
    assert after == []


def test_a_hopeless_model_has_no_plan() -> None:
    confidences = np.full(1000, 0.6)

    plan, _ = plan_after(confidences, np.zeros(1000, bool), 0)

    assert plan == []


def test_a_step_that_is_refuted_is_not_planned() -> None:
    # Picks that are no draws show more wrong labels than the only step allows.
    confidences = np.full(1000, 0.99)
    steps = make_steps(confidences, TERMS, LEVEL)
    nothing = np.zeros(0, dtype=np.int64)

    plans = []
    for n_wrong in (steps[0].limit, steps[0].limit + 1):
        outcomes = Outcomes(nothing, nothing > 0, np.arange(n_wrong), np.ones(n_wrong, bool))
        results = judge_steps(confidences, steps, outcomes, TERMS, LEVEL)
        plans.append(plan_labels(results, 1000, 1000 - n_wrong, TERMS, LEVEL))

    assert [len(plan) for plan in plans] == [1, 0]
