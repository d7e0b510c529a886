"""What a campaign is told, and what it answers with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from teeter.campaigns.classifiers import GIVES, HEADS
from teeter.campaigns.consensus import WAYS
from teeter.campaigns.items import KINDS
from teeter.campaigns.stopping import AccuracyEstimate
from teeter.errors import InputError, UnknownNameError
from teeter.registry import did_you_mean
from teeter.strategies.api import make_strategy

__all__ = ["IMPORTED", "ImportResult", "ModelInfo", "Question", "Settings", "Status"]


IMPORTED = "import"
"""Whose answers labels are that came with the items; nobody is paid for them, and nobody takes them back."""


@dataclass(frozen=True)
class Settings:
    """What a campaign is, apart from its items and classes."""

    kind: str = "text"
    """What people see: text, image or features."""
    strategy: str = "ldm-s"
    options: dict[str, Any] = field(default_factory=dict)
    head: str = "linear"
    """What learns from the features: linear or mlp."""
    control: float = 0.1
    """The share of each batch that is drawn at random, to measure with."""
    audit: int = 0
    """Items set apart at random, to measure with and never to train on."""
    seed: int = 0
    cost: float | None = None
    """What a label costs."""
    budget: float | None = None
    """What may be spent in all."""
    instructions: str = ""
    folder: str | None = None
    """Where images are."""
    encoder: str | None = None
    """The sentence-transformers model that gives texts their features: its name, folder or package."""
    keys: list[str] = field(default_factory=list)
    """Keys on the page, one for each of the first classes; the others get what is free."""
    lease: float = 60
    """Minutes that a question stays with an annotator who answers nothing; 0: until it is answered."""
    overlap: float = 0.0
    """The share of the picks that several people answer."""
    people: int = 2
    """How many answer those."""
    consensus: str = "majority"
    """How several answers become one: majority, or dawid-skene, which weighs people by how right they are."""

    def __post_init__(self) -> None:
        """Refuse what no campaign could follow."""
        for name, known in (("kind", KINDS), ("head", HEADS), ("consensus", WAYS)):
            if getattr(self, name) not in known:
                hint = did_you_mean(getattr(self, name), list(known))
                raise UnknownNameError(f"No {name} is called {getattr(self, name)!r}. {hint}")
        if not 0 <= self.control < 1:
            raise InputError(
                f"control is {self.control}: the random share of a batch is 0 or more and less than 1."
            )
        if self.audit < 0:
            raise InputError(f"audit is {self.audit}: it must be 0 or more items.")
        if not 0 <= self.overlap <= 1:
            raise InputError(
                f"overlap is {self.overlap}: the share that several people answer is from 0 to 1."
            )
        if self.people < 2:
            raise InputError(f"people is {self.people}: an overlap takes 2 or more.")
        for name in ("cost", "budget", "lease"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise InputError(f"{name} is {value}: it must be 0 or more.")
        if not -(2**63) <= self.seed < 2**63:
            raise InputError(f"seed is {self.seed}: a database holds whole numbers of 64 bits.")
        if self.encoder is not None and self.kind != "text":
            raise InputError(f"An encoder reads texts, and this campaign is of {self.kind}.")
        make_strategy(self.strategy, self.options)

    def require_served(self) -> None:
        """Refuse a strategy that needs what the head does not give: only for new campaigns, old ones stay readable."""
        lacking = make_strategy(self.strategy, self.options).needs - GIVES[self.head]
        if lacking:
            able = [head for head in HEADS if lacking <= GIVES[head]]
            hint = (
                f"choose the head {able[0]}, or another strategy"
                if able
                else "choose another strategy"
            )
            what = " and ".join(sorted(lacking))
            raise InputError(
                f"{self.strategy} needs {what}, which the head {self.head} does not give: {hint}."
            )


@dataclass(frozen=True)
class ImportResult:
    """What became of things that were added."""

    new: int
    duplicates: tuple[tuple[str, str], ...]
    """Things whose content was there already: their id, and that of the item that has it."""
    labelled: int
    """How many items got the label that came along; some may have been there without one."""
    conflicts: tuple[tuple[str, str, str], ...] = ()
    """Items that have another label than the one that came along: their id, that one, and the one that holds."""
    audit: int = 0
    """How many items are kept for the audit in all."""


@dataclass(frozen=True)
class Question:
    """One thing to label, and why it is asked about."""

    item: str
    content: str | None
    arm: str
    """picked by the strategy, drawn as a random control, or kept for the audit."""
    rank: int
    reason: dict[str, Any]
    """What was known when it was picked: its LDM or score, the predicted class and how probable it was."""


@dataclass(frozen=True)
class ModelInfo:
    """A model that was trained."""

    version: int
    labels: int
    classes: tuple[str, ...]
    """Those it has seen."""


@dataclass(frozen=True)
class Status:
    """How a campaign stands."""

    items: int
    labelled: int
    by_class: dict[str, int]
    skipped: int
    unsure: int
    flagged: int
    open: int
    version: int
    accuracy: AccuracyEstimate | None
    advice: tuple[str, ...]
    disagreements: int = 0
    """Items that wait for a reviewer's decision."""
    spent: float | None = None
    """What people's answers cost; None where nobody said what a label costs."""
