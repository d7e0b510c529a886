"""Simulate campaigns with a goal, from the first answer to the certificate.

python research/goal/simulate.py run FEATURES OUT --workers 16    # resumes where it stopped
python research/goal/simulate.py summarize OUT                    # research/goal/results

research/campaigns/simulator.py writes the folder FEATURES. The goal is at most 5% wrong labels in
the file, of which 90% of the items have one. Written down before the first run: certificates are
false in at most 5% of the campaigns with the planner and with two steps; the planner needs fewer
answers than two steps do, fewer than 250 on SMS Spam and 400 on digits in the median; the rule
"stop when 95% of 200 are right" breaks its promise in more than 5% of the campaigns of some set.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.base.version import __version__, commit
from teeter.campaigns.finish.goal import (
    GoalPlan,
    Outlook,
    follow,
    foresee,
    plan_answers,
)
from teeter.campaigns.finish.promise import (
    FEWEST_ITEMS,
    Outcomes,
    PromiseTerms,
    Step,
    StepResult,
    attempt_level,
    best_step,
    judge_steps,
    make_steps,
    needed_step,
)
from teeter.campaigns.learning.saved_models import load_arrays
from teeter.campaigns.learning.stopping import Progress, give_advice, recent_kappas
from teeter.campaigns.records import Purpose

sys.path.append(str(Path(__file__).parents[2]))

from research.campaigns.simulator import EncodedDataset, SimulatedCampaign, read_features

RESULTS = Path(__file__).parent / "results"

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]

LABELLED = 0.9
GOAL = PromiseTerms(error=0.05, confidence=0.95, labelled=LABELLED)
TODAY = PromiseTerms(error=0.05, confidence=0.95)
LOOK_EVERY = 5
"""Random labels between two looks."""
TEST_ITEMS = 200


@dataclass(frozen=True)
class Case:
    """How the campaigns of one dataset are simulated."""

    title: str
    batch: int
    """Answers between two trainings."""
    most: int
    """A campaign without a certificate after so many answers is given up."""
    campaigns: int
    compared: int
    """Campaigns of the ways that the planner is compared with."""


CASES = {
    "sms_spam": Case("SMS Spam, 2 classes", 20, 800, 1000, 100),
    "digits": Case("digits, 10 classes", 20, 800, 1000, 100),
    "hwu64": Case("HWU64, 64 classes", 200, 1200, 24, 4),
    "banking77": Case("Banking77, 77 classes", 200, 1200, 24, 4),
}


# One campaign


@dataclass
class Course:
    """What happened in a campaign."""

    answers: int = 0
    certified: bool = False
    broken: bool = False
    """Whether a promise was false at any look."""
    by_model: int = 0
    """Labels of the model at the end."""
    wrong: float = 0.0
    """The share of wrong labels in the file at the end, and nan without a certificate."""
    attempts: int = 0
    plans: list[list[float]] = field(default_factory=list)
    """After each training: answers so far, answers to go with the ends of the interval, and whether
    the goal was in reach.
    """


@dataclass(frozen=True, eq=False)
class Attempt:
    """A frozen model, and its items in the order of the draws."""

    rows: Integers
    confidences: Floats
    is_wrong: Booleans
    steps: list[Step]
    terms: PromiseTerms
    level: float
    outlook: Outlook | None
    """What was expected of the model when it was frozen."""

    def next_draws(self, campaign: SimulatedCampaign, count: int) -> list[int]:
        waiting = [int(row) for row in self.rows if int(row) not in campaign.state.labels]
        return waiting[:count]

    def judge(self, campaign: SimulatedCampaign) -> list[StepResult]:
        is_labelled = np.isin(self.rows, list(campaign.state.labels))
        unlabelled = np.flatnonzero(~is_labelled)
        n_draws = int(unlabelled[0]) if len(unlabelled) else len(self.rows)
        drawn = np.arange(n_draws)
        labelled = np.flatnonzero(is_labelled)
        outcomes = Outcomes(
            drawn,
            self.is_wrong[drawn],
            labelled,
            self.is_wrong[labelled],
            corrected=labelled[self.is_wrong[labelled]],
            single_labels=len(campaign.state.labels),
        )
        return judge_steps(self.confidences, self.steps, outcomes, self.terms, self.level)

    def share_wrong(self, campaign: SimulatedCampaign, result: StepResult) -> float:
        """Return the share of wrong labels among those that a promise is about."""
        is_labelled = np.isin(self.rows, list(campaign.state.labels))
        inside = self.confidences >= result.step.threshold
        if self.terms.labelled is not None:
            by_model = inside & ~is_labelled
            n_labels = len(campaign.state.labels) + by_model.sum()
            return float(self.is_wrong[by_model].sum() / n_labels)
        # People labelled these, and the promise counts none of them if it can.
        taken_out = np.flatnonzero(inside & is_labelled)[: result.step.size - result.counted]
        inside[taken_out] = False
        return float(self.is_wrong[inside].mean()) if inside.any() else 0.0


def freeze(
    campaign: SimulatedCampaign, terms: PromiseTerms, number: int, outlook: Outlook | None
) -> Attempt:
    """Freeze the newest model of a campaign."""
    rows, confidences, predicted = predict_rest(campaign)
    order = np.random.default_rng([campaign.settings.seed, 51, number]).permutation(len(rows))
    level = attempt_level(terms.confidence, number)
    steps = make_goal_steps(campaign, confidences, terms, level)
    rows = rows[order]
    is_wrong = predicted[order] != campaign.truth[rows]
    return Attempt(rows, confidences[order], is_wrong, steps, terms, level, outlook)


def predict_rest(campaign: SimulatedCampaign) -> tuple[Integers, Floats, Integers]:
    """Return the rows without a label, and the newest model's confidences and classes for them."""
    assert campaign.state.weights is not None
    arrays = load_arrays(campaign.state.weights)
    rows = np.setdiff1d(np.arange(len(campaign.truth)), list(campaign.state.labels))
    confidences = arrays["confidence"][rows].astype(np.float64)
    return rows, confidences, arrays["predicted"][rows].astype(np.int64)


def count_needed(campaign: SimulatedCampaign) -> int:
    return int(np.ceil(LABELLED * len(campaign.truth))) - len(campaign.state.labels)


def make_goal_steps(
    campaign: SimulatedCampaign, confidences: Floats, terms: PromiseTerms, level: float
) -> list[Step]:
    return make_steps(
        confidences,
        terms,
        level,
        single_labels=len(campaign.state.labels),
        needed=count_needed(campaign),
    )


def look(campaign: SimulatedCampaign, attempt: Attempt, course: Course) -> list[StepResult]:
    """Ask what is promised, and note whether it is true and whether the goal is reached."""
    results = attempt.judge(campaign)
    for result in results:
        if result.holds and attempt.share_wrong(campaign, result) > attempt.terms.error:
            course.broken = True

    best = best_step(results)
    n_labels = len(campaign.state.labels)
    if best is not None and n_labels + best.remaining >= LABELLED * len(campaign.truth):
        is_labelled = np.isin(attempt.rows, list(campaign.state.labels))
        by_model = (attempt.confidences >= best.step.threshold) & ~is_labelled
        finish(course, campaign, int(by_model.sum()), int(attempt.is_wrong[by_model].sum()))
    return results


def finish(course: Course, campaign: SimulatedCampaign, by_model: int, wrong: int) -> None:
    course.certified = True
    course.by_model = by_model
    course.wrong = wrong / (len(campaign.state.labels) + by_model)


# Ways to the certificate


def follow_the_plan(campaign: SimulatedCampaign, case: Case) -> Course:
    """Let the planner decide what each question is for."""
    course = Course()
    outlooks: list[Outlook] = []
    attempt: Attempt | None = None
    purpose = Purpose.TEACH
    while course.answers < case.most and not course.certified:
        if purpose is Purpose.CERTIFY and attempt is not None:
            results = draw_and_look(campaign, attempt, course, case.batch)
        else:
            campaign.label(case.batch)
            course.answers = len(campaign.state.labels)
            results = [] if attempt is None else look(campaign, attempt, course)
        facts = None if course.certified else campaign.train()
        if facts is None:
            continue

        outlook = foresee_next(campaign, facts, course.attempts + 1)
        if outlook is None:
            break
        outlooks.append(outlook)
        plan = plan_answers(outlooks, follow_attempt(attempt, results))
        note_plan(course, plan)
        purpose = plan.purpose
        if purpose is Purpose.START:
            course.attempts += 1
            attempt = freeze(campaign, GOAL, course.attempts, outlook)
            purpose = Purpose.CERTIFY
    return course


def draw_and_look(
    campaign: SimulatedCampaign, attempt: Attempt, course: Course, count: int
) -> list[StepResult]:
    """Answer so many draws, a few at a time, until the goal is reached."""
    results: list[StepResult] = []
    for _ in range(0, count, LOOK_EVERY):
        rows = attempt.next_draws(campaign, LOOK_EVERY)
        campaign.tell(rows, control=rows)
        course.answers = len(campaign.state.labels)
        results = look(campaign, attempt, course)
        if course.certified or not rows:
            break
    return results


def foresee_next(campaign: SimulatedCampaign, facts: dict[str, Any], number: int) -> Outlook | None:
    """Return the outlook of the newest model, if it were frozen for the next attempt."""
    _, confidences, _ = predict_rest(campaign)
    if len(confidences) < FEWEST_ITEMS:
        return None
    level = attempt_level(GOAL.confidence, number)
    return foresee(
        confidences,
        make_goal_steps(campaign, confidences, GOAL, level),
        facts.get("random", []),
        labels=len(campaign.state.labels),
        needed=count_needed(campaign),
        level=level,
        allowed=GOAL.error,
    )


def follow_attempt(attempt: Attempt | None, results: list[StepResult]) -> Outlook | None:
    if attempt is None or attempt.outlook is None:
        return None
    position = needed_step([result.step for result in results], attempt.outlook.needed)
    return follow(attempt.outlook, results[position])


def note_plan(course: Course, plan: GoalPlan) -> None:
    course.plans.append([course.answers, plan.answers, plan.low, plan.high, float(plan.in_reach)])


def take_two_steps(campaign: SimulatedCampaign, case: Case) -> Course:
    """Label until the advice is to consider stopping; then let the model label the rest."""
    course = Course()
    models: list[dict[str, Any]] = []
    while course.answers < case.most:
        campaign.label(case.batch)
        course.answers = len(campaign.state.labels)
        facts = campaign.train()
        if facts is None:
            continue
        models.append(facts)
        progress = Progress(course.answers, None, (), recent_kappas(models), facts.get("changed"))
        if give_advice(progress)[0].startswith("You can consider stopping"):
            break

    course.attempts = 1
    attempt = freeze(campaign, TODAY, 1, None)
    while course.answers < case.most and not course.certified:
        draw_and_look(campaign, attempt, course, LOOK_EVERY)
    return course


def trust_a_test_set(
    campaign: SimulatedCampaign, case: Case, is_enough: Callable[[int], bool]
) -> Course:
    """Label the rest by the model once enough of the same random items are predicted right."""
    course = Course()
    generator = np.random.default_rng([campaign.settings.seed, 52])
    test = generator.choice(len(campaign.truth), TEST_ITEMS, replace=False)
    campaign.state = replace(
        campaign.state, holdout={int(row): str(campaign.truth[row]) for row in test}
    )
    while course.answers < case.most and not course.certified:
        # No holdout items among the picks: all of them are labelled already.
        campaign.label(case.batch)
        course.answers = len(campaign.state.labels) + TEST_ITEMS
        facts = campaign.train()
        if facts is not None and is_enough(facts["holdout"][0]):
            rows, _, predicted = predict_rest(campaign)
            is_rest = ~np.isin(rows, test)
            wrong = int((predicted != campaign.truth[rows])[is_rest].sum())
            finish(course, campaign, int(is_rest.sum()), wrong)
            course.wrong = wrong / len(campaign.truth)
            course.broken = course.wrong > GOAL.error
    return course


def is_bounded(right: int) -> bool:
    """Whether the exact 95% upper bound of the share of wrong ones is at most 5%."""
    from scipy.stats import beta

    wrong = TEST_ITEMS - right
    return bool(beta.ppf(0.95, wrong + 1, TEST_ITEMS - wrong) <= GOAL.error)


ARMS = ("planner", "random", "two_steps", "fixed_split", "rule_of_200")
TITLES = {
    "planner": '`--goal "5% wrong"`',
    "random": "the planner, random labels only",
    "two_steps": "advice to stop, then `finish`",
    "fixed_split": "margin, exact bound on a fixed split of 200",
    "rule_of_200": "stop when 95% of 200 are right",
}


def simulate(name: str, folder: Path, arm: str, seed: int) -> dict[str, Any]:
    """Return the course of one campaign."""
    started = time.process_time()
    case = CASES[name]
    data = read_features(name, folder)
    campaign = make_campaign(data, arm, seed)
    if arm in ("planner", "random"):
        course = follow_the_plan(campaign, case)
    elif arm == "two_steps":
        course = take_two_steps(campaign, case)
    elif arm == "fixed_split":
        course = trust_a_test_set(campaign, case, is_bounded)
    else:
        course = trust_a_test_set(campaign, case, lambda right: right >= 0.95 * TEST_ITEMS)
    return {
        "dataset": name,
        "arm": arm,
        "seed": seed,
        "items": len(data.labels),
        "seconds": round(time.process_time() - started, 2),
        **asdict(course),
    }


def make_campaign(data: EncodedDataset, arm: str, seed: int) -> SimulatedCampaign:
    strategy = {"random": "random", "fixed_split": "margin"}.get(arm, "ldm-s")
    return SimulatedCampaign(
        data.features,
        data.labels,
        data.n_classes,
        strategy=strategy,
        seed=seed,
        names=data.names,
    )


# Running


def run(options: argparse.Namespace) -> None:
    """Simulate what is missing in ``out``, until it is complete or the time is over."""
    folder: Path = options.features
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + options.seconds
    done = {(line["dataset"], line["arm"], line["seed"]) for line in read_lines(out)}
    todo = []
    for name in options.datasets:
        case = CASES[name]
        for arm in ARMS:
            count = min(options.campaigns, case.campaigns if arm == "planner" else case.compared)
            todo += [(name, folder, arm, seed) for seed in range(count)]
    todo = [task for task in todo if (task[0], task[2], task[3]) not in done]
    # Mixed, so that an interrupted run has some of each; the slow ones first within that.
    todo.sort(key=lambda task: task[3] / CASES[task[0]].campaigns)
    print(f"{len(todo)} campaigns to simulate with {options.workers} processes", flush=True)

    pool = ProcessPoolExecutor(
        options.workers, mp_context=get_context("spawn"), initializer=_use_one_thread
    )
    with (out / f"campaigns-{int(time.time())}.jsonl").open("w") as file:
        futures = [pool.submit(_simulate, *task) for task in todo]
        try:
            for count, future in enumerate(as_completed(futures, timeout=options.seconds), start=1):
                file.write(json.dumps(future.result()) + "\n")
                file.flush()
                if count % 100 == 0:
                    left = deadline - time.monotonic()
                    print(f"{count} of {len(todo)}, {left:.0f} s left", flush=True)
        except TimeoutError:
            print("The time is over: run it again to continue.", flush=True)
            for process in list(pool._processes.values()):
                process.kill()
    pool.shutdown(wait=False, cancel_futures=True)


def _use_one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _simulate(name: str, folder: Path, arm: str, seed: int) -> dict[str, Any]:
    import torch

    from teeter.base.arrays import describe_device

    result = simulate(name, folder, arm, seed)
    result["made"] = {
        "teeter": __version__,
        "commit": commit(),
        "torch": torch.__version__,
        "hardware": describe_device(torch.device("cpu")),
    }
    return result


def read_lines(out: Path) -> Iterator[dict[str, Any]]:
    """Yield the campaigns that were simulated, each once."""
    seen = set()
    for path in sorted(out.glob("campaigns-*.jsonl")):
        for text in path.read_text().splitlines():
            line = json.loads(text)
            key = (line["dataset"], line["arm"], line["seed"])
            if key not in seen:
                seen.add(key)
                yield line


def summarize(out: Path) -> dict[str, Any]:
    """Return the results of all simulated campaigns."""
    lines: dict[tuple[str, str], list[dict[str, Any]]] = {}
    provenances: dict[str, dict[str, str]] = {}
    for line in read_lines(out):
        lines.setdefault((line["dataset"], line["arm"]), []).append(line)
        provenances[json.dumps(line["made"])] = line["made"]

    datasets: dict[str, Any] = {}
    for name, case in CASES.items():
        arms = {arm: summarize_arm(lines[name, arm]) for arm in ARMS if (name, arm) in lines}
        if arms:
            datasets[name] = asdict(case) | {"arms": arms}
    return {
        "made": list(provenances.values()),
        "terms": asdict(GOAL),
        "test_items": TEST_ITEMS,
        "datasets": datasets,
    }


def summarize_arm(campaigns: list[dict[str, Any]]) -> dict[str, Any]:
    """Return counts, medians and ranges over the campaigns of one way."""
    answers = np.array([line["answers"] for line in campaigns])
    certified = [line for line in campaigns if line["certified"]]
    held, told = check_plans(certified)
    return {
        "campaigns": len(campaigns),
        "items": campaigns[0]["items"],
        # Without a certificate, the number of answers is that at which it was given up.
        "answers": np.quantile(answers, [0.05, 0.5, 0.95], method="higher").tolist(),
        "certified": round(len(certified) / len(campaigns), 4),
        "broken": round(float(np.mean([line["broken"] for line in campaigns])), 4),
        "by_model": _mean([line["by_model"] / line["items"] for line in certified]),
        "labelled": _mean(
            [(line["by_model"] + line["answers"]) / line["items"] for line in certified]
        ),
        "wrong": _mean([line["wrong"] for line in certified]),
        "attempts": _mean([line["attempts"] for line in campaigns]),
        "out_of_reach_after": out_of_reach_after(campaigns),
        "intervals": told,
        "intervals_that_held": held,
        "seconds": _mean([line["seconds"] for line in campaigns]),
    }


def check_plans(campaigns: list[dict[str, Any]]) -> tuple[float | None, int]:
    """Return how often the interval of the answers to go held the truth, and of how many."""
    held = []
    for line in campaigns:
        for answers, _, low, high, _ in line["plans"]:
            held.append(low <= line["answers"] - answers <= high)
    return _mean(held), len(held)


def out_of_reach_after(campaigns: list[dict[str, Any]]) -> float | None:
    """Return the median of the answers after which the last plan first said out of reach."""
    first = []
    for line in campaigns:
        if line["plans"] and not line["plans"][-1][4]:
            since = [plan[0] for plan in line["plans"] if not plan[4]]
            first.append(since[0])
    return float(np.median(first)) if first else None


def _mean(values: list[Any]) -> float | None:
    return round(float(np.mean(values)), 4) if values else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    running = commands.add_parser("run")
    running.add_argument("features", type=Path)
    running.add_argument("out", type=Path)
    running.add_argument("--datasets", nargs="*", choices=list(CASES), default=list(CASES))
    running.add_argument("--campaigns", type=int, default=1000, help="At most so many of each.")
    running.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    running.add_argument("--seconds", type=float, default=1e6, help="Stop after so long.")

    summarizing = commands.add_parser("summarize")
    summarizing.add_argument("out", type=Path)
    summarizing.add_argument("--print", action="store_true", help="Print instead of writing.")

    options = parser.parse_args()
    if options.command == "run":
        run(options)
    elif options.print:
        print(json.dumps(summarize(options.out), indent=1))
    else:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "goal.json").write_text(json.dumps(summarize(options.out), indent=1) + "\n")


if __name__ == "__main__":
    main()
