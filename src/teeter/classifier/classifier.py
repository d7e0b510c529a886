"""A trained classifier: an encoder that computes features, and a head that predicts from them.

The head is computed with NumPy. torch is loaded only by encoders that are networks themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.encoders import Encoder, Encoding
from teeter.errors import InputError

__all__ = ["Classifier", "ClassifierHead", "ClassifierInfo", "Layer", "Prediction", "require_texts"]

Floats: TypeAlias = npt.NDArray[np.float64]
ProgressReport: TypeAlias = Callable[[int, int], None]
"""Called with the number of labelled contents and the number of all contents."""

CHUNK = 1024
"""Contents that are encoded and labelled at a time."""


@dataclass(frozen=True, eq=False)
class Layer:
    """A linear layer."""

    weight: npt.NDArray[np.float32]
    """(outputs, inputs)."""
    bias: npt.NDArray[np.float32]
    """(outputs,)."""


@dataclass(frozen=True, eq=False)
class ClassifierHead:
    """What turns features into probabilities: scaling, linear layers with ReLU between, softmax."""

    centre: Floats
    """(D,) is subtracted from the features."""
    size: float
    """The centred features are divided by it."""
    layers: tuple[Layer, ...]
    """One layer if the head is linear."""
    temperature: float = 1.0
    """The logits are divided by it, so that the probabilities are calibrated."""

    def probabilities(self, features: npt.NDArray[np.floating[Any]]) -> Floats:
        """Return the probability of each class: (N, D) -> (N, C)."""
        hidden: Floats = (features.astype(np.float64) - self.centre) / self.size
        *hidden_layers, last_layer = self.layers
        for layer in hidden_layers:
            hidden = np.maximum(hidden @ layer.weight.T.astype(np.float64) + layer.bias, 0)

        logits = hidden @ last_layer.weight.T.astype(np.float64) + last_layer.bias
        logits /= self.temperature
        # The largest logit becomes 0, so that exp cannot overflow.
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities: Floats = exponentials / exponentials.sum(axis=1, keepdims=True)
        return probabilities


@dataclass(frozen=True)
class ClassifierInfo:
    """Where a classifier comes from."""

    campaign: str
    """The name of the campaign."""
    model: int
    """The number of the model in the campaign."""
    labels: int
    """Number of labels that it was trained on."""
    teeter: str
    """The version of teeter that trained it."""
    accuracy: tuple[float, float, float] | None = None
    """The estimated accuracy with its 95 % confidence interval: share, low, high."""


@dataclass(frozen=True)
class Prediction:
    """The most probable class of a text, image or row of features."""

    label: str | None
    """None if the content cannot be read."""
    probability: float | None
    """The calibrated probability of the class."""
    problem: str | None = None
    """Why the content cannot be read."""


class Classifier:
    """Predicts the classes of new contents.

    ``Campaign.classifier`` makes one, ``save_classifier`` and ``load_classifier`` keep it in a
    folder.

    Args:
        classes: the names of the classes, in the order of the head's outputs.
        head: what was trained.
        encoder: computes features of texts or images. None if contents are features themselves.
        info: where the classifier comes from.
    """

    def __init__(
        self,
        classes: Sequence[str],
        head: ClassifierHead,
        encoder: Encoder | None,
        info: ClassifierInfo,
    ) -> None:
        self.classes = tuple(classes)
        self.head = head
        self.encoder = encoder
        self.info = info

    def predict_proba(self, contents: Sequence[Any]) -> Floats:
        """Return the calibrated probability of each class.

        Args:
            contents: N texts, paths of N images, or (N, D) features.

        Returns:
            (N, C), with columns in the order of ``classes``.

        Raises:
            InputError: a content cannot be read.
        """
        chunks = []
        for start, encoding in self._encode(contents):
            # The vector of an unreadable content is zero, and its probabilities would look real.
            for row, problem in sorted(encoding.unreadable.items()):
                raise InputError(f"Content {start + row} cannot be read: {problem}")
            chunks.append(self.head.probabilities(encoding.vectors))

        if not chunks:
            return np.zeros((0, len(self.classes)))
        return np.concatenate(chunks)

    def predict(self, contents: Sequence[Any]) -> list[str]:
        """Return the most probable class of each content.

        Args:
            contents: as for ``predict_proba``.

        Raises:
            InputError: a content cannot be read.
        """
        return [self.classes[k] for k in self.predict_proba(contents).argmax(axis=1)]

    def label(
        self, contents: Sequence[Any], progress: ProgressReport | None = None
    ) -> list[Prediction]:
        """Return the most probable class of each content with its probability.

        A content that cannot be read does not stop the others.

        Args:
            contents: as for ``predict_proba``.
            progress: called after each chunk.
        """
        predictions: list[Prediction] = []
        for _, encoding in self._encode(contents):
            probabilities = self.head.probabilities(encoding.vectors)
            highest = probabilities.argmax(axis=1)
            for row, k in enumerate(highest):
                problem = encoding.unreadable.get(row)
                if problem is None:
                    prediction = Prediction(self.classes[k], float(probabilities[row, k]))
                else:
                    prediction = Prediction(None, None, problem)
                predictions.append(prediction)

            if progress is not None:
                progress(len(predictions), len(contents))
        return predictions

    def _encode(self, contents: Sequence[Any]) -> Iterator[tuple[int, Encoding]]:
        """Yield the features of contents chunk by chunk, with the number of the first content."""
        # A text is a sequence too, and each of its letters would be labelled.
        if isinstance(contents, str):
            raise InputError("This is a single text: give a list of texts.")

        if self.encoder is not None:
            contents = require_texts(contents)

        for start in range(0, len(contents), CHUNK):
            chunk = contents[start : start + CHUNK]
            if self.encoder is None:
                encoding = Encoding(self._require_features(chunk))
            else:
                # Images may be given as Path objects, but encoders take strings.
                encoding = self.encoder.encode([str(content) for content in chunk])
            yield start, encoding

    def _require_features(self, rows: Sequence[Any]) -> npt.NDArray[np.float32]:
        """Return rows of features as an array.

        Raises:
            InputError: they are not numbers, or not as many as the classifier was trained on.
        """
        width = len(self.head.centre)
        try:
            features = np.asarray(rows, dtype=np.float32)
        except (TypeError, ValueError):
            raise InputError(
                f"This classifier was trained on features: give rows of {width} numbers."
            ) from None

        if features.ndim != 2 or features.shape[1] != width:
            raise InputError(
                f"This classifier was trained on {width} features per item, but the data has the "
                f"shape {features.shape}."
            )
        # The probabilities of a row with NaN are NaN, and argmax would still name a class.
        if not np.isfinite(features).all():
            raise InputError("The features have values that are missing or infinite: replace them.")
        return features


def require_texts(contents: Sequence[Any]) -> list[Any]:
    """Return texts or paths as a list.

    Raises:
        InputError: they are something else, such as a data frame, which would be read as its column
            names, or a missing value, which would be read as the text "nan".
    """
    if hasattr(contents, "columns") or hasattr(contents, "to_frame"):
        raise InputError(
            f"Cannot predict a {type(contents).__name__}: give a list of texts, such as "
            "frame['text'].tolist()."
        )

    contents = list(contents)
    for position, content in enumerate(contents):
        if not isinstance(content, str | Path):
            raise InputError(
                f"Content {position} is of type {type(content).__name__}: give a list of texts or "
                "paths."
            )
    return contents
