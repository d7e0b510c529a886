from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import promise as reference
from teeter.campaigns.finish.promise import (
    Outcomes,
    PromiseTerms,
    Step,
    StepResult,
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


FILE_TERMS = PromiseTerms(labelled=0.9)


def test_labels_of_people_outside_the_set_allow_for_more_wrong_ones() -> None:
    confidences = np.random.default_rng(0).random(1000)

    steps = make_steps(confidences, FILE_TERMS, 0.04, single_labels=200, needed=880)

    assert all(step.limit == int(0.05 * 0.99 * (200 + step.size)) for step in steps)
    # The step that reaches the share is one of them, and all is spent on it first.
    assert [step.weight for step in steps if step.size == 880] == [1.0]
    assert sum(step.weight for step in steps) == 1.0


@pytest.mark.parametrize("needed", [-5, 0, 5000])
def test_a_share_that_is_reached_or_out_of_reach_has_a_step_too(needed: int) -> None:
    steps = make_steps(np.linspace(0.5, 1, 1000), FILE_TERMS, 0.04, needed=needed)

    (weighted,) = [step for step in steps if step.weight]
    assert weighted in (steps[0], steps[-1])
    assert (weighted is steps[-1]) == (needed > 1000)


@pytest.mark.parametrize("labelled", [0, -0.1, 1.5, float("nan")])
def test_a_share_of_labels_that_cannot_be_reached_is_refused(labelled: float) -> None:
    with pytest.raises(InputError, match="labelled is"):
        PromiseTerms(labelled=labelled)


def test_a_promise_is_for_the_file_or_per_class() -> None:
    with pytest.raises(InputError, match="leave out one"):
        PromiseTerms(labelled=0.9, per_class=True)


@dataclass(frozen=True)
class FileState:
    """A file in which a model was frozen, and what people did since."""

    confidences: np.ndarray
    is_wrong: np.ndarray
    """What the model says of each item of the set, as the people would find it."""
    outside: int
    """Labels that people gave one by one to other items, and did not undo."""
    drawn: np.ndarray
    picked: np.ndarray
    """Items that people labelled without their being drawn."""
    in_bulk: np.ndarray
    withdrawn: np.ndarray
    steps: list[Step]

    def judge(self) -> list[StepResult]:
        labelled_alone = np.union1d(self.drawn, self.picked)
        labelled_alone = np.setdiff1d(labelled_alone, self.withdrawn)
        is_wrong = self.is_wrong.copy()
        is_wrong[self.withdrawn] = True  # as the report counts them
        counted = np.union1d(labelled_alone, self.withdrawn)
        outcomes = Outcomes(
            self.drawn,
            is_wrong[self.drawn],
            counted,
            is_wrong[counted],
            np.setdiff1d(self.in_bulk, counted),
            labelled_alone[self.is_wrong[labelled_alone]],
            self.outside + len(labelled_alone),
        )
        return judge_steps(self.confidences, self.steps, outcomes, FILE_TERMS, 0.04)

    def share_wrong(self, step: Step) -> float:
        """The share of wrong labels among all that count, if the model labels this step."""
        touched = np.concatenate([self.drawn, self.picked, self.in_bulk, self.withdrawn])
        by_model = self.confidences >= step.threshold
        by_model[touched] = False
        labelled_alone = np.setdiff1d(np.union1d(self.drawn, self.picked), self.withdrawn)
        n_labels = self.outside + len(labelled_alone) + int(by_model.sum())
        return int(self.is_wrong[by_model].sum()) / max(1, n_labels)


@st.composite
def file_states(draw_value: st.DrawFn) -> FileState:
    generator = np.random.default_rng(draw_value(st.integers(0, 2**32 - 1)))
    size = draw_value(st.integers(40, 400))
    outside = draw_value(st.integers(0, 300))
    confidences = generator.random(size).round(2)
    needed = draw_value(st.integers(1, size))
    steps = make_steps(confidences, FILE_TERMS, 0.04, single_labels=outside, needed=needed)

    is_wrong = generator.random(size) < draw_value(st.floats(0, 0.3)) * (1 - confidences)
    # As many wrong ones as the limit of a step allows: then nothing may be left to chance.
    step = steps[draw_value(st.integers(0, len(steps) - 1))]
    members = generator.permutation(np.flatnonzero(confidences >= step.threshold))
    is_wrong[members] = False
    is_wrong[members[: step.limit]] = True

    # The draws are lucky, so that steps pass: what follows must be true for any draws.
    order = generator.permutation(size)
    order = order[np.argsort(is_wrong[order], kind="stable")]
    n_drawn = draw_value(st.integers(0, size))
    rest = order[n_drawn:]
    n_picked, n_bulk, n_withdrawn = (
        draw_value(st.integers(0, min(30, len(rest) // 3))) for _ in range(3)
    )
    # Whoever picks may know what is wrong and what is not.
    rest = rest[np.argsort(is_wrong[rest] * draw_value(st.sampled_from([-1, 0, 1])), kind="stable")]
    return FileState(
        confidences,
        is_wrong,
        max(0, outside - draw_value(st.integers(0, 40))),
        order[:n_drawn],
        rest[:n_picked],
        rest[n_picked : n_picked + n_bulk],
        np.union1d(
            rest[n_picked + n_bulk :][:n_withdrawn],
            order[: draw_value(st.integers(0, min(5, n_drawn)))],
        ),
        steps,
    )


@settings(max_examples=150, deadline=None)
@given(file_states())
def test_what_people_do_later_never_makes_a_promise_for_the_file_false(state: FileState) -> None:
    for result in state.judge():
        inside = state.confidences >= result.step.threshold
        is_within_limit = state.is_wrong[inside].sum() <= result.step.limit
        # The test errs rarely; if it does not, nothing else can.
        if result.holds and is_within_limit:
            assert state.share_wrong(result.step) <= FILE_TERMS.error
            assert result.counted_limit <= FILE_TERMS.error * result.counted


@pytest.mark.parametrize("outside", [pytest.param(0, marks=pytest.mark.slow), 60])
def test_a_promise_for_the_file_is_broken_no_more_often_than_allowed(outside: int) -> None:
    generator = np.random.default_rng(3)
    campaigns = 200
    broken = 0
    for _ in range(campaigns):
        confidences = generator.random(300)
        steps = make_steps(confidences, FILE_TERMS, 0.05, single_labels=outside, needed=240)
        (goal,) = [step for step in steps if step.weight]
        # One wrong label more than the limit: the worst case.
        members = generator.permutation(np.flatnonzero(confidences >= goal.threshold))
        is_wrong = np.zeros(300, bool)
        is_wrong[members[: goal.limit + 1]] = True
        order = generator.permutation(300)
        for n_draws in range(20, 280, 40):
            drawn = order[:n_draws]
            outcomes = replace(
                draw(is_wrong, drawn),
                corrected=drawn[is_wrong[drawn]],
                single_labels=outside + n_draws,
            )
            results = judge_steps(confidences, steps, outcomes, FILE_TERMS, 0.05)
            if any(result.holds and result.step.size == goal.size for result in results):
                broken += 1
                break

    # Three standard deviations above what is allowed.
    assert broken / campaigns <= 0.05 + 3 * (0.05 * 0.95 / campaigns) ** 0.5
