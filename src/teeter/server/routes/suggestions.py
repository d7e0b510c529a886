"""Suggestions of other models: their sources over REST."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, File, Form, Request, UploadFile

from teeter.campaigns.records import PredictionImport, SourceReport
from teeter.server.access.permissions import (
    CampaignToManage,
    CampaignToReview,
    User,
    get_workspace,
)
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
def list_sources(campaign: CampaignToReview) -> list[SourceReport]:
    """Return the sources of suggestions, and how often annotators agree with each."""
    return campaign.suggestions.sources()


@router.post("/predictions")
def add_predictions(
    request: Request,
    campaign: CampaignToManage,
    user: User,
    *,
    file: Annotated[
        UploadFile,
        File(description="CSV, JSONL or Parquet with id, label and optionally probability."),
    ],
    source: SourceField,
) -> PredictionImport:
    """Add the predictions of another model as suggestions. They never become labels."""
    workspace = get_workspace(request)

    path = save_upload(file, workspace.temp, workspace.auth.config.upload_limit)
    try:
        return campaign.suggestions.add(path, source, who=user)
    finally:
        shutil.rmtree(path.parent, ignore_errors=True)


@router.post("/sources/remove")
def remove_source(campaign: CampaignToManage, user: User, body: NameIn) -> list[SourceReport]:
    """Remove a source and all its suggestions, and return those that are left."""
    suggestions = campaign.suggestions
    suggestions.remove(body.name, who=user)
    return suggestions.sources()


@router.post("/suggest", status_code=202)
def ask_language_model(
    request: Request, campaign: CampaignToManage, body: SuggestIn
) -> SuggestStarted:
    """Ask the server's language model about all items that it has said nothing about.

    The texts of the items are sent to the server that was named when this one was started.
    """
    suggester = get_workspace(request).require_suggester()
    suggester.ask_about_all(campaign, body.limit)
    return SuggestStarted(suggester.model.source_name, suggester.host)
