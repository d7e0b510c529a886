"""Models as they are kept: every layer, and a mark that tells whether the features they read are still the same."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.numpy import load, save
from torch import nn

from teeter.campaigns.classifiers import head_maker
from teeter.errors import StoreError
from teeter.learner import Learner

__all__ = [
    "FeatureScaler",
    "dump_layers",
    "is_same",
    "load_arrays",
    "loaded",
    "rescale_model",
    "scale_features",
]

Arrays = dict[str, npt.NDArray[Any]]
Vectors = npt.NDArray[np.float32]

_NEVER = 50.0
"""By how much the logit of a class that came later lies below all others."""


@dataclass(frozen=True, eq=False)
class FeatureScaler:
    """How features are moved and scaled before a model sees them."""

    centre: npt.NDArray[np.float64]
    """(D,)"""
    size: float
    marks: npt.NDArray[np.int64]
    """(N,): for each row a checksum of all features up to it."""

    def arrays(self) -> Arrays:
        """Return what is kept with a model."""
        return {
            "centre": self.centre,
            "size": np.array([self.size]),
            "mark": self.marks[-1:].copy(),
        }


def scale_features(features: Vectors) -> tuple[Vectors, FeatureScaler]:
    """Return features about their mean, with a mean square of 1, and how to do it again: (N, D)."""
    centre = features.mean(axis=0)
    moved: Vectors = features - centre
    size = float(np.sqrt(np.square(moved).mean())) or 1.0
    moved /= size
    marks = np.zeros(len(features), dtype=np.int64)
    mark = 0
    for k, row in enumerate(np.ascontiguousarray(features)):
        mark = zlib.crc32(row, mark)
        marks[k] = mark
    return moved, FeatureScaler(centre.astype(np.float64), size, marks)


def load_arrays(weights: bytes) -> Arrays:
    """Return the arrays of a kept model."""
    try:
        return load(weights)
    except (SafetensorError, ValueError, KeyError):
        raise StoreError(
            "The campaign is damaged: a model in it cannot be read. Use a backup of it."
        ) from None


def rescale_model(weights: bytes, frame: FeatureScaler) -> bytes:
    """Return a kept model as it reads features in a frame of today; without layers if the features are others now."""
    kept = load_arrays(weights)
    if not _is_same(kept, frame):
        return save(
            {
                name: array
                for name, array in kept.items()
                if name in ("places", "labels", "predicted")
            }
        )
    centre, size = kept["centre"], float(kept["size"][0])
    if size == frame.size and np.array_equal(centre, frame.centre):
        return weights
    for weight, bias in _first_layers(kept):
        moved = kept[weight].astype(np.float64) @ ((frame.centre - centre) / size)
        kept[bias] = (kept[bias] + moved).astype(kept[bias].dtype)
        kept[weight] = np.ascontiguousarray(
            kept[weight] * (frame.size / size), dtype=kept[weight].dtype
        )
    return save(kept)


def is_same(weights: bytes, frame: FeatureScaler) -> bool:
    """Tell whether the items that a kept model learnt from have the features that they had."""
    return _is_same(load_arrays(weights), frame)


def _is_same(kept: Arrays, frame: FeatureScaler) -> bool:
    rows = len(kept["predicted"])
    return (
        "mark" in kept
        and rows <= len(frame.marks)
        and int(kept["mark"][0]) == int(frame.marks[rows - 1])
    )


def _first_layers(kept: Arrays) -> list[tuple[str, str]]:
    """Return the names of the weight and bias of what reads the features: of each network, or of the linear head."""
    if "weight" in kept:
        return [("weight", "bias")]
    firsts = [name for name in kept if name.startswith("model.") and name.endswith(".1.weight")]
    return [(name, f"{name.removesuffix('weight')}bias") for name in firsts]


def dump_layers(learner: Learner) -> Arrays:
    """Return all that a learner's models have learnt, by name: ``weight`` and ``bias`` of a linear head, or layers."""
    arrays: Arrays = {}
    for k, model in enumerate(learner.models):
        if isinstance(model, nn.Module):
            arrays |= {
                f"model.{k}.{name}": value.numpy().copy()
                for name, value in model.state_dict().items()
            }
    if arrays:
        return arrays
    outputs = learner.observe(learner.data[:1], ("features", "head"))
    if outputs.weight is None or outputs.bias is None:
        return {}
    # safetensors writes an array column by column where it lies so, and reads it row by row.
    weight, bias = (np.ascontiguousarray(part.numpy()) for part in (outputs.weight, outputs.bias))
    return {
        "weight": weight,
        "bias": bias,
        "seen": np.asarray(learner.models[0].classes_, dtype=np.int64),
    }


def loaded(kept: Arrays, head: str, width: int, classes: int) -> list[Any]:
    """Return the models whose layers were kept; none where they were not, or do not fit."""
    if head == "mlp":
        count = len({name.split(".")[1] for name in kept if name.startswith("model.")})
        return [_network(kept, f"model.{k}.", width, classes) for k in range(count)]
    if "weight" not in kept or kept["weight"].shape[1] != width:
        return []
    model: Any = head_maker("linear", width, classes)
    weight, bias = kept["weight"], kept["bias"]
    if len(weight) == 2:  # scikit-learn keeps one row for two classes
        weight, bias = weight[1:] - weight[:1], bias[1:] - bias[:1]
    model.coef_, model.intercept_, model.classes_ = weight, bias, kept["seen"]
    model.n_features_in_ = width
    return [model]


def _network(kept: Arrays, prefix: str, width: int, classes: int) -> nn.Module:
    network: nn.Module = head_maker("mlp", width, classes)(0)
    layers = {name: kept[prefix + name] for name in network.state_dict()}
    weight, bias = list(layers)[-2:]
    later = classes - len(layers[bias])
    if later > 0:
        layers[weight] = np.pad(layers[weight], ((0, later), (0, 0)))
        lowest = float(layers[bias].min()) - _NEVER
        layers[bias] = np.pad(layers[bias], (0, later), constant_values=lowest)
    network.load_state_dict(
        {name: torch.from_numpy(np.array(value)) for name, value in layers.items()}
    )
    return network.eval()
