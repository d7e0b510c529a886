"""Is a promise about all labels of a file kept, and what does it cost beside its peers?

    python research/promise/whole_file.py FEATURES   # writes results/whole_file.json

For each dataset, 40 campaigns are labelled and their models frozen, as in simulate.py. For each of
them, items are drawn in 25 random orders, which makes 1,000 promises. People look after every 20
draws, until a share of all items has a label. Three ways are compared: the promise for the whole
file, the promise for the model's labels alone, and the published way to label a file with a
guarantee for all its labels [Candes, Ilyas and Zrnic 2025], whose bound is for one number of draws
that is chosen in advance: here exact (Clopper and Pearson), and looked at as often as the others.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import beta

sys.path.append(str(Path(__file__).parents[2]))

from research.promise.simulate import FrozenCampaign, label_and_freeze
from teeter.base.version import __version__, commit
from teeter.campaigns.finish.promise import (
    Outcomes,
    PromiseTerms,
    attempt_level,
    best_step,
    judge_steps,
    make_steps,
)

Integers = npt.NDArray[np.int64]

RESULTS = Path(__file__).parent / "results" / "whole_file.json"
MODELS = 40
ORDERS = 25
EVERY = 20
ERROR = 0.05
LEVEL = attempt_level(0.95, 1)

LABELLED = {"sms_spam": 0.9, "digits": 0.9, "banking77": 0.6}
"""The share of the items that is to have a label. Models of Banking77 are right on too few for
more.
"""


@dataclass(frozen=True)
class Outcome:
    """How a promise ended."""

    draws: int | None
    """Random labels until enough items had a label; None if that never happened."""
    broken: bool
    """Whether more was wrong than promised, at one of the looks."""


Look = Callable[[FrozenCampaign, Integers, int], tuple[int, bool]]
"""Returns how many items have a label, and whether what is promised is wrong, after some draws."""


def prepare_promise(campaign: FrozenCampaign, labelled: float | None, share: float) -> Look:
    """Return the looks of a promise for the whole file, or for the model's labels."""
    known = len(campaign.known_labels)
    n_items = known + len(campaign.truth)
    needed = int(np.ceil(share * n_items)) - known
    terms = PromiseTerms(error=ERROR, labelled=labelled)
    steps = make_steps(campaign.confidences, terms, LEVEL, single_labels=known, needed=needed)
    is_wrong = campaign.predicted != campaign.truth

    def look(campaign: FrozenCampaign, order: Integers, count: int) -> tuple[int, bool]:
        drawn = order[:count]
        wrong = is_wrong[drawn]
        outcomes = Outcomes(
            drawn, wrong, drawn, wrong, corrected=drawn[wrong], single_labels=known + count
        )
        best = best_step(judge_steps(campaign.confidences, steps, outcomes, terms, LEVEL))
        if best is None:
            return 0, False
        by_model = campaign.confidences >= best.step.threshold
        if labelled is None:
            taken_out = drawn[by_model[drawn]][: best.step.size - best.counted]
            counted = by_model.copy()
            counted[taken_out] = False
            is_broken = is_wrong[counted].mean() > ERROR
            by_model[drawn] = False
        else:
            by_model[drawn] = False
            n_labels = known + count + int(by_model.sum())
            is_broken = is_wrong[by_model].sum() > ERROR * n_labels
        return known + count + int(by_model.sum()), bool(is_broken)

    return look


def prepare_published(campaign: FrozenCampaign, share: float) -> Look:
    """Return the looks of the published way: the model labels where a bound allows it."""
    known = len(campaign.known_labels)
    n_items = known + len(campaign.truth)
    is_wrong = campaign.predicted != campaign.truth
    surest = np.argsort(-campaign.confidences, kind="stable")
    rank = np.empty(len(surest), dtype=np.int64)
    rank[surest] = np.arange(len(surest))

    def look(campaign: FrozenCampaign, order: Integers, count: int) -> tuple[int, bool]:
        drawn = order[:count]
        # Of all items left, the share that is wrong and among the surest k may be so large.
        allowed = ERROR * n_items / len(campaign.truth)
        wrong_ranks = np.sort(rank[drawn[is_wrong[drawn]]])
        limits = beta.ppf(
            1 - LEVEL, np.arange(len(wrong_ranks) + 1) + 1, count - np.arange(len(wrong_ranks) + 1)
        )
        most = int((limits <= allowed).sum()) - 1
        if most < 0:
            return 0, False
        size = len(surest) if most >= len(wrong_ranks) else int(wrong_ranks[most])
        by_model = rank < size
        by_model[drawn] = False
        is_broken = is_wrong[by_model].sum() > ERROR * n_items
        return known + count + int(by_model.sum()), bool(is_broken)

    return look


def follow(campaign: FrozenCampaign, look: Look, order: Integers, share: float) -> Outcome:
    """Look after every 20 draws, until enough items have a label."""
    n_items = len(campaign.known_labels) + len(campaign.truth)
    was_broken = False
    for count in range(EVERY, len(order) // 2, EVERY):
        labelled, is_broken = look(campaign, order, count)
        was_broken = was_broken or is_broken
        if labelled >= share * n_items:
            return Outcome(count, was_broken)
    return Outcome(None, was_broken)


def simulate(name: str, folder: Path, seed: int) -> dict[str, Any]:
    """Return the outcomes of 25 orders of draws of one frozen model, by way."""
    campaign = label_and_freeze(name, folder, seed)
    share = LABELLED[name]
    ways = {
        "whole file": prepare_promise(campaign, share, share),
        "model's labels": prepare_promise(campaign, None, share),
        "published": prepare_published(campaign, share),
    }
    outcomes: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for number in range(ORDERS):
        order = np.random.default_rng([seed, 29, number]).permutation(len(campaign.truth))
        for way, look in ways.items():
            outcomes[way].append(asdict(follow(campaign, look, order, share)))
    return {
        "dataset": name,
        "seed": seed,
        "accuracy": float((campaign.predicted == campaign.truth).mean()),
        "labels before": len(campaign.known_labels),
        "outcomes": outcomes,
    }


def summarize(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return shares of broken promises, and draws until enough items had a label."""
    summary: dict[str, Any] = {
        "promises": ORDERS * len(results),
        "accuracy": float(np.mean([result["accuracy"] for result in results])),
        "labels before": results[0]["labels before"],
    }
    for way in results[0]["outcomes"]:
        outcomes = [entry for result in results for entry in result["outcomes"][way]]
        draws = [entry["draws"] for entry in outcomes if entry["draws"] is not None]
        summary[way] = {
            "broken": float(np.mean([entry["broken"] for entry in outcomes])),
            "certified": len(draws) / len(outcomes),
            "draws": [float(value) for value in np.quantile(draws, (0.1, 0.5, 0.9))]
            if draws
            else None,
        }
    return summary


def main() -> None:
    """Simulate all datasets."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("features", type=Path, metavar="FEATURES")
    parser.add_argument("--models", type=int, default=MODELS)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()

    started = time.monotonic()
    report: dict[str, Any] = {"version": __version__, "commit": commit(), "error": ERROR}
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        for name, share in LABELLED.items():
            seeds = range(options.models)
            tasks = [pool.submit(simulate, name, options.features, seed) for seed in seeds]
            results = [task.result() for task in tasks]
            report[name] = {"labelled": share} | summarize(results)
            print(name, json.dumps(report[name]), f"{time.monotonic() - started:.0f} s", flush=True)
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
