"""Count the questions until the first ten items of a rare class are found.

python research/campaigns/rare_class.py run FEATURES    # the folder that simulator.py writes
python research/campaigns/rare_class.py summarize

Each of 20 seeds takes one intent of Banking77, cuts it to 0.2 % of the items, and asks whether an
item is of this intent. A tenth of each batch of 20 is drawn at random, as in campaigns. Without an
item of the class there is no model, and the cold start picks.

- "search, ldm-s": the annotator searches by meaning for the name of the intent, answers the 30 hits
  that a page shows, and then goes on with LDM-S.
- "search": they go on through the hits of the search.
- "ldm-s", "margin" and "random" begin without a search.

An answer about a hit is a question, too. Campaigns end after 2,000 questions. There was no
expectation but the order: a search first, and random last.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from teeter.base.version import __version__, commit
from teeter.campaigns.learning.classifiers import (
    TRAINING,
    head_factory,
    limit_threads_and_warnings,
)
from teeter.campaigns.learning.saved_models import scale_features
from teeter.learner.learner import Learner
from teeter.strategies.api import make_strategy

sys.path.append(str(Path(__file__).parents[2]))

from research.campaigns.simulator import read_features

RESULT = Path(__file__).parent / "results" / "rare_class.json"

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Vectors = npt.NDArray[np.float32]

WAYS = ("search, ldm-s", "ldm-s", "margin", "search", "random")
SEEDS = 20
SHARE = 0.002
"""Of the items, so many are of the rare class."""
WANTED = 10
BATCH = 20
RANDOM = 2
"""Of each batch, so many are drawn at random."""
SEARCHED = 30
"""Hits on a page."""
MOST = 2000


def draw_items(folder: Path, seed: int) -> tuple[Vectors, Integers, Floats]:
    """Return the features of the items, whether they are of the rare class, and the similarity of
    each to the name of that class.
    """
    data = read_features("banking77", folder)
    if data.names is None:
        raise ValueError("banking77 was encoded without the names of its classes.")
    generator = np.random.default_rng([seed, 46])
    rare = int(generator.permutation(data.n_classes)[0])
    others = np.flatnonzero(data.labels != rare)
    n_rare = max(WANTED, round(SHARE * len(others)))
    kept = generator.choice(np.flatnonzero(data.labels == rare), size=n_rare, replace=False)
    rows = generator.permutation(np.concatenate([others, kept]))

    features = data.features[rows]
    name = data.names[rare].astype(np.float64)
    lengths = np.linalg.norm(features, axis=1) * np.linalg.norm(name)
    similarities = features.astype(np.float64) @ name / lengths
    return features, (data.labels[rows] == rare).astype(np.int64), similarities


def count_questions(
    way: str, features: Vectors, truth: Integers, similarities: Floats, seed: int
) -> tuple[int, int]:
    """Return how many questions were asked, and how many items of the class were found."""
    scaled, _ = scale_features(features)
    generator = np.random.default_rng([seed, 47])
    by_similarity = np.argsort(-similarities, kind="stable")
    answered: list[int] = []
    if way == "search, ldm-s":
        answered = by_similarity[:SEARCHED].tolist()

    round_number = 0
    while truth[answered].sum() < WANTED and len(answered) < min(MOST, len(truth)):
        left = np.setdiff1d(np.arange(len(truth)), answered)
        if way == "search":
            batch = by_similarity[~np.isin(by_similarity, answered)][:BATCH].tolist()
        elif way == "random":
            batch = generator.choice(left, size=BATCH, replace=False).tolist()
        else:
            batch = generator.choice(left, size=RANDOM, replace=False).tolist()
            strategy = way.removeprefix("search, ")
            learner = make_learner(strategy, scaled, seed + 1000 * round_number)
            # Before the first item of the class there is no model, as in campaigns.
            if len(np.unique(truth[answered])) > 1:
                learner.tell(answered, truth[answered])
                with limit_threads_and_warnings():
                    learner.fit()
            batch += learner.ask(BATCH - RANDOM, exclude=[*answered, *batch]).tolist()
        answered += batch
        round_number += 1

    found = np.flatnonzero(truth[answered])
    if len(found) < WANTED:
        return len(answered), len(found)
    return int(found[WANTED - 1]) + 1, WANTED


def make_learner(strategy: str, features: Vectors, seed: int) -> Learner:
    """Return a learner with the model that picks in campaigns."""
    return Learner(
        head_factory("linear", features.shape[1], 2),
        features,
        make_strategy(strategy),
        classes=2,
        seed=seed,
        pool_size=len(features),
        training=TRAINING,
        cold_start=make_strategy("typiclust"),
        device="cpu",
    )


def run_one(task: tuple[str, int, str]) -> dict[str, Any]:
    """Simulate one campaign on one thread."""
    way, seed, folder = task
    torch.set_num_threads(1)
    started = time.process_time()
    features, truth, similarities = draw_items(Path(folder), seed)
    questions, found = count_questions(way, features, truth, similarities, seed)
    return {
        "way": way,
        "seed": seed,
        "questions": questions,
        "found": found,
        "items": len(truth),
        "rare": int(truth.sum()),
        "seconds": round(time.process_time() - started, 1),
    }


def run(folder: Path, file: Path, workers: int, seeds: int) -> None:
    """Simulate what a file lacks, and add each campaign to it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    done = set()
    if file.exists():
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        done = {(line["way"], line["seed"]) for line in lines}
    tasks = [
        (way, seed, str(folder)) for way in WAYS for seed in range(seeds) if (way, seed) not in done
    ]
    with (
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
        file.open("a") as lines_file,
    ):
        for line in pool.map(run_one, tasks, chunksize=1):
            lines_file.write(json.dumps(line) + "\n")
            lines_file.flush()


def summarize(lines_file: Path, file: Path) -> dict[str, Any]:
    """Return the quartiles of the questions of each way, and write them."""
    lines = [json.loads(line) for line in lines_file.read_text().splitlines()]
    result: dict[str, Any] = {"teeter": __version__, "commit": commit(), "ways": {}}
    for way in WAYS:
        of_way = sorted(
            (line for line in lines if line["way"] == way), key=lambda line: line["seed"]
        )
        questions = [line["questions"] for line in of_way]
        low, median, high = np.percentile(questions, [25, 50, 75])
        result["ways"][way] = {
            "seeds": len(of_way),
            "found_ten": sum(line["found"] == WANTED for line in of_way),
            "lower_quartile": low,
            "median": median,
            "upper_quartile": high,
            "mean": round(float(np.mean(questions)), 1),
            "questions": questions,
        }
    file.write_text(json.dumps(result, indent=1) + "\n")
    return result


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
    run_parser.add_argument("--seeds", type=int, default=SEEDS)
    summarize_parser = commands.add_parser("summarize", help="write the figures")
    summarize_parser.add_argument("--runs", type=Path, default=RESULT.with_suffix(".jsonl"))
    summarize_parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()

    if options.command == "run":
        run(options.features, options.out, options.workers, options.seeds)
    else:
        print(json.dumps(summarize(options.runs, options.out), indent=1))


if __name__ == "__main__":
    main()
