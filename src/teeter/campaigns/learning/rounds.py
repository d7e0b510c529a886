"""What a round of a campaign works with: the items, what is known about them, and the settings.

A round trains a model, chooses a batch, or both. Its state is read from the database once and then
passed on, so that all steps of a round see the same answers.

Nothing here loads torch: the server passes these records to its worker process, which does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from teeter.campaigns.learning.prior import ClassPrior
from teeter.campaigns.learning.saved_models import FeatureScaler

__all__ = ["RoundSettings", "RoundState"]

Vectors: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class RoundSettings:
    """The settings that selection and training depend on."""

    strategy: str
    options: dict[str, Any]
    """Options of the strategy."""
    head: str
    """One of ``ClassifierKind``."""
    control: float
    """The share of each batch that is drawn at random."""
    seed: int


@dataclass(frozen=True, eq=False)
class RoundState:
    """What is known when a batch is chosen or a model is trained.

    Items are known by their place: their position in ``keys``, from 0.
    """

    keys: Sequence[str]
    """The ids of all items with features, in the order in which they were added."""
    features: Vectors
    """(N, D), scaled."""
    classes: tuple[str, ...]
    labels: dict[int, str]
    """The labels by place, without those of the audit set."""
    audit: dict[int, str | None]
    """The audit set by place, with its labels; None for no label yet."""
    control: frozenset[int]
    """Places of the control items, labelled or not."""
    random: frozenset[int]
    """Places of the items that are a random sample of all: control items, and perhaps others."""
    taken: frozenset[int]
    """Places of items that cannot be picked: answered, skipped, flagged, withdrawn, or
    assigned now.
    """
    version: int
    """The number of the newest model; 0 before the first."""
    weights: bytes | None
    """The newest model, if there is one."""
    batches: int
    """How many batches were chosen so far."""
    skipped: frozenset[int] = frozenset()
    """Places of items that are taken only because they were skipped.

    They are picked again when no other item is left.
    """
    scaler: FeatureScaler | None = None
    """How the features were scaled."""
    finish_draws: tuple[int, ...] = ()
    """Places of random items to ask about before all others, in the order in which they were drawn.
    """
    encoding: int = 0
    """Row id of the encoding that the features belong to."""
    unencoded: int = 0
    """Number of items that have no features yet, and so no place.

    No model is trained until there are none: a model is saved with places, which later features
    would change.
    """
    prior: ClassPrior | None = None
    """What is known about the classes before the first label."""
    withdrawn: frozenset[int] = frozenset()
    unreadable: frozenset[int] = frozenset()
    """Places of items that could not be read. Their features are zeros, so predictions for them
    mean nothing.
    """
    """Places of items that were taken out of the campaign. All of them are taken, too."""
