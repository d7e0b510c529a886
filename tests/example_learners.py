"""Learners of three animals, and strategies that look at what they are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from teeter import Learner, TrainingConfig
from teeter.models.networks import mlp
from teeter.strategies import Context, Strategy

RNG = np.random.default_rng(0)
NAMES = ("cat", "dog", "owl")
CLASSES = np.arange(60) % 3
ROWS = (RNG.normal(size=(60, 4)) + 3 * np.eye(3, 4)[CLASSES]).astype(np.float32)
TRUTH = np.array(NAMES)[CLASSES]
QUICK = TrainingConfig(epochs=5, batch_size=16, learning_rate=0.01)
THOROUGH = TrainingConfig(epochs=25, batch_size=8, learning_rate=0.02)
LOGISTIC = make_pipeline(StandardScaler(), LogisticRegression())


def network(seed: int) -> nn.Sequential:
    return mlp(4, 3, seed=seed, hidden=8)


def make_learner(
    model: Any = network, strategy: Any = "ldm-s", data: Any = ROWS, **options: Any
) -> Learner:
    return Learner(
        model, data, strategy, **{"classes": NAMES, "training": QUICK, "device": "cpu", **options}
    )


def make_fitted_learner(
    model: Any = network, strategy: Any = "ldm-s", *, rows: Any = range(12), **options: Any
) -> Learner:
    learner = make_learner(model, strategy, **options)
    learner.tell(rows, TRUTH[list(rows)])
    learner.fit()
    return learner


def answer_batch(learner: Learner, n: int = 5) -> list[int]:
    rows = learner.ask(n)
    learner.tell(rows, TRUTH[rows])
    return rows.tolist()


with_both_models = pytest.mark.parametrize(
    "model", [network, LOGISTIC], ids=["torch", "scikit-learn"]
)


@dataclass(kw_only=True)
class Probe(Strategy):
    """The first rows, with a look at the context on the way."""

    needs = frozenset({"logits"})
    look: Callable[[Context], None] = lambda context: None

    def choose(self, context: Context, n: int) -> Tensor:
        self.look(context)
        return torch.arange(n)


def make_probe(look: Callable[[Context], None], *needed: str) -> Probe:
    cls = type("ProbeFor" + "And".join(needed), (Probe,), {"needs": frozenset(needed)})
    return cls(look=look)


class Remembering(Strategy):
    """Picks on from the place where the last round ended."""

    needs = frozenset({"features"})

    def choose(self, context: Context, n: int) -> Tensor:
        start = context.memory.get("next", 0)
        context.memory["next"] = start + n
        context.memory.setdefault("starts", []).append(start)
        context.memory["mean"] = context.features.mean(dim=0)
        context.memory["size"] = np.array([len(context)])
        return (start + torch.arange(n)) % len(context)
