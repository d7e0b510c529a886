"""Classifiers for tests: a head and an encoder that need no training."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from teeter.classifier import Classifier, ClassifierHead, ClassifierInfo, Layer
from teeter.encoders import make_encoder

INFO = ClassifierInfo("mail", model=3, labels=40, teeter="0.1.0", accuracy=(0.9, 0.8, 0.95))

TEXTS = [
    "win cash now",
    "a calm walk by the river",
    "claim your prize now",
    "she sang to the garden",
]


def text_classifier(temperature: float = 1.0) -> Classifier:
    """Return a classifier of texts with a random linear head."""
    encoder = make_encoder("tfidf", "text")
    encoder.fit(TEXTS)
    width = encoder.encode(TEXTS[:1]).vectors.shape[1]
    generator = np.random.default_rng(0)
    layer = Layer(
        generator.normal(size=(3, width)).astype(np.float32),
        generator.normal(size=3).astype(np.float32),
    )
    head = ClassifierHead(generator.normal(size=width), 0.5, (layer,), temperature)
    return Classifier(["ham", "spam", "other"], head, encoder, INFO)


def network_classifier() -> Classifier:
    """Return a classifier of features with two hidden layers."""
    generator = np.random.default_rng(1)
    widths = [4, 6, 5, 3]
    layers = tuple(
        Layer(
            generator.normal(size=(outputs, inputs)).astype(np.float32),
            generator.normal(size=outputs).astype(np.float32),
        )
        for inputs, outputs in pairwise(widths)
    )
    head = ClassifierHead(generator.normal(size=4), 2.0, layers, 1.7)
    return Classifier(["a", "b", "c"], head, None, INFO)
