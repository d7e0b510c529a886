"""Simulate campaigns with an annotator who knows every answer, and measure the model after each round.

python research/campaigns/simulate.py run banking77 --data FOLDER    # default: $TEETER_DATA
python research/campaigns/simulate.py page                           # docs/explanation/campaigns.md
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from teeter.bench.analysis.statistics import Gain, LabelSaving, gain_over, saving_over
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings
from teeter.encoders import AUTO, ContentKind, Encoder, Encoding, encoders, make_encoder

sys.path.append(str(Path(__file__).parents[2]))

from research.labelling import (
    add_commands,
    describe_setup,
    draw_curves,
    load_banking77,
    load_sms_spam,
    make_parser,
    require_data,
    write_result,
)
from research.page_blocks import fill_blocks

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "explanation" / "campaigns.md"
STRATEGIES = ("ldm-s", "margin", "badge", "random")

CACHED_ENCODER = "cached-default"

Features = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


# Datasets


@dataclass(frozen=True, eq=False)
class LabelledTexts:
    """Texts with their labels, split into a pool and test rows."""

    classes: tuple[str, ...]
    texts: list[str]
    labels: list[str]
    pool: Integers
    """Rows that the campaign may ask about."""
    test: Integers
    """Rows that the model is measured on."""


@dataclass(frozen=True)
class Simulation:
    """A dataset, and how it is labelled."""

    read: Callable[[Path, int], LabelledTexts]
    """Reads the dataset from a folder, for one repetition."""
    batch: int
    rounds: int
    positive: str | None = None
    """The rare class whose share of found rows is measured, if there is one."""


def read_banking77(folder: Path, repetition: int) -> LabelledTexts:
    """Read Banking77 with its published test rows; a duplicate in the pool is used once."""
    content = load_banking77(folder)
    class_names = content["labels"]
    rows = [*content["train"], *content["test"]]
    texts = [text for text, _ in rows]
    labels = [class_names[number] for _, number in rows]

    train_count = len(content["train"])
    first_rows: dict[str, int] = {}
    for row, text in enumerate(texts[:train_count]):
        first_rows.setdefault(text, row)

    return LabelledTexts(
        classes=tuple(class_names),
        texts=texts,
        labels=labels,
        pool=np.array(sorted(first_rows.values())),
        test=np.arange(train_count, len(texts)),
    )


def read_sms_spam(folder: Path, repetition: int) -> LabelledTexts:
    """Read SMS Spam without duplicates; each repetition holds out another fifth."""
    label_by_text = load_sms_spam(folder)
    shuffled = np.random.default_rng(repetition).permutation(len(label_by_text))
    test_count = len(label_by_text) // 5
    return LabelledTexts(
        classes=("ham", "spam"),
        texts=list(label_by_text),
        labels=list(label_by_text.values()),
        pool=np.sort(shuffled[test_count:]),
        test=np.sort(shuffled[:test_count]),
    )


@encoders.register(CACHED_ENCODER)
class CachedEncoder(Encoder):
    """The default encoder of texts, which encodes each text only once for all campaigns."""

    name = CACHED_ENCODER
    kind = ContentKind.TEXT
    default: ClassVar[Encoder | None] = None
    vectors: ClassVar[dict[str, Features]] = {}

    def encode(self, contents: Sequence[str]) -> Encoding:
        new_texts = [text for text in dict.fromkeys(contents) if text not in self.vectors]
        if new_texts:
            encoded = default_encoder().encode(new_texts).vectors
            self.vectors.update(zip(new_texts, encoded, strict=True))
        return Encoding(np.stack([self.vectors[text] for text in contents]))


def default_encoder() -> Encoder:
    """Return the encoder that campaigns of texts use by default, made once.

    It must be pretrained: an encoder that is fitted to the texts would depend on the first ones.
    """
    if CachedEncoder.default is None:
        encoder = make_encoder(AUTO, "text")
        if encoder.fit_size:
            raise SystemExit(f"{encoder.name} is not pretrained: pip install 'teeter[label]'.")
        CachedEncoder.default = encoder
    return CachedEncoder.default


SIMULATIONS = {
    "banking77": Simulation(read_banking77, batch=100, rounds=15),
    "sms_spam": Simulation(read_sms_spam, batch=20, rounds=15, positive="spam"),
}


# Simulation


def simulate(
    data: LabelledTexts, simulation: Simulation, strategy: str, seed: int, folder: Path
) -> dict[str, list[float]]:
    """Ask, answer and train, round by round.

    Returns:
        The value of each measure on the test rows after each round.
    """
    settings = Settings(kind="text", encoder=CACHED_ENCODER, strategy=strategy, seed=seed)
    campaign = Campaign.make(
        [],
        data.classes,
        at=folder / f"{strategy}-{seed}.teeter",
        name="simulated",
        settings=settings,
    )
    campaign.add({"id": str(row), "text": data.texts[row]} for row in data.pool)
    true_classes = np.array([data.classes.index(data.labels[row]) for row in data.test])

    curves: dict[str, list[float]] = {}
    for _ in range(simulation.rounds):
        for question in campaign.ask(simulation.batch):
            campaign.tell(question.item, data.labels[int(question.item)])

        predicted_classes = train_and_predict(campaign, data)
        values = measure(true_classes, predicted_classes, data.classes, simulation.positive)
        for name, value in values.items():
            curves.setdefault(name, []).append(value)

    campaign.database.close()
    return curves


def train_and_predict(campaign: Campaign, data: LabelledTexts) -> Integers:
    """Train a model and return the classes that it predicts for the test rows.

    With labels of a single class no model can be trained; the prediction is then that class.
    """
    counts = campaign.status().by_class
    seen_classes = [name for name, count in counts.items() if count]
    if len(seen_classes) < 2:
        return np.full(len(data.test), data.classes.index(seen_classes[0]))

    campaign.train()
    predictions = campaign.predict([data.texts[row] for row in data.test])
    return np.array([data.classes.index(prediction.label) for prediction in predictions])


def measure(
    true_classes: Integers,
    predicted_classes: Integers,
    classes: Sequence[str],
    positive: str | None,
) -> dict[str, float]:
    """Return the accuracy and, for a rare class, its recall ("found") and F1 score."""
    measures = {"accuracy": float((true_classes == predicted_classes).mean())}

    if positive is not None:
        positive_number = classes.index(positive)
        is_positive = true_classes == positive_number
        is_predicted = predicted_classes == positive_number
        true_positives = int((is_positive & is_predicted).sum())
        measures["found"] = true_positives / int(is_positive.sum())
        measures["f1"] = 2 * true_positives / max(1, int(is_positive.sum() + is_predicted.sum()))

    return measures


def run(name: str, folder: Path, repetitions: int, rounds: int | None) -> dict[str, Any]:
    """Simulate a dataset with every strategy, and return the result to be saved."""
    simulation = SIMULATIONS[name]
    if rounds is not None:
        simulation = replace(simulation, rounds=rounds)

    curves: dict[str, dict[str, list[list[float]]]] = {strategy: {} for strategy in STRATEGIES}
    minutes = dict.fromkeys(STRATEGIES, 0.0)
    pool_size = 0
    test_size = 0

    for repetition in range(repetitions):
        data = simulation.read(folder, repetition)
        pool_size = len(data.pool)
        test_size = len(data.test)

        for strategy in STRATEGIES:
            started = time.process_time()
            with tempfile.TemporaryDirectory() as campaign_folder:
                values = simulate(data, simulation, strategy, repetition, Path(campaign_folder))
            minutes[strategy] += (time.process_time() - started) / 60

            for measure_name, curve in values.items():
                rounded = [round(value, 5) for value in curve]
                curves[strategy].setdefault(measure_name, []).append(rounded)
            print(
                f"{name}, repetition {repetition}, {strategy}: accuracy "
                f"{values['accuracy'][-1]:.3f}, {minutes[strategy]:.1f} min in total",
                flush=True,
            )

    defaults = Settings(kind="text")
    return {
        "dataset": name,
        **describe_setup(),
        "minutes": {strategy: round(spent, 2) for strategy, spent in minutes.items()},
        "settings": {
            "encoder": default_encoder().name,
            "head": defaults.head,
            "control": defaults.control,
            "cold_start": "typiclust",
            "batch": simulation.batch,
        },
        "seeds": list(range(repetitions)),
        "pool": pool_size,
        "test": test_size,
        "labelled": [simulation.batch * (k + 1) for k in range(simulation.rounds)],
        "curves": curves,
    }


# The page of results

SECTIONS = {
    "banking77": (
        "Banking77: 77 kinds of questions to a bank",
        "There are {pool:,} texts to label. The test rows are the {test:,} published ones",
    ),
    "sms_spam": (
        "SMS Spam: one in eight messages is spam",
        "Without duplicates, there are {pool:,} texts to label and {test:,} test rows. The split is drawn "
        "again in each repetition",
    ),
}


def read_result(name: str) -> dict[str, Any]:
    """Return a committed result, with its curves as arrays (repetitions, rounds)."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    result["curves"] = {
        strategy: {measure_name: np.array(runs) for measure_name, runs in curves.items()}
        for strategy, curves in result["curves"].items()
    }
    return result


def fill_page(text: str) -> str:
    """Return the page with the committed results."""
    return fill_blocks(text, {"picks": "\n".join(build_section(name) for name in SECTIONS)})


def build_section(name: str) -> str:
    """Return the section about one dataset."""
    result = read_result(name)
    title, description = SECTIONS[name]
    measure_names = result["curves"]["random"]

    parts = [
        f"### {title}\n\n{description.format(**result)}. Each batch has {result['settings']['batch']} items.\n\n"
        f"![Accuracy against the number of labels, for each strategy](campaigns_{name}.svg)\n"
    ]
    parts.append(build_gain_table(result))
    if "found" in measure_names:
        parts.append(build_recall_table(result))

    return "\n".join(parts)


def build_gain_table(result: dict[str, Any]) -> str:
    """Return a table of gains in accuracy and saved labels, best strategy first, and a sentence about it."""
    label_counts = np.array(result["labelled"], dtype=float)
    curves = {strategy: curves["accuracy"] for strategy, curves in result["curves"].items()}
    baseline = curves["random"]

    gains = {}
    savings = {}
    for strategy, runs in curves.items():
        if strategy != "random":
            gains[strategy] = gain_over(runs, baseline)
            savings[strategy] = saving_over(label_counts, runs, baseline)

    last = int(label_counts[-1])
    lines = [
        f"| accuracy | at {last:,} labels | gain | p | labels needed | saved | p |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        format_gain_row(strategy, curves[strategy], gains[strategy], savings[strategy])
        for strategy in sorted(gains, key=lambda strategy: -gains[strategy].mean)
    ]
    lines.append(f"| `random` | {baseline[:, -1].mean():.1%} | | | {last:,} | | |")

    return "\n".join([*lines, "", compare_ldm_s(gains, curves), ""])


def format_gain_row(strategy: str, runs: Floats, gain: Gain, saving: LabelSaving) -> str:
    labels_needed = "never"
    if saving.labels is not None:
        labels_needed = f"{saving.labels:,.0f}"
    saved = ""
    if saving.saved is not None:
        saved = f"{saving.saved / saving.baseline:.0%}"
    saving_p = ""
    if saving.p is not None:
        saving_p = f"{saving.p:.2g}"

    cells = [
        f"`{strategy}`",
        f"{runs[:, -1].mean():.1%}",
        f"{gain.mean:+.2f} ± {gain.deviation:.2f}",
        f"{gain.p:.2g}",
        labels_needed,
        saved,
        saving_p,
    ]
    return f"| {' | '.join(cells)} |"


def compare_ldm_s(gains: dict[str, Gain], curves: dict[str, Floats]) -> str:
    """Return a sentence that compares LDM-S with the best other strategy, whichever is ahead."""
    rivals = [strategy for strategy in gains if strategy != "ldm-s"]
    best_rival = max(rivals, key=lambda strategy: gains[strategy].mean)
    difference = gain_over(curves["ldm-s"], curves[best_rival])
    figures = f"{abs(difference.mean):.2f} points, p = {difference.p:.2g}"
    leader = "ldm-s" if difference.mean > 0 else best_rival

    if not difference.significant:
        comparison = (
            f"The difference between `ldm-s` and `{best_rival}`, the best other strategy, is not "
            f"significant ({figures}, in favour of `{leader}`)."
        )
    elif difference.mean > 0:
        comparison = f"`ldm-s` is better than `{best_rival}`, the best other strategy ({figures})."
    else:
        comparison = f"`ldm-s` is worse than `{best_rival}`, the best other strategy ({figures})."

    return comparison


def build_recall_table(result: dict[str, Any]) -> str:
    """Return a table of the share of the rare class that was found, at three label counts."""
    label_counts = [40, 100, result["labelled"][-1]]
    rounds = [result["labelled"].index(count) for count in label_counts]

    counts = " | ".join(str(count) for count in label_counts)
    lines = [
        f"| share of spam found, by number of labels | {counts} |",
        "| --- |" + " ---: |" * len(label_counts),
    ]
    for strategy, curves in result["curves"].items():
        shares = " | ".join(f"{curves['found'][:, k].mean():.1%}" for k in rounds)
        lines.append(f"| `{strategy}` | {shares} |")
    return "\n".join([*lines, ""])


def draw_figure(name: str, folder: Path) -> Path:
    """Draw the accuracy curves of a result, and return the SVG file."""
    result = read_result(name)
    curves = {strategy: curves["accuracy"] for strategy, curves in result["curves"].items()}
    return draw_curves(result["labelled"], curves, folder / f"campaigns_{name}")


# Command line


def main() -> None:
    parser = make_parser(__doc__)
    run_parser = add_commands(parser, SIMULATIONS, run_help="simulate campaigns on a dataset")
    run_parser.add_argument(
        "--repetitions", type=int, default=5, help="number of repetitions (default: 5)"
    )
    run_parser.add_argument("--rounds", type=int, help="number of rounds, if not all")
    run_parser.add_argument(
        "--out", type=Path, help="file for the result (default: results/DATASET.json)"
    )
    options = parser.parse_args()

    if options.command == "page":
        PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        for name in SECTIONS:
            draw_figure(name, PAGE.parent)
        return

    folder = require_data(parser, options)
    torch.set_num_threads(1)
    result = run(options.dataset, folder, options.repetitions, options.rounds)
    write_result(result, options.out or RESULTS / f"{options.dataset}.json")


if __name__ == "__main__":
    main()
