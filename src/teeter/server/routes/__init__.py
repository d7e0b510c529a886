"""The pages and REST, a module for each noun, and what the bodies of their requests share."""

from __future__ import annotations

from abc import ABC
from typing import Annotated, Any

from fastapi import Form
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from teeter.campaigns.items.columns import MAX_DEPTH
from teeter.campaigns.store.schema import MAX_ROW_ID


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
Labels = Annotated[list[Label], Field(max_length=1000)]
SheetField = Annotated[str, Form(max_length=1000, description="The sheet of a spreadsheet.")]
Comment = Annotated[str, Field(max_length=10_000)]


class UndoIn(RequestBody):
    """The answer or decision to undo, unless you have given another one since."""

    number: int = Field(ge=1, le=MAX_ROW_ID)


class NameIn(RequestBody):
    """A member of the campaign."""

    name: str = Field(min_length=1, max_length=80)
