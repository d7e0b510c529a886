"""The link between a campaign and its project in Label Studio, and the lock that syncs share.

The campaign's database stores which project belongs to the campaign, and which annotation became
which answer. The lock lets only one sync at a time create a project or tasks.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import httpx2

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.integrations.label_studio.client import (
    LabelStudioClient,
    NotFoundError,
    ProjectTasks,
)
from teeter.campaigns.integrations.label_studio.payloads import (
    PROJECT_SETTINGS,
    Project,
    add_missing_classes,
    build_label_config,
    format_instructions,
    format_title,
)
from teeter.campaigns.integrations.label_studio.pull import (
    LABEL_STUDIO_ANNOTATOR,
    import_annotations,
)
from teeter.campaigns.integrations.label_studio.push import TaskPusher
from teeter.campaigns.store import LockName, ProjectLink
from teeter.errors import InputError, ServerError, StoreError

LOCK_SECONDS = 45.0
"""How long a sync keeps the lock without extending it: longer than a request may take to fail."""

LOCK_POLL_SECONDS = 0.5
"""Time between two attempts to acquire the lock."""


def save_project(
    campaign: Campaign, link: ProjectLink, url: str, project_id: int, *, was_created: bool
) -> ProjectLink:
    """Store which project a link leads to.

    Args:
        url: URL of the Label Studio, which may have moved.
        was_created: Whether this sync created the project; noted in the campaign's history.

    Returns:
        The changed link.
    """
    detail = {
        "url": url,
        "project": project_id,
        "created": was_created,
    }

    # In one transaction, so that the link and the history cannot disagree.
    with campaign.writing() as change:
        # The history outlives the link: it says where annotations came from after a new project.
        change.history.append("label-studio", "linked", None, detail)
        return change.label_studio.set_project(link, url, project_id)


@contextmanager
def hold_sync_lock(
    campaign: Campaign, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Callable[[], None]]:
    """Wait for the lock of a campaign's syncs, and hold it for the length of the block.

    The lock expires after ``LOCK_SECONDS``, so a sync that was killed does not block others for
    longer than that.

    Yields:
        A function that extends the lock. Call it at least once within ``LOCK_SECONDS``.

    Raises:
        StoreError: another sync holds the lock for too long.
    """
    waited = 0.0
    # Polled, because SQLite cannot wake a process that waits.
    while (holder := _acquire_lock(campaign)) is None:
        if waited > 2 * LOCK_SECONDS:
            raise StoreError(
                "Another sync of this campaign is still running. Wait until it has finished."
            )
        sleep(LOCK_POLL_SECONDS)
        waited += LOCK_POLL_SECONDS

    clock = campaign.clock
    last_extension = clock()

    def extend_lock() -> None:
        nonlocal last_extension
        now = clock()
        # Not at every call, which would write to the database before each request. The clock may
        # have been set back, so the difference can be negative.
        if abs(now - last_extension) > timedelta(seconds=LOCK_SECONDS / 3):
            last_extension = now
            with campaign.writing() as change:
                change.locks.extend(LockName.LABEL_STUDIO, holder, LOCK_SECONDS)

    try:
        yield extend_lock
    finally:
        # After an error too: otherwise the next sync would wait until the lock expires.
        with campaign.writing() as change:
            change.locks.release(LockName.LABEL_STUDIO, holder)


def _acquire_lock(campaign: Campaign) -> str | None:
    """Return the holder of the lock, which is now this sync, or None if another sync holds it."""
    with campaign.writing() as change:
        return change.locks.acquire(LockName.LABEL_STUDIO, LOCK_SECONDS)


FULL_READ_INTERVAL = 10
"""Read all tasks at every tenth sync, to notice tasks that were deleted."""


@dataclass(frozen=True)
class SyncResult:
    """What a sync did."""

    url: str
    """URL of the Label Studio."""
    project: int
    """Id of the project."""
    created: bool
    """Whether this sync created the project."""
    labels: int
    """New labels that were imported."""
    skips: int
    """New skips that were imported."""
    corrected: int
    """Annotations that changed since they were imported."""
    withdrawn: int
    """Annotations that were deleted since they were imported."""
    model: int | None
    """Version of the model that was trained, if one was."""
    sent: int
    """Tasks that were created."""
    waiting: int
    """Items that wait for an answer."""
    notes: tuple[str, ...]
    """What was ignored or needs attention, one sentence each."""

    @property
    def has_changes(self) -> bool:
        """Whether anything was imported, trained or sent."""
        counts = (self.labels, self.skips, self.corrected, self.withdrawn, self.sent)
        return self.created or self.model is not None or any(counts)


@dataclass(frozen=True)
class _OpenProject:
    """The project of a campaign, which exists and belongs to it."""

    link: ProjectLink
    id: int
    was_created: bool


class LabelStudio:
    """A campaign and a connection to the Label Studio in which it is labelled.

    Use it for repeated syncs: after the first, ``sync`` reads only the tasks that changed.
    """

    def __init__(
        self,
        campaign: Campaign,
        token: str,
        url: str | None = None,
        *,
        n: int = 20,
        train: bool = True,
        new_project: bool = False,
        images: str | None = None,
        suggestions: bool = False,
        transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare a connection; nothing is sent or written yet.

        Args:
            campaign: The campaign.
            token: A legacy token or a personal access token. It is not stored.
            url: URL of the Label Studio. Needed once; the campaign stores it.
            n: How many items to keep waiting in Label Studio.
            train: Train a model on new answers before items are picked.
            new_project: Create another project at the first sync.
            images: URL prefix below which images are served already. Without it they are uploaded.
            suggestions: Send suggestions as predictions, which annotators see on picked items.
            transport: Replaces the network in tests.
            sleep: Waits for a number of seconds.

        Raises:
            InputError: an argument is invalid, or the URL is missing.
        """
        if campaign.settings.several:
            raise InputError(
                "Items of this campaign may have several labels, which the sync with Label Studio "
                "does not know yet: export them in the format label-studio instead."
            )
        if n < 1:
            raise InputError(f"Cannot keep {n} items in Label Studio: ask for 1 or more.")

        if not url:
            with campaign.reading() as view:
                link = view.label_studio.current_link()
            if link is None:
                raise InputError(
                    "This campaign is not linked to a Label Studio server yet: pass url=."
                )
            url = link.url

        self.campaign = campaign
        self.client = LabelStudioClient(url, token, transport=transport, sleep=sleep)
        self.n = n
        self.train = train
        self._pusher = TaskPusher(campaign, self.client, images, suggestions=suggestions)
        self._sleep = sleep
        self._needs_new_project = new_project

        # The tasks that were read so far, and the link that they belong to.
        self._tasks: ProjectTasks | None = None
        self._tasks_link: ProjectLink | None = None
        self._reads = 0

    def __enter__(self) -> LabelStudio:
        """Return the connection itself; it is closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    def sync(self) -> SyncResult:
        """Import annotations, train and pick if at most half of the items wait, and create tasks.

        Raises:
            ServerUnavailableError: Label Studio does not answer; a later sync may succeed.
            ServerError: Label Studio refuses, or the project is gone.
        """
        self.campaign.judges.require_ended("Tasks would show what judges say before an answer")
        # Fails before anything is written if this is no Label Studio or the token is wrong.
        self.client.get_current_user()

        project = self._open_project()
        tasks = self._read_tasks(project)
        emails = {user.id: user.email or "" for user in self.client.list_users()}
        found = tasks.by_id.values()
        pulled = import_annotations(self.campaign, project.link, found, emails)

        # After the pull, because the new answers decide whether and what to pick.
        model_version = None
        with self.campaign.writing() as change:
            # Annotators in Label Studio are at work as long as there are syncs: extend their lease.
            change.picks.extend_leases(LABEL_STUDIO_ANNOTATOR)
        if self._count_waiting() <= self.n // 2:
            model_version = self._train_if_due()
            self.campaign.ask(self.n, LABEL_STUDIO_ANNOTATOR)

        sent = self._push_tasks(project, tasks)
        waiting = self._count_waiting()
        notes = pulled.notes(self.campaign.classes.names())
        if waiting == 0:
            notes.append("No items are left to label.")

        return SyncResult(
            url=self.client.url,
            project=project.id,
            created=project.was_created,
            labels=pulled.labels,
            skips=pulled.skips,
            corrected=pulled.corrected,
            withdrawn=pulled.withdrawn,
            model=model_version,
            sent=sent,
            waiting=waiting,
            notes=tuple(notes),
        )

    # Project

    def _open_project(self) -> _OpenProject:
        """Return the campaign's project; create it if it is missing."""
        # Read and inserted in one transaction, so that two syncs do not create two links.
        with self.campaign.writing() as change:
            link = change.label_studio.current_link()
            has_project = link is not None and link.project_id is not None
            # A link whose project was not created yet is used, so that a killed sync can be
            # repeated.
            if link is None or (self._needs_new_project and has_project):
                # Random: the id of a project may be used again, by another server or after a
                # restore.
                marker = f"teeter:{secrets.token_hex(8)}"
                link = change.label_studio.add_link(self.client.url, marker)
        self._needs_new_project = False

        if link.project_id is None:
            with hold_sync_lock(self.campaign, self._sleep):
                project = self._find_or_create_project(link)
        else:
            project = _OpenProject(link, link.project_id, was_created=False)

        content = self._get_own_project(project)
        label_config = add_missing_classes(content.label_config, self.campaign.classes.names())
        if label_config is not None:
            self.client.update_project(content.id, label_config=label_config)

        if project.link.url == self.client.url:
            return project

        # The Label Studio has moved: store its new URL.
        link = save_project(
            self.campaign, project.link, self.client.url, project.id, was_created=False
        )
        return _OpenProject(link, project.id, project.was_created)

    def _find_or_create_project(self, link: ProjectLink) -> _OpenProject:
        """Return the project that a link is for, while this sync holds the lock."""
        with self.campaign.reading() as view:
            link = view.label_studio.current_link() or link
        if link.project_id is not None:
            # Another sync created the project while this one waited for the lock.
            return _OpenProject(link, link.project_id, was_created=False)

        # A sync that was killed may have created the project without storing its id.
        project_id = self.client.find_project(link.marker)
        was_created = project_id is None
        if project_id is None:
            name = self.campaign.name
            settings = self.campaign.settings
            fields = {
                "title": format_title(name),
                "description": (
                    f"Created by teeter for the campaign {name}. "
                    f"Do not remove [{link.marker}]: teeter recognises the project by it."
                ),
                "label_config": build_label_config(settings, self.campaign.classes.names()),
                "expert_instruction": format_instructions(settings.instructions),
                "show_instruction": bool(settings.instructions),
            }
            project_id = self.client.create_project({**fields, **PROJECT_SETTINGS})

        link = save_project(
            self.campaign, link, self.client.url, project_id, was_created=was_created
        )
        return _OpenProject(link, project_id, was_created)

    def _get_own_project(self, project: _OpenProject) -> Project:
        """Return the project from the server, after checking that it belongs to the campaign."""
        remedy = "create another project with new_project=; the answers stay in the campaign"

        try:
            content = self.client.get_project(project.id)
        except NotFoundError:
            raise ServerError(
                f"{self.client.url} no longer has project {project.id}. To continue, {remedy}."
            ) from None

        # The id alone proves nothing: a server that was set up again uses the same ids.
        if project.link.marker not in content.description:
            raise ServerError(
                f"Project {project.id} at {self.client.url} does not belong to this campaign: its "
                f"description lacks [{project.link.marker}]. Restore that text, or {remedy}."
            )
        return content

    # Annotations in

    def _read_tasks(self, project: _OpenProject) -> ProjectTasks:
        """Read the tasks of the project: all of them at first and at times, else what changed."""
        # Another link, of a new project or a new URL, makes the tasks of the old one worthless.
        if self._tasks is None or self._tasks_link != project.link:
            self._tasks = ProjectTasks(self.client, project.id)
            self._tasks_link = project.link
            self._reads = 0

        self._tasks.refresh(full=self._reads % FULL_READ_INTERVAL == 0)
        self._reads += 1
        return self._tasks

    # Tasks out

    def _train_if_due(self) -> int | None:
        """Train a model if there is something new to learn, and return its version."""
        if not self.train:
            return None

        with self.campaign.reading() as view:
            newest_version = view.models.newest_version()
            new_answers = view.answers.count_since_newest_model()

        has_model = newest_version > 0
        if has_model and not new_answers:
            return None

        # Loaded once, because it takes a while in a large campaign.
        state = self.campaign.load_state()
        labelled_classes = set(state.labels.values())
        if state.unencoded or len(labelled_classes) < 2:
            # A classifier needs the features of all items and two classes.
            return None

        return self.campaign.train(who=LABEL_STUDIO_ANNOTATOR, state=state).version

    def _push_tasks(self, project: _OpenProject, tasks: ProjectTasks) -> int:
        """Create tasks for open picks that have none, and return how many."""
        # Most syncs have nothing to send, and need not wait for the lock.
        if not self._pusher.unsent_picks(project.link, tasks):
            return 0

        with hold_sync_lock(self.campaign, self._sleep) as extend_lock:
            self.client.before_attempt = extend_lock
            try:
                # Another sync may have created some of the tasks before this one got the lock.
                tasks.refresh()
                return self._pusher.push(project.link, tasks)
            finally:
                self.client.before_attempt = lambda: None

    def _count_waiting(self) -> int:
        with self.campaign.reading() as view:
            return len(view.picks.open_picks(LABEL_STUDIO_ANNOTATOR))
