"""Check the accuracy and the promise where people answer in bulk, or by near copies.

python research/campaigns/shortcuts.py run FEATURES    # the folder that simulator.py writes
python research/campaigns/shortcuts.py summarize       # what must hold, and what was found

An annotator labels with picks and control items. After each model, they also do what the pages
offer. In the campaigns "bulk", they tick the 50 items that the model is surest of in one class, and
accept its prediction with one key, right or wrong. In the campaigns "copies", every answer is given
to all near copies of the item. Then the model is frozen, and items are drawn for a promise, while
the annotator goes on in the same way after every look.

What must hold was written down before the first run. For each way, over 1,000 campaigns:

- The accuracy that the last model reports is wrong by less than one point on average.
- Its 95 % interval contains the true accuracy in a share of the campaigns that is not significantly
  below 95 % (one-sided binomial test at 5 %).
- The promise "at most 5 % of the model's labels are wrong, with 95 % confidence", looked at after
  every 20 draws, is false at some look in a share of the campaigns that is not significantly above
  5 % (the same test).
- An answer that was not given blind never counts as measurement.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.stats import binomtest

from teeter.base.version import __version__, commit
from teeter.campaigns.asking.selection import choose_picks
from teeter.campaigns.finish.frozen_model import FrozenFinish, PromiseGroup
from teeter.campaigns.finish.promise import (
    FEWEST_ITEMS,
    PromiseTerms,
    StepResult,
    attempt_level,
    best_step,
    make_steps,
)
from teeter.campaigns.finish.report import SetState, judge_groups
from teeter.campaigns.items.near_copies import group_near_copies
from teeter.campaigns.learning.saved_models import load_arrays
from teeter.campaigns.learning.stopping import estimate_model_accuracy
from teeter.campaigns.records import Answer, AnswerKind, AnswerOrigin, ConsensusLabel
from teeter.campaigns.review.consensus import CampaignSnapshot, bulk_checks
from teeter.campaigns.settings import TEXT_SIMILARITY

sys.path.append(str(Path(__file__).parents[2]))

from research.campaigns.simulator import (
    EncodedDataset,
    SimulatedCampaign,
    read_features,
    split_again,
)

RESULT = Path(__file__).parent / "results" / "shortcuts.json"

Integers = npt.NDArray[np.int64]

TERMS = PromiseTerms(error=0.05, confidence=0.95)
IN_BULK = 50
"""Items that one key answers."""
LOOK_EVERY = 20
"""Draws between two looks."""


@dataclass(frozen=True)
class ShortcutCase:
    """Campaigns on one dataset in one way."""

    way: str
    dataset: str
    batch: int
    rounds: int
    draws: int
    campaigns: int


CASES = (
    ShortcutCase("bulk", "digits", batch=50, rounds=5, draws=240, campaigns=400),
    ShortcutCase("bulk", "sms_spam", batch=50, rounds=5, draws=300, campaigns=570),
    ShortcutCase("bulk", "banking77", batch=250, rounds=3, draws=500, campaigns=30),
    ShortcutCase("copies", "sms_spam", batch=50, rounds=5, draws=300, campaigns=970),
    ShortcutCase("copies", "banking77", batch=250, rounds=3, draws=500, campaigns=30),
)
"""1,000 campaigns in each way."""


class CampaignWithShortcuts(SimulatedCampaign):
    """A simulated campaign that knows how each answer was given."""

    def __init__(self, data: EncodedDataset, *, has_copies: bool, seed: int) -> None:
        features = data.features[: data.pool_size]
        truth = data.labels[: data.pool_size]
        super().__init__(features, truth, data.n_classes, seed=seed, names=data.names)
        self.answers: dict[int, Answer] = {}
        self.near_copies = None
        if has_copies:
            self.near_copies = group_near_copies(features, TEXT_SIMILARITY)
        self.copied: list[tuple[int, int]] = []

    def record(self, place: int, label: str, origin: AnswerOrigin) -> None:
        """Store an answer. One about the item alone stays, whatever is said of many at once."""
        before = self.answers.get(place)
        if before is not None and before.origin.is_single and not origin.is_single:
            return
        key = self.state.keys[place]
        self.answers[place] = Answer(key, "me", AnswerKind.LABEL, label, origin=origin)

    def answer(self, place: int, *, is_blind: bool) -> None:
        """Say what an item is, and give the answer to its near copies."""
        label = str(self.truth[place])
        self.record(place, label, AnswerOrigin.SINGLE if is_blind else AnswerOrigin.SEEN)
        if self.near_copies is None:
            return
        for other in np.flatnonzero(self.near_copies == self.near_copies[place]).tolist():
            before = self.answers.get(other)
            if other != place and (before is None or not before.origin.is_single):
                self.record(other, label, AnswerOrigin.COPY)
                self.copied.append((other, place))

    def answer_in_bulk(self, generator: np.random.Generator, hidden: Iterable[int] = ()) -> None:
        """Accept what the newest model says of the items that it is surest of in one class."""
        if self.state.weights is None:
            return
        arrays = load_arrays(self.state.weights)
        free = np.setdiff1d(np.arange(len(self.truth)), [*self.answers, *hidden])
        if len(free) == 0:
            return
        label = generator.choice(np.unique(arrays["predicted"][free]))
        hits = free[arrays["predicted"][free] == label]
        surest = hits[np.argsort(-arrays["confidence"][hits], kind="stable")][:IN_BULK]
        for place in surest.tolist():
            self.record(place, str(label), AnswerOrigin.BULK)

    def snapshot(self) -> CampaignSnapshot:
        """Return the answers as a campaign sees them."""
        given = list(self.answers.values())
        consensus = {
            answer.item: ConsensusLabel(str(answer.label), 1.0, "majority") for answer in given
        }
        in_view = frozenset(answer.item for answer in given if not answer.origin.is_blind)
        return CampaignSnapshot(given, {}, consensus, frozenset(), frozenset(), in_view)

    def update(self, control: Iterable[int] = ()) -> None:
        """Let picking and training see the answers."""
        snapshot = self.snapshot()
        in_view = frozenset(int(item) for item in snapshot.in_view)
        drawn = self.state.control | set(control)
        copied = [
            (copy, source)
            for copy, source in self.copied
            if self.answers[copy].origin is AnswerOrigin.COPY
        ]
        self.state = replace(
            self.state,
            labels={place: str(answer.label) for place, answer in self.answers.items()},
            control=drawn,
            random=drawn,
            taken=frozenset(self.answers),
            in_view=in_view,
            repeatable=in_view,
            checks=frozenset(int(item) for item in bulk_checks(snapshot, self.settings.seed)),
            near_copies=self.near_copies,
            copied=tuple(copied),
        )

    def label_batch(self, n: int) -> None:
        """Pick n items and answer them: draws blind, picks with the prediction in view."""
        picks = choose_picks(self.state, self.settings, n)
        for pick in picks:
            if pick.asked:
                is_blind = pick.arm.is_random or self.state.version == 0
                self.answer(int(pick.item), is_blind=is_blind)
        control = [int(pick.item) for pick in picks if pick.arm == "control"]
        self.state = replace(self.state, batches=self.state.batches + 1)
        self.update(control)


def simulate(case: ShortcutCase, data: EncodedDataset, seed: int) -> dict[str, Any]:
    """Run one campaign, and return what it reports and what is true."""
    generator = np.random.default_rng([seed, 46])
    campaign = CampaignWithShortcuts(data, has_copies=case.way == "copies", seed=seed)
    models = []
    for _ in range(case.rounds):
        campaign.label_batch(case.batch)
        facts = campaign.train()
        if facts is None:
            continue
        estimate = estimate_model_accuracy(facts)
        predicted = campaign.predict(data.test_features)
        models.append(
            {
                "labels": facts["labels"],
                "total": facts["control"][1],
                "new_groups": facts.get("new_groups"),
                "accuracy": round(float((predicted == data.test_labels).mean()), 5),
                "estimate": None if estimate is None else round(estimate.share, 5),
                "low": None if estimate is None else round(estimate.low, 5),
                "high": None if estimate is None else round(estimate.high, 5),
            }
        )
        blind_control = campaign.state.control & campaign.state.labels.keys()
        blind_control -= campaign.state.in_view
        assert facts["control"][1] == len(blind_control), "only blind answers measure"
        if case.way == "bulk":
            campaign.answer_in_bulk(generator, campaign.state.control)
            campaign.update()

    not_single = sum(not answer.origin.is_single for answer in campaign.answers.values())
    result = {"seed": seed, "models": models, "not_single": not_single}
    return result | look_often(campaign, case, generator)


def look_often(
    campaign: CampaignWithShortcuts, case: ShortcutCase, generator: np.random.Generator
) -> dict[str, Any]:
    """Freeze the newest model, draw for a promise, and look after every few draws."""
    finish = freeze(campaign, generator)
    if finish is None:
        return {"looks": 0}

    places = np.array([int(item) for item in finish.items])
    is_wrong = finish.predicted != campaign.truth[places]
    classes = campaign.state.classes
    result: dict[str, Any] = {"looks": 0, "broken": False, "rest_broken": False, "coverage": 0.0}
    n_draws = min(case.draws, len(places))
    for start in range(0, n_draws, LOOK_EVERY):
        # The draws wait to be answered blind, so that Find shows no prediction of them.
        if case.way == "bulk":
            campaign.answer_in_bulk(generator, places[:n_draws].tolist() if start % 40 else ())
        for place in places[start : start + LOOK_EVERY].tolist():
            campaign.answer(place, is_blind=True)

        state = SetState.read(finish, campaign.snapshot(), classes)
        assert state.n_draws >= min(start + LOOK_EVERY, n_draws), "all draws were answered blind"
        (results,) = judge_groups(finish, state, classes)
        best = best_step(results)
        result["looks"] += 1
        if best is not None:
            result["broken"] |= is_broken(finish, state, best, is_wrong)
            by_model = (finish.confidences >= best.step.threshold) & ~state.is_settled
            if by_model.any():
                result["rest_broken"] |= bool(is_wrong[by_model].mean() > TERMS.error)
            result["coverage"] = best.remaining / max(1, int((~state.is_settled).sum()))
    return result


def freeze(campaign: CampaignWithShortcuts, generator: np.random.Generator) -> FrozenFinish | None:
    """Freeze the newest model, with the items that nobody has answered in random order."""
    if campaign.state.weights is None:
        return None
    arrays = load_arrays(campaign.state.weights)
    free = np.setdiff1d(np.arange(len(campaign.truth)), list(campaign.answers))
    if len(free) < FEWEST_ITEMS:
        return None

    order = generator.permutation(free)
    confidences = arrays["confidence"][order].astype(np.float64)
    level = attempt_level(TERMS.confidence, 1)
    group = PromiseGroup(None, level, tuple(make_steps(confidences, TERMS, level)))
    return FrozenFinish(
        number=1,
        started="",
        model_version=campaign.state.version,
        checksum="",
        terms=TERMS,
        items=[str(place) for place in order],
        predicted=arrays["predicted"][order].astype(np.int64),
        confidences=confidences,
        groups=(group,),
        asked_draws=len(order),
    )


def is_broken(
    finish: FrozenFinish, state: SetState, result: StepResult, is_wrong: npt.NDArray[np.bool_]
) -> bool:
    """Return whether more of the labels that a promise counts are wrong than promised."""
    is_counted = finish.confidences >= result.step.threshold
    # People labelled these blind, and the promise counts none of them if it can.
    labelled = np.flatnonzero(state.is_counted)
    taken_out = labelled[is_counted[labelled]][: result.step.size - result.counted]
    is_counted[taken_out] = False
    return bool(is_wrong[is_counted].mean() > TERMS.error)


def run_campaign(task: tuple[int, str, int]) -> tuple[int, dict[str, Any], float]:
    """Simulate one campaign on one thread, and return the number of its case and CPU seconds."""
    number, folder, seed = task
    torch.set_num_threads(1)
    started = time.process_time()
    case = CASES[number]
    data = split_again(read_features(case.dataset, Path(folder)), 1 / 3, seed)
    return number, simulate(case, data, seed), time.process_time() - started


def run(folder: Path, file: Path, workers: int, share: float) -> None:
    """Simulate the campaigns that a file lacks, and add each to it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    done = set()
    if file.exists():
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        done = {(line["case"], line["seed"]) for line in lines}
    tasks = [
        (number, str(folder), seed)
        for number, case in enumerate(CASES)
        for seed in range(max(1, round(share * case.campaigns)))
        if (number, seed) not in done
    ]
    # The longest first, so that no process is left with one of them at the end.
    tasks.sort(key=lambda task: -CASES[task[0]].batch)
    with (
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
        file.open("a") as lines_file,
    ):
        for number, result, seconds in pool.map(run_campaign, tasks, chunksize=1):
            line = {"case": number, "seconds": round(seconds, 2), **result}
            lines_file.write(json.dumps(line) + "\n")
            lines_file.flush()


def summarize(lines_file: Path, file: Path) -> dict[str, Any]:
    """Return the figures of each case and each way, and write them."""
    lines = [json.loads(line) for line in lines_file.read_text().splitlines()]
    groups: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        case = CASES[line["case"]]
        groups.setdefault(f"{case.way}, {case.dataset}", []).append(line)
        groups.setdefault(case.way, []).append(line)
    result: dict[str, Any] = {"teeter": __version__, "commit": commit()}
    result["cpu_minutes"] = round(sum(line["seconds"] for line in lines) / 60, 1)
    result["groups"] = {name: describe(campaigns) for name, campaigns in sorted(groups.items())}
    file.write_text(json.dumps(result, indent=1) + "\n")
    return result


def describe(campaigns: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of some campaigns."""
    last = [line["models"][-1] for line in campaigns if line["models"]]
    last = [model for model in last if model["total"]]
    errors = np.array([100 * (model["estimate"] - model["accuracy"]) for model in last])
    covered = sum(model["low"] <= model["accuracy"] <= model["high"] for model in last)
    looked = [line for line in campaigns if line["looks"]]
    broken = sum(line["broken"] for line in looked)
    with_groups = [model for model in last if model["new_groups"]]
    differences = [
        100 * (model["new_groups"][0] / model["new_groups"][1] - model["accuracy"])
        for model in with_groups
    ]
    return {
        "campaigns": len(campaigns),
        "accuracy": round(100 * float(np.mean([model["accuracy"] for model in last])), 2),
        "not_single": round(float(np.mean([line["not_single"] for line in campaigns])), 1),
        "error": round(float(errors.mean()), 3),
        "error_deviation": round(float(errors.std(ddof=1) / np.sqrt(len(errors))), 3),
        "covered": round(covered / len(last), 4),
        "covered_p": round(binomtest(covered, len(last), 0.95, "less").pvalue, 4),
        "broken": round(broken / len(looked), 4),
        "broken_p": round(binomtest(broken, len(looked), 0.05, "greater").pvalue, 4),
        "rest_broken": round(float(np.mean([line["rest_broken"] for line in looked])), 4),
        "coverage": round(float(np.mean([line["coverage"] for line in looked])), 3),
        "new_groups": len(with_groups),
        "new_groups_minus_accuracy": round(float(np.mean(differences)), 3) if differences else None,
    }


def main() -> None:
    import argparse

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run_parser = commands.add_parser("run", help="simulate the campaigns")
    run_parser.add_argument("features", type=Path)
    run_parser.add_argument("--workers", type=int, default=os.cpu_count())
    run_parser.add_argument("--out", type=Path, default=RESULT.with_suffix(".jsonl"))
    run_parser.add_argument("--share", type=float, default=1.0, help="of all campaigns")
    summarize_parser = commands.add_parser("summarize", help="write the figures")
    summarize_parser.add_argument("--runs", type=Path, default=RESULT.with_suffix(".jsonl"))
    summarize_parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()

    if options.command == "run":
        run(options.features, options.out, options.workers, options.share)
    else:
        print(json.dumps(summarize(options.runs, options.out), indent=1))


if __name__ == "__main__":
    main()
