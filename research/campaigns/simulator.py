"""A campaign in memory, on features, labelled by somebody who knows every answer.

It picks and trains with the functions that campaigns use, without a database. The scripts that
measure campaigns, priors and pool heads share it, and the features that ``encode`` writes:

    python research/campaigns/simulator.py FEATURES --data FOLDER    # default: $TEETER_DATA

FOLDER holds banking77.json.xz, goemotions.json.xz, hwu64.json.xz, sms_spam.tsv.xz, mnist.npz,
isolet.npz, letter.npz and, for photographs, cifar10.npz (see
research/paper/convert_cifar10_sheets.py).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

sys.path.append(str(Path(__file__).parents[2]))

from research.labelling import (
    TextDataset,
    add_data_option,
    make_parser,
    read_banking77,
    read_goemotions,
    read_hwu64,
    read_sms_spam,
    require_data,
)

Vectors = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

TEXTS = {
    "banking77": read_banking77,
    "goemotions": read_goemotions,
    "hwu64": read_hwu64,
    "sms_spam": read_sms_spam,
}

MAX_ROWS = 12_000
"""Rows that are drawn of larger datasets that are not texts; a sixth of them is for testing."""


# Features


@dataclass(frozen=True, eq=False)
class EncodedDataset:
    """A dataset as an encoder sees it."""

    features: Vectors
    """(N, D), the rows of the pool first."""
    labels: Integers
    """(N,) class indices."""
    pool_size: int
    names: Vectors | None = None
    """(C, D) the words of the class names, if items are texts."""
    classes: tuple[str, ...] = ()
    """(C,) the class names, where they matter."""

    @property
    def n_classes(self) -> int:
        return int(self.labels.max()) + 1

    @property
    def test_features(self) -> Vectors:
        return self.features[self.pool_size :]

    @property
    def test_labels(self) -> Integers:
        return self.labels[self.pool_size :]


def read_features(name: str, folder: Path) -> EncodedDataset:
    """Read what ``encode`` has written."""
    stored = np.load(folder / f"{name}.npz")
    return EncodedDataset(
        stored["features"].astype(np.float32),
        stored["labels"].astype(np.int64),
        int(stored["pool_size"]),
        stored.get("names"),
    )


def split_again(data: EncodedDataset, test_share: float, seed: int) -> EncodedDataset:
    """Return a dataset with other test rows, drawn from all rows."""
    order = np.random.default_rng(seed).permutation(len(data.labels))
    pool_size = len(order) - int(test_share * len(order))
    return replace(
        data, features=data.features[order], labels=data.labels[order], pool_size=pool_size
    )


def encode(folder: Path, data: Path) -> None:
    """Write the features of all datasets that are not there yet, in half precision."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, read in TEXTS.items():
        if not (folder / f"{name}.npz").exists():
            encode_texts(folder / f"{name}.npz", read(data))
    if (data / "cifar10.npz").exists() and not (folder / "cifar10.npz").exists():
        encode_photographs(folder / "cifar10.npz", np.load(data / "cifar10.npz"))

    mnist = np.load(data / "mnist.npz")
    pixels = mnist["x_train"].reshape(-1, 784)
    write_rows(folder / "mnist.npz", pixels, mnist["y_train"])
    write_rows(folder / "mnist_large.npz", pixels, mnist["y_train"], rows=2 * MAX_ROWS)
    isolet = np.load(data / "isolet.npz")
    write_rows(folder / "isolet.npz", isolet["x_e4"] / 10_000, isolet["y"])
    letter = np.load(data / "letter.npz")
    write_rows(folder / "letter.npz", letter["x"], letter["y"])
    write_rows(folder / "digits.npz", *load_digits(return_X_y=True))


def encode_texts(file: Path, data: TextDataset) -> None:
    """Encode texts and the words of their class names."""
    from teeter.campaigns.classes import class_texts
    from teeter.encoders import make_encoder

    encoder = make_encoder("minilm", "text")
    words = [class_texts(name, None)[0] for name in data.classes]
    np.savez(
        file,
        features=encoder.encode(data.texts).vectors.astype(np.float16),
        labels=data.labels.astype(np.int16),
        names=encoder.encode(words).vectors,
        pool_size=np.array(data.pool_size),
    )


def encode_photographs(file: Path, images: Mapping[str, Any]) -> None:
    """Encode 7,500 photographs, of which the last 1,500 are test rows."""
    from PIL import Image

    from teeter.encoders import make_encoder

    encoder = make_encoder("efficientnet-lite0", "image")
    generator = np.random.default_rng(0)
    vectors = []
    labels = []
    for part, count in (("train", 6_000), ("test", 1_500)):
        rows = generator.choice(len(images[f"y_{part}"]), count, replace=False)
        labels.append(images[f"y_{part}"][rows])
        with tempfile.TemporaryDirectory() as folder:
            paths = [str(Path(folder) / f"{row}.png") for row in rows]
            for path, picture in zip(paths, images[f"x_{part}"][rows], strict=True):
                Image.fromarray(picture).save(path)
            vectors.append(encoder.encode(paths).vectors)
    np.savez(
        file,
        features=np.concatenate(vectors).astype(np.float16),
        labels=np.concatenate(labels).astype(np.int16),
        pool_size=np.array(6_000),
    )


def write_rows(
    file: Path, inputs: npt.NDArray[Any], labels: npt.NDArray[Any], *, rows: int = MAX_ROWS
) -> None:
    """Write rows that have no published test rows."""
    order = np.random.default_rng(0).permutation(len(inputs))[:rows]
    np.savez_compressed(
        file,
        features=inputs[order].astype(np.float16),
        labels=labels[order].astype(np.int16),
        pool_size=np.array(len(order) * 5 // 6),
    )


# Campaigns


class SimulatedCampaign:
    """A campaign on features, with true answers.

    Args:
        features: (N, D) the items.
        truth: (N,) their classes.
        n_classes: C, the number of classes.
        strategy: picks items; with "random", all labels are a random sample.
        head: one of ``ClassifierKind``.
        control: the share of control items. Default: that of campaigns.
        seed: the seed of the campaign.
        names: (C, D) what stands for the classes before the first label.
    """

    def __init__(
        self,
        features: Vectors,
        truth: Integers,
        n_classes: int,
        *,
        strategy: str = "ldm-s",
        head: str = "pool",
        control: float | None = None,
        seed: int = 0,
        names: Vectors | None = None,
    ) -> None:
        from teeter.campaigns.learning.prior import CLASS_NAMES, ClassPrior
        from teeter.campaigns.learning.rounds import RoundSettings, RoundState
        from teeter.campaigns.learning.saved_models import scale_features
        from teeter.campaigns.settings import Settings

        scaled, self.scaler = scale_features(features)
        self.truth = truth
        if control is None:
            control = Settings().control
        self.settings = RoundSettings(strategy, {}, head, control=control, seed=seed)
        prior = None
        if names is not None:
            origins = (CLASS_NAMES,) * len(names)
            prior = ClassPrior(self.scale(names), np.arange(len(names)), origins)
        none: frozenset[int] = frozenset()
        self.state = RoundState(
            keys=[str(row) for row in range(len(features))],
            features=scaled,
            classes=tuple(str(k) for k in range(n_classes)),
            labels={},
            holdout={},
            control=none,
            random=none,
            taken=none,
            version=0,
            weights=None,
            batches=0,
            scaler=self.scaler,
            prior=prior,
        )

    def scale(self, rows: Vectors) -> Vectors:
        """Return other rows, scaled like the items."""
        scaled: Vectors = ((rows - self.scaler.centre) / self.scaler.size).astype(np.float32)
        return scaled

    def pick(self, n: int) -> tuple[list[int], list[int]]:
        """Return the rows to ask about, and the rows that were drawn as control items."""
        from teeter.campaigns.asking.selection import choose_picks

        picks = choose_picks(self.state, self.settings, n)
        asked = [int(pick.item) for pick in picks if pick.asked]
        return asked, [int(pick.item) for pick in picks if pick.arm.is_random]

    def tell(self, rows: Iterable[int], control: Iterable[int] = ()) -> None:
        """Answer correctly; a batch is over."""
        labels = dict(self.state.labels)
        for row in rows:
            labels[row] = str(self.truth[row])
        drawn = self.state.control | set(control)
        is_random = self.settings.strategy == "random"
        self.state = replace(
            self.state,
            labels=labels,
            control=drawn,
            random=drawn | frozenset(labels) if is_random else drawn,
            taken=frozenset(labels),
            batches=self.state.batches + 1,
        )

    def label(self, n: int) -> None:
        """Pick n items and answer them."""
        self.tell(*self.pick(n))

    def train(self) -> dict[str, Any] | None:
        """Train a model and return what is known of it; None if only one class has labels."""
        from teeter.campaigns.learning.training import train_model

        if len(set(self.state.labels.values())) < 2:
            return None
        weights, facts = train_model(self.state, self.settings)
        self.state = replace(self.state, weights=weights, version=self.state.version + 1)
        return dict(facts)

    def predict(self, rows: Vectors) -> Integers:
        """Return the classes of rows that are not scaled.

        Without a model it is the only class that has a label.
        """
        from teeter.campaigns.learning.saved_models import load_arrays

        if self.state.weights is None:
            (only,) = set(self.state.labels.values())
            return np.full(len(rows), int(only))
        model = load_arrays(self.state.weights)
        logits = self.scale(rows) @ model["weight"].T + model["bias"]
        predicted: Integers = model["seen"][logits.argmax(axis=1)]
        return predicted


def measure(truth: Integers, predicted: Integers, positive: int | None = None) -> dict[str, float]:
    """Return the accuracy and, for a rare class, its recall ("found") and F1 score."""
    measures = {"accuracy": float((truth == predicted).mean())}
    if positive is not None:
        hits = int(((truth == positive) & (predicted == positive)).sum())
        n_positive = int((truth == positive).sum())
        n_predicted = int((predicted == positive).sum())
        measures["found"] = hits / n_positive
        measures["f1"] = 2 * hits / max(1, n_positive + n_predicted)
    return measures


def record(curves: dict[str, list[float]], measures: Mapping[str, float]) -> None:
    """Append a value to the curve of each measure."""
    for name, value in measures.items():
        curves.setdefault(name, []).append(round(value, 5))


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("features", type=Path, help="the folder to write")
    add_data_option(parser)
    options = parser.parse_args()
    encode(options.features, require_data(parser, options))


if __name__ == "__main__":
    main()
