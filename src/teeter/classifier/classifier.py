"""A trained classifier: an encoder that computes features, and a head that predicts from them.

The head is computed with NumPy. torch is loaded only by encoders that are networks themselves.

A classifier is saved to a folder of JSON and safetensors files. Loading runs no code from it.

========================  ========================================================================
``model.json``            classes, encoder, and where the classifier comes from
``head.safetensors``      the scaling and the layers of the head
``encoder.safetensors``   what the encoder learned from the items; absent for features
========================  ========================================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.base.files import atomic_write, write_errors
from teeter.encoders import (
    ContentKind,
    Encoder,
    EncoderState,
    Encoding,
    is_own_encoder,
    make_encoder,
)
from teeter.errors import FileError, InputError, MissingExtraError

__all__ = [
    "CHUNK",
    "FORMAT",
    "OPSET",
    "Classifier",
    "ClassifierHead",
    "ClassifierInfo",
    "Floats",
    "Layer",
    "Prediction",
    "ProgressReport",
    "load_classifier",
    "require_texts",
    "save_classifier",
    "write_onnx_head",
]

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
            weight = layer.weight.astype(np.float64)
            hidden = np.maximum(hidden @ weight.T + layer.bias, 0)

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
        most_probable = self.predict_proba(contents).argmax(axis=1)
        return [self.classes[k] for k in most_probable]

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
                    probability = float(probabilities[row, k])
                    prediction = Prediction(self.classes[k], probability)
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
                width = len(self.head.centre)
                try:
                    features = np.asarray(chunk, dtype=np.float32)
                except (TypeError, ValueError):
                    raise InputError(
                        f"This classifier was trained on features: give rows of {width} numbers."
                    ) from None

                if features.ndim != 2 or features.shape[1] != width:
                    raise InputError(
                        f"This classifier was trained on {width} features per item, but the data "
                        f"has the shape {features.shape}."
                    )
                # The probabilities of a row with NaN are NaN, and argmax would still name a class.
                if not np.isfinite(features).all():
                    raise InputError(
                        "The features have values that are missing or infinite: replace them."
                    )
                encoding = Encoding(features)
            else:
                # Images may be given as Path objects, but encoders take strings.
                encoding = self.encoder.encode([str(content) for content in chunk])
            yield start, encoding


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


FORMAT = 1
"""Changes whenever an older version of teeter could not read the folder."""

_DESCRIPTION = "model.json"
_HEAD = "head.safetensors"
_ENCODER = "encoder.safetensors"


def save_classifier(classifier: Classifier, folder: str | Path) -> None:
    """Write a classifier to a new folder.

    Args:
        classifier: the classifier.
        folder: is created. It must not have any files.

    Raises:
        FileError: the folder has files, or cannot be written.
    """
    folder = Path(folder)
    is_empty_folder = folder.is_dir() and not any(folder.iterdir())
    if folder.exists() and not is_empty_folder:
        raise FileError(f"{folder} already exists: choose another folder.")

    from safetensors.numpy import save

    head = classifier.head
    arrays = {"centre": head.centre, "size": np.array([head.size])}
    for number, layer in enumerate(head.layers):
        # safetensors ignores strides: it would write a transposed array in the wrong order.
        arrays[f"layers.{number}.weight"] = np.ascontiguousarray(layer.weight)
        arrays[f"layers.{number}.bias"] = np.ascontiguousarray(layer.bias)

    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / _HEAD, save(arrays))
        if classifier.encoder is not None:
            atomic_write(folder / _ENCODER, classifier.encoder.state().to_bytes())
        # Written last: a folder with a description is complete.
        description = json.dumps(_describe(classifier), ensure_ascii=False, indent=2)
        atomic_write(folder / _DESCRIPTION, f"{description}\n".encode())
    except OSError as error:
        raise FileError(f"Cannot write {folder}: {error.strerror or error}.") from None


def _describe(classifier: Classifier) -> dict[str, Any]:
    encoder = None
    if classifier.encoder is not None:
        encoder = {
            "name": classifier.encoder.name,
            "kind": str(classifier.encoder.kind),
            "version": classifier.encoder.version,
            "checksum": classifier.encoder.checksum,
        }
    return {
        "format": FORMAT,
        "classes": list(classifier.classes),
        "layers": len(classifier.head.layers),
        "temperature": classifier.head.temperature,
        "encoder": encoder,
        "info": asdict(classifier.info),
    }


def load_classifier(folder: str | Path, *, allow_encoder: bool = False) -> Classifier:
    """Load a classifier from a folder.

    Args:
        folder: what ``save_classifier`` or ``teeter campaign model`` wrote.
        allow_encoder: use an encoder that is not one of teeter's own too. Such an encoder may
            import a module, download a model, or send texts to a server. Allow it only for a
            folder that you trust.

    Raises:
        FileError: the folder is not a classifier, or is damaged.
        InputError: the encoder is not the one that the classifier was trained with.
        MissingExtraError: the package of the encoder is not installed.

    Example:
        >>> import tempfile
        >>> layer = Layer(np.eye(2, dtype="f"), np.zeros(2, dtype="f"))
        >>> head = ClassifierHead(np.zeros(2), 1.0, (layer,))
        >>> info = ClassifierInfo("demo", model=1, labels=10, teeter="0.1.0")
        >>> path = Path(tempfile.mkdtemp()) / "model"
        >>> save_classifier(Classifier(["no", "yes"], head, None, info), path)
        >>> load_classifier(path).predict([[0.0, 3.0]])
        ['yes']
    """
    folder = Path(folder)
    description = _read_description(folder)
    # Checked first, because the other entries may mean something else in another format.
    if description.get("format") != FORMAT:
        raise FileError(
            f"{folder} was written by another version of teeter, in a format that this version "
            f"cannot read."
        )

    try:
        head = _read_head(folder, description)
        info = _read_info(description["info"])
        classes = [_require_printable(name) for name in description["classes"]]
        # A text or an object can be iterated as well, but its parts are not classes.
        has_duplicates = len(set(classes)) < len(classes)
        if not isinstance(description["classes"], list) or has_duplicates:
            raise _damaged(folder)
        stored_encoder = description["encoder"]
        if stored_encoder is not None:
            stored_encoder = {
                name: str(stored_encoder[name]) for name in ("name", "kind", "version", "checksum")
            }
            # Raises ValueError for an unknown kind: the folder is damaged then.
            ContentKind(stored_encoder["kind"])
    # OverflowError: an integer of JSON may have more digits than a float holds.
    except (AttributeError, LookupError, OverflowError, TypeError, ValueError):
        raise _damaged(folder) from None

    # Too few names would fail at some later prediction, too many would never be noticed.
    last_layer = head.layers[-1]
    if len(last_layer.bias) != len(classes):
        raise _damaged(folder)

    encoder = None
    if stored_encoder is not None:
        encoder = _load_encoder(folder, stored_encoder, allow_encoder=allow_encoder)
    return Classifier(classes, head, encoder, info)


def _read_info(values: dict[str, Any]) -> ClassifierInfo:
    accuracy = values["accuracy"]
    if accuracy is not None:
        share, low, high = accuracy
        accuracy = (float(share), float(low), float(high))
        if not all(0 <= value <= 1 for value in accuracy):
            raise ValueError("an accuracy and its interval must be shares")
    return ClassifierInfo(
        campaign=_require_printable(values["campaign"]),
        model=int(values["model"]),
        labels=int(values["labels"]),
        teeter=_require_printable(values["teeter"]),
        accuracy=accuracy,
    )


def _require_printable(text: Any) -> str:
    """Return a text that a terminal may show."""
    # The folder may come from anyone, and control characters can rewrite a terminal's screen.
    if not isinstance(text, str) or not text.isprintable():
        raise ValueError("not a printable string")
    return text


def _read_description(folder: Path) -> dict[str, Any]:
    try:
        description = json.loads((folder / _DESCRIPTION).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise FileError(
            f"{folder} is not a model: it has no file {_DESCRIPTION}. Create a model folder with "
            f"teeter campaign model."
        ) from None
    except OSError as error:
        raise FileError(f"Cannot read {folder}: {error.strerror}.") from None
    except (UnicodeDecodeError, ValueError, RecursionError):
        # json raises RecursionError for thousands of nested brackets.
        raise _damaged(folder) from None

    if not isinstance(description, dict):
        raise _damaged(folder)
    return description


def _read_head(folder: Path, description: dict[str, Any]) -> ClassifierHead:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load((folder / _HEAD).read_bytes())
    except (OSError, SafetensorError, ValueError):
        raise _damaged(folder) from None

    layers = []
    width = len(arrays["centre"])
    for number in range(int(description["layers"])):
        weight = arrays[f"layers.{number}.weight"]
        bias = arrays[f"layers.{number}.bias"]
        if weight.shape != (len(bias), width):
            raise _damaged(folder)
        width = len(bias)
        layers.append(Layer(weight, bias))

    size = float(arrays["size"][0])
    temperature = float(description["temperature"])
    # With NaN or infinite weights, predictions would be wrong without any error.
    is_finite = all(np.isfinite(array).all() for array in arrays.values())
    is_positive = size > 0 and 0 < temperature < np.inf
    if not layers or not is_finite or not is_positive:
        raise _damaged(folder)
    return ClassifierHead(arrays["centre"], size, tuple(layers), temperature)


def _load_encoder(folder: Path, stored: dict[str, Any], *, allow_encoder: bool) -> Encoder:
    """Make the encoder that a classifier was trained with, and restore what it learned."""
    name = str(stored["name"])
    # Before make_encoder, which may already import a module or contact a server.
    if not allow_encoder and not is_own_encoder(name):
        raise InputError(
            f"{folder} uses the encoder {name[:80]!r}, which may run code or contact a server: "
            f"if you trust the folder, load it with allow_encoder=True."
        )

    encoder = make_encoder(name, str(stored["kind"]))
    # Another version computes other features, on which the head was not trained.
    stored_version = stored["version"], stored["checksum"]
    if (encoder.version, encoder.checksum) != stored_version:
        raise InputError(
            f"The encoder {name} that is installed differs from the one that {folder} was trained "
            f"with: install the same version of its package."
        )

    try:
        state = EncoderState.from_bytes((folder / _ENCODER).read_bytes())
        is_finite = all(np.isfinite(array).all() for array in state.arrays.values())
        encoder.restore(state)
    except (OSError, AttributeError, LookupError, OverflowError, TypeError, ValueError):
        raise _damaged(folder) from None

    if not is_finite:
        raise _damaged(folder)
    return encoder


def _damaged(folder: Path) -> FileError:
    return FileError(f"{folder} is damaged: export the model again.")


OPSET = 17
"""The version of ONNX's operators. Those used here are the same in all later ones."""


def write_onnx_head(classifier: Classifier, path: str | Path) -> None:
    """Write the scaling, the layers and the softmax of a classifier as an ONNX model.

    Its input ``features`` (N, D) is what the encoder computes, its output ``probabilities`` (N, C)
    has the calibrated probability of each class. The classes are in the metadata.

    Args:
        classifier: the classifier.
        path: the file to write. It must not exist.

    Raises:
        FileError: the file exists or cannot be written.
        MissingExtraError: onnx is not installed.
    """
    path = Path(path)
    if path.exists():
        raise FileError(f"{path} already exists: choose another file.")

    model = _build_model(classifier)
    with write_errors(path):
        atomic_write(path, model.SerializeToString())


def _build_model(classifier: Classifier) -> Any:
    try:
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        raise MissingExtraError("Writing ONNX needs onnx: pip install 'teeter[onnx]'.") from None

    head = classifier.head
    # All float32, like the features: ONNX operators do not mix types.
    constants = {
        "centre": head.centre.astype(np.float32),
        "size": np.array([head.size], np.float32),
        "temperature": np.array([head.temperature], np.float32),
    }
    nodes = [
        helper.make_node("Sub", ["features", "centre"], ["centred"]),
        helper.make_node("Div", ["centred", "size"], ["layer_0"]),
    ]

    last_number = len(head.layers) - 1
    for number, layer in enumerate(head.layers):
        constants[f"weight_{number}"] = layer.weight.astype(np.float32)
        constants[f"bias_{number}"] = layer.bias.astype(np.float32)
        output = f"linear_{number}"
        if number == last_number:
            output = "logits"
        inputs = [f"layer_{number}", f"weight_{number}", f"bias_{number}"]
        # transB, because weights are stored as (outputs, inputs).
        nodes.append(helper.make_node("Gemm", inputs, [output], transB=1))
        if number < last_number:
            next_input = f"layer_{number + 1}"
            nodes.append(helper.make_node("Relu", [output], [next_input]))

    nodes.append(helper.make_node("Div", ["logits", "temperature"], ["scaled_logits"]))
    nodes.append(helper.make_node("Softmax", ["scaled_logits"], ["probabilities"], axis=1))

    width = len(head.centre)
    n_classes = len(classifier.classes)
    value_info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "teeter_head",
        inputs=[value_info("features", TensorProto.FLOAT, ["items", width])],
        outputs=[value_info("probabilities", TensorProto.FLOAT, ["items", n_classes])],
        initializer=[numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opset = helper.make_opsetid("", OPSET)
    model = helper.make_model(graph, opset_imports=[opset])

    metadata = {"classes": "\n".join(classifier.classes), "encoder": ""}
    if classifier.encoder is not None:
        metadata["encoder"] = classifier.encoder.name
    helper.set_model_props(model, metadata)
    return model
