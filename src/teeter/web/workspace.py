"""What one server has: its campaigns, the trainer beside them, and the folder that new campaigns and reports are in."""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any

from teeter.campaigns.campaign import Campaign, Settings
from teeter.errors import FileError, InputError, TeeterError, UnknownResourceError
from teeter.web.auth import Authenticator, SecurityConfig
from teeter.web.background import BackgroundWorker
from teeter.web.background_requests import (
    CreateCampaign,
    DrawMap,
    FindSuspects,
    ItemColumns,
    MapKind,
    PickAhead,
)
from teeter.web.campaign_tokens import CampaignTokens
from teeter.web.service import CampaignService, slug_of

__all__ = ["Workspace"]

log = logging.getLogger(__name__)

_JOBS = 200
"""Results that are remembered."""

_AHEAD = 500
"""Items that are picked before the first asks."""


class Workspace:
    """Campaigns by the names they have in addresses, and what is done for them in the background."""

    def __init__(
        self,
        places: Sequence[str | Path] = (),
        *,
        security: SecurityConfig,
        folder: Path | None = None,
        batch: int = 20,
    ) -> None:
        if folder is not None and not folder.is_dir():
            raise FileError(f"{folder} is not a folder.")
        self.folder, self.batch = folder, batch
        self.trainer, self.maker = BackgroundWorker(batch), BackgroundWorker(batch)
        self.desks: dict[str, CampaignService] = {}
        self.roster = CampaignTokens(self.desks)
        self.auth = Authenticator(security, self.roster)
        self.left_out: dict[str, str] = {}
        """Files of the folder that could not be opened, and why."""
        self._jobs: dict[str, Future[Any]] = {}
        """What was asked for, under numbers that only whoever asked for it knows."""
        self._drawn: dict[str, Future[Any]] = {}
        """Maps and suspects of each campaign, told to those who may see them there."""
        self._lock = threading.Lock()
        self.temp = Path(tempfile.mkdtemp(prefix="teeter-serve-"))
        for place in places:
            self.open(place)
        self.look_into_folder()

    def open(self, where: str | Path) -> CampaignService:
        """Open a campaign's file, or a database by its address, once."""
        with self._lock:
            known = next(
                (desk for desk in self.desks.values() if _place(desk.where) == _place(where)), None
            )
            if known is not None:
                return known
            desk = CampaignService(where, "")
            self.roster.refresh()
            desk.slug = slug_of(desk.name, self.desks)
            self.desks[desk.slug] = desk
            return desk

    def look_into_folder(self) -> None:
        """Open the campaigns of the folder that are not open yet; one that cannot be is told of, not fatal."""
        if self.folder is None:
            return
        for path in sorted(self.folder.glob("*.teeter")):
            try:
                self.open(path)
                self.left_out.pop(path.name, None)
            except TeeterError as error:
                self.left_out[path.name] = str(error)

    def desk(self, slug: str) -> CampaignService:
        """Return the campaign of an address."""
        if slug not in self.desks:
            raise UnknownResourceError(f"There is no campaign {slug[:100]!r} here.")
        return self.desks[slug]

    def reports(self) -> dict[str, Path]:
        """Return the benchmark reports of the folder, by their names in addresses."""
        found: dict[str, Path] = {}
        if self.folder is not None:
            for pattern in ("*/report/index.html", "*/*/report/index.html"):
                for page in sorted(self.folder.glob(pattern)):
                    run = page.parent.parent
                    found[slug_of(run.relative_to(self.folder).as_posix(), found)] = page.parent
        return found

    def image_folders(self) -> list[str]:
        """Return the names of the folders inside the folder, which may hold images."""
        if self.folder is None:
            return []
        return sorted(
            one.name
            for one in self.folder.iterdir()
            if one.is_dir() and not one.name.startswith(".")
        )

    def inside(self, name: str) -> Path:
        """Return a folder inside the folder; one that leads out of it is refused."""
        if self.folder is None:
            raise InputError("This server was started without --folder.")
        root = self.folder.resolve()
        found = (root / name.replace("\0", "_")).resolve()
        if root not in found.parents or not found.is_dir():
            raise FileError(f"There is no folder {name[:100]!r} in {self.folder.name}.")
        return found

    def place_for(self, name: str) -> Path:
        """Return where a new campaign's file goes."""
        if self.folder is None:
            raise InputError(
                "New campaigns are made on the page where the server was started with --folder."
            )
        plain = name.strip()
        if not re.fullmatch(r"[\w][\w .-]{0,79}", plain):
            raise InputError(
                "A campaign's name has letters, digits, spaces, hyphens and dots, 80 at most."
            )
        path = self.folder / f"{plain}.teeter"
        if path.exists():
            raise InputError(f"There is a campaign called {plain} already: give another name.")
        return path

    def make(
        self,
        things: Path,
        path: Path,
        classes: Sequence[str],
        settings: Settings,
        *,
        owner: tuple[str, CampaignService] | None = None,
        columns: ItemColumns,
    ) -> str:
        """Make a campaign in the background, and return the number under which its state is told.

        ``owner`` is who owns it, by name, and a campaign whose token they may have come in by.
        """
        future = self.maker.submit(
            CreateCampaign(str(things), str(path), tuple(classes), settings, columns)
        )
        done: Future[Any] = Future()

        def opened(made: Future[Any]) -> None:
            if things.is_relative_to(self.temp):
                shutil.rmtree(things.parent, ignore_errors=True)
            try:
                told = made.result()
                if owner is not None:
                    _hand_over(path, *owner)
                done.set_result({**asdict(told), "file": path.name, "slug": self.open(path).slug})
            except BaseException as error:  # handed on to whoever asks, without where files are
                done.set_exception(InputError(str(error).replace(f"{things.parent}{os.sep}", "")))

        future.add_done_callback(opened)
        return self.remember(done)

    def remember(self, future: Future[Any]) -> str:
        """Keep what will come of a job under a number."""
        number = secrets.token_urlsafe(12)
        with self._lock:
            self._jobs[number] = future
            for old in list(self._jobs)[: max(0, len(self._jobs) - _JOBS)]:
                del self._jobs[old]
        return number

    def job(self, number: str) -> dict[str, Any]:
        """Return the state of a job: waiting, done or failed."""
        future = self._jobs.get(number)
        if future is None:
            raise UnknownResourceError("There is no such job here.")
        return _state(future)

    def chart(self, desk: CampaignService, how: str) -> dict[str, Any]:
        """Return where the map is, and its state; it is drawn in the background, anew for a new model."""
        slot = f"map {how} {desk.slug}"
        version, _ = desk.newest_version()
        with self._lock:
            held, coming = self._drawn.get(slot), self._drawn.get(slot + " next")
            if coming is not None and coming.done():
                self._drawn[slot] = held = coming
                del self._drawn[slot + " next"]
                coming = None
        told = None if held is None else _state(held)
        stale = told is None or told["state"] == "failed" or told["result"]["version"] != version
        if stale and coming is None and not (told and told["state"] == "failed" and how == "tsne"):
            worker = (
                self.trainer if how == "pca" else self.maker
            )  # what takes long does not hold up models
            coming = worker.submit(DrawMap(desk.where, MapKind(how), str(self.temp)))
            with self._lock:
                self._drawn[slot + " next"] = coming
        return told or {"state": "waiting"}

    def suspects(self, desk: CampaignService, *, anew: bool = False) -> dict[str, Any]:
        """Return labels that may be wrong, once they are found."""
        slot = f"suspects {desk.slug}"
        with self._lock:
            held = self._drawn.get(slot)
        if held is None or (anew and held.done()):
            held = self.trainer.submit(FindSuspects(desk.where, 100))
            with self._lock:
                self._drawn[slot] = held
        return _state(held)

    def close(self) -> None:
        """End what runs in the background, and let go of the files."""
        self.trainer.stop()
        self.maker.stop()
        for desk in self.desks.values():
            desk.close()
        shutil.rmtree(self.temp, ignore_errors=True)

    def warm_up(self, places: Iterable[str | Path] = ()) -> None:
        """Start the trainer, and have questions picked for campaigns that are about to be labelled, by one or many."""
        self.trainer.start()
        named = {desk.slug: len(desk.campaign.people.list()) for desk in self.desks.values()}
        asked_for = {self.open(place).slug for place in places}
        for desk in self.desks.values():
            if desk.slug in asked_for and not self.auth.requires_token():
                self.trainer.ensure_questions(desk.where, self.auth.config.default_annotator)
            elif desk.slug in asked_for or named[desk.slug]:
                people = named[desk.slug] or len(self.auth.config.tokens)
                self.trainer.submit(PickAhead(desk.where, min(people * self.batch, _AHEAD)))


def _hand_over(path: Path, name: str, other: CampaignService) -> None:
    """Name the owner of a campaign that was made, who comes in by the token that they have."""
    campaign = Campaign.open(path)
    try:
        campaign.people.add_as_in(other.campaign.people, name, "owner", who=name)
    finally:
        campaign.database.close()


def _place(where: str | Path) -> str:
    return str(where) if "://" in str(where) else str(Path(where).resolve())


def _state(future: Future[Any]) -> dict[str, Any]:
    if not future.done():
        return {"state": "waiting"}
    if future.cancelled():
        return {"state": "failed", "detail": "The server is being stopped."}
    error = future.exception()
    if error is not None:
        return {"state": "failed", "detail": str(error)}
    result = future.result()
    return {"state": "done", "result": result if isinstance(result, dict) else asdict(result)}
