"""What goes over the REST interface, as types."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

__all__ = [
    "AgreementOut",
    "AnswerIn",
    "AnswerOut",
    "CampaignOut",
    "ClassOut",
    "ConsensusIn",
    "DecisionIn",
    "DisagreementsOut",
    "DoneOut",
    "ItemIn",
    "ItemsOut",
    "JobOut",
    "MemberOut",
    "NameIn",
    "PersonIn",
    "QuestionsOut",
    "SessionIn",
    "SessionOut",
    "TokenOut",
    "UndoIn",
    "UndoOut",
]


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid")


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("a name has letters and the like, nothing that cannot be seen")
    return name


Name = Annotated[
    str, Field(min_length=1, max_length=80, pattern=r"^\S(.*\S)?$"), AfterValidator(_printable)
]


class SessionIn(_In):
    """Who wants to answer, where no token is needed."""

    annotator: Name


class SessionOut(BaseModel):
    """Who answers, and what must be sent with every change in the header X-CSRF-Token."""

    annotator: str
    csrf: str
    needs_token: bool


class ClassOut(BaseModel):
    """A class and its key on the page."""

    name: str
    key: str | None


class CampaignOut(BaseModel):
    """A campaign, and how it stands."""

    slug: str
    name: str
    kind: str
    strategy: str
    instructions: str
    classes: list[ClassOut]
    items: int
    labelled: int
    skipped: int
    unsure: int
    flagged: int
    model: int
    news: str
    rights: list[str]
    """What you may do there: answer, review, decide, export, manage."""
    team: bool
    """Whether several people work on it."""


class AnswerIn(_In):
    """What somebody says of an item."""

    item: str = Field(min_length=1, max_length=4096)
    kind: Literal["label", "skip", "unsure", "flag"] = "label"
    label: str | None = Field(default=None, max_length=1000)
    comment: str | None = Field(default=None, max_length=10_000)


class AnswerOut(BaseModel):
    """The answer is on disk."""

    stored: bool = True
    new: bool
    """False if the same was said already, as when it is sent twice."""
    labelled: int


class ItemIn(_In):
    """An item whose label is right."""

    item: str = Field(min_length=1, max_length=4096)
    comment: str | None = Field(default=None, max_length=10_000)


class UndoIn(_In):
    """Which item's answer is to be taken back; the newest if left out, and only if it is the newest."""

    item: str | None = Field(default=None, max_length=4096)


class UndoOut(BaseModel):
    """What was taken back; nothing if there was nothing."""

    undone: dict[str, Any] | None


class QuestionsOut(BaseModel):
    """Questions that wait, and what is going on."""

    questions: list[dict[str, Any]]
    finished: bool
    """Whether nothing is left to ask."""
    news: str
    busy: bool
    labelled: int
    items: int


class ItemsOut(BaseModel):
    """A page of items, and where the next and the one before begin."""

    items: list[dict[str, Any]]
    after: int | None
    before: int | None


class JobOut(BaseModel):
    """Something that is done in the background."""

    state: Literal["waiting", "done", "failed"]
    detail: str | None = None
    result: dict[str, Any] | None = None


class DecisionIn(_In):
    """What an item is, whatever people say of it; no class: it does not belong."""

    item: str = Field(min_length=1, max_length=4096)
    label: str | None = Field(default=None, max_length=1000)
    comment: str | None = Field(default=None, max_length=10_000)


class DisagreementsOut(BaseModel):
    """Items that wait for a decision, and how many there are in all."""

    disagreements: list[dict[str, Any]]
    waiting: int


class MemberOut(BaseModel):
    """Somebody who works on a campaign; what is not yet known is left out."""

    name: str
    role: str | None
    """None: they answered, and are not named."""
    has_token: bool
    answers: int
    per_hour: int | None
    with_consensus: dict[str, float] | None
    """How many of their labels are what the items count as, where two people or more labelled."""
    as_decided: dict[str, float] | None
    open: int
    """Questions that are with them."""


class AgreementOut(BaseModel):
    """How far people agree, with intervals that hold 19 times in 20; None stands for what is not yet known."""

    items: int
    """Items that two or more labelled."""
    observed: dict[str, float] | None
    alpha: dict[str, float] | None
    by_class: dict[str, dict[str, float] | None]
    pairs: list[dict[str, Any]]
    consensus: str
    ways: list[str]


class ConsensusIn(_In):
    """How several answers become one label."""

    way: Literal["majority", "dawid-skene"]


class NameIn(_In):
    """Somebody who is named."""

    name: str = Field(min_length=1, max_length=80)


class PersonIn(_In):
    """Somebody to be named, and what they may do."""

    name: Name
    role: Literal["annotator", "reviewer", "owner"] = "annotator"


class TokenOut(BaseModel):
    """A token, shown this once."""

    name: str
    token: str


class DoneOut(BaseModel):
    """It is done."""

    name: str
    returned: int = 0
    """Open questions that went back."""
