"""What the server says about itself: its REST API as a page, and its numbers.

``/docs`` is made from the OpenAPI description, without a script. ``/metrics`` is in Prometheus'
text format: the time of requests, the process, and the campaigns that the user of the request may
review. Where the server requires a login, Prometheus sends a token like any other program
(``authorization`` in its configuration).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, RedirectResponse, Response
from prometheus_client import CollectorRegistry, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.exposition import choose_encoder
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from teeter.base.version import __version__
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.integrations.webhooks import count_waiting_deliveries
from teeter.campaigns.records import Permission
from teeter.errors import StoreError, UnknownResourceError
from teeter.server.access.middlewares import HttpMiddleware
from teeter.server.access.permissions import (
    get_workspace,
    permissions_in,
    require_campaign_creator,
)
from teeter.server.pages import render_page

router = APIRouter(include_in_schema=False)


@router.get("/docs")
def show_api_docs(request: Request) -> Response:
    """Show all operations and types of the REST API."""
    description = request.app.openapi()
    return render_page(
        request,
        "api_docs.html",
        paths=description["paths"],
        schemas=description["components"]["schemas"],
        origin=f"{request.url.scheme}://{request.url.netloc}",
    )


_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
"""Upper limits of the classes that request times are counted in, in seconds."""


class RequestTimesMiddleware(HttpMiddleware):
    """Measure how long each response takes to be sent, by route."""

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        super().__init__(app)
        self._seconds = Histogram(
            "teeter_request_seconds",
            "Seconds until the response to a request was sent.",
            ("method", "route", "status"),
            buckets=_BUCKETS,
            registry=registry,
        )

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and measure it."""
        start = time.perf_counter()
        status = "500"

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self.app(scope, receive, note_status)
        finally:
            # Anyone may send other methods and paths, and each label takes memory for good.
            route: Any = scope.get("route")
            labels = ("other", "other")
            if scope["method"] in getattr(route, "methods", ()):
                labels = (scope["method"], route.path)
            seconds = time.perf_counter() - start
            self._seconds.labels(*labels, status).observe(seconds)


@router.get("/metrics")
def show_metrics(request: Request) -> Response:
    """Return the numbers of the server, and of all campaigns that the user may review."""
    # A user must not see the campaigns of others, so these gauges are made for each request.
    registry = CollectorRegistry()
    registry.register(request.app.state.request_metrics)
    ProcessCollector(registry=registry)
    gauges = _CampaignGauges(registry)

    for slug, campaign in list(get_workspace(request).campaigns.items()):
        try:
            if Permission.REVIEW in permissions_in(request, campaign):
                gauges.add(request, slug, campaign)
                gauges.up.labels(slug).set(1)
        except StoreError:
            # Its name is no secret from who may ask the others; its numbers are not to be had.
            gauges.up.labels(slug).set(0)

    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(registry), media_type=content_type)


class _CampaignGauges:
    """What is counted in each campaign."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, help_text: str, *labels: str) -> Gauge:
            return Gauge(f"teeter_{name}", help_text, ("campaign", *labels), registry=registry)

        Info("teeter", "The version of the server.", registry=registry).info(
            {"version": __version__}
        )
        self.up = gauge("campaign_up", "Whether the campaign can be read.")
        self._items = gauge("items", "Number of items in the campaign.")
        self._answered = gauge(
            "answered_items", "Number of items with a current answer, by kind of answer.", "kind"
        )
        self._model = gauge(
            "model_version", "Version of the newest model; 0 before the first training."
        )
        self._busy = gauge("background_busy", "Whether background work is running.")
        self._webhooks = gauge(
            "webhook_deliveries_waiting", "Number of events waiting to be sent to webhooks."
        )

    def add(self, request: Request, slug: str, campaign: Campaign) -> None:
        """Set the gauges of a campaign."""
        counts = campaign.items.count()
        waiting = count_waiting_deliveries(campaign)
        status = get_workspace(request).trainer.status(campaign.location)
        version = 0
        model = campaign.newest_model()
        if model is not None:
            version = model.version

        self._items.labels(slug).set(counts.items)
        self._model.labels(slug).set(version)
        self._busy.labels(slug).set(status.activity is not None)
        self._webhooks.labels(slug).set(waiting)
        self._answered.labels(slug, "label").set(counts.labelled)
        self._answered.labels(slug, "skip").set(counts.skipped)
        self._answered.labels(slug, "unsure").set(counts.unsure)
        self._answered.labels(slug, "flag").set(counts.flagged)


# Reports

_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'; "
    # Without allow-same-origin, images beside the page would count as those of another site.
    "sandbox allow-same-origin"
)
"""The Content-Security-Policy of reports, which may come from anywhere: no script of them runs."""


@router.get("/reports/{name}")
def show_report(request: Request, name: str) -> Response:
    """Open a benchmark report, at an address from which its relative links work."""
    require_campaign_creator(request)
    if name not in get_workspace(request).find_reports():
        raise UnknownResourceError(f"There is no report {name[:100]!r}.")
    return RedirectResponse(f"/reports/{name}/index.html", 303)


@router.get("/reports/{name}/{path:path}")
def show_report_file(request: Request, name: str, path: str) -> Response:
    """Return a file of a report."""
    require_campaign_creator(request)
    file = _find_report_file(get_workspace(request).find_reports().get(name), path)
    if file is None:
        raise UnknownResourceError(f"There is no file {path[:100]!r} in the report {name[:100]!r}.")
    return FileResponse(file, headers={"content-security-policy": _REPORT_POLICY})


def _find_report_file(folder: Path | None, path: str) -> Path | None:
    """Return a file inside a folder; None if there is no such file, or it is outside."""
    # A path with a NUL cannot be resolved.
    if folder is None or "\0" in path:
        return None

    root = folder.resolve()
    file = (root / path).resolve()
    if root not in file.parents or not file.is_file():
        return None
    return file
