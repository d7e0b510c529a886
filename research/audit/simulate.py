"""Do the intervals of an audit hold, and how many labels does each of them cost?

A judge has labelled all items, and people label some that are drawn at random. In 4,000 simulated
audits per setting, this looks at the interval of the judge's accuracy after every answer, up to
300, and counts in how many the truth was ever outside. Peers are looked at as often: Wilson's
interval, and prediction-powered inference (PPI++) with the judge's confidence as the prediction.

    python research/audit/simulate.py judge JUDGES --data FOLDER   # default: $TEETER_DATA
    python research/audit/simulate.py run JUDGES --workers 16      # again to resume
    python research/audit/simulate.py figure                       # for the documentation

The judges are classifiers of TF-IDF features with few labels of four real datasets, because no
labels of a language model come with them, and synthetic ones that are right on 20 to 99 %.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression

sys.path.append(str(Path(__file__).parents[2]))

from teeter.campaigns.finish.bounds import JUDGE_PRIOR, running_bounds
from teeter.campaigns.finish.judge_estimates import estimate_judged, group_judged

if TYPE_CHECKING:
    from research.labelling import TextDataset

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]

DRAWS = 300
LOOKS = (50, 100, 200)
"""Numbers of answers after which widths are noted, and the narrower intervals are looked at."""

STRATIFIED_TIMES = 1000
"""Audits in which the estimate by strata is looked at every ten answers, which takes long."""

FEWEST = 20
"""Answers before which no asymptotic interval is looked at."""

Z = 1.959963984540054
RESULTS = Path(__file__).parent / "results" / "coverage.json"
FIGURE = Path(__file__).parents[2] / "docs" / "how_to" / "audit"


@dataclass(frozen=True, eq=False)
class Judged:
    """Items that a judge has labelled."""

    name: str
    labels: Integers
    """(N,) what the judge says."""
    confidences: Floats
    is_right: Booleans


def read_goemotions(folder: Path) -> TextDataset:
    """Read the comments of GoEmotions that have one emotion."""
    from research.labelling import TextDataset

    with lzma.open(folder / "goemotions.json.xz", "rt", encoding="utf-8") as file:
        content = json.load(file)
    rows = [(text, labels[0]) for text, labels in content["train"] if len(labels) == 1]
    texts = [text for text, _ in rows]
    return TextDataset(texts, np.array([k for _, k in rows]), tuple(content["labels"]), len(rows))


def judge_dataset(dataset: TextDataset, name: str, n_labels: int, seed: int) -> Judged:
    """Return 5,000 items as a classifier judges them that was trained on a few others."""
    order = np.random.default_rng(seed).permutation(len(dataset.texts))
    texts = [dataset.texts[k] for k in order]
    labels = dataset.labels[order]
    features = TfidfVectorizer(min_df=2, sublinear_tf=True).fit_transform(texts)
    model = LogisticRegression(C=10.0, max_iter=200).fit(features[:n_labels], labels[:n_labels])

    judged = slice(n_labels, min(len(texts), n_labels + 5000))
    probabilities = model.predict_proba(features[judged])
    said = model.classes_[probabilities.argmax(axis=1)].astype(np.int64)
    return Judged(name, said, probabilities.max(axis=1), said == labels[judged])


def synthetic(accuracy: float, n_classes: int, *, is_calibrated: bool, seed: int) -> Judged:
    """Return 3,000 items whose judge is right on a share of them."""
    generator = np.random.default_rng(seed)
    spread = 4.0
    confidences = generator.beta(spread * accuracy, spread * (1 - accuracy), 3000)
    is_right = generator.random(3000) < confidences
    if not is_calibrated:
        confidences = 0.8 + 0.2 * generator.random(3000)
    labels = generator.integers(0, n_classes, 3000)
    kind = "calibrated" if is_calibrated else "overconfident"
    return Judged(f"{accuracy:.0%}, {n_classes} classes, {kind}", labels, confidences, is_right)


def make_settings(folder: Path) -> Iterator[Judged]:
    """Yield the judges of real datasets, and synthetic ones."""
    # It loads much that a simulation of judges from a file does without.
    from research.labelling import read_banking77, read_hwu64, read_sms_spam

    banking = read_banking77(folder)
    goemotions = read_goemotions(folder)
    yield judge_dataset(read_sms_spam(folder), "SMS Spam, 60 labels", 60, 1)
    yield judge_dataset(banking, "Banking77, 2,000 labels", 2000, 2)
    yield judge_dataset(read_hwu64(folder), "HWU64, 1,200 labels", 1200, 3)
    yield judge_dataset(banking, "Banking77, 400 labels", 400, 4)
    yield judge_dataset(goemotions, "GoEmotions, 3,000 labels", 3000, 5)
    yield judge_dataset(read_hwu64(folder), "HWU64, 100 labels", 100, 6)
    for accuracy in (0.2, 0.5, 0.8, 0.9, 0.95, 0.99):
        for n_classes in (3, 77):
            yield synthetic(accuracy, n_classes, is_calibrated=n_classes == 3, seed=n_classes)


def ever_outside(low: Floats, high: Floats, truth: float) -> float:
    """Return in which share of audits, (T, looks), the truth was outside at one of the looks."""
    return float(((low > truth) | (high < truth)).any(axis=1).mean())


def ppi_intervals(confidences: Floats, drawn: Integers, right: Booleans) -> tuple[Floats, Floats]:
    """Return PPI++ estimates of a judge's accuracy, and half the widths of their intervals.

    The confidences predict whether a label is right. What they predict of all items is corrected by
    the drawn ones, with the weight that makes the variance smallest [Angelopoulos et al. 2023].

    Args:
        confidences: (N,) of all items.
        drawn: (T, n) the items drawn in each audit, fewer than N.
        right: (T, n) whether their labels are right.

    Returns:
        (T, n) both, after each of the draws.
    """
    size = len(confidences)
    counts = np.arange(1, drawn.shape[1] + 1)
    left = size - counts
    said = confidences[drawn]
    sum_said = said.cumsum(axis=1)
    squares_said = (said**2).cumsum(axis=1)
    share = right.cumsum(axis=1) / counts
    mean_said = sum_said / counts
    variance_said = squares_said / counts - mean_said**2
    covariance = (said * right).cumsum(axis=1) / counts - mean_said * share

    mean_left = (confidences.sum() - sum_said) / left
    variance_left = ((confidences**2).sum() - squares_said) / left - mean_left**2
    best_weight = covariance / ((1 + counts / left) * confidences.var(ddof=1))
    weight = np.clip(best_weight, 0, 1)
    estimate = share + weight * (mean_left - mean_said)
    residual = share * (1 - share) - 2 * weight * covariance + weight**2 * variance_said
    variance = weight**2 * variance_left / left + np.maximum(residual, 0) / counts
    return estimate, Z * np.sqrt(variance)


def simulate(judged: Judged, times: int, seed: int) -> dict[str, object]:
    """Return how often each interval missed the truth, and how wide it was."""
    generator = np.random.default_rng(seed)
    size = len(judged.labels)
    truth = float(judged.is_right.mean())
    n_wrong = size - int(judged.is_right.sum())
    n_draws = min(DRAWS, size)
    drawn = np.stack([generator.permutation(size)[:n_draws] for _ in range(times)])
    right = judged.is_right[drawn]
    counts = np.arange(1, n_draws + 1)

    misses = 0
    widths: dict[str, list[float]] = {}
    exact_width = np.zeros(n_draws + 1)
    for is_right in right:
        lows, highs = running_bounds(size, ~is_right, 0.05, JUDGE_PRIOR)
        misses += not lows[-1] <= n_wrong <= highs[-1]
        exact_width += (highs - lows) / size
    widths["at any look"] = [exact_width[n] / times for n in LOOKS]

    share = right.cumsum(axis=1) / counts
    centre = (share + Z**2 / 2 / counts) / (1 + Z**2 / counts)
    half = np.sqrt(share * (1 - share) * Z**2 / counts + Z**4 / 4 / counts**2)
    half /= 1 + Z**2 / counts
    later = slice(FEWEST - 1, None)
    wilson = ever_outside((centre - half)[:, later], (centre + half)[:, later], truth)
    widths["Wilson, one look"] = [float(2 * half[:, n - 1].mean()) for n in LOOKS]

    estimate, half = ppi_intervals(judged.confidences, drawn, right)
    ppi = ever_outside((estimate - half)[:, later], (estimate + half)[:, later], truth)
    ppi_once = {
        n: ever_outside((estimate - half)[:, n - 1 : n], (estimate + half)[:, n - 1 : n], truth)
        for n in LOOKS
    }
    widths["PPI++, one look"] = [float(2 * half[:, n - 1].mean()) for n in LOOKS]

    groups = group_judged(judged.labels, judged.confidences)
    stratified_once = dict.fromkeys(LOOKS, 0)
    stratified_width = dict.fromkeys(LOOKS, 0.0)
    squares = {"strata": 0.0, "Wilson": 0.0, "PPI++": 0.0}
    ever = 0
    for k in range(times):
        looks = range(FEWEST, n_draws + 1, 10) if k < STRATIFIED_TIMES else LOOKS
        was_outside = False
        for n in looks:
            found = estimate_judged(groups, drawn[k, :n], right[k, :n])
            is_outside = not found.low <= truth <= found.high
            was_outside = was_outside or is_outside
            if n in LOOKS:
                stratified_once[n] += is_outside
                stratified_width[n] += found.high - found.low
            if n == LOOKS[-1]:
                squares["strata"] += (found.share - truth) ** 2
                squares["Wilson"] += (share[k, n - 1] - truth) ** 2
                squares["PPI++"] += (estimate[k, n - 1] - truth) ** 2
        ever += was_outside and k < STRATIFIED_TIMES
    widths["by strata, one look"] = [stratified_width[n] / times for n in LOOKS]

    return {
        "setting": judged.name,
        "items": size,
        "classes": len(np.unique(judged.labels)),
        "right": truth,
        "times": times,
        "missed at any of all looks": {
            "at any look": misses / times,
            "Wilson": wilson,
            "PPI++": ppi,
            "by strata": ever / min(times, STRATIFIED_TIMES),
        },
        "missed at one look": {
            "by strata": {n: count / times for n, count in stratified_once.items()},
            "PPI++": ppi_once,
        },
        "widths": widths,
        "worth of strata": squares["Wilson"] / max(squares["strata"], 1e-12),
        "worth of PPI++": squares["Wilson"] / max(squares["PPI++"], 1e-12),
    }


def write_judges(folder: Path, file: Path) -> None:
    """Judge all datasets once, so that simulations need neither the data nor the classifiers."""
    arrays: dict[str, Any] = {}
    for judged in make_settings(folder):
        arrays[f"{judged.name}/labels"] = judged.labels
        arrays[f"{judged.name}/confidences"] = judged.confidences
        arrays[f"{judged.name}/is_right"] = judged.is_right
    np.savez_compressed(file, **arrays)


def read_judges(file: Path) -> list[Judged]:
    """Return the judges of a file."""
    judges = []
    with np.load(file) as arrays:
        for name in dict.fromkeys(entry.rpartition("/")[0] for entry in arrays.files):
            parts = (arrays[f"{name}/{part}"] for part in ("labels", "confidences", "is_right"))
            judges.append(Judged(name, *parts))
    return judges


def run(file: Path, times: int, workers: int) -> None:
    """Simulate the settings that have no result yet, and write each when it is done."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    done = {result["setting"] for result in results if result["times"] == times}
    results = [result for result in results if result["setting"] in done]

    judges = read_judges(file)
    with ProcessPoolExecutor(workers) as pool:
        futures = [
            pool.submit(simulate, judged, times, 100 + number)
            for number, judged in enumerate(judges)
            if judged.name not in done
        ]
        for future in as_completed(futures):
            results.append(future.result())
            print(json.dumps(results[-1]), flush=True)
            order = [judged.name for judged in judges]
            results.sort(key=lambda result: order.index(result["setting"]))
            RESULTS.parent.mkdir(exist_ok=True)
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def draw_figure() -> None:
    """Draw how wide the intervals are, and how often they missed, over the real judges."""
    from matplotlib.figure import Figure

    from research.labelling import save_svg

    results = json.loads(RESULTS.read_text())
    real = [result for result in results if "labels" in result["setting"]]
    methods = {
        "teeter, at any look": ("at any look", "at any look"),
        "teeter, by strata": ("by strata", "by strata, one look"),
        "PPI++": ("PPI++", "PPI++, one look"),
        "people only (Wilson)": ("Wilson", "Wilson, one look"),
    }
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for place, (name, (missed, width)) in enumerate(methods.items()):
        colour = f"C{place}"
        widths = np.mean([result["widths"][width] for result in real], axis=0)
        left.plot(LOOKS, 100 * widths, "o-", color=colour, label=name)
        misses = [result["missed at any of all looks"][missed] for result in real]
        right.barh(place, 100 * np.mean(misses), color=colour)
    left.set(xlabel="answers of people", ylabel="width (points)", ylim=(0, None))
    left.legend(frameon=False)
    right.axvline(5, color="black", linewidth=1, linestyle="--")
    right.set(xlabel="audits that missed at one of 300 looks (%)")
    right.set_yticks(range(len(methods)), list(methods))
    right.invert_yaxis()
    print(f"Wrote {save_svg(figure, FIGURE)}.")


def main() -> None:
    """Judge the datasets, simulate audits of the judges, or draw the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    judging = commands.add_parser("judge", help="judge the datasets once")
    judging.add_argument("file", type=Path, metavar="JUDGES")
    judging.add_argument("--data", type=Path, default=os.environ.get("TEETER_DATA"))
    running = commands.add_parser("run", help="simulate audits; again to resume")
    running.add_argument("file", type=Path, metavar="JUDGES")
    running.add_argument("--times", type=int, default=4000)
    running.add_argument("--workers", type=int, default=1)
    commands.add_parser("figure", help="draw the results for the documentation")
    options = parser.parse_args()
    if options.command == "figure":
        draw_figure()
    elif options.command == "judge":
        if options.data is None:
            parser.error("name the folder of the datasets with --data, or set TEETER_DATA")
        write_judges(Path(options.data), options.file)
    else:
        run(options.file, options.times, options.workers)


if __name__ == "__main__":
    main()
