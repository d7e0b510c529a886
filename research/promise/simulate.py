"""Check the promise of ``teeter campaign finish`` on many simulated campaigns whose truth is known.

python research/promise/simulate.py run FEATURES OUT    # resumes where it stopped
python research/promise/simulate.py summarize OUT       # research/promise/results
python research/promise/page.py                         # the page about the results

research/campaigns/simulator.py writes the folder FEATURES. A simulated campaign labels a pool with
margin sampling and a tenth of control items, trains the model of campaigns, a pool head, on all its
labels, and freezes it. Then items are drawn at random and labelled,
and after every batch the promise is asked for. An error of the method would be a promised share of
wrong labels that is exceeded among the items that the model would label.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.base.version import __version__, commit
from teeter.campaigns.finish.estimates import estimate_class_shares
from teeter.campaigns.finish.promise import (
    Outcomes,
    PromiseTerms,
    Step,
    StepResult,
    attempt_level,
    best_step,
    judge_steps,
    make_steps,
)
from teeter.campaigns.learning.classifiers import (
    MAX_FOLD_POOL,
    cross_fit,
    fit_temperature,
    limit_threads_and_warnings,
)
from teeter.campaigns.learning.saved_models import scale_features
from teeter.campaigns.records import ClassifierKind
from teeter.models import ExampleRegression, PoolHead

sys.path.append(str(Path(__file__).parents[2]))

from research.campaigns.simulator import read_features

RESULTS = Path(__file__).parent / "results"

Vectors = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]

TERMS = PromiseTerms(error=0.05, confidence=0.95)
CLASS_TERMS = PromiseTerms(error=0.05, confidence=0.95, per_class=True)
LOOK_EVERY = 20
"""Random labels between two looks."""


@dataclass(frozen=True)
class SimulatedDataset:
    """How the campaigns of one dataset are simulated."""

    title: str
    items: int
    """Items of a pool, drawn from the dataset for each campaign."""
    batch: int
    rounds: int
    draws: int
    """Random labels at the last look."""


CASES = {
    "banking77": SimulatedDataset(
        "Banking77, 77 classes", items=4000, batch=200, rounds=3, draws=1000
    ),
    "sms_spam": SimulatedDataset(
        "SMS Spam, one in eight is spam", items=4000, batch=25, rounds=5, draws=400
    ),
    "digits": SimulatedDataset("digits, 10 classes", items=1500, batch=25, rounds=5, draws=300),
    "one_in_50": SimulatedDataset(
        "made pool, one in 50 is positive", items=4000, batch=25, rounds=5, draws=400
    ),
}
CONTROL_SHARE = 0.1


# Data


def draw_pool(name: str, folder: Path, generator: np.random.Generator) -> tuple[Vectors, Integers]:
    """Return the features and classes of a campaign's items."""
    items = CASES[name].items
    if name == "one_in_50":
        return make_rare_pool(items, generator)
    if name == "digits":
        from sklearn.datasets import load_digits

        digits = load_digits()
        features, labels = digits.data, digits.target
    else:
        stored = read_features(name, folder)
        features, labels = stored.features, stored.labels

    rows = generator.choice(len(labels), size=items, replace=False)
    return features[rows].astype(np.float32), labels[rows].astype(np.int64)


def make_rare_pool(items: int, generator: np.random.Generator) -> tuple[Vectors, Integers]:
    """Return 16 features of two overlapping classes, of which one has a fiftieth of the items."""
    labels = np.zeros(items, dtype=np.int64)
    labels[: items // 50] = 1
    generator.shuffle(labels)

    features = generator.normal(size=(items, 16))
    features[:, :4] += 1.25 * labels[:, None]
    return features.astype(np.float32), labels


# A campaign


@dataclass(frozen=True, eq=False)
class FrozenCampaign:
    """A campaign in the moment in which its model is frozen."""

    predicted: Integers
    """What the model predicts for the items of the set."""
    confidences: Floats
    margins: Floats
    """(N,) how far the model's two likeliest classes are apart, for each item of the set."""
    truth: Integers
    """(N,) the classes of the items of the set."""
    known_labels: Integers
    """Classes of the items that were labelled before."""
    n_classes: int


def label_and_freeze(name: str, folder: Path, seed: int) -> FrozenCampaign:
    """Label as a campaign does, and train the model that is to label the rest."""
    case = CASES[name]
    generator = np.random.default_rng([seed, 27])
    raw, truth = draw_pool(name, folder, generator)
    features, _ = scale_features(raw)

    labelled = generator.choice(case.items, size=case.batch, replace=False).tolist()
    random_items = set(labelled)
    # A campaign trains when two classes have labels.
    while len(np.unique(truth[labelled])) < 2:
        rest = np.setdiff1d(np.arange(case.items), labelled)
        labelled += generator.choice(rest, size=case.batch, replace=False).tolist()

    for _ in range(case.rounds - 1):
        rest = np.setdiff1d(np.arange(case.items), labelled)
        n_control = round(CONTROL_SHARE * case.batch)
        control = generator.choice(rest, size=n_control, replace=False)
        candidates = np.setdiff1d(rest, control)
        _, margins = predict(features, truth, labelled, candidates)
        picked = candidates[np.argsort(margins)[: case.batch - n_control]]
        labelled += [*control.tolist(), *picked.tolist()]
        random_items |= set(control.tolist())

    rest = np.setdiff1d(np.arange(case.items), labelled)
    # Calibrated out of fold on the random items, as campaigns do.
    judged = np.flatnonzero([row in random_items for row in labelled])
    unlabelled = features[rest]
    if len(rest) > MAX_FOLD_POOL:
        unlabelled = features[generator.choice(rest, MAX_FOLD_POOL, replace=False)]
    held_out = cross_fit(
        features[labelled], truth[labelled], judged, head=ClassifierKind.POOL, pool=unlabelled
    )
    temperature = fit_temperature(held_out, truth[labelled][judged])
    probabilities, margins = predict(features, truth, labelled, rest, temperature, pool=True)
    return FrozenCampaign(
        probabilities.argmax(axis=1),
        probabilities.max(axis=1),
        margins,
        truth[rest],
        truth[labelled],
        int(truth.max()) + 1,
    )


def predict(
    features: Vectors,
    truth: Integers,
    labelled: list[int],
    rows: Integers,
    temperature: float = 1.0,
    *,
    pool: bool = False,
) -> tuple[Floats, Floats]:
    """Train on the labelled items and return (N, C) probabilities and (N,) margins of rows.

    With ``pool``, the model learns from all other items too.
    """
    head: ExampleRegression = ExampleRegression()
    with limit_threads_and_warnings():
        if pool:
            unlabelled = np.delete(features, labelled, axis=0)
            head = PoolHead().fit(features[labelled], truth[labelled], pool=unlabelled)
        else:
            head.fit(features[labelled], truth[labelled])
    logits = head.decision_function(features[rows]).astype(np.float64)
    if logits.ndim == 1:
        logits = np.stack([-logits / 2, logits / 2], axis=1)

    logits /= temperature
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    seen = exponentials / exponentials.sum(axis=1, keepdims=True)
    probabilities = np.zeros((len(rows), int(truth.max()) + 1))
    probabilities[:, head.classes_] = seen
    top = np.partition(seen, -2, axis=1)[:, -2:]
    return probabilities, top[:, 1] - top[:, 0]


# The promise


def simulate(name: str, folder: Path, seed: int) -> dict[str, Any]:
    """Return what one campaign promises, and whether it is true."""
    started = time.process_time()
    campaign = label_and_freeze(name, folder, seed)
    generator = np.random.default_rng([seed, 28])
    order = generator.permutation(len(campaign.truth))

    result: dict[str, Any] = {
        "dataset": name,
        "seed": seed,
        "accuracy": float((campaign.predicted == campaign.truth).mean()),
        "rest": len(campaign.truth),
    }
    result["random"] = look_often(campaign, order, CASES[name].draws, picked_share=0.0)
    # Annotators continue labelling: half of their labels are picks, which leaves a biased rest.
    draws = CASES[name].draws
    result["mixed"] = look_often(campaign, order, draws, picked_share=0.5, every=2 * LOOK_EVERY)
    if campaign.n_classes <= 10:
        result["per_class"] = look_per_class(campaign, order, draws, every=4 * LOOK_EVERY)
    result["naive"] = look_naively(campaign, order, draws)
    result["shares"] = check_shares(campaign, order, draws)
    result["seconds"] = time.process_time() - started
    return result


def look_often(
    campaign: FrozenCampaign,
    order: Integers,
    draws: int,
    *,
    picked_share: float,
    every: int = LOOK_EVERY,
) -> dict[str, list[float]]:
    """Ask for the promise after every batch.

    Returns:
        For each look the number of draws, the coverage, the oracle's coverage, and whether a
        promise is broken.
    """
    level = attempt_level(TERMS.confidence, 1)
    steps = make_steps(campaign.confidences, TERMS, level)
    hardest_first = np.argsort(campaign.margins)

    looks: dict[str, list[float]] = {
        name: [] for name in ("draws", "coverage", "oracle", "broken", "any_broken", "rest_broken")
    }
    for n_draws in range(every, draws + 1, every):
        drawn = order[:n_draws]
        n_picked = round(n_draws * picked_share)
        picked = hardest_first[:n_picked]
        labelled = np.concatenate([drawn, picked[~np.isin(picked, drawn)]])
        results = judge(campaign, steps, drawn, labelled, level)
        best = best_step(results)

        looks["draws"].append(n_draws)
        looks["coverage"].append(
            0.0 if best is None else best.remaining / _rest(campaign, labelled)
        )
        looks["oracle"].append(_oracle_coverage(campaign, labelled))
        looks["broken"].append(best is not None and is_broken(campaign, best, labelled))
        looks["rest_broken"].append(best is not None and is_rest_broken(campaign, best, labelled))
        looks["any_broken"].append(
            any(result.holds and is_broken(campaign, result, labelled) for result in results)
        )
    return looks


def judge(
    campaign: FrozenCampaign,
    steps: list[Step],
    drawn: Integers,
    labelled: Integers,
    level: float,
) -> list[StepResult]:
    is_wrong = campaign.predicted != campaign.truth
    outcomes = Outcomes(drawn, is_wrong[drawn], labelled, is_wrong[labelled])
    return judge_steps(campaign.confidences, steps, outcomes, TERMS, level)


def is_broken(campaign: FrozenCampaign, result: StepResult, labelled: Integers) -> bool:
    """Return whether more of the model's labels are wrong than promised."""
    is_counted = campaign.confidences >= result.step.threshold
    # People labelled these, and the promise counts none of them if it can.
    taken_out = labelled[is_counted[labelled]][: result.step.size - result.counted]
    is_counted[taken_out] = False
    is_wrong = campaign.predicted != campaign.truth
    return bool(is_wrong[is_counted].mean() > TERMS.error)


def is_rest_broken(campaign: FrozenCampaign, result: StepResult, labelled: Integers) -> bool:
    """Return whether too many labels are wrong among those that only the model gives."""
    by_model = campaign.confidences >= result.step.threshold
    by_model[labelled] = False
    is_wrong = campaign.predicted != campaign.truth
    return bool(by_model.any() and is_wrong[by_model].mean() > TERMS.error)


def _rest(campaign: FrozenCampaign, labelled: Integers) -> int:
    return len(campaign.truth) - len(labelled)


def _oracle_coverage(campaign: FrozenCampaign, labelled: Integers) -> float:
    """Return the largest coverage whose share of wrong labels is allowed, knowing the truth."""
    rest = np.setdiff1d(np.arange(len(campaign.truth)), labelled)
    surest_first = rest[np.argsort(-campaign.confidences[rest], kind="stable")]
    is_wrong = campaign.predicted != campaign.truth
    shares = np.cumsum(is_wrong[surest_first]) / np.arange(1, len(rest) + 1)
    allowed = np.flatnonzero(shares <= TERMS.error)
    return float((allowed[-1] + 1) / len(rest)) if len(allowed) else 0.0


def look_per_class(
    campaign: FrozenCampaign, order: Integers, draws: int, *, every: int
) -> dict[str, list[float]]:
    """Ask for a promise for each predicted class, with the probability of error shared out."""
    classes = np.unique(campaign.predicted)
    level = attempt_level(CLASS_TERMS.confidence, 1) / campaign.n_classes
    is_wrong = campaign.predicted != campaign.truth

    members = {}
    for k in classes:
        rows = np.flatnonzero(campaign.predicted == k)
        confidences = campaign.confidences[rows]
        members[k] = (rows, confidences, make_steps(confidences, CLASS_TERMS, level))

    looks: dict[str, list[float]] = {name: [] for name in ("draws", "coverage", "broken")}
    for n_draws in range(every, draws + 1, every):
        covered = 0
        is_class_broken = False
        for k, (rows, confidences, steps) in members.items():
            # Positions inside the class, in the order in which the whole set is drawn.
            position = np.searchsorted(rows, order[:n_draws])
            is_member = campaign.predicted[order[:n_draws]] == k
            drawn = position[is_member]
            wrong = is_wrong[rows]
            outcomes = Outcomes(drawn, wrong[drawn], drawn, wrong[drawn])
            best = best_step(judge_steps(confidences, steps, outcomes, CLASS_TERMS, level))
            if best is not None:
                covered += best.remaining
                is_counted = confidences >= best.step.threshold
                taken_out = drawn[is_counted[drawn]][: best.step.size - best.counted]
                is_counted[taken_out] = False
                is_class_broken |= bool(wrong[is_counted].mean() > CLASS_TERMS.error)
        looks["draws"].append(n_draws)
        looks["coverage"].append(covered / (len(campaign.truth) - n_draws))
        looks["broken"].append(is_class_broken)
    return looks


def look_naively(campaign: FrozenCampaign, order: Integers, draws: int) -> dict[str, list[float]]:
    """Label what seems good enough: without a guarantee, for comparison.

    ``observed`` takes the largest step whose drawn items have at most the allowed share of wrong
    labels. ``confidence`` takes the largest set whose mean confidence is high enough.
    """
    is_wrong = campaign.predicted != campaign.truth
    confidences = campaign.confidences
    steps = make_steps(confidences, TERMS, attempt_level(TERMS.confidence, 1))

    looks: dict[str, list[float]] = {name: [] for name in ("draws", "observed", "confidence")}
    for n_draws in range(LOOK_EVERY, draws + 1, LOOK_EVERY):
        drawn = order[:n_draws]
        is_observed_broken = False
        for step in steps:
            in_step = confidences[drawn] >= step.threshold
            observed = is_wrong[drawn][in_step]
            if len(observed) >= LOOK_EVERY / 2 and observed.mean() <= TERMS.error:
                by_model = confidences >= step.threshold
                by_model[drawn] = False
                is_observed_broken = bool(is_wrong[by_model].mean() > TERMS.error)
        looks["draws"].append(n_draws)
        looks["observed"].append(is_observed_broken)

        rest = order[n_draws:]
        surest_first = rest[np.argsort(-confidences[rest], kind="stable")]
        expected = np.cumsum(1 - confidences[surest_first]) / np.arange(1, len(rest) + 1)
        count = int((expected <= TERMS.error).sum())
        looks["confidence"].append(
            count > 0 and bool(is_wrong[surest_first[:count]].mean() > TERMS.error)
        )
    return looks


def check_shares(campaign: FrozenCampaign, order: Integers, draws: int) -> dict[str, list[float]]:
    """Return for some numbers of draws how many intervals of class shares hold the truth."""
    classes = [str(k) for k in range(campaign.n_classes)]
    everything = np.concatenate([campaign.truth, campaign.known_labels])
    checked: dict[str, list[float]] = {"draws": [], "covered": [], "width": [], "classical": []}

    for n_draws in (100, draws):
        drawn = order[:n_draws]
        shares = estimate_class_shares(
            classes, campaign.predicted, drawn, campaign.truth[drawn], campaign.known_labels
        )
        is_covered = []
        classical_widths = []
        for k, share in enumerate(shares):
            truth = float((everything == k).mean())
            is_covered.append(share.low <= truth <= share.high)
            # The interval without a model, from the same draws.
            part = float((campaign.truth[drawn] == k).mean())
            width = 2 * 1.96 * np.sqrt(part * (1 - part) / n_draws)
            classical_widths.append(width * len(campaign.truth) / len(everything))
        checked["draws"].append(n_draws)
        checked["covered"].append(float(np.mean(is_covered)))
        checked["width"].append(float(np.mean([share.high - share.low for share in shares])))
        checked["classical"].append(float(np.mean(classical_widths)))
    return checked


# Running


def run(folder: Path, out: Path, seeds: range, workers: int, seconds: float) -> None:
    """Simulate what is missing in ``out``, until it is complete or the time is over."""
    out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + seconds
    done = {(line["dataset"], line["seed"]) for line in read_lines(out)}
    # The datasets in turn, so that an interrupted run has as many of each.
    todo = [(name, folder, seed) for seed in seeds for name in CASES if (name, seed) not in done]
    print(f"{len(todo)} campaigns to simulate with {workers} processes", flush=True)

    context = get_context("spawn")
    with (
        ProcessPoolExecutor(workers, mp_context=context, initializer=_use_one_thread) as pool,
        (out / f"campaigns-{int(time.time())}.jsonl").open("w") as file,
    ):
        for count, result in enumerate(pool.map(_simulate, todo, chunksize=4), start=1):
            file.write(json.dumps(result) + "\n")
            file.flush()
            if count % 100 == 0:
                print(f"{count} of {len(todo)}", flush=True)
            if time.monotonic() > deadline:
                print(f"The time is over after {count} campaigns: run it again to continue.")
                pool.shutdown(wait=False, cancel_futures=True)
                break


def _use_one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _simulate(arguments: tuple[str, Path, int]) -> dict[str, Any]:
    import torch

    from teeter.base.arrays import describe_device

    result = simulate(*arguments)
    # With each campaign, because runs on several machines may be summarized together.
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
            if (line["dataset"], line["seed"]) not in seen:
                seen.add((line["dataset"], line["seed"]))
                yield line


def summarize(out: Path) -> None:
    """Write the committed results from all simulated campaigns."""
    lines: dict[str, list[dict[str, Any]]] = {}
    provenances: dict[str, dict[str, str]] = {}
    for line in read_lines(out):
        lines.setdefault(line["dataset"], []).append(line)
        provenances[json.dumps(line["made"])] = line["made"]

    result: dict[str, Any] = {
        "made": list(provenances.values()),
        "terms": asdict(TERMS),
        "control": CONTROL_SHARE,
        "look_every": LOOK_EVERY,
        "datasets": {},
    }
    for name, case in CASES.items():
        if name in lines:
            result["datasets"][name] = asdict(case) | summarize_dataset(lines[name])

    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "promise.json").write_text(json.dumps(result, indent=1) + "\n")


def summarize_dataset(campaigns: list[dict[str, Any]]) -> dict[str, Any]:
    """Return shares and means over the campaigns of a dataset."""
    summary: dict[str, Any] = {
        "campaigns": len(campaigns),
        "seeds": [min(line["seed"] for line in campaigns), max(line["seed"] for line in campaigns)],
        "accuracy": _mean([line["accuracy"] for line in campaigns]),
        "rest": _mean([line["rest"] for line in campaigns]),
        "seconds": _mean([line["seconds"] for line in campaigns]),
    }
    for mode in ("random", "mixed", "per_class"):
        looks = [line[mode] for line in campaigns if mode in line]
        if not looks:
            continue
        broken = np.array([look["broken"] for look in looks])
        coverage = np.array([look["coverage"] for look in looks])
        summary[mode] = {
            "draws": looks[0]["draws"],
            "coverage": coverage.mean(axis=0).round(4).tolist(),
            # A fixed look is one of the looks; peeking is all of them together.
            "broken_at_look": broken.mean(axis=0).round(4).tolist(),
            "broken_ever": float(broken.any(axis=1).mean()),
            "promised": (coverage > 0).mean(axis=0).round(4).tolist(),
        }
        if "oracle" in looks[0]:
            oracle = np.array([look["oracle"] for look in looks])
            any_broken = np.array([look["any_broken"] for look in looks])
            rest_broken = np.array([look["rest_broken"] for look in looks])
            summary[mode]["oracle"] = oracle.mean(axis=0).round(4).tolist()
            summary[mode]["any_broken_ever"] = float(any_broken.any(axis=1).mean())
            summary[mode]["rest_broken_ever"] = float(rest_broken.any(axis=1).mean())

    naive = [line["naive"] for line in campaigns]
    summary["naive"] = {"draws": naive[0]["draws"]}
    for way in ("observed", "confidence"):
        broken = np.array([look[way] for look in naive])
        summary["naive"][way] = broken.mean(axis=0).round(4).tolist()
        summary["naive"][f"{way}_ever"] = float(broken.any(axis=1).mean())

    shares = [line["shares"] for line in campaigns]
    summary["shares"] = {
        field: np.mean([share[field] for share in shares], axis=0).round(4).tolist()
        for field in ("draws", "covered", "width", "classical")
    }
    return summary


def _mean(values: list[float]) -> float:
    return round(float(np.mean(values)), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    running = commands.add_parser("run")
    running.add_argument("features", type=Path)
    running.add_argument("out", type=Path)
    running.add_argument("--campaigns", type=int, default=1000)
    running.add_argument("--first", type=int, default=0, help="The first seed.")
    running.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    running.add_argument("--seconds", type=float, default=1e9, help="Stop after so long.")

    summarizing = commands.add_parser("summarize")
    summarizing.add_argument("out", type=Path)

    options = parser.parse_args()
    if options.command == "run":
        seeds = range(options.first, options.campaigns)
        run(options.features, options.out, seeds, options.workers, options.seconds)
    elif options.command == "summarize":
        summarize(options.out)


if __name__ == "__main__":
    main()
