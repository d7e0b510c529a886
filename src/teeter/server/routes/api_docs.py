"""``/docs``: the REST API as a page, made from its OpenAPI description, without a script."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from teeter.server.routes.pages import render_page

__all__ = ["router"]

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class _Parameter:
    name: str
    place: str
    """path, query, header or form."""
    type: str
    is_required: bool
    description: str


@dataclass(frozen=True)
class _Operation:
    method: str
    path: str
    anchor: str
    summary: str
    description: str
    parameters: list[_Parameter]
    body: str
    """The name of the type of the body; empty without one."""
    answer: str
    """The name of the type of the answer; empty if it is a file."""
    status: str


@dataclass(frozen=True)
class _Type:
    name: str
    description: str
    fields: list[_Parameter]


@router.get("/docs")
def show_api_docs(request: Request) -> Response:
    """Show all operations and types of the REST API."""
    description = request.app.openapi()
    operations = []
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            operations.append(_read_operation(method, path, operation))

    schemas = description.get("components", {}).get("schemas", {})
    types = [_read_type(name, schema) for name, schema in sorted(schemas.items())]
    origin = f"{request.url.scheme}://{request.url.netloc}"
    return render_page(request, "api_docs.html", operations=operations, types=types, origin=origin)


def _read_operation(method: str, path: str, operation: dict[str, Any]) -> _Operation:
    parameters = [_read_parameter(parameter) for parameter in operation.get("parameters", ())]
    content = operation.get("requestBody", {}).get("content", {})
    body = next((_type_name(entry["schema"]) for entry in content.values()), "")

    status, success = next(
        (status, answer)
        for status, answer in operation["responses"].items()
        if status.startswith("2")
    )
    schema = success.get("content", {}).get("application/json", {}).get("schema", {})
    return _Operation(
        method=method.upper(),
        path=path,
        anchor=operation["operationId"],
        summary=operation.get("description", operation.get("summary", "")).partition("\n\n")[0],
        description=operation.get("description", "").partition("\n\n")[2],
        parameters=parameters,
        body=body,
        answer=_type_name(schema),
        status=status,
    )


def _read_parameter(parameter: dict[str, Any]) -> _Parameter:
    return _Parameter(
        name=parameter["name"],
        place=parameter["in"],
        type=_type_name(parameter.get("schema", {})),
        is_required=parameter.get("required", False),
        description=parameter.get("description", ""),
    )


def _read_type(name: str, schema: dict[str, Any]) -> _Type:
    required = schema.get("required", ())
    fields = []
    for field_name, field_schema in schema.get("properties", {}).items():
        fields.append(
            _Parameter(
                name=field_name,
                place="",
                type=_type_name(field_schema),
                is_required=field_name in required,
                description=field_schema.get("description", ""),
            )
        )

    description = schema.get("description", "")
    if "enum" in schema:
        description = " | ".join(json.dumps(value) for value in schema["enum"])
    return _Type(name, description, fields)


def _type_name(schema: dict[str, Any]) -> str:
    """Return a short name of a type: ``list of ItemRow``, ``text or null``."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            names = [_type_name(part) for part in schema[key]]
            return " or ".join(dict.fromkeys(name for name in names if name))
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type_name(schema.get('items', {})) or 'anything'}"

    return str(schema.get("format") or schema.get("type") or "")
