"""The promise of a campaign over REST and on its pages: let the model label the rest."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.responses import Response
from pydantic import Field

from teeter.campaigns.finish.certificate import certificate_page
from teeter.campaigns.finish.promise import MIN_ERROR
from teeter.campaigns.records import Certificate, FinishReport
from teeter.server.access.permissions import (
    CampaignToAnswer,
    CampaignToManage,
    User,
)
from teeter.server.schemas import RequestBody

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


router = APIRouter(prefix="/api/v1/campaigns/{slug}/finish")


@router.get("")
def get_finish(campaign: CampaignToAnswer) -> FinishReport:
    """Return which items the model may label, or how many random labels that would take.

    It may be asked for as often as you like: the promise allows any number of looks.
    """
    return campaign.finish.look()


@router.post("", status_code=201)
def start_finish(campaign: CampaignToManage, user: User, body: FinishIn) -> FinishReport:
    """Freeze the newest model, and let the next questions be random items.

    A call with other terms, or after a change, is a new attempt, which needs more random labels
    than the one before it. A call that finds nothing new returns the promise that was started.
    """
    finish = campaign.finish
    return finish.start(**body.model_dump(), train=False, who=user)


@router.post("/draws")
def request_draws(campaign: CampaignToManage, user: User, body: DrawsIn) -> FinishReport:
    """Let the next questions be so many random items; 0 to go back to the strategy's picks."""
    finish = campaign.finish
    return finish.draw(body.count, who=user)


@router.get("/certificates")
def list_certificates(campaign: CampaignToAnswer) -> list[Certificate]:
    """Return all certificates, oldest first."""
    return campaign.finish.certificates()


@router.post("/certificates", status_code=201)
def certify(campaign: CampaignToManage, user: User) -> Certificate:
    """Certify what is promised now. Exports then have the model's labels."""
    finish = campaign.finish
    return finish.certify(who=user)


@router.get("/certificates/{code}")
def get_certificate(
    campaign: CampaignToAnswer, code: Annotated[str, Path(max_length=64)]
) -> Certificate:
    """Return a certificate by its id."""
    return campaign.finish.certificate(code)


page_router = APIRouter(include_in_schema=False)


@page_router.get("/c/{slug}/certificate")
def download_certificate(
    campaign: CampaignToAnswer, id: Annotated[str, Query(max_length=64)]
) -> Response:
    """Return a certificate as one page to save or print."""
    finish = campaign.finish
    certificate = finish.certificate(id)
    # As a file, because the page has a style of its own, which pages of the server must not have.
    name = f"certificate-{certificate.id}.html"
    return Response(
        certificate_page(certificate.content),
        media_type="text/html",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )
