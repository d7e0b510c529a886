"""What the server says about itself: its REST API as a page, and its numbers.

``/docs`` is made from the OpenAPI description, without a script. ``/metrics`` is in Prometheus'
text format: only campaigns that the user of the request may review are listed. Where the server
requires a login, Prometheus sends a token like any other program (``authorization`` in its
configuration).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, PlainTextResponse, RedirectResponse, Response

from teeter.base.version import __version__
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.integrations.webhooks import count_waiting_deliveries
from teeter.campaigns.records import Permission
from teeter.errors import StoreError, UnknownResourceError
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


_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass
class _Metric:
    """A number with a name, for each of several sets of labels."""

    name: str
    help: str
    kind: str = "gauge"
    samples: list[tuple[dict[str, str], float]] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.samples:
            pairs = ",".join(f'{name}="{_escape(text)}"' for name, text in labels.items())
            # All digits: a counter of millions that is rounded would stand still.
            yield f"{self.name}{{{pairs}}} {value!r}" if pairs else f"{self.name} {value!r}"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


@router.get("/metrics")
def show_metrics(request: Request) -> Response:
    """Return the numbers of all campaigns that the user may review."""
    metrics = {
        "info": _Metric("teeter_info", "The version of the server."),
        "memory": _Metric("process_max_resident_memory_bytes", "Peak memory use of the server."),
        "up": _Metric("teeter_campaign_up", "Whether the campaign can be read."),
        "items": _Metric("teeter_items", "Number of items in the campaign."),
        "answered": _Metric(
            "teeter_answered_items", "Number of items with a current answer, by kind of answer."
        ),
        "model": _Metric(
            "teeter_model_version", "Version of the newest model; 0 before the first training."
        ),
        "busy": _Metric("teeter_background_busy", "Whether background work is running."),
        "webhooks": _Metric(
            "teeter_webhook_deliveries_waiting", "Number of events waiting to be sent to webhooks."
        ),
    }
    metrics["info"].samples.append(({"version": __version__}, 1))
    metrics["memory"].samples.append(({}, _peak_memory_bytes()))

    for slug, campaign in list(get_workspace(request).campaigns.items()):
        labels = {"campaign": slug}
        try:
            if Permission.REVIEW in permissions_in(request, campaign):
                _add_campaign(request, labels, campaign, metrics)
                metrics["up"].samples.append((labels, 1))
        except StoreError:
            # Its name is no secret from who may ask the others; its numbers are not to be had.
            metrics["up"].samples.append((labels, 0))

    lines = [line for metric in metrics.values() for line in metric.lines()]
    return PlainTextResponse("\n".join(lines) + "\n", media_type=_CONTENT_TYPE)


def _add_campaign(
    request: Request, labels: dict[str, str], campaign: Campaign, metrics: dict[str, _Metric]
) -> None:
    counts = campaign.items.count()
    waiting = count_waiting_deliveries(campaign)
    status = get_workspace(request).trainer.status(campaign.location)
    metrics["items"].samples.append((labels, counts.items))
    model = campaign.newest_model()
    metrics["model"].samples.append((labels, 0 if model is None else model.version))
    metrics["busy"].samples.append((labels, float(status.activity is not None)))
    metrics["webhooks"].samples.append((labels, waiting))

    by_kind = {
        "label": counts.labelled,
        "skip": counts.skipped,
        "unsure": counts.unsure,
        "flag": counts.flagged,
    }
    for kind, count in by_kind.items():
        metrics["answered"].samples.append(({**labels, "kind": kind}, count))


def _peak_memory_bytes() -> float:
    try:
        import resource
    except ImportError:  # Windows
        return 0.0

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in kilobytes, macOS in bytes.
    return float(peak if sys.platform == "darwin" else 1024 * peak)


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
