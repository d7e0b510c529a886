"""The tasks of a project: all of them at first, then only those that changed."""

from __future__ import annotations

from datetime import datetime, timedelta

from teeter.campaigns.label_studio.client import LabelStudioClient, ListingChangedError
from teeter.campaigns.label_studio.payloads import LabelStudioTask

__all__ = ["ProjectTasks"]

MAX_READ_ATTEMPTS = 3
"""How often a list that changes while it is read is read again."""

CHANGE_OVERLAP = timedelta(seconds=60)
"""How far before the newest known change to look for others. Label Studio writes some changes late,
with a time that has passed already."""


class ProjectTasks:
    """The tasks of a project, as they were when they were last read."""

    def __init__(self, client: LabelStudioClient, project_id: int) -> None:
        """Start without tasks; ``refresh`` reads them."""
        self.client = client
        self.project_id = project_id
        self.by_id: dict[int, LabelStudioTask] = {}

    def refresh(self, *, full: bool = False) -> None:
        """Read the tasks that changed since the last time.

        Args:
            full: Read all tasks. Only this notices that tasks were deleted.

        Raises:
            ListingChangedError: tasks were deleted during every attempt to read them.
        """
        updated_after = None
        newest_change = self._newest_change()
        if newest_change is not None and not full:
            updated_after = newest_change - CHANGE_OVERLAP

        tasks = self._list_tasks(updated_after)
        tasks_by_id = {task.id: task for task in tasks}

        if updated_after is None:
            self.by_id = tasks_by_id
        else:
            # Tasks that did not change are not in the list, and stay as they are.
            self.by_id |= tasks_by_id

    def _newest_change(self) -> datetime | None:
        return max((task.updated_at for task in self.by_id.values()), default=None)

    def _list_tasks(self, updated_after: datetime | None) -> list[LabelStudioTask]:
        attempt = 1
        while True:
            try:
                return self.client.list_tasks(self.project_id, updated_after)
            except ListingChangedError:
                if attempt == MAX_READ_ATTEMPTS:
                    raise
            attempt += 1
