from __future__ import annotations

import numpy as np
import pytest

from reference import promise as reference
from teeter.campaigns.finish.promise import (
    Outcomes,
    PromiseTerms,
    Step,
    attempt_level,
    best_step,
    judge_steps,
    make_steps,
    trace_coverage,
)
from teeter.errors import InputError

TERMS = PromiseTerms()


def draw(is_wrong: np.ndarray, drawn: np.ndarray) -> Outcomes:
    return Outcomes(drawn, is_wrong[drawn], drawn, is_wrong[drawn])


@pytest.mark.parametrize("error", [0, 0.5, -0.1, float("nan")])
def test_an_error_that_cannot_be_promised_is_refused(error: float) -> None:
    with pytest.raises(InputError, match="share of wrong labels"):
        PromiseTerms(error=error)


@pytest.mark.parametrize("confidence", [0.4, 1.0, float("nan")])
def test_a_confidence_that_cannot_be_promised_is_refused(confidence: float) -> None:
    with pytest.raises(InputError, match="confidence is"):
        PromiseTerms(confidence=confidence)


def test_all_attempts_together_spend_no_more_than_the_confidence_leaves() -> None:
    new_draws = [attempt_level(0.95, attempt) for attempt in range(1, 20)]
    past_controls = [
        attempt_level(0.95, attempt, checkpoint)
        for attempt in range(1, 20)
        for checkpoint in range(20)
    ]

    assert new_draws == sorted(new_draws, reverse=True)
    assert sum(new_draws) + sum(past_controls) == pytest.approx(0.05, rel=1e-5)


def test_steps_are_nested_and_their_weights_are_all_there_is() -> None:
    confidences = np.random.default_rng(0).random(1000)
    steps = make_steps(confidences, TERMS, 0.04)

    sizes = [step.size for step in steps]
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == 1000
    assert sum(step.weight for step in steps) == pytest.approx(1)
    for step in steps:
        assert step.size == (confidences >= step.threshold).sum()
        assert step.limit <= 0.05 * step.size


def test_equal_confidences_make_one_step() -> None:
    steps = make_steps(np.full(300, 0.9), TERMS, 0.04)

    assert [step.size for step in steps] == [300]


@pytest.mark.parametrize("size", [0, 5])
def test_a_set_that_is_too_small_has_no_steps(size: int) -> None:
    assert make_steps(np.full(size, 0.9), TERMS, 0.04) == []
    assert best_step([]) is None


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_steps_pass_as_in_the_literal_procedure(seed: int) -> None:
    generator = np.random.default_rng(seed)
    confidences = generator.random(2000)
    is_wrong = generator.random(2000) < 0.05 * (1 - confidences)
    steps = make_steps(confidences, TERMS, 0.04)
    drawn = generator.permutation(2000)[:500]

    results = judge_steps(confidences, steps, draw(is_wrong, drawn), TERMS, 0.04)

    expected = reference.fallback(
        [result.p_value for result in results], [step.weight for step in steps], 0.04
    )
    assert [result.holds for result in results] == expected
    assert any(expected)


def test_the_curve_of_coverage_is_that_of_single_looks() -> None:
    generator = np.random.default_rng(5)
    confidences = generator.random(600)
    is_wrong = generator.random(600) < 0.05 * (1 - confidences)
    steps = make_steps(confidences, TERMS, 0.04)
    order = generator.permutation(600)[:300]
    counts = np.arange(0, 301, 50)

    expected = []
    for count in counts:
        outcomes = draw(is_wrong, order[:count])
        best = best_step(judge_steps(confidences, steps, outcomes, TERMS, 0.04))
        expected.append(0 if best is None else best.step.size)

    outcomes = draw(is_wrong, order)
    sizes = trace_coverage(confidences, steps, outcomes, counts, terms=TERMS, level=0.04)
    assert sizes.tolist() == expected
    assert expected[0] == 0
    assert expected[-1] > 0


def test_all_draws_right_lets_the_model_label_everything() -> None:
    confidences = np.linspace(0.5, 1, 2000)
    steps = make_steps(confidences, TERMS, 0.04)
    drawn = np.random.default_rng(0).permutation(2000)[:200]

    results = judge_steps(confidences, steps, draw(np.zeros(2000, bool), drawn), TERMS, 0.04)

    best = best_step(results)
    assert best is not None
    assert best.step.size == 2000
    assert best.remaining == 1800
    # People labelled twice the reserve of 100, so the promise counts 100 of their items, too.
    assert best.counted == 1900
    assert best.counted_limit <= 0.05 * 1900


def test_no_draws_promise_nothing() -> None:
    confidences = np.linspace(0.5, 1, 2000)
    steps = make_steps(confidences, TERMS, 0.04)
    nothing = np.zeros(0, dtype=np.int64)

    results = judge_steps(confidences, steps, draw(np.zeros(2000, bool), nothing), TERMS, 0.04)

    assert best_step(results) is None


def test_what_was_shown_stays_shown_when_later_draws_are_wrong() -> None:
    confidences = np.full(2000, 0.9)
    steps = make_steps(confidences, TERMS, 0.04)
    is_wrong = np.zeros(2000, bool)
    is_wrong[150:158] = True

    early = judge_steps(confidences, steps, draw(is_wrong, np.arange(150)), TERMS, 0.04)
    late = judge_steps(confidences, steps, draw(is_wrong, np.arange(160)), TERMS, 0.04)

    assert best_step(early) is not None
    assert best_step(late) is not None


def test_a_step_that_later_draws_refute_does_not_hold() -> None:
    confidences = np.full(1000, 0.9)
    steps = make_steps(confidences, TERMS, 0.04)
    is_wrong = np.zeros(1000, bool)
    is_wrong[200:] = True
    counts = np.array([200, 200 + steps[0].limit, 201 + steps[0].limit])

    holds = []
    for count in counts:
        outcomes = draw(is_wrong, np.arange(count))
        (result,) = judge_steps(confidences, steps, outcomes, TERMS, 0.04)
        holds.append(result.holds)
    assert holds == [True, True, False]
    assert result.known_wrong == steps[0].limit + 1

    outcomes = draw(is_wrong, np.arange(counts[-1]))
    sizes = trace_coverage(confidences, steps, outcomes, counts, terms=TERMS, level=0.04)
    assert sizes.tolist() == [1000, 1000, 0]


def test_a_step_that_is_refuted_hands_nothing_on() -> None:
    # Only the smaller step has a share of its own; picks that are no draws refute it.
    confidences = np.repeat([0.9, 0.6], 500)
    steps = [Step(0.9, 500, 22, 1.0, 0.0), Step(0.6, 1000, 45, 0.0, 0.0)]
    drawn = np.random.default_rng(0).permutation(1000)[:300]
    picked = np.setdiff1d(np.arange(500), drawn)[:23]
    is_wrong = np.zeros(1000, bool)
    is_wrong[picked] = True
    labelled = np.concatenate([drawn, picked])
    outcomes = Outcomes(drawn, is_wrong[drawn], labelled, is_wrong[labelled])

    before = judge_steps(confidences, steps, draw(is_wrong, drawn), TERMS, 0.04)
    after = judge_steps(confidences, steps, outcomes, TERMS, 0.04)
    sizes = trace_coverage(confidences, steps, outcomes, np.array([300]), terms=TERMS, level=0.04)

    assert [result.holds for result in before] == [True, True]
    assert [result.holds for result in after] == [False, False]
    assert after[1].level == 0
    assert sizes.tolist() == [0]


def test_labels_beyond_the_reserve_stay_counted() -> None:
    # Taking 500 right labels out of 1,000 would double the share of wrong ones.
    confidences = np.full(1000, 0.9)
    steps = make_steps(confidences, TERMS, 0.04)
    is_wrong = np.zeros(1000, bool)

    results = judge_steps(confidences, steps, draw(is_wrong, np.arange(500)), TERMS, 0.04)

    best = best_step(results)
    assert best is not None
    assert best.remaining == 500
    assert best.counted > best.remaining
    assert best.counted_limit <= 0.05 * best.counted


def simulate_broken_share(seed: int, campaigns: int, slope: float) -> float:
    """Return in how many campaigns a promise is broken, looking after every tenth draw."""
    generator = np.random.default_rng(seed)
    broken = 0

    for _ in range(campaigns):
        confidences = generator.random(400)
        is_wrong = generator.random(400) < slope * (1 - confidences)
        steps = make_steps(confidences, TERMS, 0.05)

        order = generator.permutation(400)
        for n_draws in range(40, 301, 20):
            outcomes = draw(is_wrong, order[:n_draws])
            best = best_step(judge_steps(confidences, steps, outcomes, TERMS, 0.05))

            if best is not None:
                counted = confidences >= best.step.threshold
                taken_out = [row for row in order[:n_draws] if counted[row]]
                counted[taken_out[: best.step.size - best.counted]] = False
                if is_wrong[counted].mean() > TERMS.error:
                    broken += 1
                    break
    return broken / campaigns


@pytest.mark.slow
@pytest.mark.parametrize("slope", [0.1, 0.2])
def test_promises_are_kept_in_simulated_campaigns(slope: float) -> None:
    campaigns = 400

    share = simulate_broken_share(1, campaigns, slope)

    # Three standard deviations above what is allowed.
    assert share <= 0.05 + 3 * (0.05 * 0.95 / campaigns) ** 0.5


def test_a_step_without_its_share_needs_the_one_before_it() -> None:
    confidences = np.concatenate([np.full(500, 0.9), np.full(500, 0.6)])
    small = Step(0.9, 500, 20, 0.0, 0.01)
    large = Step(0.6, 1000, 40, 1.0, 0.01)
    is_wrong = np.zeros(1000, bool)
    drawn = np.random.default_rng(0).permutation(1000)[:200]

    results = judge_steps(confidences, [small, large], draw(is_wrong, drawn), TERMS, 0.05)

    assert [result.holds for result in results] == [False, True]
