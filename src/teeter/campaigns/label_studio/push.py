"""Questions that go out: each open one has a task that waits, with its rank as the score that tasks are ordered by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.db import Pick
from teeter.campaigns.enums import AnswerKind
from teeter.campaigns.label_studio.client import Server
from teeter.campaigns.label_studio.payloads import (
    ITEM,
    image_addresses,
    in_parts,
    numbers_of,
    uploaded,
)
from teeter.campaigns.label_studio.project_link import (
    ImportedAnnotation,
    ProjectLink,
    annotations_of,
)
from teeter.campaigns.label_studio.pull import HOLDER
from teeter.campaigns.label_studio.tasks import Project, Task

__all__ = ["MODEL", "TaskPusher"]

MODEL = "teeter"
"""The version of our predictions: Label Studio orders by those of the project's version alone."""


class TaskPusher:
    """What goes from a campaign to a server."""

    def __init__(self, campaign: Campaign, server: Server, images: str | None = None) -> None:
        """``images`` is an address under which images are served already, and need not be uploaded."""
        self.campaign, self.server, self.images = campaign, server, images

    def unsent(self, link: ProjectLink, project: Project) -> list[tuple[float, Pick]]:
        """Return the open questions that nobody finds in Label Studio, each with its score: the lowest comes first."""
        with self.campaign.database.reading() as connection:
            picks = self.campaign.repository.picks.open_picks(connection, HOLDER)
            taken = annotations_of(self.campaign, connection, link)
        waiting = {task.item for task in project.tasks.values() if _waits(task, taken)}
        scored = [(rank / len(picks), pick) for rank, pick in enumerate(picks, start=1)]
        return [(score, pick) for score, pick in scored if pick.item not in waiting]

    def send(self, link: ProjectLink, project: Project) -> int:
        """Send what is unsent, and return how many tasks it became."""
        scored = self.unsent(link, project)
        keys = [pick.item for _, pick in scored]
        data, people = self._data(project.number, keys), self._people(keys)
        tasks = [_made_task(data[pick.item], pick, score) for score, pick in scored]
        for part in in_parts(tasks, [len(str(task)) for task in tasks]):
            told = self.server.post(
                f"/api/projects/{project.number}/import", part, return_task_ids="true"
            )
            for number, task in zip(told.get("task_ids", ()), part, strict=False):
                if people[task["data"][ITEM]] > 1:
                    self.server.patch(
                        f"/api/tasks/{number}/", {"overlap": people[task["data"][ITEM]]}
                    )
        if tasks:
            self._require_order(project)
        return len(tasks)

    def _require_order(self, project: Project) -> None:
        """Let Label Studio order by our scores, should anybody have chosen others."""
        place = f"/api/projects/{project.number}/"
        if self.server.get(place).get("model_version") != MODEL:
            self.server.patch(place, {"model_version": MODEL})

    def _people(self, keys: Sequence[str]) -> dict[str, int]:
        """Return how many are still to answer each item."""
        repository = self.campaign.repository
        with self.campaign.database.reading() as connection:
            rows = repository.items.by_id(connection, keys)
            said = {
                key: sum(
                    answer.kind != AnswerKind.SKIP
                    for answer in repository.answers.for_item(connection, row.row_id)
                )
                for key, row in rows.items()
                if row.annotators_needed > 1
            }
        return {key: max(1, row.annotators_needed - said.get(key, 0)) for key, row in rows.items()}

    def _data(self, project: int, keys: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return what people see of items, by id."""
        kind, repository = self.campaign.settings.kind, self.campaign.repository
        with self.campaign.database.reading() as connection:
            contents = {
                key: str(row.content)
                for key, row in repository.items.by_id(connection, keys).items()
            }
            named, vectors = (
                repository.items.features(connection) if kind == "features" and keys else ([], ())
            )
        if kind == "image":
            return {key: {"image": place} for key, place in self._places(project, contents).items()}
        if kind == "features":
            by_key = dict(zip(named, vectors, strict=True))
            return {key: {"text": numbers_of(key, by_key[key])} for key in keys}
        return {
            key: {"text": text.replace("\0", "\N{REPLACEMENT CHARACTER}")}
            for key, text in contents.items()
        }

    def _places(self, project: int, paths: Mapping[str, str]) -> dict[str, str]:
        """Return where Label Studio finds images, by item."""
        if self.images is not None:
            return image_addresses(self.images, paths)
        folder = self.campaign.settings.folder
        return uploaded(self.server, project, None if folder is None else Path(folder), paths)


def _waits(task: Task, taken: Mapping[int, ImportedAnnotation]) -> bool:
    """Tell whether somebody is still to answer a task, or an answer of it is still to be taken in."""
    return not task.done or any(one.number not in taken for one in task.annotations)


def _made_task(data: Mapping[str, str], pick: Pick, score: float) -> dict[str, Any]:
    return {
        "data": {**data, ITEM: pick.item},
        "meta": {"teeter": {"item": pick.item, "rank": pick.rank}},
        "predictions": [{"model_version": MODEL, "score": score, "result": []}],
    }
