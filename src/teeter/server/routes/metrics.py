"""``/metrics``: the numbers of a server in Prometheus' text format.

Only campaigns that the user of the request may review are listed. Where the server requires a
login, Prometheus sends a token like any other program (``authorization`` in its configuration).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response

from teeter.base.version import __version__
from teeter.campaigns.enums import Permission
from teeter.errors import StoreError
from teeter.server.access.permissions import get_workspace, permissions_in
from teeter.server.service import CampaignService

__all__ = ["router"]

router = APIRouter(include_in_schema=False)

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

    for service in list(get_workspace(request).services.values()):
        labels = {"campaign": service.slug}
        try:
            if Permission.REVIEW in permissions_in(request, service):
                _add_campaign(request, service, metrics)
                metrics["up"].samples.append((labels, 1))
        except StoreError:
            # Its name is no secret from who may ask the others; its numbers are not to be had.
            metrics["up"].samples.append((labels, 0))

    lines = [line for metric in metrics.values() for line in metric.lines()]
    return PlainTextResponse("\n".join(lines) + "\n", media_type=_CONTENT_TYPE)


def _add_campaign(request: Request, service: CampaignService, metrics: dict[str, _Metric]) -> None:
    labels = {"campaign": service.slug}
    counts = service.count_items()
    repository = service.campaign.repository
    with service.campaign.database.reading() as connection:
        waiting = repository.webhooks.count_waiting(connection)

    status = get_workspace(request).trainer.status(service.location)
    metrics["items"].samples.append((labels, counts.items))
    metrics["model"].samples.append((labels, service.newest_model().version))
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
