"""One sync: annotations in, a new model when a round is used up, and the next questions out.

Nothing is remembered of the tasks that were sent: they carry their item's id, and are found again by it. So a sync can
be killed at any moment, and the next one goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.label_studio.client import NotFoundError, Server
from teeter.campaigns.label_studio.config import (
    instructions_of,
    made_config,
    title_of,
    with_classes,
)
from teeter.campaigns.label_studio.project_link import (
    ProjectLink,
    begin,
    current,
    turn,
    write_project,
)
from teeter.campaigns.label_studio.pull import HOLDER, import_annotations, notes_of
from teeter.campaigns.label_studio.push import MODEL, TaskPusher
from teeter.campaigns.label_studio.tasks import Project
from teeter.errors import InputError, ServerError

if TYPE_CHECKING:
    import httpx

__all__ = ["LabelStudio", "SyncResult", "sync_campaign"]

_WHOLE = 10
"""Every so many syncs all tasks are read, to notice those that were deleted."""


@dataclass(frozen=True)
class SyncResult:
    """What a sync did."""

    url: str
    project: int
    made: bool
    """Whether the project was made now."""
    labels: int
    skips: int
    corrected: int
    withdrawn: int
    model: int | None
    """The model that was trained now."""
    sent: int
    waiting: int
    """Questions that wait for an answer."""
    notes: tuple[str, ...]
    """What was left as it is, a sentence each."""

    @property
    def is_news(self) -> bool:
        """Whether anything came in or went out."""
        counts = (self.labels, self.skips, self.corrected, self.withdrawn, self.sent)
        return self.made or self.model is not None or any(counts)


def sync_campaign(
    campaign: Campaign,
    token: str,
    url: str | None = None,
    *,
    n: int = 20,
    new_project: bool = False,
    **options: Any,
) -> SyncResult:
    """Take in what was annotated, and keep n questions waiting in Label Studio; the address is remembered.

    Options are those of ``LabelStudio``.
    """
    studio = LabelStudio(campaign, token, url, n=n, new_project=new_project, **options)
    try:
        return studio.sync()
    finally:
        studio.close()


class LabelStudio:
    """A campaign and the Label Studio it is labelled in."""

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
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``images`` is an address under which images are served already, and need not be uploaded."""
        if n < 1:
            raise InputError(f"Cannot keep {n} questions waiting: ask for 1 or more.")
        with campaign.database.reading() as connection:
            before = current(campaign, connection)
        if url is None and before is None:
            raise InputError("Where is Label Studio? Give its address with --url, once.")
        self.campaign, self.n, self.train = campaign, n, train
        self.server = Server(
            url or (before.url if before else ""), token, transport=transport, sleep=sleep
        )
        self._outbox = TaskPusher(campaign, self.server, images)
        self._anew, self._sleep = new_project, sleep
        self._project: Project | None = None
        self._link: ProjectLink | None = None
        self._syncs = 0

    def close(self) -> None:
        """Let go of the connection."""
        self.server.close()

    def sync(self) -> SyncResult:
        """Take in what was annotated; train and ask anew where at most half of the n questions still wait."""
        self._require_token()
        link, project, made = self._found()
        project.read(whole=self._syncs % _WHOLE == 0)
        self._syncs += 1
        came = import_annotations(self.campaign, link, project.tasks.values(), self._emails())
        model = self._next_round()
        sent = self._send(link, project)
        with self.campaign.database.reading() as connection:
            waiting = len(self.campaign.repository.picks.open_picks(connection, HOLDER))
        notes = notes_of(came, self.campaign.classes)
        if not waiting:
            notes.append("Nothing is left to ask about.")
        return SyncResult(
            url=self.server.url,
            project=project.number,
            made=made,
            labels=came.labels,
            skips=came.skips,
            corrected=came.corrected,
            withdrawn=came.withdrawn,
            model=model,
            sent=sent,
            waiting=waiting,
            notes=tuple(notes),
        )

    def _found(self) -> tuple[ProjectLink, Project, bool]:
        """Return the campaign's project; it is made where there is none."""
        link = begin(self.campaign, self.server.url, anew=self._anew)
        self._anew = False
        made = False
        if link.project is None:
            with self._turn():
                link, made = self._noted(link)
        number = int(link.project or 0)
        found = self._checked(link, number)
        if link.url != self.server.url:
            link = write_project(self.campaign, link, self.server.url, number, made=False)
        lacking = with_classes(str(found["label_config"]), self.campaign.classes)
        if lacking is not None:
            self.server.patch(f"/api/projects/{number}/", {"label_config": lacking})
        if self._project is None or self._link != link:
            self._project, self._link, self._syncs = Project(self.server, number), link, 0
        return link, self._project, made

    def _noted(self, link: ProjectLink) -> tuple[ProjectLink, bool]:
        """Return the link with its project: one that was made and not noted, or a new one."""
        with self.campaign.database.reading() as connection:
            link = current(self.campaign, connection) or link
        if link.project is not None:  # another sync made it while this one waited
            return link, False
        listed = self.server.pages(
            "/api/projects/", "results", "count", include="id,description", page_size=100
        )
        number = next(
            (one["id"] for one in listed if link.mark in (one.get("description") or "")), None
        )
        made = number is None
        if number is None:
            number = self.server.post("/api/projects/", self._new_project(link))["id"]
        return write_project(self.campaign, link, self.server.url, int(number), made=made), made

    def _new_project(self, link: ProjectLink) -> dict[str, Any]:
        settings = self.campaign.settings
        return {
            "title": title_of(self.campaign.name),
            "description": f"Labelled for the teeter campaign {self.campaign.name}. Keep this sign: [{link.mark}]",
            "label_config": made_config(settings, self.campaign.classes),
            "expert_instruction": instructions_of(settings),
            "show_instruction": bool(settings.instructions),
            "sampling": "Uncertainty sampling",  # by ascending score
            "model_version": MODEL,
            "show_collab_predictions": False,  # a guess would lead people
            "skip_queue": "IGNORE_SKIPPED",  # we ask again, after the next model
            "enable_empty_annotation": False,
            "maximum_annotations": 1,
        }

    def _checked(self, link: ProjectLink, number: int) -> Mapping[str, Any]:
        """Return what the server says of the project, if it is there and the campaign's."""
        again = "begin another with --new-project; what was answered stays"
        try:
            found = self.server.get(f"/api/projects/{number}/")
        except NotFoundError:
            raise ServerError(
                f"{self.server.url} has no project {number} any more: {again}."
            ) from None
        if not isinstance(found, dict) or link.mark not in (found.get("description") or ""):
            sign = f"its description lacks [{link.mark}]"
            raise ServerError(
                f"Project {number} of {self.server.url} is not this campaign's ({sign}): put that back, or {again}."
            )
        return found

    def _require_token(self) -> None:
        """Refuse, before anything is written, what is no Label Studio, or does not take the token."""
        found = self.server.get("/api/current-user/whoami")
        if not isinstance(found, dict) or "email" not in found:
            raise self.server.strange()

    def _emails(self) -> dict[int, str]:
        try:
            return {
                int(one["id"]): str(one.get("email") or "")
                for one in self.server.get("/api/users/")
            }
        except (KeyError, TypeError, AttributeError):
            raise self.server.strange() from None

    def _turn(self) -> Any:
        return turn(self.campaign, self._sleep)

    def _next_round(self) -> int | None:
        """Keep questions waiting, and return the model that was trained for new ones."""
        repository = self.campaign.repository
        with self.campaign.database.writing() as connection:
            repository.picks.extend_leases(connection, HOLDER)
            waiting = len(repository.picks.open_picks(connection, HOLDER))
        if waiting > self.n // 2:
            return None
        model = self._trained() if self.train else None
        self.campaign.ask(self.n, HOLDER)
        return model

    def _trained(self) -> int | None:
        """Train a model, and return its version; None where there is nothing new to learn, or of one class alone."""
        with self.campaign.database.reading() as connection:
            version = self.campaign.repository.models.newest_version(connection)
            newer = self.campaign.repository.answers.count_since_newest_model(connection)
        if version and not newer:
            return None
        state = self.campaign.load_state()
        if len(set(state.labels.values())) < 2:
            return None
        return self.campaign.train(who=HOLDER, state=state).version

    def _send(self, link: ProjectLink, project: Project) -> int:
        """Send the open questions that have no task which waits, and return how many there were."""
        if not self._outbox.unsent(link, project):
            return 0
        with self._turn() as alive:
            self.server.before = alive
            try:
                project.read()  # another sync may have sent some
                return self._outbox.send(link, project)
            finally:
                self.server.before = lambda: None
