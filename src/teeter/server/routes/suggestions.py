"""Classes and suggestions: what owners do with them, over REST and on their page."""

from __future__ import annotations

import shutil
from typing import Annotated

from fastapi import APIRouter, File, Form, Request, UploadFile
from fastapi.responses import Response

from teeter.campaigns.classes import validate_description
from teeter.campaigns.learning.prior import explain_unused_names
from teeter.campaigns.records import (
    ClassDescription,
    ClassInfo,
    Permission,
    PredictionImport,
    SourceReport,
)
from teeter.errors import InputError
from teeter.server.access.permissions import current_user, get_workspace, require_permission
from teeter.server.routes.pages import open_campaign_page
from teeter.server.schemas import (
    DescribeIn,
    NameIn,
    NamesIn,
    SourceRemoved,
    SuggestIn,
    SuggestStarted,
)
from teeter.server.uploads import save_upload

router = APIRouter(prefix="/api/v1/campaigns/{slug}")

SourceField = Annotated[
    str, Form(max_length=80, description="The name of the predictions on the page.")
]


# Classes


@router.get("/classes")
def list_classes(request: Request, slug: str) -> list[ClassInfo]:
    """Return the classes, what they mean, and their shortcuts."""
    return require_permission(request, slug, Permission.ANSWER).campaign.classes.all()


@router.post("/classes/describe")
def describe_classes(request: Request, slug: str, body: DescribeIn) -> list[ClassInfo]:
    """Say what classes mean. An empty description removes what was there."""
    service = require_permission(request, slug, Permission.MANAGE)
    descriptions = {}
    for name, given in body.classes.items():
        descriptions[name] = ClassDescription(given.description, tuple(given.examples))

    service.campaign.classes.describe(descriptions, who=current_user(request))
    return service.campaign.classes.all()


@router.post("/classes/names")
def use_names(request: Request, slug: str, body: NamesIn) -> NamesIn:
    """Let models learn from the names and descriptions of the classes, or not."""
    service = require_permission(request, slug, Permission.MANAGE)
    service.campaign.change_settings(names=body.use, who=current_user(request))
    return body


# Suggestions


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
def remove_source(request: Request, slug: str, body: NameIn) -> SourceRemoved:
    """Remove a source and all its suggestions."""
    service = require_permission(request, slug, Permission.MANAGE)
    service.campaign.suggestions.remove(body.name, who=current_user(request))
    return SourceRemoved(body.name)


@router.post("/suggest", status_code=202)
def ask_language_model(request: Request, slug: str, body: SuggestIn) -> SuggestStarted:
    """Ask the server's language model about all items that it has said nothing about.

    The texts of the items are sent to the server that was named when this one was started.
    """
    service = require_permission(request, slug, Permission.MANAGE)
    suggester = get_workspace(request).require_suggester()
    suggester.ask_about_all(service, body.limit)
    return SuggestStarted(suggester.model.source_name, suggester.host)


page_router = APIRouter(include_in_schema=False)

_SHOWN_ERRORS = (InputError,)
"""Errors that are shown on the page, so that the form can be corrected."""


@page_router.get("/c/{slug}/classes")
def show_classes(request: Request, slug: str) -> Response:
    """Show what the classes mean, and the sources of suggestions."""
    return _render_classes(request, slug)


def _render_classes(
    request: Request, slug: str, *, notice: str | None = None, error: str | None = None
) -> Response:
    """Return the page of the classes.

    Args:
        notice: what was just changed.
        error: why a change was refused.
    """
    page = open_campaign_page(request, slug, "classes", Permission.ANSWER)
    suggester = get_workspace(request).suggester
    campaign = page.service.campaign
    with campaign.reading() as view:
        current = view.encodings.current()
    encoder = None if current is None else current.encoder
    return page.render(
        "classes.html",
        # The status tells programs what the page tells people.
        status=200 if error is None else 422,
        sources=campaign.suggestions.recent_sources(),
        uses_names=campaign.settings.names,
        unused_names=explain_unused_names(campaign.settings, encoder),
        suggester=suggester,
        problem=None if suggester is None else suggester.problem(slug),
        is_asking=suggester is not None and suggester.is_busy(slug),
        notice=notice,
        error=error,
    )


@page_router.post("/c/{slug}/classes")
def submit_descriptions(
    request: Request,
    slug: str,
    *,
    name: Annotated[list[str], Form(max_length=10_000)],
    description: Annotated[list[str], Form(max_length=10_000)],
    examples: Annotated[list[str], Form(max_length=10_000)],
) -> Response:
    """Save the descriptions of all classes."""
    service = require_permission(request, slug, Permission.MANAGE)
    try:
        if not len(name) == len(description) == len(examples):
            raise InputError("The form is incomplete: reload the page and try again.")

        described = {}
        for class_name, text, lines in zip(name, description, examples, strict=True):
            described[class_name] = validate_description(class_name, text, lines.splitlines())
        service.campaign.classes.describe(described, who=current_user(request))
    except _SHOWN_ERRORS as error:
        return _render_classes(request, slug, error=str(error))
    return _render_classes(request, slug, notice="The descriptions were saved.")


@page_router.post("/c/{slug}/classes/rename")
def rename_class(
    request: Request,
    slug: str,
    *,
    name: Annotated[str, Form(max_length=1000)],
    new_name: Annotated[str, Form(max_length=1000)],
) -> Response:
    """Give a class another name."""
    service = require_permission(request, slug, Permission.MANAGE)
    try:
        service.campaign.classes.rename(name, new_name, who=current_user(request))
    except _SHOWN_ERRORS as error:
        return _render_classes(request, slug, error=str(error))
    return _render_classes(request, slug, notice=f"{name} is called {new_name.strip()} now.")


@page_router.post("/c/{slug}/classes/names")
def submit_names(
    request: Request, slug: str, use: Annotated[str, Form(max_length=3)] = "yes"
) -> Response:
    """Let models learn from the names of the classes, or not."""
    service = require_permission(request, slug, Permission.MANAGE)
    service.campaign.change_settings(names=use == "yes", who=current_user(request))
    return _render_classes(request, slug, notice="The next model will take this into account.")
