"""Simulate campaigns that start from class names or predictions, good and bad ones.

    python research/priors/simulate.py run banking77 --data FOLDER    # again to resume
    python research/priors/simulate.py page                           # fills the page of the docs

FOLDER holds banking77.json.xz and sms_spam.tsv.xz. An annotator who knows every answer labels what
a campaign picks, with the functions that train and pick in campaigns. After each batch, the model
is measured on test rows. --vectors names a folder in which encoded texts are kept between runs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.linear_model import LogisticRegression

from teeter.campaigns.classes import class_texts
from teeter.campaigns.learning.classifiers import limit_threads_and_warnings
from teeter.campaigns.learning.prior import CLASS_NAMES, FADED_LABELS, ClassPrior, PseudoExamples
from teeter.campaigns.learning.saved_models import scale_features
from teeter.encoders import make_encoder
from teeter.learner.learner import Learner
from teeter.learner.rounds import resume
from teeter.models import ExampleRegression

sys.path.append(str(Path(__file__).parents[2]))

from research.campaigns.simulator import EncodedDataset, SimulatedCampaign, measure, record
from research.labelling import (
    TextDataset,
    add_commands,
    describe_setup,
    draw_curves,
    make_parser,
    read_banking77,
    read_sms_spam,
    require_data,
    write_result,
)
from research.page_blocks import fill_blocks

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "explanation" / "campaigns.md"

Vectors = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]


# Datasets


@dataclass(frozen=True)
class PriorDataset:
    """A dataset, and how it is labelled."""

    read: Callable[[Path], TextDataset]
    batches: tuple[int, ...]
    """The number of items of each batch."""
    old_labels: int
    """Number of labels that the old model was trained on."""
    positive: int | None = None
    """The rare class whose F1 score is measured too."""


DATASETS = {
    "banking77": PriorDataset(read_banking77, batches=(20, 30, 50, 100, 200), old_labels=300),
    "sms_spam": PriorDataset(
        read_sms_spam, batches=(10, 10, 30, 50, 100, 200), old_labels=60, positive=1
    ),
}


def encode(name: str, encoder_name: str, folder: Path, vectors: Path | None) -> EncodedDataset:
    """Encode a dataset and its class names, or read them from the folder of earlier runs."""
    data = DATASETS[name].read(folder)
    file = None if vectors is None else vectors / f"{name}-{encoder_name}.npz"
    if file is not None and file.exists():
        arrays = np.load(file)
        return EncodedDataset(
            arrays["features"], data.labels, data.pool_size, arrays["names"], data.classes
        )

    encoder = make_encoder(encoder_name, "text")
    if encoder.fit_size:
        encoder.fit(data.texts[: data.pool_size][: encoder.fit_size])
    features = encoder.encode(data.texts).vectors
    names = encoder.encode([class_texts(name, None)[0] for name in data.classes]).vectors
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, features=features, names=names)
    return EncodedDataset(features, data.labels, data.pool_size, names, data.classes)


# Priors


@dataclass(frozen=True, eq=False)
class PriorPool:
    """One repetition: the items to label and the test rows, scaled as a campaign does."""

    features: Vectors
    labels: Integers
    names: Vectors
    test_features: Vectors
    test_labels: Integers
    classes: tuple[str, ...]
    old_predictions: Integers
    """What a model predicts that was trained on other items, with other features."""


def make_pool(data: EncodedDataset, old: EncodedDataset, old_labels: int, seed: int) -> PriorPool:
    """Draw the items that the old model knows; the rest of the pool is to be labelled."""
    if data.names is None:
        raise ValueError("The dataset has no class names.")
    n_pool = data.pool_size
    order = np.random.default_rng(seed).permutation(n_pool)
    old_rows = order[:old_labels]
    rest = np.sort(order[old_labels:])

    scaled_old, _ = scale_features(old.features[:n_pool])
    model = LogisticRegression(C=0.1, class_weight="balanced", max_iter=1000)
    model.fit(scaled_old[old_rows], old.labels[old_rows])

    features, scaler = scale_features(data.features[rest])

    def scale(rows: Vectors) -> Vectors:
        scaled: Vectors = ((rows - scaler.centre) / scaler.size).astype(np.float32)
        return scaled

    return PriorPool(
        features=features,
        labels=data.labels[rest],
        names=scale(data.names),
        test_features=scale(data.test_features),
        test_labels=data.test_labels,
        classes=data.classes,
        old_predictions=model.predict(scaled_old[rest]),
    )


def prior_from_names(pool: PriorPool, seed: int, *, shuffle: bool) -> ClassPrior:
    """Return a pseudo-example per class name; if they are shuffled, no name is on its class."""
    n_classes = len(pool.classes)
    labels = np.arange(n_classes)
    if shuffle:
        # A random cycle: every class gets the name of another one.
        order = np.random.default_rng(seed).permutation(n_classes)
        labels[order] = np.roll(order, 1)
    return ClassPrior(pool.names, labels, (CLASS_NAMES,) * n_classes)


def prior_from_predictions(pool: PriorPool, predicted: Integers) -> ClassPrior:
    """Return a pseudo-example per predicted class: the mean of its items."""
    labels = np.unique(predicted)
    means = np.stack([pool.features[predicted == label].mean(axis=0) for label in labels])
    source = "old model"
    return ClassPrior(means, labels, (source,) * len(labels), {source: predicted})


def make_prior(arm: str, pool: PriorPool, seed: int) -> ClassPrior | None:
    """Return what is known about the classes in an arm of the measurement."""
    match arm.split(",")[0]:
        case "no prior":
            return None
        case "names":
            return prior_from_names(pool, seed, shuffle=False)
        case "shuffled names":
            return prior_from_names(pool, seed, shuffle=True)
        case "predictions":
            return prior_from_predictions(pool, pool.old_predictions)
        case "predictions at chance":
            n_classes = len(pool.classes)
            drawn = np.random.default_rng(seed).integers(n_classes, size=len(pool.labels))
            return prior_from_predictions(pool, drawn)

    raise ValueError(f"There is no arm {arm!r}.")


ARMS = (
    "no prior",
    "names",
    "shuffled names",
    "predictions",
    "predictions at chance",
    "names, ldm-s first",
)
"""The last one differs in its first batch: a model of the names alone picks it, not typiclust."""


# Simulation


def simulate(pool: PriorPool, dataset: PriorDataset, arm: str, seed: int) -> dict[str, list[float]]:
    """Label batch by batch, and return the measures on the test rows after each batch."""
    prior = make_prior(arm, pool, seed)
    campaign = SimulatedCampaign(
        pool.features, pool.labels, len(pool.classes), head="linear", control=0.1, seed=seed
    )
    campaign.state = replace(campaign.state, prior=prior)

    curves: dict[str, list[float]] = {}
    predicted = predict_without_labels(pool, prior, seed)
    record(curves, measure(pool.test_labels, predicted, dataset.positive))
    for n, size in enumerate(dataset.batches):
        asked, control = campaign.pick(size)
        if n == 0 and "ldm-s first" in arm:
            asked = pick_without_labels(pool, prior, control, size, seed)
        campaign.tell(asked, control)
        facts = campaign.train()
        if facts is not None:
            curves.setdefault("used", []).append(float(bool(facts.get("prior"))))
        predicted = campaign.predict(pool.test_features)
        record(curves, measure(pool.test_labels, predicted, dataset.positive))

    return curves


def pick_without_labels(
    pool: PriorPool, prior: ClassPrior | None, control: list[int], size: int, seed: int
) -> list[int]:
    """Return the control items, and what LDM-S picks with a model of pseudo-examples alone."""
    head = ExampleRegression()
    learner = Learner(head, pool.features, "ldm-s", classes=pool.classes, seed=seed, device="cpu")
    resume(learner, 0, {}, models=[fit_pseudo_examples(pool, prior)])
    picked = learner.ask(size - len(control), exclude=control)
    return [*control, *picked.tolist()]


def fit_pseudo_examples(pool: PriorPool, prior: ClassPrior | None) -> Any:
    """Return a head that was trained on pseudo-examples alone."""
    if prior is None:
        raise ValueError("There are no pseudo-examples to train a model on.")
    examples = PseudoExamples(prior.features, prior.labels)
    with limit_threads_and_warnings():
        return ExampleRegression(examples).fit(pool.features[:0], pool.labels[:0])


def predict_without_labels(pool: PriorPool, prior: ClassPrior | None, seed: int) -> Integers:
    """Return the predictions of pseudo-examples alone, or guesses if there are none."""
    if prior is None:
        generator = np.random.default_rng(seed)
        return generator.integers(len(pool.classes), size=len(pool.test_labels))

    predicted: Integers = fit_pseudo_examples(pool, prior).predict(pool.test_features)
    return predicted


def run(
    name: str, encoder: str, folder: Path, *, vectors: Path | None, seeds: int, file: Path
) -> None:
    """Simulate every arm, and write the results to a file after each campaign.

    Campaigns that the file already has are skipped, so an interrupted run is resumed.
    """
    dataset = DATASETS[name]
    data = encode(name, encoder, folder, vectors)
    old = encode(name, "tfidf", folder, vectors)

    result: dict[str, Any] = {
        "dataset": name,
        "encoder": encoder,
        **describe_setup(),
        "settings": {"strategy": "ldm-s", "head": "linear", "control": 0.1},
        "labelled": [0, *np.cumsum(dataset.batches).tolist()],
        "pool": data.pool_size - dataset.old_labels,
        "test": len(data.test_labels),
        "old_labels": dataset.old_labels,
        "old_accuracy": [],
        "curves": {},
    }
    if file.exists():
        stored = json.loads(file.read_text())
        for key in ("labelled", "pool", "test", "settings", "encoder"):
            if stored[key] != result[key]:
                raise SystemExit(f"{file} has results with other {key}: remove it and run again.")
        result |= {key: stored[key] for key in ("curves", "old_accuracy")}

    for seed in range(seeds):
        pool = make_pool(data, old, dataset.old_labels, seed)
        accuracy = float((pool.old_predictions == pool.labels).mean())
        if len(result["old_accuracy"]) == seed:
            result["old_accuracy"].append(round(accuracy, 5))

        for arm in ARMS:
            runs: list[dict[str, list[float]]] = result["curves"].setdefault(arm, [])
            if len(runs) > seed:
                continue
            started = time.perf_counter()
            runs.append(simulate(pool, dataset, arm, seed))
            write_result(result, file)
            seconds = time.perf_counter() - started
            print(name, seed, arm, runs[-1], f"{seconds:.0f} s", flush=True)


# The page of results

SECTIONS = {
    "banking77": "Banking77: 77 kinds of questions to a bank",
    "sms_spam": "SMS Spam: one in eight messages is spam",
}
JUDGED_LABELS = 200
"""The number of labels at which the cost of a bad prior is judged."""
SHOWN_LABELS = (0, 10, 20, 100, 200, 400)
"""The numbers of labels in the tables. The figures show all of them."""
BAD_ARMS = ("shuffled names", "predictions at chance")
GOOD_ARMS = ("names", "predictions")


def read_result(name: str, encoder: str = "minilm") -> dict[str, Any]:
    """Return the committed result of a dataset."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}_{encoder}.json").read_text())
    return result


def keep_complete(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result with only as many repetitions as all arms have."""
    n_complete = min(len(runs) for runs in result["curves"].values())
    curves = {arm: runs[:n_complete] for arm, runs in result["curves"].items()}
    return result | {"curves": curves, "old_accuracy": result["old_accuracy"][:n_complete]}


def read_curves(result: dict[str, Any], arm: str, measure_name: str) -> npt.NDArray[np.float64]:
    """Return the values of an arm: (repetitions, label counts)."""
    return np.array([run[measure_name] for run in result["curves"][arm]])


def fill_page(text: str) -> str:
    """Return the page with the committed results."""
    sections = [build_section(name, keep_complete(read_result(name))) for name in SECTIONS]
    rule = (
        f"From {FADED_LABELS} labels per class on, pseudo-examples are left out. A bad prior that "
        "is never used still has an effect: the first model picks other items.\n"
    )
    return fill_blocks(text, {"priors": "\n".join([rule, *sections])})


def build_section(name: str, result: dict[str, Any]) -> str:
    """Return the section about one dataset."""
    old_accuracy = np.mean(result["old_accuracy"])
    parts = [
        f"### {SECTIONS[name]}\n\nThere are {result['pool']:,} texts to label and "
        f"{len(result['curves']['names'])} repetitions. The old model, trained on "
        f"{result['old_labels']} other items, predicts {old_accuracy:.0%} of the texts "
        f"correctly.\n\n![Accuracy over the number of labels, for each prior](priors_{name}.svg)\n"
    ]

    parts += [build_table(result), describe_costs(result)]
    if name == "banking77":
        parts.append(describe_tfidf(read_result(name, "tfidf")))

    return "\n".join(parts)


def build_table(result: dict[str, Any]) -> str:
    """Return a table of mean accuracies by arm and number of labels."""
    columns = [k for k, count in enumerate(result["labelled"]) if count in SHOWN_LABELS]
    counts = " | ".join(str(result["labelled"][column]) for column in columns)
    lines = [
        f"| accuracy in %, by number of labels | {counts} |",
        "| --- |" + " ---: |" * len(columns),
    ]

    for arm in ARMS:
        means = 100 * read_curves(result, arm, "accuracy").mean(axis=0)[columns]
        lines.append(f"| {arm} | {' | '.join(f'{mean:.1f}' for mean in means)} |")

    return "\n".join([*lines, ""])


def gains_at(result: dict[str, Any], arm: str, n_labels: int) -> npt.NDArray[np.float64]:
    """Return how much more accurate an arm is than no prior in each repetition, in points."""
    column = result["labelled"].index(n_labels)
    with_prior = read_curves(result, arm, "accuracy")[:, column]
    # Paired by their seeds: an interrupted run has more repetitions of some arms than of others.
    without = read_curves(result, "no prior", "accuracy")[: len(with_prior), column]
    return 100 * (with_prior - without)


def describe_gain(result: dict[str, Any], arm: str) -> str:
    """Return the mean gain of an arm at the judged number of labels, with its deviation."""
    gains = gains_at(result, arm, JUDGED_LABELS)
    # Adding 0 turns -0.0 into 0.0.
    gain = f"{arm} {round(gains.mean(), 1) + 0:+.1f}"
    return gain if len(gains) == 1 else f"{gain} ± {gains.std():.1f}"


def describe_costs(result: dict[str, Any]) -> str:
    """Return sentences on what priors gain and cost, whichever it is."""
    good = " and ".join(describe_gain(result, arm) for arm in GOOD_ARMS)
    bad = " and ".join(describe_gain(result, arm) for arm in BAD_ARMS)

    return (
        f"At {JUDGED_LABELS} labels, the gains over no prior in points of accuracy are {good}. "
        f"With bad priors, they are {bad}. {describe_uses(result)}\n"
    )


def describe_tfidf(result: dict[str, Any]) -> str:
    """Return sentences on names with the encoder that has no pretrained model."""
    counts = {len(result["curves"][arm]) for arm in (*GOOD_ARMS, *BAD_ARMS)}
    n_runs = " or ".join(str(count) for count in sorted(counts))
    good = " and ".join(describe_gain(result, arm) for arm in GOOD_ARMS)
    bad = " and ".join(describe_gain(result, arm) for arm in BAD_ARMS)

    column = result["labelled"].index(JUDGED_LABELS)
    without = 100 * read_curves(result, "no prior", "accuracy")[:, column].mean()

    return (
        f"Names help without a pretrained encoder, too. With `tfidf`, the accuracy at "
        f"{JUDGED_LABELS} labels is {without:.1f}% without a prior, and the gains in points are "
        f"{good}. With bad priors, they are {bad} ({n_runs} repetitions, which vary more than "
        f"with `minilm`). {describe_uses(result)}\n"
    )


def describe_uses(result: dict[str, Any]) -> str:
    """Return a sentence on how often bad priors were used after the first training."""
    used = [run["used"][1:] for arm in BAD_ARMS for run in result["curves"][arm]]
    n_used = int(sum(sum(run) for run in used))
    n_trainings = sum(len(run) for run in used)
    return f"After the first training, bad priors were used in {n_used} of {n_trainings} trainings."


def draw_figure(name: str, folder: Path) -> Path:
    """Draw the accuracy curves of a result, and return the SVG file."""
    result = keep_complete(read_result(name))
    curves = {arm: read_curves(result, arm, "accuracy") for arm in (*GOOD_ARMS, *BAD_ARMS)}
    curves["no prior"] = read_curves(result, "no prior", "accuracy")
    return draw_curves(result["labelled"], curves, folder / f"priors_{name}")


# Command line


def main() -> None:
    parser = make_parser(__doc__)
    run_parser = add_commands(parser, DATASETS, run_help="simulate campaigns on a dataset")
    run_parser.add_argument("--encoder", default="minilm", help="encoder (default: minilm)")
    run_parser.add_argument("--seeds", type=int, default=5, help="repetitions (default: 5)")
    run_parser.add_argument("--vectors", type=Path, help="folder that keeps encoded texts")
    run_parser.add_argument("--out", type=Path, help="file of the result")
    options = parser.parse_args()

    if options.command == "page":
        PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        for name in DATASETS:
            draw_figure(name, PAGE.parent)
        return

    folder = require_data(parser, options)
    torch.set_num_threads(1)
    out = options.out or RESULTS / f"{options.dataset}_{options.encoder}.json"
    run(
        options.dataset,
        options.encoder,
        folder,
        vectors=options.vectors,
        seeds=options.seeds,
        file=out,
    )


if __name__ == "__main__":
    main()
