"""Suggestions of other models: their sources over REST."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, File, Form, Request, UploadFile

from teeter.campaigns.records import Permission, PredictionImport, SourceReport
from teeter.server.access.permissions import current_user, get_workspace, require_permission
from teeter.server.schemas import NameIn, SuggestIn
from teeter.server.uploads import save_upload

router = APIRouter(prefix="/api/v1/campaigns/{slug}")

SourceField = Annotated[
    str, Form(max_length=80, description="The name of the predictions on the page.")
]


@dataclass(frozen=True)
class SuggestStarted:
    """The language model that is being asked in the background."""

    source: str
    sent_to: str
    """The host that the texts are sent to."""


@router.get("/sources")
def list_sources(request: Request, slug: str) -> list[SourceReport]:
    """Return the sources of suggestions, and how often annotators agree with each."""
    return require_permission(request, slug, Permission.REVIEW).campaign.suggestions.sources()


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
) -> PredictionImport:
    """Add the predictions of another model as suggestions. They never become labels."""
    service = require_permission(request, slug, Permission.MANAGE)
    workspace = get_workspace(request)

    path = save_upload(file, workspace.temp, workspace.auth.config.upload_limit)
    try:
        return service.campaign.suggestions.add(path, source, who=current_user(request))
    finally:
        shutil.rmtree(path.parent, ignore_errors=True)


@router.post("/sources/remove")
def remove_source(request: Request, slug: str, body: NameIn) -> list[SourceReport]:
    """Remove a source and all its suggestions, and return those that are left."""
    suggestions = require_permission(request, slug, Permission.MANAGE).campaign.suggestions
    suggestions.remove(body.name, who=current_user(request))
    return suggestions.sources()


@router.post("/suggest", status_code=202)
def ask_language_model(request: Request, slug: str, body: SuggestIn) -> SuggestStarted:
    """Ask the server's language model about all items that it has said nothing about.

    The texts of the items are sent to the server that was named when this one was started.
    """
    service = require_permission(request, slug, Permission.MANAGE)
    suggester = get_workspace(request).require_suggester()
    suggester.ask_about_all(service, body.limit)
    return SuggestStarted(suggester.model.source_name, suggester.host)
