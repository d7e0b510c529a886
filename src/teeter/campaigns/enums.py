"""The states, kinds and roles of a campaign. Databases store each as the text of its value."""

from __future__ import annotations

from enum import StrEnum

__all__ = [
    "AnswerKind",
    "ClassifierKind",
    "ConsensusMethod",
    "ItemKind",
    "Labeller",
    "Permission",
    "PickArm",
    "PickState",
    "Role",
]


class ItemKind(StrEnum):
    """What an annotator sees of an item."""

    TEXT = "text"
    IMAGE = "image"
    FEATURES = "features"


class AnswerKind(StrEnum):
    """What an annotator can say about an item."""

    LABEL = "label"
    SKIP = "skip"
    """Not now: the item may be asked about again after the next training."""
    UNSURE = "unsure"
    """The annotator cannot tell: the item is not asked about again."""
    FLAG = "flag"
    """The item does not belong in the campaign."""


class PickArm(StrEnum):
    """How an item came to be picked."""

    PICKED = "picked"
    """By the strategy."""
    CONTROL = "control"
    """At random, to measure the model with; trained on as well."""
    AUDIT = "audit"
    """At random and held out of training, to measure the model with."""
    FINISH = "finish"
    """At random from the items that no person had labelled when a model was frozen."""

    @property
    def is_random(self) -> bool:
        """Whether the item measures the model, so that annotators must not see its prediction."""
        return self is not PickArm.PICKED


class Labeller(StrEnum):
    """Who gave an item its final label."""

    PERSON = "person"
    MODEL = "model"
    """A model, under a certificate."""
    UNDECIDED = "undecided"
    """No one yet."""
    UNREADABLE = "unreadable"
    """No one: the item could not be read, so no model predicts it either."""


class PickState(StrEnum):
    """Where a pick is on its way.

    A pick made ahead is READY until an annotator gets it. It is then OPEN until it is ANSWERED or
    SKIPPED, or RETURNED because its lease expired or it was released.
    """

    READY = "ready"
    OPEN = "open"
    ANSWERED = "answered"
    SKIPPED = "skipped"
    RETURNED = "returned"
    KNOWN = "known"
    """A control item that needs no answer: it counts as drawn at random."""


class Role(StrEnum):
    """What a person is in a campaign."""

    ANNOTATOR = "annotator"
    REVIEWER = "reviewer"
    OWNER = "owner"


class Permission(StrEnum):
    """What a person may be allowed to do in a campaign."""

    ANSWER = "answer"
    REVIEW = "review"
    """See the answers of others, and check suspect labels."""
    DECIDE = "decide"
    """Settle disagreements."""
    EXPORT = "export"
    MANAGE = "manage"
    """Add and remove people, and change the campaign's settings."""


class ConsensusMethod(StrEnum):
    """How several answers to an item become one label."""

    MAJORITY = "majority"
    DAWID_SKENE = "dawid-skene"


class ClassifierKind(StrEnum):
    """What learns from the features of a campaign."""

    LINEAR = "linear"
    MLP = "mlp"
