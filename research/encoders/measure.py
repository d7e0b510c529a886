"""Measure every encoder: its seconds, its megabytes, and the accuracy that labels reach with it.

    python research/encoders/measure.py run cifar10 --data FOLDER    # again to resume
    python research/encoders/measure.py run cifar10 --data FOLDER --costs-only
    python research/encoders/measure.py page                         # fills the page of the docs

FOLDER holds banking77.json.xz, sms_spam.tsv.xz, mnist.npz and cifar10.npz. The .npz files have the
arrays x_train, y_train, x_test and y_test.

Each encoder encodes each dataset. Then items are labelled batch by batch, drawn at random or picked
by LDM-S, with the model of a campaign: a linear head on scaled features, and typiclust for the
first batch. Images are written to PNG files first, so that the seconds include decoding.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression

from teeter.base.arrays import choose_device, describe_device
from teeter.base.version import commit
from teeter.encoders import ContentKind, make_encoder
from teeter.encoders import encoders as registry
from teeter.learner.learner import Learner

sys.path.append(str(Path(__file__).parents[2]))

from research.labelling import (
    add_commands,
    describe_setup,
    make_parser,
    read_banking77,
    read_sms_spam,
    require_data,
    write_result,
)
from research.page_blocks import fill_blocks

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "how_to" / "choose_an_encoder.md"
STRATEGIES = ("random", "ldm-s")
POOL_IMAGES = 1_500
TEST_IMAGES = 500

Features = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

ENCODERS = {
    ContentKind.TEXT: ("tfidf", "static", "minilm", "multilingual"),
    ContentKind.IMAGE: ("pixels", "efficientnet-lite0", "efficientnet-lite0+pixels"),
}


# Datasets


@dataclass(frozen=True, eq=False)
class LabelledContents:
    """Texts or images with their classes, split into a pool and test rows."""

    contents: list[str]
    """Texts, or paths inside the folder of images. Those of the pool come first."""
    labels: Integers
    pool_size: int


@dataclass(frozen=True)
class EncoderDataset:
    """A dataset, and how it is labelled."""

    kind: ContentKind
    read: Callable[[Path, Path], LabelledContents]
    """Reads the dataset from a folder; images are written to another one."""
    classes: int
    batch: int
    rounds: int


def read_questions(folder: Path, images: Path) -> LabelledContents:
    data = read_banking77(folder)
    return LabelledContents(data.texts, data.labels, data.pool_size)


def read_messages(folder: Path, images: Path) -> LabelledContents:
    data = read_sms_spam(folder)
    return LabelledContents(data.texts, data.labels, data.pool_size)


def read_images(name: str, folder: Path, images: Path) -> LabelledContents:
    """Draw images from an .npz file with ``x_train``, ``y_train``, ``x_test`` and ``y_test``."""
    arrays = np.load(folder / f"{name}.npz")
    generator = np.random.default_rng(0)

    contents = []
    labels = []
    for part, count in (("train", POOL_IMAGES), ("test", TEST_IMAGES)):
        pixels = arrays[f"x_{part}"]
        classes = arrays[f"y_{part}"]
        for row in np.sort(generator.choice(len(pixels), size=count, replace=False)):
            file = f"{part}-{row}.png"
            Image.fromarray(pixels[row]).save(images / file)
            contents.append(file)
            labels.append(int(classes[row]))

    return LabelledContents(contents, np.array(labels), POOL_IMAGES)


def read_mnist(folder: Path, images: Path) -> LabelledContents:
    return read_images("mnist", folder, images)


def read_cifar10(folder: Path, images: Path) -> LabelledContents:
    return read_images("cifar10", folder, images)


DATASETS = {
    "banking77": EncoderDataset(ContentKind.TEXT, read_questions, classes=77, batch=77, rounds=10),
    "sms_spam": EncoderDataset(ContentKind.TEXT, read_messages, classes=2, batch=20, rounds=10),
    "mnist": EncoderDataset(ContentKind.IMAGE, read_mnist, classes=10, batch=50, rounds=6),
    "cifar10": EncoderDataset(ContentKind.IMAGE, read_cifar10, classes=10, batch=50, rounds=6),
}


# Measuring


@dataclass(frozen=True)
class EncodingCost:
    """What it takes to encode a dataset."""

    load_seconds: float
    fit_seconds: float
    encode_seconds: float
    items: int
    width: int
    state_bytes: int
    weight_bytes: int
    """The size of the packages that carry the weights, on disk."""


def encode(
    name: str, kind: ContentKind, data: LabelledContents, images: Path
) -> tuple[Features, EncodingCost]:
    """Return the features of all contents by an encoder, and what they cost."""
    started = time.perf_counter()
    encoder = make_encoder(name, kind, folder=images)
    loaded = time.perf_counter()
    if encoder.fit_size:
        pool = data.contents[: data.pool_size]
        encoder.fit(pool[: encoder.fit_size])
    fitted = time.perf_counter()
    encoding = encoder.encode(data.contents)
    encoded = time.perf_counter()

    if encoding.unreadable:
        raise RuntimeError(next(iter(encoding.unreadable.values())))
    cost = EncodingCost(
        load_seconds=round(loaded - started, 3),
        fit_seconds=round(fitted - loaded, 3),
        encode_seconds=round(encoded - fitted, 3),
        items=len(data.contents),
        width=encoding.vectors.shape[1],
        state_bytes=len(encoder.state().to_bytes()),
        weight_bytes=count_weight_bytes(name),
    )
    return encoding.vectors, cost


def count_weight_bytes(name: str) -> int:
    """Return the size of the packages that carry the weights of an encoder."""
    total = 0
    for part in name.split("+"):
        package = registry.get(part).package
        folder = None if package is None else package.find_folder()
        if folder is not None:
            total += sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return total


def scale(features: Features, pool_size: int) -> Features:
    """Centre features and scale them by one number, as a campaign does."""
    pool = features[:pool_size]
    mean = pool.mean(axis=0)
    size = float(np.sqrt(np.square(pool - mean).mean()))
    scaled: Features = (features - mean) / size
    return scaled


def simulate(
    features: Features, data: LabelledContents, dataset: EncoderDataset, strategy: str, seed: int
) -> dict[str, list[float]]:
    """Label batch by batch, and return the accuracy on the test rows after each batch."""
    pool = features[: data.pool_size]
    test = features[data.pool_size :]
    true_classes = data.labels[data.pool_size :]
    head = LogisticRegression(C=0.1, class_weight="balanced", max_iter=1000)
    cold_start = "random" if strategy == "random" else "typiclust"
    learner = Learner(
        head,
        pool,
        strategy,
        classes=dataset.classes,
        seed=seed,
        cold_start=cold_start,
        device="cpu",
    )

    curves: dict[str, list[float]] = {"accuracy": [], "f1": []}
    labelled: list[int] = []
    for _ in range(dataset.rounds):
        rows = learner.ask(dataset.batch)
        learner.tell(rows, data.labels[rows])
        labelled += rows.tolist()
        predicted = fit_and_predict(learner, data.labels[labelled], test)
        curves["accuracy"].append(float((predicted == true_classes).mean()))
        curves["f1"].append(f1_score(predicted, true_classes))
    return curves


def fit_and_predict(learner: Learner, labels: Integers, test: Features) -> Integers:
    """Train on all labels, and return the predicted classes. A single class needs no model."""
    labels = np.unique(labels)
    if len(labels) == 1:
        return np.full(len(test), labels[0])

    learner.fit()
    model = learner.models[0]
    logits = test @ model.coef_.T + model.intercept_
    columns = (logits[:, 0] > 0).astype(int) if logits.shape[1] == 1 else logits.argmax(axis=1)
    classes: Integers = model.classes_[columns]
    return classes


def f1_score(predicted: Integers, true_classes: Integers) -> float:
    """Return the F1 score of class 1, which is spam."""
    hits = int(((predicted == 1) & (true_classes == 1)).sum())
    if hits == 0:
        return 0.0
    return 2 * hits / (int((predicted == 1).sum()) + int((true_classes == 1).sum()))


def run(name: str, folder: Path, names: Sequence[str], seeds: int, file: Path) -> None:
    """Measure encoders on a dataset, and write the results to a file after each of them.

    Encoders that the file already has are skipped, so an interrupted run is resumed.
    """
    dataset = DATASETS[name]
    with tempfile.TemporaryDirectory() as images:
        data = dataset.read(folder, Path(images))
        result = describe_run(name, data, seeds)
        if file.exists():
            result = merge(result, json.loads(file.read_text()))

        for encoder_name in names:
            if encoder_name in result["curves"]:
                continue
            features, cost = encode(encoder_name, dataset.kind, data, Path(images))
            result["costs"][encoder_name] = asdict(cost)
            print(name, encoder_name, cost, flush=True)

            scaled = scale(features, data.pool_size)
            result["curves"][encoder_name] = simulate_strategies(scaled, data, dataset, seeds)
            write_result(result, file)


def measure_costs(name: str, folder: Path, names: Sequence[str], file: Path) -> None:
    """Measure again what encoding costs, and keep the accuracies, which take hours."""
    dataset = DATASETS[name]
    result = json.loads(file.read_text())
    with tempfile.TemporaryDirectory() as images:
        data = dataset.read(folder, Path(images))
        for encoder_name in names:
            _, cost = encode(encoder_name, dataset.kind, data, Path(images))
            result["costs"][encoder_name] = asdict(cost)
            print(name, encoder_name, cost, flush=True)

    result |= {"costs_commit": commit(), "threads": torch.get_num_threads()}
    write_result(result, file)


def describe_run(name: str, data: LabelledContents, seeds: int) -> dict[str, Any]:
    """Return a result without encoders: what is measured, with which settings, and where."""
    dataset = DATASETS[name]

    return {
        "dataset": name,
        **describe_setup(),
        "encoded_on": describe_device(choose_device(None)),
        "seeds": list(range(seeds)),
        "pool": data.pool_size,
        "test": len(data.contents) - data.pool_size,
        "labelled": [dataset.batch * (k + 1) for k in range(dataset.rounds)],
        "settings": {"batch": dataset.batch, "C": 0.1, "cold_start": "typiclust"},
        "costs": {},
        "curves": {},
    }


def merge(new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    """Return a new result with the encoders of an old one, which must have the same settings."""
    for key in ("labelled", "seeds", "pool", "test", "settings", "threads"):
        if new[key] != old[key]:
            raise SystemExit(f"The file has results with other {key}: remove it and run again.")
    return new | {"costs": old["costs"], "curves": old["curves"]}


def simulate_strategies(
    features: Features, data: LabelledContents, dataset: EncoderDataset, seeds: int
) -> dict[str, Any]:
    """Return the measures of all repetitions by strategy."""
    curves = {}
    for strategy in STRATEGIES:
        runs = [simulate(features, data, dataset, strategy, seed) for seed in range(seeds)]
        curves[strategy] = {measure: [run[measure] for run in runs] for measure in runs[0]}
        accuracy = np.mean([run["accuracy"] for run in runs], axis=0)
        print(" ", strategy, np.round(100 * accuracy, 1).tolist(), flush=True)
    return curves


# The page


SECTIONS = {
    "banking77": ("Banking77: 77 kinds of questions to a bank", "accuracy", (154, 385, 770)),
    "sms_spam": ("SMS Spam: one in eight messages is spam", "f1", (20, 100, 200)),
    "cifar10": ("CIFAR-10: small photographs of ten things", "accuracy", (50, 100, 300)),
    "mnist": ("MNIST: handwritten digits", "accuracy", (50, 100, 300)),
}
MEASURE_TITLES = {"accuracy": "Accuracy", "f1": "F1 score of spam"}


def read_result(name: str) -> dict[str, Any]:
    """Return a committed result."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return result


def fill_page(text: str) -> str:
    """Return the page with the committed results."""
    sections = [build_section(name) for name in measured_datasets()]
    return fill_blocks(text, {"encoders": "\n".join([build_summary(), *sections])})


def measured_datasets() -> list[str]:
    """Return the datasets that have a committed result."""
    return [name for name in SECTIONS if (RESULTS / f"{name}.json").is_file()]


def build_summary() -> str:
    """Return the gains of encoder and strategy at one number of labels, a sentence per dataset."""
    sentences = []
    for name, title, built_in, best, labels in (
        ("cifar10", "CIFAR-10", "pixels", "efficientnet-lite0+pixels", 100),
        ("banking77", "Banking77", "tfidf", "minilm", 385),
    ):
        if name not in measured_datasets():
            continue

        result = read_result(name)
        by_encoder = {
            (encoder, strategy): mean_at(result, encoder, strategy, "accuracy", labels)
            for encoder in (built_in, best)
            for strategy in STRATEGIES
        }

        encoder_gain = by_encoder[best, "random"] - by_encoder[built_in, "random"]
        strategy_gain = by_encoder[best, "ldm-s"] - by_encoder[best, "random"]

        sentences.append(
            f"On {title} with {labels} labels, `{best}` instead of `{built_in}` gains "
            f"{100 * encoder_gain:.1f} points of accuracy, and LDM-S instead of random items "
            f"{100 * strategy_gain:+.1f} points."
        )

    return "".join(f"{sentence}\n" for sentence in sentences)


def mean_at(
    result: dict[str, Any], encoder: str, strategy: str, measure: str, labels: int
) -> float:
    """Return the mean of a measure over the repetitions, at a number of labels."""
    position = result["labelled"].index(labels)
    runs = result["curves"][encoder][strategy][measure]
    return float(np.mean([run[position] for run in runs]))


def build_section(name: str) -> str:
    """Return the section about one dataset."""
    title, measure, label_counts = SECTIONS[name]
    result = read_result(name)
    counts = " | ".join(f"{count:,} labels" for count in label_counts)
    lines = [
        f"### {title}\n",
        f"There are {result['pool']:,} items to label and {result['test']:,} test items. "
        f"{MEASURE_TITLES[measure]} in percent, random / LDM-S:\n",
        f"| encoder | {counts} | items per second |",
        "| --- |" + " ---: |" * (len(label_counts) + 1),
    ]
    for encoder, cost in result["costs"].items():
        cells = []
        for count in label_counts:
            values = [mean_at(result, encoder, strategy, measure, count) for strategy in STRATEGIES]
            cells.append(" / ".join(f"{100 * value:.1f}" for value in values))
        speed = cost["items"] / (cost["fit_seconds"] + cost["encode_seconds"])
        lines.append(f"| `{encoder}` | {' | '.join(cells)} | {speed:,.0f} |")

    return "\n".join([*lines, ""])


# Command line


def main() -> None:
    parser = make_parser(__doc__)
    run_parser = add_commands(parser, DATASETS, run_help="measure encoders on a dataset")
    run_parser.add_argument("--encoders", help="comma-separated names (default: all)")
    run_parser.add_argument("--seeds", type=int, default=3, help="repetitions (default: 3)")
    run_parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the result")
    run_parser.add_argument(
        "--costs-only", action="store_true", help="measure only the seconds and bytes again"
    )
    options = parser.parse_args()

    if options.command == "page":
        PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return

    folder = require_data(parser, options)
    names = ENCODERS[DATASETS[options.dataset].kind]
    if options.encoders is not None:
        names = tuple(options.encoders.split(","))

    file = options.out / f"{options.dataset}.json"
    if options.costs_only:
        measure_costs(options.dataset, folder, names, file)
        return
    run(options.dataset, folder, names, options.seeds, file)


if __name__ == "__main__":
    main()
