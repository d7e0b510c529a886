"""The promise of a campaign over REST and on its pages: let the model label the rest."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Path, Query, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import BaseModel, Field

from teeter.base.wording import pluralize
from teeter.campaigns.finish import report as finish_report
from teeter.campaigns.finish.certificate import certificate_page, newest_certificate
from teeter.campaigns.finish.promise import MIN_ERROR, PromiseTerms
from teeter.campaigns.finish.report import FinishReport
from teeter.campaigns.records import Permission
from teeter.campaigns.store import StoredCertificate
from teeter.errors import InputError, UnknownResourceError
from teeter.server.access.permissions import current_user, require_permission
from teeter.server.schemas import RequestBody
from teeter.server.service import CampaignService

__all__ = [
    "CertificateOut",
    "DrawsIn",
    "FinishIn",
    "FinishOut",
    "FinishService",
    "page_router",
    "require_finish_permission",
    "router",
]


MOST_DRAWS = 100_000
"""Random items that can be asked for at once."""


class FinishIn(RequestBody):
    """What is to be promised."""

    error: Annotated[float, Field(ge=MIN_ERROR, lt=0.5)] = 0.05
    """The share of wrong labels that is allowed."""
    confidence: Annotated[float, Field(ge=0.5, lt=1)] = 0.95
    per_class: bool = False
    draws: Annotated[int | None, Field(ge=0, le=MOST_DRAWS)] = None
    """Random items to ask about next. By default as many as the plan needs first."""


class DrawsIn(RequestBody):
    """How many random items to ask about next."""

    count: Annotated[int, Field(ge=0, le=MOST_DRAWS)]


class FinishOut(BaseModel):
    """What the model may label, or why it cannot label anything yet."""

    sentences: list[str]
    """The result for people."""
    report: FinishReport | None
    """None if there is no model that could label the rest."""
    coverage: float
    """The share of the items left that the model may label."""
    certificate: str | None
    """The id of the newest certificate of this promise."""


class CertificateOut(BaseModel):
    """A certificate of a promise."""

    id: str
    issued: str
    content: dict[str, object]
    """Everything that it says."""


class FinishService:
    """Lets the model of a campaign label the rest."""

    def __init__(self, service: CampaignService, annotator: str) -> None:
        self.service = service
        self.annotator = annotator

    def describe(self) -> FinishOut:
        """Return what the model may label now, or what it would take."""
        campaign = self.service.campaign
        with campaign.reading() as view:
            report = self.service.look_at_finish(view)
            certificate = newest_certificate(view)

        if isinstance(report, InputError):
            return FinishOut(sentences=[str(report)], report=None, coverage=0, certificate=None)
        return _describe(report, certificate)

    def start(self, body: FinishIn) -> FinishOut:
        """Freeze the newest model, and ask about random items next.

        Raises:
            InputError: there is no model, too few items are left, or answers are newer than it.
        """
        campaign = self.service.campaign
        terms = PromiseTerms(body.error, body.confidence, body.per_class)
        with campaign.writing() as change:
            # Training takes too long for a request, and an older model would label worse.
            version = change.models.newest_version()
            newer_answers = change.answers.count_since_newest_model()
            if version and newer_answers:
                are = pluralize(newer_answers, "answer is", "answers are")
                raise InputError(f"{are} newer than model {version}: train first.")

            report = finish_report.start_finish(
                change,
                terms,
                who=self.annotator,
                draws=body.draws,
            )
        return _describe(report, None)

    def request_draws(self, count: int) -> FinishOut:
        """Let the next questions be so many random items."""
        campaign = self.service.campaign
        with campaign.writing() as change:
            finish_report.request_draws(change, count, who=self.annotator)
        return self.describe()

    def certify(self) -> CertificateOut:
        """Write down what is promised now."""
        certificate = self.service.campaign.certify(who=self.annotator)
        return _certificate_out(certificate)

    def certificate(self, code: str) -> CertificateOut:
        """Return a certificate by its id.

        Raises:
            UnknownResourceError: no certificate has this id.
        """
        campaign = self.service.campaign
        with campaign.reading() as view:
            certificate = view.finishes.certificate(code)
        if certificate is None:
            raise UnknownResourceError(f"This campaign has no certificate {code[:32]!r}.")
        return _certificate_out(certificate)


def _describe(report: FinishReport, certificate: StoredCertificate | None) -> FinishOut:
    return FinishOut(
        sentences=report.describe(),
        report=report,
        coverage=report.coverage,
        certificate=None if certificate is None else certificate.code,
    )


def _certificate_out(certificate: StoredCertificate) -> CertificateOut:
    return CertificateOut(
        id=certificate.code, issued=certificate.issued, content=certificate.content
    )


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
