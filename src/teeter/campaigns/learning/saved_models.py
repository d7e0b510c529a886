"""Save trained models with a checksum of their features, and load them for today's features.

A saved model is a safetensors file of named arrays:

==================  ==============================================================================
``places``          (L,) the indices of the items it was trained on
``labels``          (L,) their class indices
``unseen``          (L,) the class indices that models predict which were not trained on the item
``predicted``       (N,) the predicted class index of every item at that time
``confidence``      (N,) the calibrated probability of that class
``weight, bias``    (S, D) and (S,) the head, if it is linear or a pool head; ``seen`` (S,) has its
                    class indices
``model.K.NAME``    the arrays of network K, if the head is a network
``picking.NAME``    the same arrays of the model that picks, which does not know the random items
                    and has not learned from unlabelled ones
``centre, size``    (D,) and (1,) how the features were scaled; see ``FeatureScaler``
``checksum``        (1,) a checksum of the features
``temperature``     (1,) what the logits are divided by, so that probabilities are calibrated
==================  ==============================================================================

``build_classifier`` makes a classifier that needs no campaign from the newest model.

Merging classes leaves what models said, but not their layers: see ``replace_class``.

Adding items changes the scaling, but not what a model has learned: ``rescale_model`` rewrites the
first layer so that it computes the same from the new scaling. If the features themselves change,
the layers are useless and are dropped.

Only the functions that make models from arrays, or arrays from models, load torch or scikit-learn.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from teeter.base.version import __version__
from teeter.campaigns.learning.stopping import estimate_model_accuracy
from teeter.campaigns.records import ClassifierKind, join_labels
from teeter.classifier import Classifier, ClassifierHead, ClassifierInfo, Layer
from teeter.encoders import Encoder
from teeter.errors import InputError, StoreError

if TYPE_CHECKING:
    from torch import nn

    from teeter.campaigns.learning.rounds import RoundSettings, RoundState
    from teeter.learner.learner import Learner


Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

Vectors: TypeAlias = npt.NDArray[np.float32]

_FEATURE_INDEPENDENT = ("places", "labels", "unseen", "predicted", "sets")
"""The arrays of a saved model that stay valid if the features change."""

PICKING = "picking."
"""Before the names of the arrays of the model that picks."""

_UNSEEN_CLASS_GAP = 50.0
"""How far the logit of a class that was added later is below all others."""


@dataclass(frozen=True, eq=False)
class FeatureScaler:
    """How features are scaled for a model: ``(features - centre) / size``."""

    centre: npt.NDArray[np.float64]
    """(D,) the mean of the features."""
    size: float
    """The root mean square of the centred features."""
    checksums: npt.NDArray[np.int64]
    """(N,) for each row, a checksum of all rows up to it."""

    def to_arrays(self) -> Arrays:
        """Return the arrays that are saved with a model."""
        return {
            "centre": self.centre,
            "size": np.array([self.size]),
            "checksum": self.checksums[-1:].copy(),
        }


def scale_features(features: Vectors) -> tuple[Vectors, FeatureScaler]:
    """Return features with mean 0 and a mean square of 1, and how they were scaled.

    Args:
        features: Shape (N, D).

    Example:
        >>> scaled, scaler = scale_features(np.array([[1.0], [3.0]], np.float32))
        >>> scaled.tolist(), scaler.centre.tolist(), scaler.size
        ([[-1.0], [1.0]], [2.0], 1.0)
    """
    centre = features.mean(axis=0)
    scaled: Vectors = features - centre
    mean_square = np.square(scaled).mean()
    # Features that are all equal have no size to divide by.
    size = float(np.sqrt(mean_square)) or 1.0
    scaled /= size

    # Each checksum continues the one before, so that it covers all rows up to its own.
    checksums = np.zeros(len(features), dtype=np.int64)
    checksum = 0
    for k, row in enumerate(np.ascontiguousarray(features)):
        checksum = zlib.crc32(row, checksum)
        checksums[k] = checksum

    return scaled, FeatureScaler(
        centre.astype(np.float64),
        size,
        checksums,
    )


def load_arrays(weights: bytes) -> Arrays:
    """Return the arrays of a saved model.

    Raises:
        StoreError: If they cannot be read.
    """
    try:
        return load(weights)
    except (SafetensorError, ValueError, KeyError):
        raise StoreError(
            "The campaign is damaged: a model in it cannot be read. Restore a backup."
        ) from None


def predicted_names(arrays: Mapping[str, npt.NDArray[Any]], classes: Sequence[str]) -> list[str]:
    """Return what the numbers in ``predicted``, ``labels`` and ``unseen`` stand for.

    These are the classes, or the sets of labels that a model of several labels has.
    """
    if "sets" not in arrays:
        return list(classes)
    return join_marked(arrays["sets"], classes)


def join_marked(marks: npt.NDArray[Any], classes: Sequence[str]) -> list[str]:
    """Return the labels that each row of marks (N, K) has, as they are stored."""
    names = []
    for row in marks:
        positions = np.flatnonzero(row).tolist()
        names.append(join_labels(classes[k] for k in positions))
    return names


def load_temperature(weights: bytes) -> float:
    """Return what the logits of a saved model are divided by; 1 if it was never calibrated."""
    arrays = load_arrays(weights)
    if "temperature" not in arrays:
        return 1.0
    return float(arrays["temperature"][0])


def has_same_features(arrays: Arrays, scaler: FeatureScaler) -> bool:
    """Return whether the items that a saved model knows still have the same features."""
    n_items = len(arrays["predicted"])
    if "checksum" not in arrays or n_items > len(scaler.checksums):
        return False

    # Items are only ever appended, so the checksum of the first rows is still comparable.
    checksum_then = int(arrays["checksum"][0])
    checksum_now = int(scaler.checksums[n_items - 1])
    return checksum_then == checksum_now


def replace_class(weights: bytes, index: int, other: int | None) -> bytes:
    """Rewrite a saved model for the classes without one of them.

    It loses its layers: one for the sum of two probabilities does not exist. Who loads it trains it
    again on the same labels.

    Args:
        weights: the saved model.
        index: the index of the class that is no more.
        other: the index of the class that it became part of; None if no label named it.
    """
    arrays = load_arrays(weights)
    stays = {*_FEATURE_INDEPENDENT, "confidence"}
    kept = {name: array for name, array in arrays.items() if name in stays}
    if other is None:
        # The names of classes may have led the model to it. Nothing else can be said of such items,
        # so that a promise comes to them last.
        is_removed = kept["predicted"] == index
        if "confidence" in kept:
            kept["confidence"] = np.where(is_removed, 0, kept["confidence"])
        other = int(np.bincount(kept["labels"]).argmax())

    for name in kept.keys() & {"labels", "unseen", "predicted"}:
        numbers = kept[name]
        replaced = np.where(numbers == index, other, numbers)
        replaced -= replaced > index
        kept[name] = replaced.astype(numbers.dtype)
    return save(kept)


def rescale_model(weights: bytes, scaler: FeatureScaler) -> bytes | None:
    """Rewrite a saved model for the current scaling of the features.

    Args:
        weights: The saved model.
        scaler: The current scaling.

    Returns:
        The model with a new first layer, or without its layers if the features or the classes have
        changed; None if its labels are of one class since classes were merged.
    """
    arrays = load_arrays(weights)
    if len(np.unique(arrays["labels"])) < 2:
        return None
    if not has_same_features(arrays, scaler):
        still_true = {name: arrays[name] for name in arrays if name in _FEATURE_INDEPENDENT}
        return save(still_true)

    old_centre = arrays["centre"]
    old_size = float(arrays["size"][0])
    if old_size == scaler.size and np.array_equal(old_centre, scaler.centre):
        return weights

    # With raw features x = z * size + centre in the new scaling, the old input of the first layer
    # is (x - old_centre) / old_size = z * (size / old_size) + (centre - old_centre) / old_size.
    shift = (scaler.centre - old_centre) / old_size
    ratio = scaler.size / old_size
    for weight_name, bias_name in _first_layers(arrays):
        weight = arrays[weight_name]
        bias = arrays[bias_name]
        # Summed in double precision, then stored in the precision of the layer.
        moved_bias = bias + weight.astype(np.float64) @ shift
        arrays[bias_name] = moved_bias.astype(bias.dtype)
        arrays[weight_name] = np.ascontiguousarray(weight * ratio, dtype=weight.dtype)

    return save(arrays)


def _first_layers(arrays: Arrays) -> list[tuple[str, str]]:
    """Return the names of the weight and the bias of each layer that reads the features."""
    layers = []
    for prefix in ("", PICKING):
        for name in arrays:
            # In our networks, module 0 is a Flatten and module 1 the first linear layer.
            is_network = name.startswith(f"{prefix}model.") and name.endswith(".1.weight")
            if is_network or name == f"{prefix}weight":
                layer = name.removesuffix("weight")
                layers.append((name, f"{layer}bias"))
    return layers


def dump_layers(learner: Learner) -> Arrays:
    """Return everything that a learner's models have learned, as named arrays.

    These are ``weight``, ``bias`` and ``seen`` of a linear head, or the layers of networks.
    """
    from torch import nn

    arrays: Arrays = {}
    for k, model in enumerate(learner.models):
        if isinstance(model, nn.Module):
            for name, value in model.state_dict().items():
                arrays[f"model.{k}.{name}"] = value.numpy().copy()
    if arrays:
        return arrays

    outputs = learner.observe(learner.data[:1], ("features", "head"))
    if outputs.weight is None or outputs.bias is None:
        return {}

    weight = outputs.weight.numpy()
    bias = outputs.bias.numpy()
    seen = learner.models[0].classes_
    # safetensors ignores strides: it would write a transposed array in the wrong order.
    return {
        "weight": np.ascontiguousarray(weight),
        "bias": np.ascontiguousarray(bias),
        "seen": np.asarray(seen, dtype=np.int64),
    }


def load_models(arrays: Arrays, head: str, width: int, n_classes: int) -> list[Any]:
    """Return the models of a saved file.

    Args:
        arrays: The arrays of the file.
        head: One of ``ClassifierKind``.
        width: D, the number of features of the items now.
        n_classes: C, the number of classes now, which may be more than the model knows.

    Returns:
        The models, or an empty list if their layers were dropped or have another width.
    """
    if head == ClassifierKind.MLP:
        numbers = {name.split(".")[1] for name in arrays if name.startswith("model.")}
        networks = []
        for k in range(len(numbers)):
            network = _load_network(arrays, f"model.{k}.", width, n_classes)
            networks.append(network)
        return networks

    if "weight" not in arrays or arrays["weight"].shape[1] != width:
        return []

    weight = arrays["weight"]
    bias = arrays["bias"]
    # scikit-learn has a single row for two classes: the difference of their logits.
    if len(weight) == 2:
        weight = weight[1:] - weight[:1]
        bias = bias[1:] - bias[:1]

    from teeter.models.pool_head import ExampleRegression

    # A pool head is a linear head once it is trained.
    model = ExampleRegression()
    model.coef_ = weight
    model.intercept_ = bias
    model.classes_ = arrays["seen"]
    model.n_features_in_ = width
    return [model]


def _load_network(arrays: Arrays, prefix: str, width: int, n_classes: int) -> nn.Module:
    import torch

    from teeter.models.networks import mlp

    network = mlp(width, n_classes, seed=0)
    layers = {name: arrays[prefix + name] for name in network.state_dict()}

    # Classes that were added after the training get a logit that is never the largest.
    # A state dict keeps the order of the layers, so the last two entries are the output layer.
    weight_name, bias_name = list(layers)[-2:]
    weight = layers[weight_name]
    bias = layers[bias_name]
    n_added = n_classes - len(bias)
    if n_added > 0:
        lowest = float(bias.min()) - _UNSEEN_CLASS_GAP
        layers[weight_name] = np.pad(weight, ((0, n_added), (0, 0)))
        layers[bias_name] = np.pad(bias, (0, n_added), constant_values=lowest)

    tensors = {}
    for name, value in layers.items():
        # safetensors returns read-only arrays.
        copied = np.array(value)
        tensors[name] = torch.from_numpy(copied)
    network.load_state_dict(tensors)
    return network.eval()


def build_classifier(
    state: RoundState,
    settings: RoundSettings,
    encoder: Encoder | None,
    *,
    campaign: str,
    facts: Mapping[str, Any] | None,
) -> Classifier:
    """Return the newest model as a classifier that needs no campaign.

    Args:
        state: the items and the newest model.
        settings: how the campaign trains.
        encoder: computes the features of new items; None if items are features.
        campaign: the name of the campaign.
        facts: what is known of the newest model.

    Raises:
        InputError: there is no model yet.
    """
    from teeter.campaigns.learning.training import load_learner

    if state.several:
        raise InputError(
            "A model of several labels cannot be used without its campaign yet: an export has its "
            "predictions for all items."
        )
    if state.weights is None or state.scaler is None or facts is None:
        raise InputError("There is no model yet: label items of at least two classes, then train.")

    # Of an ensemble, the first network is the model that predicts.
    learner = load_learner(state, settings)
    arrays = dump_layers(learner)
    classes, layers = _read_layers(arrays, state.classes)

    estimate = estimate_model_accuracy(facts)
    accuracy = None
    if estimate is not None:
        accuracy = (estimate.share, estimate.low, estimate.high)

    head = ClassifierHead(
        state.scaler.centre, state.scaler.size, layers, load_temperature(state.weights)
    )
    info = ClassifierInfo(
        campaign=campaign,
        model=state.version,
        labels=int(facts["labels"]),
        teeter=__version__,
        accuracy=accuracy,
    )
    return Classifier(classes, head, encoder, info)


def _read_layers(
    arrays: Arrays, all_classes: tuple[str, ...]
) -> tuple[list[str], tuple[Layer, ...]]:
    """Return the classes of the outputs, and the layers from the first to the last."""
    if "weight" in arrays:
        classes = [all_classes[k] for k in arrays["seen"]]
        return classes, (Layer(arrays["weight"], arrays["bias"]),)

    # The names of a network's arrays are "model.0.LAYER.weight" and "model.0.LAYER.bias".
    prefix = "model.0."
    numbers = sorted(
        int(name.removeprefix(prefix).removesuffix(".weight"))
        for name in arrays
        if name.startswith(prefix) and name.endswith(".weight")
    )
    layers = []
    for number in numbers:
        weight = np.asarray(arrays[f"{prefix}{number}.weight"], dtype=np.float32)
        bias = np.asarray(arrays[f"{prefix}{number}.bias"], dtype=np.float32)
        layers.append(Layer(weight, bias))
    return list(all_classes), tuple(layers)
