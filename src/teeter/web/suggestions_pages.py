"""The page of the classes: what they mean, and who suggests them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, File, Form, Request, UploadFile
from fastapi.responses import Response

from teeter.campaigns.descriptions import validate_description
from teeter.campaigns.enums import Permission
from teeter.errors import InputError, ServerError
from teeter.web.pages import open_campaign_page
from teeter.web.permissions import current_user, get_workspace, require_permission
from teeter.web.schemas import PredictionsStored
from teeter.web.suggestions import SuggestionService
from teeter.web.suggestions_api import upload_predictions

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

_SHOWN_ERRORS = (InputError, ServerError)
"""Errors that are shown on the page, so that the form can be corrected."""

_LISTED_LABELS = 3
"""Unknown classes of a file that are named one by one."""


@router.get("/c/{slug}/classes")
def show_classes(request: Request, slug: str) -> Response:
    """Show what the classes mean, and the sources of suggestions."""
    return _render_classes(request, slug)


def _render_classes(
    request: Request, slug: str, *, notice: str | None = None, error: str | None = None
) -> Response:
    """Return the page of the classes.

    Args:
        request: the request of the page.
        slug: the campaign's name in addresses.
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


@router.post("/c/{slug}/classes")
def describe_classes(
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


@router.post("/c/{slug}/classes/rename")
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
        service.campaign.rename_class(name, new_name, who=current_user(request))
    except _SHOWN_ERRORS as error:
        return _render_classes(request, slug, error=str(error))
    return _render_classes(request, slug, notice=f"{name} is called {new_name.strip()} now.")


@router.post("/c/{slug}/classes/names")
def use_names(
    request: Request, slug: str, use: Annotated[str, Form(max_length=3)] = "yes"
) -> Response:
    """Let models learn from the names of the classes, or not."""
    service = require_permission(request, slug, Permission.MANAGE)
    SuggestionService(service, current_user(request)).use_names(use == "yes")
    return _render_classes(request, slug, notice="The next model will take this into account.")


@router.post("/c/{slug}/predictions")
def add_predictions(
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


@router.post("/c/{slug}/sources/remove")
def remove_source(
    request: Request, slug: str, name: Annotated[str, Form(max_length=200)]
) -> Response:
    """Remove a source and its suggestions."""
    service = require_permission(request, slug, Permission.MANAGE)
    try:
        SuggestionService(service, current_user(request)).remove_source(name)
    except _SHOWN_ERRORS as error:
        return _render_classes(request, slug, error=str(error))
    return _render_classes(request, slug, notice=f"{name} and its suggestions were removed.")


@router.post("/c/{slug}/suggest")
def ask_language_model(request: Request, slug: str) -> Response:
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
