"""The tasks of a project, read page by page although the list changes meanwhile."""

from __future__ import annotations

import itertools

import httpx2
import pytest

from campaigns.fake_label_studio import LEGACY_TOKEN, FakeLabelStudio
from campaigns.label_studio_backends import LabelStudioBackend
from teeter.campaigns.integrations.label_studio.client import LabelStudioClient, ProjectTasks
from teeter.errors import ServerUnavailableError


@pytest.fixture
def tasks(
    backend: LabelStudioBackend, studio: FakeLabelStudio, monkeypatch: pytest.MonkeyPatch
) -> ProjectTasks:
    """Twelve tasks on three pages, not read yet."""
    backend.sync(backend.create_campaign(), n=12)
    monkeypatch.setattr("teeter.campaigns.integrations.label_studio.client.TASKS_PER_PAGE", 4)
    client = LabelStudioClient(backend.url, LEGACY_TOKEN, transport=studio.transport)
    return ProjectTasks(client, backend.project_id)


def delete_first_task(studio: FakeLabelStudio) -> None:
    studio.tasks.pop(min(studio.tasks))


def test_all_pages_are_read(tasks: ProjectTasks, studio: FakeLabelStudio) -> None:
    tasks.refresh()
    assert set(tasks.by_id) == set(studio.tasks)
    assert len(tasks.by_id) == 12


def test_a_list_that_shrinks_while_it_is_read_is_read_again(
    tasks: ProjectTasks, studio: FakeLabelStudio
) -> None:
    page_numbers = itertools.count()

    def delete_a_task_after_the_first_page(request: httpx2.Request) -> None:
        if request.url.path == "/api/tasks/" and next(page_numbers) == 0:
            delete_first_task(studio)

    studio.after_request = delete_a_task_after_the_first_page
    tasks.refresh()
    assert set(tasks.by_id) == set(studio.tasks), "no task moved to a page that was read before"


def test_a_list_that_shrinks_at_every_attempt_is_an_error(
    tasks: ProjectTasks, studio: FakeLabelStudio
) -> None:
    def delete_a_task_after_every_page(request: httpx2.Request) -> None:
        if request.url.path == "/api/tasks/":
            delete_first_task(studio)

    studio.after_request = delete_a_task_after_every_page
    with pytest.raises(ServerUnavailableError, match=r"changed while it was being read\. Run"):
        tasks.refresh(full=True)


def test_only_a_full_read_notices_deleted_tasks(
    tasks: ProjectTasks, studio: FakeLabelStudio
) -> None:
    tasks.refresh()
    delete_first_task(studio)

    tasks.refresh()
    assert len(tasks.by_id) == 12

    tasks.refresh(full=True)
    assert set(tasks.by_id) == set(studio.tasks)
