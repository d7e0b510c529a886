"""The section Finish of the progress page, and certificates as pages to keep."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import PlainTextResponse, Response

from teeter.campaigns.enums import Permission
from teeter.campaigns.finish.certificate import certificate_page
from teeter.errors import InputError
from teeter.web.finish import MOST_DRAWS, FinishIn
from teeter.web.finish_api import require_finish_permission

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

PercentField = Annotated[float, Form()]


@router.post("/c/{slug}/finish")
def start_finish(
    request: Request,
    slug: str,
    error: PercentField = 5.0,
    confidence: PercentField = 95.0,
    per_class: Annotated[bool, Form()] = False,
) -> Response:
    """Start a promise, and return a sentence about it for the page."""
    service = require_finish_permission(request, slug, Permission.MANAGE)
    # Written so that NaN is refused, too.
    if not 0 < error < 50:
        return PlainTextResponse("The share of wrong labels must be above 0% and below 50%.")
    if not 50 <= confidence < 100:
        return PlainTextResponse("The confidence must be at least 50% and below 100%.")

    body = FinishIn(error=error / 100, confidence=confidence / 100, per_class=per_class)
    try:
        result = service.start(body)
    except InputError as problem:
        return PlainTextResponse(str(problem))
    return PlainTextResponse(_describe_next(result.report.waiting_draws if result.report else 0))


@router.post("/c/{slug}/finish/draws")
def request_draws(
    request: Request, slug: str, count: Annotated[int, Form(ge=0, le=MOST_DRAWS)] = 0
) -> Response:
    """Ask about random items next, and return a sentence about it for the page."""
    service = require_finish_permission(request, slug, Permission.MANAGE)
    try:
        result = service.request_draws(count)
    except InputError as problem:
        return PlainTextResponse(str(problem))
    return PlainTextResponse(_describe_next(result.report.waiting_draws if result.report else 0))


def _describe_next(waiting: int) -> str:
    if waiting:
        return f"The next {waiting:,} items are drawn at random."
    return "The next items are picked by the strategy."


@router.post("/c/{slug}/finish/certificate")
def certify(request: Request, slug: str) -> Response:
    """Certify the promise, and return its id for the page."""
    service = require_finish_permission(request, slug, Permission.MANAGE)
    try:
        certificate = service.certify()
    except InputError as problem:
        return PlainTextResponse(str(problem))
    return PlainTextResponse(
        f"Certificate {certificate.id} is stored. Exports now include the model's labels."
    )


@router.get("/c/{slug}/certificate")
def download_certificate(
    request: Request, slug: str, id: Annotated[str, Query(max_length=64)]
) -> Response:
    """Return a certificate as one page to save or print."""
    certificate = require_finish_permission(request, slug, Permission.ANSWER).certificate(id)
    # As a file, because the page has a style of its own, which pages of the server must not have.
    name = f"certificate-{certificate.id}.html"
    return Response(
        certificate_page(certificate.content),
        media_type="text/html",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )
