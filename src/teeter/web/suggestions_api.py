"""The REST API of classes and suggestions: descriptions, predictions and language models."""

from __future__ import annotations

import shutil
from typing import Annotated

from fastapi import APIRouter, File, Form, Request, UploadFile

from teeter.campaigns.enums import Permission
from teeter.campaigns.store import ClassDescription
from teeter.web.idempotency import Once, upload_fingerprint
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
from teeter.web.service import CampaignService
from teeter.web.suggester import Suggester
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
def describe_classes(request: Request, slug: str, body: DescribeIn, once: Once) -> list[ClassOut]:
    """Say what classes mean. An empty description removes what was there."""
    service = require_permission(request, slug, Permission.MANAGE)
    descriptions = {}
    for name, given in body.classes.items():
        descriptions[name] = ClassDescription(given.description, tuple(given.examples))

    suggestions = SuggestionService(service, current_user(request))
    return once(service, body, suggestions.describe_classes, descriptions)


@router.post("/classes/names")
def use_names(request: Request, slug: str, body: NamesIn, once: Once) -> NamesIn:
    """Let models learn from the names and descriptions of the classes, or not."""
    service = require_permission(request, slug, Permission.MANAGE)

    suggestions = SuggestionService(service, current_user(request))
    return once(service, body, suggestions.use_names, body.use)


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
    once: Once,
) -> PredictionsStored:
    """Add the predictions of another model as suggestions. They never become labels."""
    service = require_permission(request, slug, Permission.MANAGE)
    form = {"file": upload_fingerprint(file), "source": source}
    return once(service, form, upload_predictions, request, slug, file, source)


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
def remove_source(request: Request, slug: str, body: NameIn, once: Once) -> SourceRemoved:
    """Remove a source and all its suggestions."""
    service = require_permission(request, slug, Permission.MANAGE)

    suggestions = SuggestionService(service, current_user(request))
    return once(service, body, suggestions.remove_source, body.name)


@router.post("/suggest", status_code=202)
def ask_language_model(request: Request, slug: str, body: SuggestIn, once: Once) -> SuggestStarted:
    """Ask the server's language model about all items that it has said nothing about.

    The texts of the items are sent to the server that was named when this one was started.
    """
    service = require_permission(request, slug, Permission.MANAGE)
    suggester = get_workspace(request).require_suggester()

    return once(service, body, _ask_about_all, suggester, service, body.limit)


def _ask_about_all(
    suggester: Suggester, service: CampaignService, limit: int | None
) -> SuggestStarted:
    suggester.ask_about_all(service, limit)
    return SuggestStarted(source=suggester.model.source_name, sent_to=suggester.host)
