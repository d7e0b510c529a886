"""Make a classifier of its own from a campaign's newest model and encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from teeter.base.version import __version__
from teeter.campaigns.learning.rounds import RoundSettings, RoundState
from teeter.campaigns.learning.saved_models import Arrays, dump_layers, load_temperature
from teeter.campaigns.learning.stopping import estimate_model_accuracy
from teeter.campaigns.learning.training import load_learner
from teeter.classifier import Classifier, ClassifierHead, ClassifierInfo, Layer
from teeter.encoders import Encoder
from teeter.errors import InputError

__all__ = ["build_classifier"]


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
