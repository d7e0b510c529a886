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

from teeter.analysis.plot_style import save_figure
from teeter.analysis.plots import plot_curves
from teeter.analysis.statistics import Gain, LabelSaving, gain_over, saving_over
from teeter.arrays import describe_device
from teeter.campaigns.campaign import Campaign, Settings
from teeter.encoders import encode_texts
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
    return Data(
        ("ham", "spam"),
        features,
        list(known.values()),
        np.sort(mixed[held:]),
        np.sort(mixed[:held]),
    )


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
    campaign = Campaign.create(
        folder / f"{strategy}-{seed}.teeter", "simulated", data.classes, settings
    )
    campaign.add({"id": str(row), "features": data.features[row]} for row in data.pool)
    found: dict[str, list[float]] = {}
    truth = np.array([data.classes.index(data.labels[row]) for row in data.test])
    for _ in range(task.rounds):
        for question in campaign.ask(task.batch):
            campaign.tell(question.item, data.labels[int(question.item)])
        for name, value in measures(
            truth, predicted(campaign, data), data.classes, task.positive
        ).items():
            found.setdefault(name, []).append(value)
    campaign.database.close()
    return found


def predicted(campaign: Campaign, data: Data) -> npt.NDArray[np.int64]:
    """Train, and return what the new model says of the rows held out: of a single class so far, always that."""
    by_class = campaign.status().by_class
    seen = [name for name, count in by_class.items() if count]
    if len(seen) < 2:
        return np.full(len(data.test), data.classes.index(seen[0]))
    campaign.train()
    with campaign.database.reading() as connection:
        model = campaign.repository.models.newest(connection)
    if model is None:
        raise RuntimeError("A model was trained and is not there.")
    head, pool = load(model.weights), data.features[data.pool]
    middle = pool.mean(axis=0)
    size = float(np.sqrt(np.square(pool - middle).mean()))
    logits = (data.features[data.test] - middle) / size @ head["weight"].T + head["bias"]
    answer: npt.NDArray[np.int64] = head["seen"][logits.argmax(axis=1)]
    return answer


def measures(
    truth: npt.NDArray[np.int64],
    guess: npt.NDArray[np.int64],
    classes: Sequence[str],
    positive: str | None,
) -> dict[str, float]:
    """Return the accuracy; and how much of the class that is looked for was found, and F1."""
    shares = {"accuracy": float((truth == guess).mean())}
    if positive is not None:
        wanted, said = truth == classes.index(positive), guess == classes.index(positive)
        both = int((wanted & said).sum())
        shares |= {
            "found": both / int(wanted.sum()),
            "f1": 2 * both / max(1, int(wanted.sum() + said.sum())),
        }
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
                curves[strategy].setdefault(measure, []).append(
                    [round(value, 5) for value in values]
                )
            print(
                f"{name} {repetition} {strategy}: {found['accuracy'][-1]:.3f}, {minutes[strategy]:.1f} min",
                flush=True,
            )
    plain = Settings(kind="features")
    return {
        "dataset": name,
        "teeter": __version__,
        "commit": commit(),
        "torch": torch.__version__,
        "hardware": describe_device(torch.device("cpu")),
        "threads": torch.get_num_threads(),
        "minutes": {strategy: round(spent, 2) for strategy, spent in minutes.items()},
        "settings": {
            "head": plain.head,
            "control": plain.control,
            "cold_start": "typiclust",
            "batch": task.batch,
        },
        "seeds": list(range(repetitions)),
        "pool": sizes[0],
        "test": sizes[1],
        "labelled": [task.batch * (k + 1) for k in range(task.rounds)],
        "curves": curves,
    }


HEAD = """# What a campaign saves, measured

A script plays a person who knows every answer: it asks for a batch, answers it, trains, and begins again. It goes
through `teeter.Campaign` with the settings that everybody begins with: the built-in features of texts, a linear head
and {control:.0%} of each batch drawn at random. The first batch covers the pool and is the same for all but Random,
which draws that one too: it stands for labelling without teeter. Nothing is tuned to these datasets. After every
round the model is measured on rows held out, which nobody labels; texts need no labels for their features, so
features are of all texts together. {repetitions} repetitions, paired by their seeds.

Gain: points over Random, mean over the rounds after the first; it is of the whole, the covering first batch and the
strategy after it. Labels needed: where the mean curve first is as good as
Random is at its end, along straight lines between rounds. p: paired t-test over repetitions, two-sided.

Made from the results in `benchmarks/campaigns/results` by `python benchmarks/campaigns/simulate.py page`; a test fails
when it is out of date. One person, no slips and two datasets of short English texts: yours may save more, or less.
"""

TITLES = {
    "banking77": (
        "Banking77: 77 kinds of questions to a bank",
        "{pool:,} texts to label and the {test:,} published test rows, the same in each repetition",
    ),
    "sms_spam": (
        "SMS Spam: ham, and one in eight spam",
        "{pool:,} texts to label and {test:,} held out, others in each repetition; each text once",
    ),
}
MEASURES = {"accuracy": "accuracy", "found": "spam found", "f1": "F1 of spam"}


def read(name: str) -> dict[str, Any]:
    """Return a committed result, with its curves as arrays (R, T)."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    result["curves"] = {
        strategy: {measure: np.array(runs) for measure, runs in curves.items()}
        for strategy, curves in result["curves"].items()
    }
    return result


def page() -> str:
    """Return the page that tells the results."""
    first = read("banking77")
    parts = [HEAD.format(control=first["settings"]["control"], repetitions=len(first["seeds"]))]
    for name, (title, rows) in TITLES.items():
        result = read(name)
        spent = sum(result["minutes"].values())
        parts.append(
            f"## {title}\n\n{rows.format(**result)}; batches of {result['settings']['batch']}.\n\n"
            f"![Accuracy by labels, for each strategy](campaigns_{name}.svg)\n"
        )
        shown = [measure for measure in ("accuracy", "f1") if measure in result["curves"]["random"]]
        parts += [_table(result, measure) for measure in shown]
        if "found" in result["curves"]["random"]:
            parts.append(_found(result))
        parts.append(
            f"`python benchmarks/campaigns/simulate.py run {name}`: {spent:.0f} min in all on one thread of "
            f"{result['hardware'].split(',')[0]}; teeter {result['teeter']}, commit `{result['commit'][:7]}`.\n"
        )
    return "\n".join(parts)


def _table(result: dict[str, Any], measure: str) -> str:
    labelled = np.array(result["labelled"], dtype=float)
    curves = {strategy: found[measure] for strategy, found in result["curves"].items()}
    gains = {
        name: gain_over(runs, curves["random"]) for name, runs in curves.items() if name != "random"
    }
    end = int(labelled[-1])
    lines = [
        f"| by {MEASURES[measure]} | at {end:,} labels | gain | p | labels needed | saved | p |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    savings = {name: saving_over(labelled, curves[name], curves["random"]) for name in gains}
    best_first = sorted(gains, key=lambda name: -gains[name].mean)
    lines += [_line(name, curves[name], gains[name], savings[name]) for name in best_first]
    lines.append(f"| `random` | {curves['random'][:, -1].mean():.1%} | | | {end:,} | | |")
    return "\n".join([*lines, "", _verdict(gains, savings, curves), ""])


def _line(name: str, runs: Floats, gain: Gain, saving: LabelSaving) -> str:
    needed = "never" if saving.labels is None else f"{saving.labels:,.0f}"
    saved = "" if saving.saved is None else f"{saving.saved / saving.baseline:.0%}"
    chance = "" if saving.p is None else f"{saving.p:.2g}"
    return (
        f"| `{name}` | {runs[:, -1].mean():.1%} | {gain.mean:+.2f} ± {gain.deviation:.2f} | {gain.p:.2g} | "
        f"{needed} | {saved} | {chance} |"
    )


def _verdict(
    gains: dict[str, Gain], savings: dict[str, LabelSaving], curves: dict[str, Floats]
) -> str:
    """Return what can be said of LDM-S beside the best of the others, whichever is ahead."""
    other = max((name for name in gains if name != "ldm-s"), key=lambda name: gains[name].mean)
    apart = gain_over(curves["ldm-s"], curves[other])
    told = f"{apart.mean:+.2f} points, p = {apart.p:.2g}"
    fewest = min(savings, key=lambda name: savings[name].labels or float("inf"))
    fewer = f"`{fewest}` needs the fewest labels."
    if not apart.significant:
        return f"LDM-S and `{other}`, the best of the others by gain, cannot be told apart ({told}); {fewer}"
    return f"LDM-S is {'ahead of' if apart.mean > 0 else 'behind'} `{other}` ({told}); {fewer}"


def _found(result: dict[str, Any]) -> str:
    places = [result["labelled"].index(count) for count in (40, 100, result["labelled"][-1])]
    lines = [
        "| share of spam found, at labels | "
        + " | ".join(f"{result['labelled'][k]}" for k in places)
        + " |",
        "| --- |" + " ---: |" * len(places),
    ]
    for strategy, found in result["curves"].items():
        shares = " | ".join(f"{found['found'][:, k].mean():.1%}" for k in places)
        lines.append(f"| `{strategy}` | {shares} |")
    return "\n".join([*lines, ""])


def draw(name: str, folder: Path) -> Path:
    """Draw a result's curves, and return the picture."""
    result = read(name)
    curves = {strategy: found["accuracy"] for strategy, found in result["curves"].items()}
    svg, png = save_figure(
        plot_curves(np.array(result["labelled"], dtype=float), curves), folder / f"campaigns_{name}"
    )
    png.unlink()
    return svg


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    running = verbs.add_parser("run", help="play a dataset")
    running.add_argument("dataset", choices=list(TASKS))
    running.add_argument(
        "--data", type=Path, default=os.environ.get("TEETER_DATA"), help="where the datasets are"
    )
    running.add_argument("--repetitions", type=int, default=5)
    running.add_argument("--rounds", type=int)
    running.add_argument(
        "--out", type=Path, help="where the result goes; results/DATASET.json if left out"
    )
    verbs.add_parser("page", help="write the page and its pictures from the results")
    options = parser.parse_args()
    if options.verb == "page":
        PAGE.write_text(page())
        for name in TITLES:
            draw(name, PAGE.parent)
        return
    if options.data is None:
        parser.error("say where the datasets are: --data FOLDER, or set TEETER_DATA")
    torch.set_num_threads(1)
    result = run(options.dataset, Path(options.data), options.repetitions, options.rounds)
    out = options.out or RESULTS / f"{options.dataset}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
