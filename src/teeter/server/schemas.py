"""The types of the REST API: what requests hold and what responses return.

``...In`` is the body of a request. It refuses fields that it does not know, so that a misspelt one
is noticed. All other classes are returned by the services and sent as they are.
"""

from __future__ import annotations

import dataclasses
from abc import ABC
from enum import StrEnum
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from fastapi import Form
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from teeter.campaigns.items.columns import MAX_DEPTH
from teeter.campaigns.records import (
    AnswerKind,
    ClassInfo,
    Disagreement,
    EncodingResult,
    ImportResult,
    ItemKind,
    ModelRound,
    Permission,
    RecentAnswer,
    Role,
    ShownQuestion,
    SourceReport,
    SuspectLabel,
)
from teeter.campaigns.settings import Settings, changeable_settings, offered_settings
from teeter.campaigns.store.schema import MAX_ROW_ID

MAX_PREDICTED_TEXTS = 1000
"""Texts of one request for predictions."""

MAX_PREDICTED_TEXT = 100_000
"""Characters of each of these texts."""


class RequestBody(BaseModel, ABC):
    """What clients send. A field that is not expected is an error, because it may be a typo."""

    model_config = ConfigDict(extra="forbid")


def _require_shallow(fields: dict[str, Any]) -> dict[str, Any]:
    """Refuse JSON that is nested so deeply that Python could not write it again."""
    # The values of the fields have depth 0, as in a table.
    parts: list[tuple[Any, int]] = [(fields, -1)]
    while parts:
        value, depth = parts.pop()
        if depth > MAX_DEPTH:
            raise ValueError(f"Lists and objects are nested more than {MAX_DEPTH} deep")
        if isinstance(value, dict):
            parts += [(part, depth + 1) for part in value.values()]
        elif isinstance(value, list):
            parts += [(part, depth + 1) for part in value]
    return fields


ShallowJson = Annotated[dict[str, Any], AfterValidator(_require_shallow)]


def _require_printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("a name may contain only characters that can be displayed")
    return name


Name = Annotated[
    str,
    # No space at either end.
    Field(min_length=1, max_length=80, pattern=r"^\S(.*\S)?$"),
    AfterValidator(_require_printable),
]

ItemId = Annotated[str, Field(min_length=1, max_length=4096)]
Label = Annotated[str, Field(max_length=1000)]
Comment = Annotated[str, Field(max_length=10_000)]


# Sessions


class SessionIn(RequestBody):
    """The name to answer under, where no login is required."""

    annotator: Name


class SessionOut(BaseModel):
    """Who answers, and the CSRF token that every change must send in the header X-CSRF-Token."""

    annotator: str
    csrf: str
    needs_token: bool


# Campaigns


class CampaignOut(BaseModel):
    """A campaign and its progress."""

    slug: str
    """The name of the campaign in URLs."""
    name: str
    kind: ItemKind
    strategy: str
    instructions: str
    classes: list[ClassInfo]
    items: int
    labelled: int
    skipped: int
    unsure: int
    flagged: int
    model: int
    """The version of the newest model; 0 before the first training."""
    news: str
    """One sentence about work in the background; empty while nothing runs."""
    permissions: list[Permission]
    """What you may do in the campaign."""
    is_team: bool
    """Whether several people work on the campaign."""


@dataclasses.dataclass(frozen=True)
class CreatedCampaign:
    """A campaign that was created from a file or a folder."""

    slug: str
    file: str
    imported: ImportResult
    """What came in."""


class EncodeIn(RequestBody):
    """A switch to another encoder."""

    encoder: str | None = Field(default=None, max_length=200)
    """Name of a built-in encoder, or None to resume with the current one."""


class PredictIn(RequestBody):
    """Texts to predict the classes of. They are not stored."""

    texts: list[Annotated[str, Field(max_length=MAX_PREDICTED_TEXT)]] = Field(
        min_length=1, max_length=MAX_PREDICTED_TEXTS
    )


class PredictedText(BaseModel):
    """The most probable class of a text."""

    label: str
    probability: float
    """The calibrated probability of the class."""


class PredictionsOut(BaseModel):
    """The predictions of a model, in the order of the texts."""

    model: int
    """The number of the model."""
    predictions: list[PredictedText]


class TrainedModel(BaseModel):
    """The result of a training run."""

    trained: ModelRound | None
    """The model; None if fewer than two classes have labels."""


class JobStarted(BaseModel):
    """Work that was started in the background."""

    job: str
    """The job's id, for ``GET /jobs/{job}``. Anyone who knows the id can see the result."""


class JobState(StrEnum):
    """The states of background work."""

    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


class JobOut(BaseModel):
    """The state of background work."""

    state: JobState
    detail: str | None = None
    """Why the work failed."""
    result: CreatedCampaign | EncodingResult | ImportResult | TrainedModel | None = None
    done: int | None = None
    """Number of items encoded so far, while an encoding runs."""
    total: int | None = None
    """Number of items to encode, including those already encoded."""
    seconds_left: float | None = None
    """Estimated seconds until the encoding is complete, if known."""


# Items


class QuestionsOut(BaseModel):
    """Items to label, and the state of the background work."""

    questions: list[ShownQuestion]
    finished: bool
    """Whether there are no items left for you."""
    held_by_others: int
    """When nothing is left for you: how many items other annotators have open."""
    news: str
    busy: bool
    """Whether work is being done in the background."""
    labelled: int
    items: int


# Answers


# What clients send ends in In, what they get in Out. Limits here are the first line of defence:
# a request that breaks one is refused with 422 before any code of ours sees it.
class ShownSuggestionIn(RequestBody):
    """The suggestion that the annotator saw."""

    source: Annotated[str, Field(max_length=200)]
    label: Label


class AnswerIn(RequestBody):
    """An answer about an item."""

    item: ItemId
    kind: AnswerKind = AnswerKind.LABEL
    label: Label | None = None
    """The class, if the kind is ``label``."""
    comment: Comment | None = None
    suggestion: ShownSuggestionIn | None = None
    """The suggestion that the annotator saw; None if none was shown."""


class ConfirmationIn(RequestBody):
    """An item whose label was reviewed and is correct."""

    item: ItemId
    comment: Comment | None = None


class UndoIn(RequestBody):
    """The answer or decision to undo, unless you have given another one since."""

    number: int = Field(ge=1, le=MAX_ROW_ID)


# Columns and the history


# Progress


class SuspectsOut(BaseModel):
    """Labels that may be wrong, the least likely first."""

    state: JobState
    detail: str | None = None
    """Why the search failed."""
    suspects: list[SuspectLabel] = Field(default_factory=list)
    columns: dict[str, dict[str, str]] = Field(default_factory=dict)
    """By item id, the columns that the campaign's settings show."""


# Teams


class DecisionIn(RequestBody):
    """A decision on the label of an item, which overrides all answers."""

    item: ItemId
    label: Label | None = None
    """The class; None if the item does not belong in the campaign."""
    comment: Comment | None = None


class NameIn(RequestBody):
    """A member of the campaign."""

    name: str = Field(min_length=1, max_length=80)


class PersonIn(RequestBody):
    """A member and their role."""

    name: Name
    role: Role = Role.ANNOTATOR


@dataclasses.dataclass(frozen=True)
class NewToken:
    """A new token. It is shown only once."""

    name: str
    token: str


# Classes and suggestions


class ClassDescriptionIn(RequestBody):
    """What a class means."""

    description: Annotated[str, Field(max_length=4000)] = ""
    examples: list[Annotated[str, Field(max_length=4000)]] = Field(
        default_factory=list, max_length=20
    )


class DescribeIn(RequestBody):
    """Descriptions of classes, which replace the current ones."""

    classes: dict[Label, ClassDescriptionIn]


class NamesIn(RequestBody):
    """Whether models learn from the names and descriptions of the classes."""

    use: bool


@dataclasses.dataclass(frozen=True)
class SourceRemoved:
    """A source that was removed with its suggestions."""

    name: str


class SuggestIn(RequestBody):
    """How many items to ask the server's language model about."""

    limit: int | None = Field(default=None, ge=1, le=10_000_000)
    """None for all."""


@dataclasses.dataclass(frozen=True)
class SuggestStarted:
    """The language model that is being asked in the background."""

    source: str
    sent_to: str
    """The host that the texts are sent to."""


# Pages


class LabelMode(StrEnum):
    """What the labelling page is used for."""

    LABEL = "label"
    SUSPECTS = "suspects"
    DECIDE = "decide"


class LabelPageStart(BaseModel):
    """What the labelling page knows when it is loaded."""

    slug: str
    campaign: str
    """Identifies the campaign, so that unsent answers never go to another of the same name."""
    annotator: str
    mode: LabelMode
    kind: ItemKind
    classes: list[ClassInfo]
    strategy: str
    labelled: int
    items: int
    news: str
    questions: list[ShownQuestion] | list[Disagreement]
    recent: list[RecentAnswer]
    """Newest first."""
    waiting: int = 0
    """Disagreements that need a decision."""
    sources: list[SourceReport] = Field(default_factory=list)
    """The sources of suggestions."""


# Settings

_SETTING_TYPES = get_type_hints(Settings)
_ListEntry = Annotated[str, Field(max_length=1000)]


def _limit_setting(declared: dataclasses.Field[Any], value_type: Any) -> Any:
    """Return the type of a setting in a request: with its meaning and its limits."""
    limits = {**declared.metadata.get("limits", {}), **declared.metadata.get("request", {})}
    if "ge" in limits:
        limits["allow_inf_nan"] = False
    return Annotated[value_type, Field(description=declared.metadata["help"], **limits)]


def _body_field(declared: dataclasses.Field[Any]) -> Any:
    value_type = declared.metadata.get("choices") or _SETTING_TYPES[declared.name]
    if value_type == dict[str, Any]:
        value_type = ShallowJson
    elif value_type == list[str]:
        value_type = list[_ListEntry]
    # Left out, it stays as it is: None is no default that could be sent.
    return (_limit_setting(declared, value_type), Field(default_factory=lambda: None))


if TYPE_CHECKING:
    SettingsIn = RequestBody
else:
    SettingsIn = create_model(
        "SettingsIn",
        __base__=RequestBody,
        __doc__="Settings to change. Settings that are left out stay as they are.",
        **{declared.name: _body_field(declared) for declared in changeable_settings()},
    )


def _form_field(declared: dataclasses.Field[Any]) -> Parameter:
    value_type = _limit_setting(declared, _SETTING_TYPES[declared.name])
    default = declared.default
    if _SETTING_TYPES[declared.name] == list[str]:
        value_type = Annotated[str, Field(description="Comma-separated.", max_length=10_000)]
        default = ""
    return Parameter(
        declared.name,
        Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[value_type, Form()],
    )


def settings_from_form(**values: Any) -> Settings:
    """Return the settings in a form, which has lists as comma-separated texts."""
    for name, value in values.items():
        if _SETTING_TYPES[name] == list[str]:
            values[name] = [entry.strip() for entry in value.split(",") if entry.strip()]
    return Settings(**values)


# FastAPI reads the fields of the form from it.
settings_from_form.__signature__ = Signature(  # type: ignore[attr-defined]
    [_form_field(declared) for declared in offered_settings()]
)
