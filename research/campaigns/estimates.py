"""Check the accuracy that a campaign reports against the truth, over many simulated campaigns.

python research/campaigns/estimates.py run --data FOLDER    # default: $TEETER_DATA
python research/campaigns/estimates.py page                 # docs/explanation/campaigns.md
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.datasets import load_digits

from teeter.base.arrays import describe_device
from teeter.base.version import __version__, commit
from teeter.campaigns.asking.selection import choose_picks
from teeter.campaigns.learning.rounds import RoundSettings, RoundState
from teeter.campaigns.learning.saved_models import load_arrays, scale_features
from teeter.campaigns.learning.stopping import estimate_accuracy
from teeter.campaigns.learning.training import train_model
from teeter.campaigns.records import ClassifierKind
from teeter.campaigns.settings import Settings
from teeter.encoders import encode_texts

sys.path.append(str(Path(__file__).parents[2]))

from research.labelling import add_data_option, make_parser, require_data, write_result
from research.page_blocks import fill_blocks

ROOT = Path(__file__).parents[2]
RESULT = Path(__file__).parent / "results" / "estimates.json"
PAGE = ROOT / "docs" / "explanation" / "campaigns.md"

Vectors = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SplitFeatures:
    """Features with their classes, split into a pool and test rows."""

    pool: Vectors
    pool_labels: Integers
    test: Vectors
    test_labels: Integers


@dataclass(frozen=True)
class CampaignCase:
    """Campaigns on one dataset with one strategy."""

    dataset: str
    strategy: str
    batch: int
    rounds: int
    campaigns: int


CASES = (
    CampaignCase("digits", "ldm-s", batch=50, rounds=6, campaigns=60),
    CampaignCase("digits", "random", batch=50, rounds=6, campaigns=30),
    CampaignCase("sms_spam", "ldm-s", batch=50, rounds=6, campaigns=60),
    CampaignCase("sms_spam", "random", batch=50, rounds=6, campaigns=30),
    CampaignCase("banking77", "ldm-s", batch=250, rounds=3, campaigns=20),
)
"""200 campaigns."""


def read_dataset(name: str, folder: Path, repetition: int) -> SplitFeatures:
    """Read a dataset, split again in each repetition so that campaigns differ in their pools."""
    if name == "digits":
        features, labels = load_digits(return_X_y=True)
        features = features.astype(np.float32)
    else:
        # Beside this script; not needed to write the page.
        from simulate import read_banking77, read_sms_spam

        read = {"sms_spam": read_sms_spam, "banking77": read_banking77}[name]
        texts = read(folder, repetition)
        rows = np.concatenate([texts.pool, texts.test])
        features = encode_once(tuple(texts.texts))[rows]
        labels = np.array([texts.classes.index(texts.labels[row]) for row in rows])

    order = np.random.default_rng(repetition).permutation(len(labels))
    test_rows = order[: len(labels) // 3]
    pool_rows = order[len(labels) // 3 :]
    return SplitFeatures(
        features[pool_rows], labels[pool_rows], features[test_rows], labels[test_rows]
    )


@cache
def encode_once(texts: tuple[str, ...]) -> Vectors:
    """Return the TF-IDF features of texts, computed once for all repetitions."""
    return encode_texts(list(texts))


def simulate(case: CampaignCase, data: SplitFeatures, seed: int) -> list[dict[str, float]]:
    """Run one campaign in memory.

    Returns:
        For each model: its labels, how many random items were judged right and in total, and its
        true accuracy on the test rows.
    """
    features, scaler = scale_features(data.pool)
    test_features = ((data.test - scaler.centre) / scaler.size).astype(np.float32)
    classes = tuple(str(k) for k in range(int(data.pool_labels.max()) + 1))
    settings = RoundSettings(
        strategy=case.strategy,
        options={},
        head=ClassifierKind.LINEAR,
        control=Settings().control,
        seed=seed,
    )
    state = RoundState(
        keys=[str(row) for row in range(len(features))],
        features=features,
        classes=classes,
        labels={},
        audit={},
        control=frozenset(),
        random=frozenset(),
        taken=frozenset(),
        version=0,
        weights=None,
        batches=0,
        scaler=scaler,
    )

    results = []
    for _ in range(case.rounds):
        state = answer_batch(case, state, settings, data)
        if len(set(state.labels.values())) < 2:
            continue

        weights, facts = train_model(state, settings)
        state = replace(state, weights=weights, version=state.version + 1)
        right, total = facts["control"]
        results.append(
            {
                "labels": len(state.labels),
                "right": right,
                "total": total,
                "accuracy": round(measure(weights, test_features, data.test_labels), 5),
            }
        )
    return results


def answer_batch(
    case: CampaignCase, state: RoundState, settings: RoundSettings, data: SplitFeatures
) -> RoundState:
    """Pick a batch and label it correctly."""
    picks = choose_picks(state, settings, case.batch)
    drawn = {int(pick.item) for pick in picks if pick.arm.is_random}
    asked = {int(pick.item) for pick in picks if pick.asked}

    labels = dict(state.labels)
    for place in asked:
        labels[place] = str(data.pool_labels[place])
    control = state.control | drawn
    is_random = case.strategy == "random"
    return replace(
        state,
        labels=labels,
        control=control,
        random=control | frozenset(labels) if is_random else control,
        taken=state.taken | asked,
        batches=state.batches + 1,
    )


def measure(weights: bytes, features: Vectors, labels: Integers) -> float:
    """Return the accuracy of a saved model on test rows."""
    arrays = load_arrays(weights)
    logits = features @ arrays["weight"].T + arrays["bias"]
    predicted = arrays["seen"][logits.argmax(axis=1)]
    return float((predicted == labels).mean())


def run_campaign(
    case: CampaignCase, folder: Path, seed: int
) -> tuple[list[dict[str, float]], float]:
    """Simulate one campaign on one thread, and return its models and the CPU minutes it took."""
    torch.set_num_threads(1)
    started = time.process_time()
    models = simulate(case, read_dataset(case.dataset, folder, seed), seed)
    return models, (time.process_time() - started) / 60


def run(folder: Path, processes: int) -> dict[str, Any]:
    """Simulate all campaigns, and return the result to be saved."""
    cases = []
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for case in CASES:
            run_seed = partial(run_campaign, case, folder)
            results = list(pool.map(run_seed, range(case.campaigns)))
            minutes = sum(spent for _, spent in results)
            cases.append(
                {
                    "dataset": case.dataset,
                    "strategy": case.strategy,
                    "batch": case.batch,
                    "minutes": round(minutes, 2),
                    "campaigns": [models for models, _ in results],
                }
            )
            print(f"{case.dataset}, {case.strategy}: {minutes:.1f} min", flush=True)

    return {
        "teeter": __version__,
        "commit": commit(),
        "hardware": describe_device(torch.device("cpu")),
        "processes": processes,
        "control": Settings().control,
        "cases": cases,
    }


# The page of results

INTRODUCTION = """\
We simulated {campaigns} campaigns with {models:,} models in all, on `tfidf` features (digits: pixels). **Error** is the
reported accuracy minus the true accuracy in percentage points (mean ± standard error). **Covered** is how often the 95 % interval contains the true accuracy.

| dataset | strategy | models | random items | true accuracy | error | covered |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
"""


def fill_page(text: str) -> str:
    """Return the page with the committed results."""
    result = json.loads(RESULT.read_text())
    rows = [build_row(case) for case in result["cases"]]
    campaigns = sum(len(case["campaigns"]) for case in result["cases"])
    models = sum(len(models) for case in result["cases"] for models in case["campaigns"])
    introduction = INTRODUCTION.format(campaigns=campaigns, models=models)
    return fill_blocks(text, {"estimates": introduction + "\n".join(rows)})


def build_row(case: dict[str, Any]) -> str:
    """Return the row of the table about one case."""
    models = [model for campaign in case["campaigns"] for model in campaign if model["total"]]
    estimates = [
        estimate_accuracy(
            model["right"], model["total"], share_judged=model["total"] / model["labels"]
        )
        for model in models
    ]
    errors = []
    covered = []
    for model, estimate in zip(models, estimates, strict=True):
        if estimate is None:
            continue
        errors.append(100 * (estimate.share - model["accuracy"]))
        covered.append(estimate.low <= model["accuracy"] <= estimate.high)

    # The models of a campaign share their items: campaigns, not models, are independent.
    by_campaign = [
        np.mean([m["right"] / m["total"] - m["accuracy"] for m in campaign if m["total"]])
        for campaign in case["campaigns"]
        if any(m["total"] for m in campaign)
    ]
    standard_error = 100 * np.std(by_campaign, ddof=1) / np.sqrt(len(by_campaign))
    items = [model["total"] for model in models]
    accuracy = 100 * np.mean([model["accuracy"] for model in models])
    return (
        f"| {case['dataset']} | {case['strategy']} | {len(models):,} | {min(items)} to "
        f"{max(items)} | {accuracy:.1f} % | {np.mean(errors):+.2f} ± {standard_error:.2f} | "
        f"{100 * np.mean(covered):.1f} % |"
    )


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("command", choices=["run", "page"])
    add_data_option(parser)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args()

    if options.command == "run":
        folder = require_data(parser, options)
        write_result(run(folder, options.processes), RESULT)
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
