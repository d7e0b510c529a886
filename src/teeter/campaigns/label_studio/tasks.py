"""The tasks of a project and their annotations, read page by page; later only those that changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from teeter.campaigns.label_studio.client import ListingChangedError, Server
from teeter.campaigns.label_studio.config import choice_of
from teeter.campaigns.label_studio.payloads import ITEM

__all__ = ["Annotation", "Project", "Task"]

_FIELDS = (
    "id,data,annotations,is_labeled,overlap,created_at,updated_at,"  # of tasks; those below are of annotations
    "result,completed_by,was_cancelled"
)
_PAGE = 500
_TRIES = 3

_BACK = timedelta(seconds=60)
"""How far behind the newest change others may still appear: a server writes some of them late."""


@dataclass(frozen=True)
class Annotation:
    """What somebody says of a task."""

    number: int
    task: int
    by: int | None
    """The user's number."""
    skipped: bool
    chosen: str | None
    """None where it is not one class of ours."""
    at: datetime


@dataclass(frozen=True)
class Task:
    """An item in Label Studio."""

    number: int
    item: str | None
    """None: it is not one of ours."""
    done: bool
    """Whether as many have answered it as were to."""
    overlap: int
    annotations: tuple[Annotation, ...]
    at: datetime


class Project:
    """The tasks of a project, as they were when they were last read."""

    def __init__(self, server: Server, number: int) -> None:
        self.server, self.number = server, number
        self.tasks: dict[int, Task] = {}
        self._newest: datetime | None = None

    def read(self, *, whole: bool = False) -> None:
        """Read all tasks; the next time only those that changed since, unless the ``whole`` is asked for."""
        since = None if whole or self._newest is None else self._newest - _BACK
        for left in reversed(range(_TRIES)):
            try:
                found = self._listed(since)
                break
            except ListingChangedError:
                if not left:
                    raise
        self.tasks = found if since is None else self.tasks | found
        self._newest = max((task.at for task in self.tasks.values()), default=None)

    def _listed(self, since: datetime | None) -> dict[int, Task]:
        params: dict[str, Any] = {
            "project": self.number,
            "fields": "all",
            "include": _FIELDS,
            "page_size": _PAGE,
        }
        if since is not None:
            changed = {
                "filter": "filter:tasks:updated_at",
                "operator": "greater",
                "type": "Datetime",
                "value": since.isoformat().replace("+00:00", "Z"),
            }
            params["query"] = json.dumps({"filters": {"conjunction": "and", "items": [changed]}})
        rows = list(self.server.pages("/api/tasks/", "tasks", "total", **params))
        try:
            return {row["id"]: _task(row) for row in rows}
        except (KeyError, TypeError, ValueError, AttributeError):
            raise self.server.strange() from None


def _task(row: Mapping[str, Any]) -> Task:
    item = row["data"].get(ITEM)
    annotations = tuple(_annotation(one, row["id"]) for one in row["annotations"])
    return Task(
        number=int(row["id"]),
        item=item if isinstance(item, str) else None,
        done=bool(row["is_labeled"]),
        overlap=int(row["overlap"]),
        annotations=annotations,
        at=_moment(row["updated_at"]),
    )


def _annotation(row: Mapping[str, Any], task: int) -> Annotation:
    by = row["completed_by"]
    return Annotation(
        number=int(row["id"]),
        task=int(task),
        by=by.get("id") if isinstance(by, Mapping) else by,
        skipped=bool(row["was_cancelled"]),
        chosen=choice_of(row["result"] or ()),
        at=_moment(row.get("updated_at") or row["created_at"]),
    )


def _moment(told: str) -> datetime:
    found = datetime.fromisoformat(told)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
