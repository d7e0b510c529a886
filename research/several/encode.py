"""Encode three sets of texts that have several labels each, by MiniLM.

python research/several/encode.py FEATURES --data FOLDER    # default: $TEETER_DATA

- ``goemotions``: comments with one to four of 28 emotions, with the published test rows.
- ``hwu64_joined``: one to three requests of HWU64 in a row. Labels are the 30 most frequent
  intents, so that an item may have none of them.
- ``banking77_joined``: one to three customer queries in a row, with all 77 intents as labels.
"""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.append(str(Path(__file__).parents[2]))

from research.labelling import (
    TextDataset,
    add_data_option,
    make_parser,
    read_banking77,
    read_hwu64,
    require_data,
)

Marks = npt.NDArray[np.bool_]

JOINED_POOL = 8_000
JOINED_TEST = 2_000
MOST_PARTS = 3


@dataclass(frozen=True, eq=False)
class SeveralTexts:
    """Texts with the labels that each has; those of the pool come first."""

    texts: list[str]
    marks: Marks
    """(N, K) which labels an item has."""
    classes: tuple[str, ...]
    pool_size: int


def read_goemotions(folder: Path) -> SeveralTexts:
    """Read GoEmotions; a text that occurs twice in the pool is used once."""
    with lzma.open(folder / "goemotions.json.xz", "rt", encoding="utf-8") as lines:
        content: dict[str, Any] = json.load(lines)
    pool = dict(reversed(content["train"]))
    pairs = [*pool.items(), *content["test"]]

    marks = np.zeros((len(pairs), len(content["labels"])), dtype=bool)
    for row, (_, numbers) in enumerate(pairs):
        marks[row, numbers] = True
    texts = [text for text, _ in pairs]
    return SeveralTexts(texts, marks, tuple(content["labels"]), len(pool))


def join_texts(data: TextDataset, n_labels: int) -> SeveralTexts:
    """Join one to three texts; those of the test rows come from test rows."""
    generator = np.random.default_rng(0)
    frequent = np.argsort(-np.bincount(data.labels), kind="stable")[:n_labels]
    pool_rows = np.arange(data.pool_size)
    test_rows = np.arange(data.pool_size, len(data.texts))

    texts = []
    marks = []
    for rows, count in ((pool_rows, JOINED_POOL), (test_rows, JOINED_TEST)):
        for parts in draw_parts(rows, count, generator):
            texts.append(". ".join(data.texts[row] for row in parts))
            marks.append(np.isin(frequent, data.labels[parts]))
    classes = tuple(data.classes[k] for k in frequent)
    return SeveralTexts(texts, np.array(marks), classes, JOINED_POOL)


def draw_parts(
    rows: npt.NDArray[np.int64], count: int, generator: np.random.Generator
) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the rows of each joined text."""
    for _ in range(count):
        parts = int(generator.integers(1, MOST_PARTS + 1))
        yield generator.choice(rows, parts, replace=False)


def read_texts(name: str, data: Path) -> SeveralTexts:
    """Read one of the three sets."""
    if name == "goemotions":
        return read_goemotions(data)
    if name == "hwu64_joined":
        return join_texts(read_hwu64(data), 30)
    return join_texts(read_banking77(data), 77)


def encode(folder: Path, data: Path) -> None:
    """Write the features of all sets that are not there yet, in half precision."""
    from teeter.campaigns.classes import class_texts
    from teeter.encoders import make_encoder

    folder.mkdir(parents=True, exist_ok=True)
    encoder = make_encoder("minilm", "text")
    for name in ("hwu64_joined", "banking77_joined", "goemotions"):
        file = folder / f"{name}.npz"
        if file.exists():
            continue
        texts = read_texts(name, data)
        words = [class_texts(label, None)[0] for label in texts.classes]
        np.savez(
            file,
            features=encoder.encode(texts.texts).vectors.astype(np.float16),
            marks=np.packbits(texts.marks, axis=1),
            names=encoder.encode(words).vectors,
            classes=np.array(texts.classes),
            pool_size=np.array(texts.pool_size),
        )
        print(f"{name}: {texts.marks.shape}, {texts.marks.mean(axis=0).min():.4f} rarest")


def main() -> None:
    """Encode the sets into the folder that is given."""
    parser = make_parser(__doc__)
    parser.add_argument("features", type=Path)
    add_data_option(parser)
    arguments = parser.parse_args()
    encode(arguments.features, require_data(parser, arguments))


if __name__ == "__main__":
    main()
