"""The types of the REST API: what requests hold and what responses return.

``...In`` is the body of a request. It refuses fields that it does not know, so that a misspelt one
is noticed. All other classes are returned by the services and sent as they are.
"""

from __future__ import annotations

import dataclasses
from abc import ABC
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from fastapi import Form
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from teeter.campaigns.items.columns import MAX_DEPTH
from teeter.campaigns.records import (
    AnswerKind,
    Role,
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


# Campaigns


class EncodeIn(RequestBody):
    """A switch to another encoder."""

    encoder: str | None = Field(default=None, max_length=200)
    """Name of a built-in encoder, or None to resume with the current one."""


class PredictIn(RequestBody):
    """Texts to predict the classes of. They are not stored."""

    texts: list[Annotated[str, Field(max_length=MAX_PREDICTED_TEXT)]] = Field(
        min_length=1, max_length=MAX_PREDICTED_TEXTS
    )


# Items


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


class SuggestIn(RequestBody):
    """How many items to ask the server's language model about."""

    limit: int | None = Field(default=None, ge=1, le=10_000_000)
    """None for all."""


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
