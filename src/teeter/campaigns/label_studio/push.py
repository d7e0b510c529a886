"""Create a task in Label Studio for every open pick of a campaign that has none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.enums import AnswerKind, ItemKind
from teeter.campaigns.label_studio.client import LabelStudioClient
from teeter.campaigns.label_studio.payloads import MODEL_VERSION, LabelStudioTask, NewTask
from teeter.campaigns.label_studio.pull import LABEL_STUDIO_ANNOTATOR
from teeter.campaigns.label_studio.task_data import (
    format_features,
    image_urls,
    split_by_size,
    upload_images,
)
from teeter.campaigns.label_studio.tasks import ProjectTasks
from teeter.campaigns.store import ImportedAnnotation, Pick, ProjectLink, ShownSuggestion
from teeter.campaigns.suggestions import measure_sources, visible_suggestions

__all__ = ["ScoredPick", "TaskPusher"]


@dataclass(frozen=True)
class ScoredPick:
    """A pick, and the score of the task that is created for it."""

    pick: Pick
    score: float
    """Position among the open picks divided by their number.

    Label Studio serves the lowest first.
    """


class TaskPusher:
    """Creates the tasks of a campaign in Label Studio."""

    def __init__(
        self,
        campaign: Campaign,
        client: LabelStudioClient,
        image_prefix: str | None = None,
        *,
        suggestions: bool = False,
    ) -> None:
        """Prepare to create tasks.

        Args:
            campaign: The campaign.
            client: Connection to Label Studio.
            image_prefix: URL below which the images are served already. Without it they are
                uploaded to Label Studio.
            suggestions: Send suggestions as predictions, which annotators see.
        """
        self.campaign = campaign
        self.client = client
        self.image_prefix = image_prefix
        self.suggestions = suggestions

    def unsent_picks(self, link: ProjectLink, tasks: ProjectTasks) -> list[ScoredPick]:
        """Return the open picks that have no task to answer, best first."""
        repository = self.campaign.repository
        with self.campaign.database.reading() as connection:
            picks = repository.picks.open_picks(connection, LABEL_STUDIO_ANNOTATOR)
            imported = repository.label_studio.imported_annotations(connection, link)

        waiting_items = set()
        for task in tasks.by_id.values():
            if _is_waiting(task, imported):
                waiting_items.add(task.item_id)

        # Scores count all open picks, so that new tasks come after those that already wait.
        unsent = []
        for position, pick in enumerate(picks, start=1):
            if pick.item not in waiting_items:
                unsent.append(ScoredPick(pick, score=position / len(picks)))
        return unsent

    def push(self, link: ProjectLink, tasks: ProjectTasks) -> int:
        """Create a task for each unsent pick.

        Args:
            link: The campaign's link to the project.
            tasks: The tasks of the project, just read: an item in it is not sent again.

        Returns:
            The number of new tasks.
        """
        project_id = tasks.project_id
        new_tasks = self._build_tasks(project_id, self.unsent_picks(link, tasks))
        # The size of the request, apart from a few separators.
        sizes = [len(json.dumps(task.to_json())) for task in new_tasks]

        for part in split_by_size(new_tasks, sizes):
            task_ids = self.client.import_tasks(project_id, part)

            # Not strict: an old Label Studio may not return the ids, and 1 is the default overlap.
            for task_id, task in zip(task_ids, part, strict=False):
                if task.overlap > 1:
                    self.client.update_task(task_id, overlap=task.overlap)

        if new_tasks:
            self._require_sorting_by_score(project_id)
        if any(task.suggestion is not None for task in new_tasks):
            # A project hides predictions unless suggestions were asked for.
            self.client.update_project(project_id, show_collab_predictions=True)
        return len(new_tasks)

    def _require_sorting_by_score(self, project_id: int) -> None:
        """Set the project's model version back, in case it was changed in Label Studio."""
        if self.client.get_project(project_id).model_version != MODEL_VERSION:
            self.client.update_project(project_id, model_version=MODEL_VERSION)

    def _build_tasks(self, project_id: int, scored_picks: Sequence[ScoredPick]) -> list[NewTask]:
        item_ids = [scored.pick.item for scored in scored_picks]
        contents = self._task_contents(project_id, item_ids)
        missing_answers = self._count_missing_answers(item_ids)
        suggestions = self._find_suggestions([scored.pick for scored in scored_picks])

        new_tasks = []
        for scored in scored_picks:
            item_id = scored.pick.item
            task = NewTask(
                item_id=item_id,
                content=contents[item_id],
                rank=scored.pick.rank,
                score=scored.score,
                overlap=missing_answers[item_id],
                suggestion=suggestions.get(item_id),
            )
            new_tasks.append(task)
        return new_tasks

    def _find_suggestions(self, picks: Sequence[Pick]) -> dict[str, ShownSuggestion]:
        """Return what to suggest about items by item id, except for those answered blind."""
        if not self.suggestions:
            return {}

        # Random and shared items measure the model and the annotators.
        picked = [pick.item for pick in picks if not pick.arm.is_random]
        item_ids = [item for item in picked if not self.campaign.is_shared(item)]

        repository = self.campaign.repository
        settings = self.campaign.settings
        with self.campaign.database.reading() as connection:
            items = repository.items.by_id(connection, item_ids)
            row_ids = [item.row_id for item in items.values()]
            reports = measure_sources(repository, connection, settings)
            visible = visible_suggestions(repository, connection, settings, reports, row_ids)

        return {item: ShownSuggestion(entry.source, entry.label) for item, entry in visible.items()}

    def _count_missing_answers(self, item_ids: Sequence[str]) -> dict[str, int]:
        """Return how many annotators still have to answer each item, at least 1."""
        repository = self.campaign.repository
        with self.campaign.database.reading() as connection:
            items = repository.items.by_id(connection, item_ids)
            row_ids = [item.row_id for item in items.values()]
            answers_by_row = repository.answers.for_items(connection, row_ids)

        missing_answers = {}
        for item_id, item in items.items():
            # A skip is stored as an answer, but the item still needs a real one.
            answers = answers_by_row[item.row_id]
            answer_count = sum(answer.kind is not AnswerKind.SKIP for answer in answers)

            # At least one: the pick is open, so its item is asked about in any case.
            missing_answers[item_id] = max(1, item.annotators_needed - answer_count)

        return missing_answers

    def _task_contents(self, project_id: int, item_ids: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return what annotators see of each item, by item id."""
        if self.campaign.settings.kind == ItemKind.FEATURES:
            return self._feature_contents(item_ids)

        with self.campaign.database.reading() as connection:
            items = self.campaign.repository.items.by_id(connection, item_ids)
        stored = {item_id: str(item.content) for item_id, item in items.items()}

        if self.campaign.settings.kind == ItemKind.IMAGE:
            urls = self._image_urls(project_id, stored)
            return {item_id: {"image": url} for item_id, url in urls.items()}

        # Old campaigns may hold a NUL, which campaigns refuse today. PostgreSQL, which Label Studio
        # may use, cannot store it.
        return {
            item_id: {"text": text.replace("\0", "\N{REPLACEMENT CHARACTER}")}
            for item_id, text in stored.items()
        }

    def _feature_contents(self, item_ids: Sequence[str]) -> dict[str, dict[str, str]]:
        if not item_ids:
            return {}

        with self.campaign.database.reading() as connection:
            stored = self.campaign.repository.encodings.read(connection, items=item_ids)

        features = dict(zip(stored.keys, stored.vectors, strict=True))
        return {
            item_id: {"text": format_features(item_id, features[item_id])} for item_id in item_ids
        }

    def _image_urls(self, project_id: int, paths: Mapping[str, str]) -> dict[str, str]:
        """Return where Label Studio finds images, by item id; upload them if necessary."""
        if self.image_prefix is not None:
            return image_urls(self.image_prefix, paths)

        return upload_images(self.client, project_id, self.campaign.image_folder, paths)


def _is_waiting(task: LabelStudioTask, imported: Mapping[int, ImportedAnnotation]) -> bool:
    """Return whether a task still needs an annotation, or has one that was not imported."""
    if not task.is_labeled:
        return True

    # An annotation with an unknown label, for example, can still be corrected in its task.
    return any(annotation.id not in imported for annotation in task.annotations)
