"""Campaigns whose annotator knows every answer: how right the model is on rows held out, label by label.

python benchmarks/campaigns/simulate.py run banking77 --data FOLDER    # FOLDER: $TEETER_DATA if left out
python benchmarks/campaigns/simulate.py page                            # results -> docs/explanation/campaigns.md
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.numpy import load

from teeter.analysis.comparison import Gain, Saving, gain_over, saving_over
from teeter.analysis.drawing import save
from teeter.analysis.plots import plot_curves
from teeter.arrays import describe_device
from teeter.campaigns.campaign import Campaign, Settings
from teeter.campaigns.encoders import encode_texts
from teeter.version import __version__, commit

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "explanation" / "campaigns.md"
STRATEGIES = ("ldm-s", "margin", "badge", "random")

Vectors = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Data:
    """Texts with their classes, and which of them are held out."""

    classes: tuple[str, ...]
    features: Vectors
    labels: list[str]
    pool: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """A dataset, and how it is labelled."""

    read: Callable[[Path, int], Data]
    batch: int
    rounds: int
    positive: str | None = None
    """The class that is looked for, where one is rare."""


def banking(folder: Path, repetition: int) -> Data:
    """Read Banking77 with its published test rows, each text of the others once."""
    with lzma.open(folder / "banking77.json.xz", "rt", encoding="utf-8") as file:
        told = json.load(file)
    names = told["labels"]
    texts = [text for part in ("train", "test") for text, _ in told[part]]
    labels = [names[label] for part in ("train", "test") for _, label in told[part]]
    first = {text: row for row, text in reversed(list(enumerate(texts[: len(told["train"])])))}
    pool, test = np.array(sorted(first.values())), np.arange(len(told["train"]), len(texts))
    return Data(tuple(names), _features(texts), labels, pool, test)


def sms(folder: Path, repetition: int) -> Data:
    """Read SMS Spam, each text once; a fifth is held out, another one in each repetition."""
    with lzma.open(folder / "sms_spam.tsv.xz", "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t", 1) for line in file if line.strip()]
    known = {text: label for label, text in lines}
    mixed = np.random.default_rng(repetition).permutation(len(known))
    held = len(known) // 5
    features = _features(list(known))
    return Data(("ham", "spam"), features, list(known.values()), np.sort(mixed[held:]), np.sort(mixed[:held]))


_kept: dict[int, Vectors] = {}


def _features(texts: list[str]) -> Vectors:
    """Return the built-in features of all texts together, as a campaign computes them; of each dataset once."""
    if len(texts) not in _kept:
        _kept[len(texts)] = encode_texts(texts)
    return _kept[len(texts)]


TASKS = {"banking77": Task(banking, 100, 15), "sms_spam": Task(sms, 20, 15, "spam")}


def play(data: Data, task: Task, strategy: str, seed: int, folder: Path) -> dict[str, list[float]]:
    """Ask, answer and train, round by round; return what is right on the rows held out after each."""
    settings = Settings(kind="features", strategy=strategy, seed=seed)
    campaign = Campaign.create(folder / f"{strategy}-{seed}.teeter", "simulated", data.classes, settings)
    campaign.add({"id": str(row), "features": data.features[row]} for row in data.pool)
    found: dict[str, list[float]] = {}
    truth = np.array([data.classes.index(data.labels[row]) for row in data.test])
    for _ in range(task.rounds):
        for question in campaign.ask(task.batch):
            campaign.tell(question.item, data.labels[int(question.item)])
        for name, value in measures(truth, predicted(campaign, data), data.classes, task.positive).items():
            found.setdefault(name, []).append(value)
    campaign.store.close()
    return found


def predicted(campaign: Campaign, data: Data) -> npt.NDArray[np.int64]:
    """Train, and return what the new model says of the rows held out: of a single class so far, always that."""
    by_class = campaign.status().by_class
    seen = [name for name, count in by_class.items() if count]
    if len(seen) < 2:
        return np.full(len(data.test), data.classes.index(seen[0]))
    campaign.train()
    with campaign.store.reading() as connection:
        model = campaign.ledger.model(connection)
    if model is None:
        raise RuntimeError("A model was trained and is not there.")
    head, pool = load(model.weights), data.features[data.pool]
    middle = pool.mean(axis=0)
    size = float(np.sqrt(np.square(pool - middle).mean()))
    logits = (data.features[data.test] - middle) / size @ head["weight"].T + head["bias"]
    answer: npt.NDArray[np.int64] = head["seen"][logits.argmax(axis=1)]
    return answer


def measures(
    truth: npt.NDArray[np.int64], guess: npt.NDArray[np.int64], classes: Sequence[str], positive: str | None
) -> dict[str, float]:
    """Return the accuracy; and how much of the class that is looked for was found, and F1."""
    shares = {"accuracy": float((truth == guess).mean())}
    if positive is not None:
        wanted, said = truth == classes.index(positive), guess == classes.index(positive)
        both = int((wanted & said).sum())
        shares |= {"found": both / int(wanted.sum()), "f1": 2 * both / max(1, int(wanted.sum() + said.sum()))}
    return shares


def run(name: str, folder: Path, repetitions: int, rounds: int | None) -> dict[str, Any]:
    """Play a dataset with every strategy, and return the result as it is kept."""
    task = TASKS[name]
    task = Task(task.read, task.batch, rounds or task.rounds, task.positive)
    curves: dict[str, dict[str, list[list[float]]]] = {strategy: {} for strategy in STRATEGIES}
    minutes = dict.fromkeys(STRATEGIES, 0.0)
    sizes = (0, 0)
    for repetition in range(repetitions):
        data = task.read(folder, repetition)
        sizes = (len(data.pool), len(data.test))
        for strategy in STRATEGIES:
            started = time.process_time()
            with tempfile.TemporaryDirectory() as place:
                found = play(data, task, strategy, repetition, Path(place))
            minutes[strategy] += (time.process_time() - started) / 60
            for measure, values in found.items():
                curves[strategy].setdefault(measure, []).append([round(value, 5) for value in values])
            print(f"{name} {repetition} {strategy}: {found['accuracy'][-1]:.3f}, {minutes[strategy]:.1f} min", flush=True)
    plain = Settings(kind="features")
    return {
        "dataset": name,
        "teeter": __version__,
        "commit": commit(),
        "torch": torch.__version__,
        "hardware": describe_device(torch.device("cpu")),
        "threads": torch.get_num_threads(),
        "minutes": {strategy: round(spent, 2) for strategy, spent in minutes.items()},
        "settings": {"head": plain.head, "control": plain.control, "cold_start": "typiclust", "batch": task.batch},
        "seeds": list(range(repetitions)),
        "pool": sizes[0],
        "test": sizes[1],
        "labelled": [task.batch * (k + 1) for k in range(task.rounds)],
        "curves": curves,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    running = verbs.add_parser("run", help="play a dataset")
    running.add_argument("dataset", choices=list(TASKS))
    running.add_argument("--data", type=Path, default=os.environ.get("TEETER_DATA"), help="where the datasets are")
    running.add_argument("--repetitions", type=int, default=5)
    running.add_argument("--rounds", type=int)
    running.add_argument("--out", type=Path, help="where the result goes; results/DATASET.json if left out")
    options = parser.parse_args()
    if options.data is None:
        parser.error("say where the datasets are: --data FOLDER, or set TEETER_DATA")
    torch.set_num_threads(1)
    result = run(options.dataset, Path(options.data), options.repetitions, options.rounds)
    out = options.out or RESULTS / f"{options.dataset}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
