"""The classes of a campaign and their page, which shows the suggestions of other models too."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, File, Form, Request, UploadFile
from fastapi.responses import Response
from pydantic import Field

from teeter.campaigns.classes import MAX_DESCRIPTION, MAX_EXAMPLES
from teeter.campaigns.learning.prior import explain_unused_names
from teeter.campaigns.records import (
    ClassDescription,
    ClassInfo,
    Permission,
    PredictionImport,
    SourceReport,
)
from teeter.server.access.permissions import (
    CampaignToAnswer,
    CampaignToManage,
    CampaignToReview,
    User,
    get_workspace,
)
from teeter.server.pages import open_campaign_page
from teeter.server.routes import Label, NameIn, RequestBody
from teeter.server.uploads import save_upload

router = APIRouter(prefix="/api/v1/campaigns/{slug}")
page_router = APIRouter(include_in_schema=False)


class ClassDescriptionIn(RequestBody):
    """What a class means."""

    description: Description = ""
    examples: list[Description] = Field(default_factory=list, max_length=MAX_EXAMPLES)


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


Description = Annotated[str, Field(max_length=MAX_DESCRIPTION)]


class ClassChangeIn(RequestBody):
    """A class, and what to change about it."""

    name: str = Field(min_length=1, max_length=1000)
    new_name: str | None = Field(default=None, min_length=1, max_length=1000)
    description: Description | None = None
    """What the class means; empty to remove it."""
    examples: list[Description] | None = Field(default=None, max_length=MAX_EXAMPLES)


class ClassIn(RequestBody):
    """A class to add or to remove."""

    name: str = Field(min_length=1, max_length=1000)


class MergeIn(ClassIn):
    """A class, and the one that it becomes part of."""

    into: str = Field(min_length=1, max_length=1000)


@router.get("/classes")
def list_classes(campaign: CampaignToAnswer) -> list[ClassInfo]:
    """Return the classes, what they mean, and their shortcuts."""
    return campaign.classes.all()


@router.post("/classes")
def add_class(campaign: CampaignToManage, user: User, body: ClassIn) -> list[ClassInfo]:
    """Add a class after the others, unless it is there already. Labels stay as they are."""
    campaign.classes.add(body.name, who=user)
    return campaign.classes.all()


@router.patch("/classes")
def change_class(campaign: CampaignToManage, user: User, body: ClassChangeIn) -> list[ClassInfo]:
    """Rename a class, or change what it means. Its labels stay.

    Answers with the old name still count for the class. Fields that are left out stay.
    """
    description = None
    if body.description is not None or body.examples is not None:
        before = campaign.classes.descriptions().get(body.name, ClassDescription(""))
        description = before
        if body.description is not None:
            description = replace(description, description=body.description)
        if body.examples is not None:
            description = replace(description, examples=tuple(body.examples))

    # A form sends the name, too, if only the description changes.
    if body.new_name is not None and body.new_name != body.name:
        campaign.classes.rename(body.name, body.new_name, description=description, who=user)
    elif description is not None:
        campaign.classes.describe({body.name: description}, who=user)
    return campaign.classes.all()


@router.post("/classes/merge")
def merge_classes(campaign: CampaignToManage, user: User, body: MergeIn) -> list[ClassInfo]:
    """Make a class part of another one, with its answers, decisions, suggestions and picks.

    A promise that was started ends. Names of the class still count for the other one.
    """
    campaign.classes.merge(body.name, body.into, who=user)
    return campaign.classes.all()


@router.post("/classes/remove")
def remove_class(campaign: CampaignToManage, user: User, body: ClassIn) -> list[ClassInfo]:
    """Remove a class that no answer, decision, suggestion or promise names."""
    campaign.classes.remove(body.name, who=user)
    return campaign.classes.all()


@router.post("/classes/describe")
def describe_classes(campaign: CampaignToManage, user: User, body: DescribeIn) -> list[ClassInfo]:
    """Say what classes mean. An empty description removes what was there."""
    descriptions = {}
    for name, given in body.classes.items():
        descriptions[name] = ClassDescription(given.description, tuple(given.examples))

    campaign.classes.describe(descriptions, who=user)
    return campaign.classes.all()


@router.post("/classes/names")
def use_names(campaign: CampaignToManage, user: User, body: NamesIn) -> NamesIn:
    """Let models learn from the names and descriptions of the classes, or not."""
    campaign.change_settings(names=body.use, who=user)
    return body


# The page


@page_router.get("/c/{slug}/classes")
def show_classes(request: Request, slug: str) -> Response:
    """Show the classes, what they mean, and where suggestions come from."""
    page = open_campaign_page(request, slug, "classes", Permission.ANSWER)
    suggester = get_workspace(request).suggester
    campaign = page.campaign
    status = campaign.status()
    problem = None
    is_asking = False
    if suggester is not None:
        problem = suggester.problem(campaign.location)
        is_asking = suggester.is_busy(campaign.location)
    return page.render(
        "classes.html",
        counts=status.by_class,
        sources=campaign.suggestions.recent_sources(),
        uses_names=campaign.settings.names,
        unused_names=explain_unused_names(campaign.settings, status.encoder),
        suggester=suggester,
        problem=problem,
        is_asking=is_asking,
    )


# Suggestions of other models

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
