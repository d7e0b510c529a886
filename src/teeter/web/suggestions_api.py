"""The REST API of classes and suggestions: descriptions, predictions and language models."""

from __future__ import annotations

import shutil
from typing import Annotated

from fastapi import APIRouter, File, Form, Request, UploadFile

from teeter.campaigns.db import ClassDescription
from teeter.campaigns.enums import Permission
from teeter.web.idempotency import IdempotencyKey, answer_once, upload_fingerprint
from teeter.web.permissions import current_user, get_workspace, require_permission
from teeter.web.schemas import (
    ClassOut,
    DescribeIn,
    NameIn,
    NamesIn,
    PredictionsStored,
    SourceOut,
    SourceRemoved,
    SuggestIn,
    SuggestStarted,
)
from teeter.web.suggestions import SuggestionService, describe_source
from teeter.web.uploads import save_upload

__all__ = ["router", "upload_predictions"]

router = APIRouter(prefix="/api/v1/campaigns/{slug}")

SourceField = Annotated[
    str, Form(max_length=80, description="The name of the predictions on the page.")
]


# Classes


@router.get("/classes")
def list_classes(request: Request, slug: str) -> list[ClassOut]:
    """Return the classes, what they mean, and their shortcuts."""
    return require_permission(request, slug, Permission.ANSWER).list_classes()


@router.post("/classes/describe")
def describe_classes(
    request: Request, slug: str, body: DescribeIn, idempotency_key: IdempotencyKey = None
) -> list[ClassOut]:
    """Say what classes mean. An empty description removes what was there."""
    service = require_permission(request, slug, Permission.MANAGE)
    descriptions = {}
    for name, given in body.classes.items():
        descriptions[name] = ClassDescription(given.description, tuple(given.examples))

    def describe() -> list[ClassOut]:
        SuggestionService(service, current_user(request)).describe_classes(descriptions)
        return service.list_classes()

    return answer_once(request, service, idempotency_key, body, list[ClassOut], action=describe)


@router.post("/classes/names")
def use_names(
    request: Request, slug: str, body: NamesIn, idempotency_key: IdempotencyKey = None
) -> NamesIn:
    """Let models learn from the names and descriptions of the classes, or not."""
    service = require_permission(request, slug, Permission.MANAGE)

    def use() -> NamesIn:
        SuggestionService(service, current_user(request)).use_names(body.use)
        return body

    return answer_once(request, service, idempotency_key, body, NamesIn, action=use)


# Suggestions


@router.get("/sources")
def list_sources(request: Request, slug: str) -> list[SourceOut]:
    """Return the sources of suggestions, and how often annotators agree with each."""
    service = require_permission(request, slug, Permission.REVIEW)
    return [describe_source(report) for report in service.campaign.sources()]


@router.post("/predictions")
def add_predictions(
    request: Request,
    slug: str,
    *,
    file: Annotated[
        UploadFile,
        File(description="CSV, JSONL or Parquet with id, label and optionally probability."),
    ],
    source: SourceField,
    idempotency_key: IdempotencyKey = None,
) -> PredictionsStored:
    """Add the predictions of another model as suggestions. They never become labels."""
    service = require_permission(request, slug, Permission.MANAGE)

    def store() -> PredictionsStored:
        return upload_predictions(request, slug, file, source)

    form = {"file": upload_fingerprint(file), "source": source}
    return answer_once(request, service, idempotency_key, form, PredictionsStored, action=store)


def upload_predictions(
    request: Request, slug: str, file: UploadFile, source: str
) -> PredictionsStored:
    """Store an uploaded file of predictions, and remove the file."""
    service = require_permission(request, slug, Permission.MANAGE)
    workspace = get_workspace(request)

    path = save_upload(file, workspace.temp, workspace.auth.config.upload_limit)
    try:
        return SuggestionService(service, current_user(request)).add_predictions(path, source)
    finally:
        shutil.rmtree(path.parent, ignore_errors=True)


@router.post("/sources/remove")
def remove_source(
    request: Request, slug: str, body: NameIn, idempotency_key: IdempotencyKey = None
) -> SourceRemoved:
    """Remove a source and all its suggestions."""
    service = require_permission(request, slug, Permission.MANAGE)

    def remove() -> SourceRemoved:
        SuggestionService(service, current_user(request)).remove_source(body.name)
        return SourceRemoved(name=body.name)

    return answer_once(request, service, idempotency_key, body, SourceRemoved, action=remove)


@router.post("/suggest", status_code=202)
def ask_language_model(
    request: Request, slug: str, body: SuggestIn, idempotency_key: IdempotencyKey = None
) -> SuggestStarted:
    """Ask the server's language model about all items that it has said nothing about.

    The texts of the items are sent to the server that was named when this one was started.
    """
    service = require_permission(request, slug, Permission.MANAGE)
    suggester = get_workspace(request).require_suggester()

    def ask() -> SuggestStarted:
        suggester.ask_about_all(service, body.limit)
        return SuggestStarted(source=suggester.model.source_name, sent_to=suggester.host)

    return answer_once(request, service, idempotency_key, body, SuggestStarted, action=ask)
