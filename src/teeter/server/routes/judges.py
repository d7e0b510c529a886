"""Audits: what the answers say of judges, on a page, as a file and over REST."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from teeter.campaigns.records import AuditReport, Permission
from teeter.errors import InputError
from teeter.server.access.permissions import CampaignToManage, CampaignToReview, User
from teeter.server.charts import accuracy_chart, reliability_chart
from teeter.server.pages import open_campaign_page, wants_part

router = APIRouter(prefix="/api/v1/campaigns/{slug}")
page_router = APIRouter(include_in_schema=False)


@router.get("/judges")
def get_audit(campaign: CampaignToReview) -> AuditReport:
    """Return what an audit has found out. The shares of right labels hold whenever you look."""
    return campaign.judges.report()


@router.post("/judges/end")
def end_audit(campaign: CampaignToManage, user: User) -> AuditReport:
    """End the audit: no further items are drawn, and what judges say is hidden no more.

    Sent again, it changes nothing.
    """
    return campaign.judges.end(who=user)


@page_router.get("/c/{slug}/audit")
def show_audit(
    request: Request, slug: str, seen: Annotated[str, Query(max_length=64)] = ""
) -> Response:
    """Show the report of an audit. htmx asks for the changing part only, if it has changed.

    Args:
        seen: identifies what the page shows.
    """
    page = open_campaign_page(request, slug, "audit", Permission.REVIEW)
    report = page.campaign.judges.report()
    promise = None
    with suppress(InputError):  # it ended when classes were merged
        promise = page.campaign.finish.look()
    digest = hashlib.sha256(repr((report, promise)).encode()).hexdigest()
    if wants_part(request) and seen == digest:
        return Response(status_code=204)

    charts = []
    for judge in report.judges:
        points = [(point.total, point) for point in judge.curve if point.total]
        charts.append((judge, accuracy_chart(points), reliability_chart(judge.reliability)))
    template = "part_audit.html" if wants_part(request) else "audit.html"
    return page.render(template, seen=digest, report=report, promise=promise, charts=charts)


@page_router.get("/c/{slug}/audit/file")
def download_audit(campaign: CampaignToReview, slug: str) -> Response:
    """Return the report as one page to save or print."""
    # As a file, because the page has a style of its own, which pages of the server must not have.
    return Response(
        campaign.judges.page(),
        media_type="text/html",
        headers={"content-disposition": f'attachment; filename="audit-{slug}.html"'},
    )
