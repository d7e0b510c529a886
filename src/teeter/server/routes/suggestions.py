"""Classes and suggestions: what owners do with them, over REST and on their pages."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, File, Form, Request, UploadFile
from fastapi.responses import Response

from teeter.campaigns.classes import validate_description
from teeter.campaigns.learning.prior import explain_unused_names
from teeter.campaigns.records import ClassDescription, ClassInfo, Permission
from teeter.errors import InputError, ServerError
from teeter.server.access.permissions import current_user, get_workspace, require_permission
from teeter.server.routes.pages import open_campaign_page
from teeter.server.schemas import (
    DescribeIn,
    NameIn,
    NamesIn,
    PredictionsStored,
    SourceOut,
    SourceRemoved,
    SuggestIn,
    SuggestStarted,
)
from teeter.server.service import CampaignService
from teeter.server.uploads import save_upload

__all__ = [
    "SuggestionService",
    "page_router",
    "router",
    "upload_predictions",
]


class SuggestionService:
    """What owners do with classes and suggestions."""

    def __init__(self, service: CampaignService, user: str) -> None:
        self._service = service
        self._user = user

    def describe_classes(self, descriptions: Mapping[str, ClassDescription]) -> list[ClassInfo]:
        """Replace the descriptions of some classes, and return all classes.

        Raises:
            UnknownNameError: there is no such class.
            InputError: a description is too long.
        """
        self._service.campaign.classes.describe(descriptions, who=self._user)
        return self._service.campaign.classes.all()

    def use_names(self, use: bool) -> NamesIn:
        """Choose whether models learn from the names and descriptions of the classes."""
        self._service.campaign.change_settings(names=use, who=self._user)
        return NamesIn(use=use)

    def explain_unused_names(self) -> str | None:
        """Return why models do not learn from the names of classes; None if they do."""
        campaign = self._service.campaign
        with campaign.reading() as view:
            current = view.encodings.current()
        return explain_unused_names(campaign.settings, None if current is None else current.encoder)

    def add_predictions(self, file: Path, source: str) -> PredictionsStored:
        """Store a file of predictions as suggestions of a source."""
        stored = self._service.campaign.add_predictions(file, source, who=self._user)
        return PredictionsStored(
            source=stored.source,
            stored=stored.stored,
            unknown_items=stored.unknown_items,
            unknown_labels=stored.unknown_labels,
            missing=stored.missing,
        )

    def remove_source(self, name: str) -> SourceRemoved:
        """Remove a source and its suggestions.

        Raises:
            UnknownNameError: there is no such source.
        """
        self._service.campaign.remove_source(name, who=self._user)
        return SourceRemoved(name=name)


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

    suggestions = SuggestionService(service, current_user(request))
    return suggestions.describe_classes(descriptions)


@router.post("/classes/names")
def use_names(request: Request, slug: str, body: NamesIn) -> NamesIn:
    """Let models learn from the names and descriptions of the classes, or not."""
    service = require_permission(request, slug, Permission.MANAGE)

    suggestions = SuggestionService(service, current_user(request))
    return suggestions.use_names(body.use)


# Suggestions


@router.get("/sources")
def list_sources(request: Request, slug: str) -> list[SourceOut]:
    """Return the sources of suggestions, and how often annotators agree with each."""
    service = require_permission(request, slug, Permission.REVIEW)
    return [SourceOut.from_report(report) for report in service.campaign.sources()]


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
) -> PredictionsStored:
    """Add the predictions of another model as suggestions. They never become labels."""
    return upload_predictions(request, slug, file, source)


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
def remove_source(request: Request, slug: str, body: NameIn) -> SourceRemoved:
    """Remove a source and all its suggestions."""
    service = require_permission(request, slug, Permission.MANAGE)

    suggestions = SuggestionService(service, current_user(request))
    return suggestions.remove_source(body.name)


@router.post("/suggest", status_code=202)
def ask_language_model(request: Request, slug: str, body: SuggestIn) -> SuggestStarted:
    """Ask the server's language model about all items that it has said nothing about.

    The texts of the items are sent to the server that was named when this one was started.
    """
    service = require_permission(request, slug, Permission.MANAGE)
    suggester = get_workspace(request).require_suggester()
    suggester.ask_about_all(service, body.limit)
    return SuggestStarted(source=suggester.model.source_name, sent_to=suggester.host)


page_router = APIRouter(include_in_schema=False)

_SHOWN_ERRORS = (InputError, ServerError)
"""Errors that are shown on the page, so that the form can be corrected."""

_LISTED_LABELS = 3
"""Unknown classes of a file that are named one by one."""


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
    service = SuggestionService(page.service, current_user(request))
    return page.render(
        "classes.html",
        # The status tells programs what the page tells people.
        status=200 if error is None else 422,
        sources=page.list_sources(),
        uses_names=page.service.campaign.settings.names,
        unused_names=service.explain_unused_names(),
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
        SuggestionService(service, current_user(request)).describe_classes(described)
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
    SuggestionService(service, current_user(request)).use_names(use == "yes")
    return _render_classes(request, slug, notice="The next model will take this into account.")


@page_router.post("/c/{slug}/predictions")
def submit_predictions(
    request: Request,
    slug: str,
    *,
    file: Annotated[UploadFile, File()],
    source: Annotated[str, Form(max_length=80)],
) -> Response:
    """Add the predictions of another model."""
    try:
        stored = upload_predictions(request, slug, file, source)
    except _SHOWN_ERRORS as error:
        sentence = get_workspace(request).redact_paths(str(error))
        return _render_classes(request, slug, error=sentence)
    return _render_classes(request, slug, notice=_describe_import(stored))


def _describe_import(stored: PredictionsStored) -> str:
    sentence = f"Added {stored.stored:,} suggestions by {stored.source}."
    if stored.unknown_items:
        are = f"{stored.unknown_items:,} predictions are for items"
        if stored.unknown_items == 1:
            are = "1 prediction is for an item"
        sentence += f" {are} that the campaign does not have."
    if stored.unknown_labels:
        n_unknown = sum(stored.unknown_labels.values())
        listed = ", ".join(list(stored.unknown_labels)[:_LISTED_LABELS])
        sentence += (
            f" {n_unknown:,} predictions name classes that do not exist here, such as {listed}."
        )
    return sentence


@page_router.post("/c/{slug}/sources/remove")
def submit_removal(
    request: Request, slug: str, name: Annotated[str, Form(max_length=200)]
) -> Response:
    """Remove a source and its suggestions."""
    service = require_permission(request, slug, Permission.MANAGE)
    try:
        SuggestionService(service, current_user(request)).remove_source(name)
    except _SHOWN_ERRORS as error:
        return _render_classes(request, slug, error=str(error))
    return _render_classes(request, slug, notice=f"{name} and its suggestions were removed.")


@page_router.post("/c/{slug}/suggest")
def submit_suggest(request: Request, slug: str) -> Response:
    """Ask the server's language model about all items."""
    service = require_permission(request, slug, Permission.MANAGE)
    try:
        suggester = get_workspace(request).require_suggester()
        suggester.ask_about_all(service, None)
    except _SHOWN_ERRORS as error:
        return _render_classes(request, slug, error=str(error))
    return _render_classes(
        request,
        slug,
        notice=f"All texts are being sent to {suggester.host}. You can leave this page.",
    )
