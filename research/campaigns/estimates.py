"""Check the accuracy that a campaign reports against the truth, over many simulated campaigns.

python research/campaigns/estimates.py run FEATURES    # the folder that simulator.py writes
python research/campaigns/estimates.py page            # docs/explanation/campaigns.md
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from teeter.base.arrays import describe_device
from teeter.base.version import __version__, commit
from teeter.campaigns.learning.stopping import estimate_accuracy, estimate_model_accuracy
from teeter.campaigns.settings import Settings

sys.path.append(str(Path(__file__).parents[2]))

from research.campaigns.simulator import (
    EncodedDataset,
    SimulatedCampaign,
    read_features,
    split_again,
)
from research.labelling import make_parser, write_result
from research.page_blocks import fill_blocks

ROOT = Path(__file__).parents[2]
RESULT = Path(__file__).parent / "results" / "estimates.json"
PAGE = ROOT / "docs" / "explanation" / "campaigns.md"


@dataclass(frozen=True)
class CampaignCase:
    """Campaigns on one dataset with one strategy."""

    dataset: str
    strategy: str
    batch: int
    rounds: int
    campaigns: int


CASES = (
    CampaignCase("digits", "ldm-s", batch=50, rounds=6, campaigns=320),
    CampaignCase("digits", "random", batch=50, rounds=6, campaigns=140),
    CampaignCase("sms_spam", "ldm-s", batch=50, rounds=6, campaigns=320),
    CampaignCase("sms_spam", "random", batch=50, rounds=6, campaigns=140),
    CampaignCase("banking77", "ldm-s", batch=250, rounds=3, campaigns=80),
)
"""1,000 campaigns."""


def read_dataset(name: str, folder: Path, repetition: int) -> EncodedDataset:
    """Read a dataset, split again in each repetition so that campaigns differ in their pools."""
    return split_again(read_features(name, folder), 1 / 3, repetition)


def simulate(case: CampaignCase, data: EncodedDataset, seed: int) -> list[dict[str, float]]:
    """Run one campaign in memory.

    Returns:
        For each model: its labels, how many random items were judged right and in total, and its
        true accuracy on the test rows.
    """
    campaign = SimulatedCampaign(
        data.features[: data.pool_size],
        data.labels[: data.pool_size],
        data.n_classes,
        strategy=case.strategy,
        seed=seed,
        names=data.names,
    )
    results = []
    for _ in range(case.rounds):
        campaign.label(case.batch)
        facts = campaign.train()
        if facts is None:
            continue

        right, total = facts["control"]
        estimate = estimate_model_accuracy(facts)
        predicted = campaign.predict(data.test_features)
        results.append(
            {
                "labels": facts["labels"],
                "right": right,
                "total": total,
                "accuracy": round(float((predicted == data.test_labels).mean()), 5),
                "estimate": None if estimate is None else round(estimate.share, 5),
                "low": None if estimate is None else round(estimate.low, 5),
                "high": None if estimate is None else round(estimate.high, 5),
            }
        )
    return results


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
            results = list(pool.map(run_seed, range(case.campaigns), chunksize=1))
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
We simulated {campaigns:,} campaigns with {models:,} models in all, on `minilm` features (digits: pixels). **Error** is the
reported accuracy minus the true accuracy in percentage points (mean ± standard error). **Covered** is how often the 95 %
interval contains the true accuracy, and **width** is its width relative to Wilson's interval for the same items without strata.

| dataset | strategy | models | random items | true accuracy | error | covered | width |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
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
    by_campaign = []
    errors = []
    covered = []
    narrower = []
    for campaign in case["campaigns"]:
        models = [model for model in campaign if model["total"]]
        errors_here = [100 * (model["estimate"] - model["accuracy"]) for model in models]
        for model in models:
            plain = estimate_accuracy(
                model["right"], model["total"], share_judged=model["total"] / model["labels"]
            )
            if plain is not None:
                narrower.append((model["high"] - model["low"]) / (plain.high - plain.low))
            covered.append(model["low"] <= model["accuracy"] <= model["high"])
        errors += errors_here
        # The models of a campaign share their items: campaigns, not models, are independent.
        if errors_here:
            by_campaign.append(np.mean(errors_here))

    standard_error = np.std(by_campaign, ddof=1) / np.sqrt(len(by_campaign))
    models = [model for campaign in case["campaigns"] for model in campaign if model["total"]]
    items = [model["total"] for model in models]
    accuracy = 100 * np.mean([model["accuracy"] for model in models])
    return (
        f"| {case['dataset']} | {case['strategy']} | {len(models):,} | {min(items)} to "
        f"{max(items)} | {accuracy:.1f} % | {np.mean(errors):+.2f} ± {standard_error:.2f} | "
        f"{100 * np.mean(covered):.1f} % | {100 * np.mean(narrower):.0f} % |"
    )


def main() -> None:
    parser = make_parser(__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run_parser = commands.add_parser("run", help="simulate the campaigns")
    run_parser.add_argument("features", type=Path)
    run_parser.add_argument("--processes", type=int, default=os.cpu_count())
    run_parser.add_argument("--out", type=Path, default=RESULT)
    commands.add_parser("page", help="write the page from the result")
    options = parser.parse_args()

    if options.command == "run":
        write_result(run(options.features, options.processes), options.out)
        return
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
