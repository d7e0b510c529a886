"""What goes over the REST interface, as types."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

__all__ = [
    "AnswerIn",
    "AnswerOut",
    "CampaignOut",
    "ClassOut",
    "ItemIn",
    "ItemsOut",
    "JobOut",
    "QuestionsOut",
    "SessionIn",
    "SessionOut",
    "UndoIn",
    "UndoOut",
]


class _In(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SessionIn(_In):
    """Who wants to answer, where no token is needed."""

    annotator: str = Field(min_length=1, max_length=80, pattern=r"^\S(.*\S)?$")

    @field_validator("annotator")
    @classmethod
    def _printable(cls, name: str) -> str:
        if not name.isprintable():
            raise ValueError("a name has letters and the like, nothing that cannot be seen")
        return name


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
    bad: int
    model: int
    news: str


class AnswerIn(_In):
    """What somebody says of an item."""

    item: str = Field(min_length=1, max_length=4096)
    kind: Literal["label", "skip", "unsure", "bad"] = "label"
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
