"""What the methods of a campaign return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from teeter.campaigns.learning.stopping import AccuracyEstimate

__all__ = [
    "EncoderComparison",
    "EncodingResult",
    "ImportResult",
    "ModelInfo",
    "Question",
    "Status",
    "SuspectLabel",
]


@dataclass(frozen=True)
class ImportResult:
    """What happened to items that were added."""

    new: int
    duplicates: tuple[tuple[str, str], ...]
    """For each item whose content is not new, its id and the id of the item that has it."""
    labelled: int
    """Items that got the label that came with them. They may have been in the campaign before."""
    conflicts: tuple[tuple[str, str, str], ...] = ()
    """Items that have another label than the new one: the id, the new label, and the one kept."""
    audit: int = 0
    """The size of the audit set now, without withdrawn items."""
    encoding: EncodingResult | None = None
    """How the items were encoded; None if all of them came with features."""
    failed: tuple[tuple[str, str], ...] = ()
    """Links whose images could not be fetched, so that their items were not added, and why."""


@dataclass(frozen=True)
class EncodingResult:
    """The result of encoding items."""

    encoder: str
    """The name of the encoder."""
    sentence: str
    """Which encoder it is and why, in one sentence."""
    encoded: int
    """Number of items that were encoded."""
    unencoded: int
    """Number of items that are left to encode."""
    is_switch: bool
    """Whether models used the features of another encoder before this one."""
    unreadable: dict[str, str]
    """By item id, why an item could not be read. Annotators never see such items."""
    fitted_on: int
    """Number of items that the encoder learned from; 0 if it has nothing to learn."""
    is_outgrown: bool
    """Whether the encoder learned from so few of the items that it should be fitted again."""


@dataclass(frozen=True)
class EncoderComparison:
    """How many labels models predict correctly, out of fold, from the features of two encoders."""

    encoder: str
    right: int
    previous: str
    previous_right: int
    labels: int


@dataclass(frozen=True)
class Question:
    """An item to label, and why it was picked."""

    item: str
    """Its id."""
    content: str | None
    """The text, or the path of the image."""
    arm: str
    """``picked`` by the strategy, drawn at random as a ``control`` item or to ``finish``, or of the
    ``audit`` set.
    """
    rank: int
    """Its position in the batch, from 1."""
    reason: dict[str, Any]
    """What was known when it was picked: its LDM or score, the predicted class, its probability."""


@dataclass(frozen=True)
class ModelInfo:
    """A model that was trained."""

    version: int
    labels: int
    classes: tuple[str, ...]
    """The classes among its labels."""


@dataclass(frozen=True)
class Status:
    """The progress of a campaign."""

    items: int
    """Items of the campaign.

    Withdrawn ones count in no number but ``withdrawn``, ``spent`` and ``unencoded``.
    """
    labelled: int
    by_class: dict[str, int]
    skipped: int
    unsure: int
    flagged: int
    open: int
    """Items that are assigned and wait for an answer."""
    version: int
    """The number of the newest model; 0 before the first."""
    accuracy: AccuracyEstimate | None
    advice: tuple[str, ...]
    """Sentences for and against stopping."""
    disagreements: int = 0
    """Items that wait for a reviewer's decision."""
    spent: float | None = None
    """The cost of all answers; None if the cost of a label is not set."""
    encoder: str | None = None
    """Name of the current encoder; None before the first items are added."""
    unencoded: int = 0
    """Items without features, withdrawn or not. They are not picked until they are encoded."""
    unreadable: int = 0
    """Items that could not be read. They are never picked."""
    comparison: EncoderComparison | None = None
    """The current encoder compared with the previous one, on the labels of the newest model."""
    withdrawn: int = 0
    """Items that were taken out of the campaign."""


@dataclass(frozen=True)
class SuspectLabel:
    """A label that a model which was not trained on it finds unlikely."""

    item: str
    label: str
    predicted: str
    chance: float
    """The probability that the model gives the label."""
    content: str | None = None
    """The text, or the path of the image."""
