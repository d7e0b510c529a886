"""The promise over REST and on its pages."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Path, Query, Request
from fastapi.responses import PlainTextResponse, Response

from teeter.campaigns.enums import Permission
from teeter.campaigns.finish.certificate import certificate_page
from teeter.errors import InputError
from teeter.server.access.permissions import current_user, require_permission
from teeter.server.finish import (
    MOST_DRAWS,
    CertificateOut,
    DrawsIn,
    FinishIn,
    FinishOut,
    FinishService,
)

__all__ = [
    "page_router",
    "require_finish_permission",
    "router",
]


router = APIRouter(prefix="/api/v1/campaigns/{slug}/finish")


def require_finish_permission(request: Request, slug: str, permission: Permission) -> FinishService:
    """Return the promise of a campaign, for the user of a request.

    Raises:
        UnknownResourceError: there is no such campaign.
        PermissionDeniedError: the user may not do this there.
    """
    service = require_permission(request, slug, permission)
    return FinishService(service, current_user(request))


@router.get("")
def get_finish(request: Request, slug: str) -> FinishOut:
    """Return which items the model may label, or how many random labels that would take.

    It may be asked for as often as you like: the promise allows any number of looks.
    """
    return require_finish_permission(request, slug, Permission.ANSWER).describe()


@router.post("", status_code=201)
def start_finish(request: Request, slug: str, body: FinishIn) -> FinishOut:
    """Freeze the newest model, and let the next questions be random items.

    A call with other terms, or after a change, is a new attempt, which needs more random labels
    than the one before it. A call that finds nothing new returns the promise that was started.
    """
    finish = require_finish_permission(request, slug, Permission.MANAGE)
    return finish.start(body)


@router.post("/draws")
def request_draws(request: Request, slug: str, body: DrawsIn) -> FinishOut:
    """Let the next questions be so many random items; 0 to go back to the strategy's picks."""
    finish = require_finish_permission(request, slug, Permission.MANAGE)
    return finish.request_draws(body.count)


@router.post("/certificates", status_code=201)
def certify(request: Request, slug: str) -> CertificateOut:
    """Certify what is promised now. Exports then have the model's labels."""
    finish = require_finish_permission(request, slug, Permission.MANAGE)
    return finish.certify()


@router.get("/certificates/{code}")
def get_certificate(
    request: Request, slug: str, code: Annotated[str, Path(max_length=64)]
) -> CertificateOut:
    """Return a certificate by its id."""
    return require_finish_permission(request, slug, Permission.ANSWER).certificate(code)


page_router = APIRouter(include_in_schema=False)

PercentField = Annotated[float, Form()]


@page_router.post("/c/{slug}/finish")
def submit_start(
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


@page_router.post("/c/{slug}/finish/draws")
def submit_draws(
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


@page_router.post("/c/{slug}/finish/certificate")
def submit_certificate(request: Request, slug: str) -> Response:
    """Certify the promise, and return its id for the page."""
    service = require_finish_permission(request, slug, Permission.MANAGE)
    try:
        certificate = service.certify()
    except InputError as problem:
        return PlainTextResponse(str(problem))
    return PlainTextResponse(
        f"Certificate {certificate.id} is stored. Exports now include the model's labels."
    )


@page_router.get("/c/{slug}/certificate")
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
