"""What the benchmarks that simulate labelling share: datasets, result files, figures, commands.

The scripts are in folders beside this file. They add the root of the repository to ``sys.path``, so
that they run from anywhere: ``from research.labelling import read_banking77``.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from teeter.base.arrays import describe_device
from teeter.base.version import __version__, commit
from teeter.bench.analysis.plots import plot_curves, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


# Datasets


@dataclass(frozen=True, eq=False)
class TextDataset:
    """Texts with their classes, split into a pool and test rows."""

    texts: list[str]
    """Those of the pool come first."""
    labels: Integers
    """(N,) class indices."""
    classes: tuple[str, ...]
    pool_size: int


def load_banking77(folder: Path) -> dict[str, Any]:
    """Return the class names ("labels"), and the pairs of text and class ("train", "test")."""
    return _load_intents(folder / "banking77.json.xz")


def read_banking77(folder: Path) -> TextDataset:
    """Read Banking77 with its published test rows; a duplicate in the pool is used once."""
    return _split_intents(load_banking77(folder))


def read_hwu64(folder: Path) -> TextDataset:
    """Read HWU64, requests to a home assistant, with the test rows of its first fold."""
    return _split_intents(_load_intents(folder / "hwu64.json.xz"))


def _load_intents(file: Path) -> dict[str, Any]:
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        content: dict[str, Any] = json.load(lines)
    return content


def _split_intents(content: dict[str, Any]) -> TextDataset:
    pool = dict(reversed(content["train"]))
    test = content["test"]

    texts = [*pool, *(text for text, _ in test)]
    labels = [*pool.values(), *(number for _, number in test)]
    return TextDataset(texts, np.array(labels), tuple(content["labels"]), len(pool))


def load_sms_spam(folder: Path) -> dict[str, str]:
    """Return "ham" or "spam" for every text of SMS Spam, without duplicates."""
    with lzma.open(folder / "sms_spam.tsv.xz", "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t", 1) for line in file if line.strip()]
    return {text: label for label, text in lines}


def read_sms_spam(folder: Path) -> TextDataset:
    """Read SMS Spam without duplicates; a fifth of it is for testing."""
    label_by_text = load_sms_spam(folder)
    texts = list(label_by_text)
    order = np.random.default_rng(0).permutation(len(texts))

    shuffled = [texts[row] for row in order]
    labels = np.array([int(label_by_text[text] == "spam") for text in shuffled])
    return TextDataset(shuffled, labels, ("ham", "spam"), len(texts) - len(texts) // 5)


def read_goemotions(folder: Path) -> TextDataset:
    """Read 8,000 comments of GoEmotions that have one emotion; 2,000 of them are for testing."""
    with lzma.open(folder / "goemotions.json.xz", "rt", encoding="utf-8") as lines:
        content: dict[str, Any] = json.load(lines)
    label_by_text = {text: labels[0] for text, labels in content["train"] if len(labels) == 1}
    texts = list(label_by_text)
    order = np.random.default_rng(0).permutation(len(texts))[:8_000]

    shuffled = [texts[row] for row in order]
    labels = np.array([label_by_text[text] for text in shuffled])
    return TextDataset(shuffled, labels, tuple(content["labels"]), 6_000)


# Results


def describe_setup() -> dict[str, Any]:
    """Return what a result needs to be read later: versions, commit, hardware and threads."""
    return {
        "teeter": __version__,
        "commit": commit(),
        "torch": torch.__version__,
        "hardware": describe_device(torch.device("cpu")),
        "threads": torch.get_num_threads(),
    }


def write_result(result: Mapping[str, Any], file: Path) -> None:
    """Write a result as JSON."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result) + "\n")


# Figures


def save_svg(figure: Figure, stem: Path) -> Path:
    """Write a figure of a page, which shows SVG files only, and return the file."""
    svg, png = save_figure(figure, stem)
    png.unlink()
    return svg


def draw_curves(labelled: Sequence[int], curves: Mapping[str, Floats], stem: Path) -> Path:
    """Draw the mean and the deviation of curves over the number of labels.

    Args:
        labelled: the numbers of labels, (T,).
        curves: accuracies by name, (repetitions, T).
        stem: the path of the SVG file without its suffix.
    """
    return save_svg(plot_curves(np.array(labelled, dtype=float), curves), stem)


# Command line


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help shows the docstring of a script as it is."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def add_commands(
    parser: argparse.ArgumentParser, datasets: Iterable[str], *, run_help: str
) -> argparse.ArgumentParser:
    """Add the commands ``run DATASET`` and ``page``, and return the parser of ``run``."""
    commands = parser.add_subparsers(dest="command", required=True)
    run_parser = commands.add_parser("run", help=run_help)
    run_parser.add_argument("dataset", choices=list(datasets))
    add_data_option(run_parser)
    commands.add_parser("page", help="write the page and its figures from the results")
    return run_parser


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--data``; see ``require_data``."""
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("TEETER_DATA"),
        help="folder of the datasets (default: $TEETER_DATA)",
    )


def require_data(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Path:
    """Return the folder of the datasets, or end the script if it is not named."""
    if options.data is None:
        parser.error("name the folder of the datasets with --data, or set TEETER_DATA")
    return Path(options.data)
