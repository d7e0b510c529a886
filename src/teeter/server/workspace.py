"""A database whose campaigns the server serves, and in which it creates new ones."""

from __future__ import annotations

import logging
import os
import re
import secrets
import shutil
import tempfile
import threading
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from unicodedata import combining, normalize

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.learning.encoding import has_unencoded_items
from teeter.campaigns.records import (
    Activity,
    ClassInfo,
    EncodingResult,
    ImportResult,
    ItemColumns,
    ItemKind,
    Job,
    JobState,
    ModelRound,
    Permission,
    Role,
    SuspectLabel,
)
from teeter.campaigns.settings import Settings, resolve_folder
from teeter.campaigns.store import Database
from teeter.campaigns.store.copies import copy_campaign
from teeter.campaigns.store.database import split_location
from teeter.campaigns.store.transaction import campaign_names
from teeter.campaigns.suggestions.language_model import LanguageModel
from teeter.data.workbooks import split_sheet
from teeter.errors import FileError, InputError, StoreError, TeeterError, UnknownResourceError
from teeter.server.access import Authenticator, SecurityConfig
from teeter.server.access.tokens import CampaignTokens
from teeter.server.uploads import KeptUploads
from teeter.server.worker.background import (
    CREATE_CAMPAIGN,
    DRAW_MAP,
    ENCODE,
    FIND_SUSPECTS,
    LABEL_FILE,
    PICK_AHEAD,
    TRAIN,
    BackgroundWorker,
    LabelledFile,
    MapFile,
    MapKind,
)
from teeter.server.worker.suggester import Suggester


class CampaignDatabase:
    """All campaigns of a database, including those that are created later.

    Args:
        url: the URL of the database. Its tables are created if it is empty.

    Raises:
        InputError: the URL names a single campaign.
        StoreError: the database cannot be used.
    """

    def __init__(self, url: str) -> None:
        place, name = split_location(url)
        if name is not None or "://" not in url:
            raise InputError(
                "--database takes the URL of a whole database, such as "
                "postgresql://teeter@db.example.org/campaigns."
            )
        self.url = str(place)
        self._database = Database(self.url, create=True)

    def names(self) -> list[str]:
        """Return the names of its campaigns.

        Raises:
            StoreError: the database does not answer.
        """
        return campaign_names(self._database)

    def location(self, name: str) -> str:
        """Return the location of one of its campaigns."""
        return f"{self.url}#{name}"

    def move_in(self, file: Path) -> str:
        """Move a campaign from a file into the database, and return its new location.

        Raises:
            InputError: there is a campaign of this name.
            StoreError: the database does not answer. The file stays.
        """
        campaign = Campaign.open(file)
        try:
            copy_campaign(campaign.database, self._database, campaign.name)
        finally:
            campaign.database.close()

        file.unlink()
        return self.location(campaign.name)

    def close(self) -> None:
        """Close the connections."""
        self._database.close()


logger = logging.getLogger(__name__)

_WRITE_TIMEOUT = 10
"""Seconds that an answer waits for another process that writes. The page waits 20 for us."""

_MAX_JOBS = 200
"""Jobs whose results are kept."""

_MAX_READY_ITEMS = 500
"""Items that are picked before the first annotator comes."""

_ENCODE_PAUSE = 2.0
"""Seconds after which items that were added are encoded, if no others come."""

_SUSPECTS = 100
"""Labels that may be wrong to search for."""

_ARGUMENT = re.compile(r" \([a-z_]+=\)")
"""An argument of the library, which errors name in brackets. A page has fields instead."""

_CAMPAIGN_NAME = re.compile(r"\w[\w .-]{0,79}")

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, kw_only=True)
class ServedCampaign:
    """A campaign and its progress."""

    slug: str
    """The name of the campaign in URLs."""
    name: str
    kind: ItemKind
    strategy: str
    instructions: str
    classes: list[ClassInfo]
    items: int
    labelled: int
    skipped: int
    unsure: int
    flagged: int
    model: int
    """The version of the newest model; 0 before the first training."""
    news: str
    """One sentence about work in the background; empty while nothing runs."""
    permissions: list[Permission]
    """What you may do in the campaign."""
    is_team: bool
    """Whether several people work on the campaign."""
    is_audit: bool
    """Whether it has judges."""
    is_auditing: bool
    """Whether the audit goes on, so that no model is trained."""
    several: bool = False
    """Whether items may have several labels, or none of them."""


@dataclass(frozen=True)
class CreatedCampaign:
    """A campaign that was created from a file or a folder."""

    slug: str
    file: str
    imported: ImportResult
    """What came in."""


@dataclass
class _MapDrawings:
    """The drawings of one map."""

    current: Future[MapFile] | None = None
    """The newest drawing that is finished."""
    next: Future[MapFile] | None = None
    """The drawing that is being made."""


class Workspace:
    """The campaigns of a server, and the background work for them.

    Args:
        locations: files or database URLs of campaigns to open.
        security: who may use the server.
        folder: open all campaigns in it too, and create new campaigns there.
        database: the URL of a database. Open all its campaigns too, and create new ones there
            rather than in the folder.
        batch: number of items that are picked at a time.
        language_model: ask this language model for suggestions. Texts are sent to its server.

    Raises:
        FileError: the folder does not exist.
        StoreError: a campaign cannot be opened. One of the folder is skipped instead.
    """

    def __init__(
        self,
        locations: Sequence[str | Path] = (),
        *,
        security: SecurityConfig,
        folder: Path | None = None,
        database: str | None = None,
        batch: int = 20,
        language_model: LanguageModel | None = None,
    ) -> None:
        if folder is not None and not folder.is_dir():
            raise FileError(f"{folder} is not a folder.")

        self.folder = folder
        self.database = None if database is None else CampaignDatabase(database)
        self.batch = batch
        self.trainer = BackgroundWorker(batch)
        self.trainer.on_trained = self._draw_first_map
        self.slow_worker = BackgroundWorker(batch)
        """Creates campaigns and draws slow maps, so that they do not delay the trainer."""
        self.searcher = BackgroundWorker(batch)
        """Finds similar items. People wait for it while the others may be busy for minutes, so its
        process is its own. It is started by the first search."""

        self.campaigns: dict[str, Campaign] = {}
        """The open campaigns by slug."""
        self.campaign_tokens = CampaignTokens(self.campaigns)
        self.auth = Authenticator(security, self.campaign_tokens)
        self.unreadable_files: dict[str, str] = {}
        """Files of the folder that cannot be opened, and why."""

        self._jobs: dict[str, tuple[Future[Any], str | None]] = {}
        """What jobs wait for, and the campaign that they encode, by ids that only those who started
        them know."""
        self._creations: dict[str, tuple[object, Job[CreatedCampaign]]] = {}
        """What was asked, and the job that does it, by the name of the new campaign."""
        self._drawings: dict[tuple[str, MapKind], _MapDrawings] = {}
        """By the location of a campaign and the kind of map."""
        self._searches: dict[str, Future[list[SuspectLabel]]] = {}
        """The newest search for wrong labels, by the location of a campaign."""
        self._encode_timers: dict[str, threading.Timer] = {}
        """By the location of a campaign to which items were added."""
        self._lock = threading.Lock()

        self.suggester: Suggester | None = None
        if language_model is not None:
            self.suggester = Suggester(language_model, lambda: self.campaigns.values())

        self.temp = Path(tempfile.mkdtemp(prefix="teeter-serve-"))
        self.uploads = KeptUploads(self.temp, security.upload_limit)
        for location in locations:
            self.open(location)
        self.open_new_campaigns()

    # Campaigns

    def open(self, location: str | Path) -> str:
        """Open a campaign, unless it is open already, and return its name in addresses."""
        with self._lock:
            for slug, campaign in self.campaigns.items():
                if _normalize_location(campaign.location) == _normalize_location(location):
                    return slug

            campaign = Campaign.open(location)
            # Shorter than the default: people should see at once that an answer is not saved.
            campaign.database.write_timeout = _WRITE_TIMEOUT
            # Given here, under the lock: two files may hold campaigns of the same name.
            slug = make_slug(campaign.name, self.campaigns)
            self.campaigns[slug] = campaign
            # It may have members.
            self.campaign_tokens.refresh()
            return slug

    @property
    def can_create_campaigns(self) -> bool:
        """Whether there is a place for new campaigns."""
        return self.folder is not None or self.database is not None

    def open_new_campaigns(self) -> None:
        """Open the new campaigns of the database and the folder.

        Files that cannot be opened are noted, and so is a database that is away.
        """
        if self.database is not None:
            try:
                for name in self.database.names():
                    self.open(self.database.location(name))
            except StoreError as error:
                # Its open campaigns say so themselves, when they are used.
                logger.warning("The campaigns of the database cannot be listed: %s", error)

        if self.folder is None:
            return

        for path in sorted(self.folder.glob("*.teeter")):
            try:
                self.open(path)
            except TeeterError as error:
                # One damaged file must not take the other campaigns of the folder down.
                self.unreadable_files[path.name] = str(error)
            else:
                self.unreadable_files.pop(path.name, None)

    def close_missing_campaigns(self) -> None:
        """Close the campaigns of the folder whose files are gone."""
        if self.folder is None:
            return

        for slug, campaign in list(self.campaigns.items()):
            path = campaign.database.path
            if path is None or campaign.database.is_in_place():
                continue
            # Campaigns from elsewhere were named by the user: their pages say what is missing.
            if path.parent.resolve() == self.folder.resolve():
                del self.campaigns[slug]
                campaign.database.close()

    def campaign(self, slug: str) -> Campaign:
        """Return the campaign with a name in addresses.

        Raises:
            UnknownResourceError: there is no such campaign.
        """
        if slug not in self.campaigns:
            raise UnknownResourceError(f"There is no campaign {slug[:100]!r}.")
        return self.campaigns[slug]

    def require_suggester(self) -> Suggester:
        """Return what asks a language model for suggestions.

        Raises:
            InputError: the server was started without one.
        """
        if self.suggester is None:
            raise InputError(
                "This server has no language model: name one in the file of teeter serve "
                "--settings."
            )
        return self.suggester

    def describe_news(self, campaign: Campaign) -> str:
        """Return how far a campaign is from its goal, and what is being done in the background."""
        return self._describe_news(campaign, campaign.newest_model())

    def _describe_news(self, campaign: Campaign, newest_model: ModelRound | None) -> str:
        try:
            _ = campaign.image_folder
        except InputError:
            # The sentence of the error names folders of the server.
            return (
                "Images are not shown, because this campaign was not created here and they are "
                "not beside its file. The terminal of teeter serve says what to do."
            )

        slow_status = self.slow_worker.status(campaign.location)
        if slow_status.activity is Activity.ENCODING:
            return slow_status.describe()

        status = self.trainer.status(campaign.location)
        # A worker that was just started has not trained: the database knows the newest model.
        if newest_model is not None:
            status.version = status.version or newest_model.version
            if status.trained_at is None:
                status.trained_at = datetime.fromisoformat(newest_model.trained).timestamp()

        news = self.redact_paths(status.describe())
        goal = campaign.finish.goal()
        if goal is None:
            return news
        return f"{goal.sentences[0]} {news}"

    def describe_campaign(
        self, slug: str, campaign: Campaign, permissions: Collection[Permission]
    ) -> ServedCampaign:
        """Return a campaign and its progress."""
        settings = campaign.settings
        counts = campaign.items.count()
        newest_model = campaign.newest_model()
        version = 0
        if newest_model is not None:
            version = newest_model.version
        return ServedCampaign(
            slug=slug,
            name=campaign.name,
            kind=ItemKind(settings.kind),
            strategy=settings.strategy,
            instructions=settings.instructions,
            classes=campaign.classes.all(),
            **vars(counts),
            model=version,
            news=self._describe_news(campaign, newest_model),
            permissions=sorted(permissions),
            is_team=campaign.people.is_team(),
            is_audit=bool(settings.judges),
            is_auditing=campaign.judges.is_running(),
            several=settings.several,
        )

    def redact_paths(self, sentence: str) -> str:
        """Return a sentence without the places of files and databases on the server."""
        # Each upload has a folder of its own.
        temp = re.escape(str(self.temp))
        sentence = re.sub(rf"{temp}[/\\][^/\\]+[/\\]", "", sentence)
        folders = {self.temp}
        if self.folder is not None:
            folders.add(self.folder.absolute())

        # A copy: other threads open and close campaigns meanwhile.
        for campaign in list(self.campaigns.values()):
            image_folder = campaign.settings.folder
            if image_folder is not None:
                folders.add(Path(image_folder))
            if campaign.database.path is not None:
                folders.add(campaign.database.path.parent)
            else:
                location = campaign.database.display_url
                # Host and user of a database server are for the person who runs teeter alone.
                sentence = sentence.replace(f"database {location}", "database")
                sentence = sentence.replace(location, campaign.name)

        for folder in folders:
            # A campaign's file may name a folder that is no path.
            with suppress(InputError):
                folders.add(resolve_folder(str(folder)))
        # The longest first: a folder may be inside another one.
        for folder in sorted(folders, key=lambda folder: len(str(folder)), reverse=True):
            sentence = sentence.replace(f"{folder}{os.sep}", "")
            sentence = sentence.replace(str(folder), folder.name or str(folder))
        return sentence

    def redact_import(self, result: ImportResult) -> ImportResult:
        """Return what happened to items without the places of files on the server."""
        links = [link for link, _ in result.failed_items]
        reasons = self._redact_each([reason for _, reason in result.failed_items])
        encoding = result.encoding
        if encoding is not None:
            encoding = self._redact_encoding(encoding)
        return replace(
            result,
            failed_items=tuple(zip(links, reasons, strict=True)),
            encoding=encoding,
        )

    def _redact_encoding(self, result: EncodingResult) -> EncodingResult:
        reasons = self._redact_each(list(result.unreadable_items.values()))
        return replace(
            result, unreadable_items=dict(zip(result.unreadable_items, reasons, strict=True))
        )

    def _redact_each(self, sentences: list[str]) -> list[str]:
        if not sentences:
            return []
        # At once, because the folders of all campaigns are looked up for each call.
        redacted = self.redact_paths("\0".join(sentences))
        return redacted.split("\0")

    # The folder

    def find_reports(self) -> dict[str, Path]:
        """Return the benchmark reports of the folder, by their names in addresses."""
        reports: dict[str, Path] = {}
        if self.folder is None:
            return reports

        # Where ``teeter bench report`` writes by default, in a run or in a folder of runs.
        for pattern in ("*/report/index.html", "*/*/report/index.html"):
            for page in sorted(self.folder.glob(pattern)):
                report = page.parent
                run_name = report.parent.relative_to(self.folder).as_posix()
                reports[make_slug(run_name, reports)] = report
        return reports

    def list_folders(self) -> list[str]:
        """Return the names of the folders inside the folder, which may hold images."""
        if self.folder is None:
            return []

        folders = [path for path in self.folder.iterdir() if path.is_dir()]
        return sorted(path.name for path in folders if not path.name.startswith("."))

    def find_folder(self, name: str) -> Path:
        """Return a folder inside the folder.

        Raises:
            InputError: the server has no folder.
            FileError: there is no such folder, or it leads out of the server's folder.
        """
        if self.folder is None:
            raise InputError("This server has no folder of campaigns: start it with --folder.")

        # Resolved before it is compared: a link inside the folder may lead out of it.
        root = self.folder.resolve()
        # A path with a NUL cannot be resolved.
        path = (root / name.replace("\0", "_")).resolve()
        if root not in path.parents or not path.is_dir():
            raise FileError(f"There is no folder {name[:100]!r} in {self.folder.name}.")
        return path

    def new_campaign_path(self, name: str) -> Path:
        """Return the file of a campaign that is to be created.

        For a campaign of the database, it is a temporary file, from which it is moved there.

        Raises:
            InputError: the server has no place for it, or the name is invalid or taken.
            StoreError: the database does not answer.
        """
        folder = self.folder
        if self.database is not None:
            folder = self.temp / secrets.token_hex(8)
        if folder is None:
            raise InputError(
                "Campaigns can be created on the page only if the server was started with --folder "
                "or --database."
            )

        name = name.strip()
        if not _CAMPAIGN_NAME.fullmatch(name):
            raise InputError(
                "The name of a campaign must begin with a letter or digit, and may contain up to "
                "80 letters, digits, spaces, hyphens and dots."
            )

        path = folder / f"{name}.teeter"
        is_taken = path.exists()
        if self.database is not None:
            is_taken = name in self.database.names()
        if is_taken:
            raise InputError(f"There is already a campaign called {name}: choose another name.")

        folder.mkdir(exist_ok=True)
        return path

    # Background work

    def create_campaign(
        self,
        source: Path,
        path: Path,
        classes: Sequence[str] | None,
        settings: Settings,
        *,
        columns: ItemColumns,
        owner: str,
        owned: Campaign | None,
        upload: str | None = None,
        asked: object = None,
    ) -> Job[CreatedCampaign]:
        """Create a campaign in the background.

        Args:
            source: a file of items, or a sheet of one, or a folder of images. A file that was
                uploaded is removed.
            owner: its first member, who can use it with the token that they have in ``owned``.
            owned: a campaign that they own; None for a new one that is open to everyone.
            upload: the upload that the source is a copy of, if it is kept until the campaign is
                there.
            asked: what ``find_creation`` compares, if the request is sent again.
        """
        # Done when the campaign is open here, not when the worker has written the file.
        opened: Future[CreatedCampaign] = Future()

        def open_created(creating: Future[ImportResult]) -> None:
            file, _ = split_sheet(source)
            if file.is_relative_to(self.temp):
                shutil.rmtree(file.parent, ignore_errors=True)

            try:
                created = creating.result()
                if owned is not None:
                    # They own it, with the token that they have in another campaign.
                    new = Campaign.open(path)
                    try:
                        new.people.add_as_in(owned.people, owner, Role.OWNER, who=owner)
                    finally:
                        new.database.close()

                location: str | Path = path
                if self.database is not None:
                    location = self.database.move_in(path)

                slug = self.open(location)
                campaign = self.campaigns[slug]
                if has_unencoded_items(campaign):
                    self.encode(campaign)

                imported = self.redact_import(created)
                if upload is not None:
                    self.uploads.remove(upload)
                result = CreatedCampaign(slug, path.name, imported)
                opened.set_result(result)
            except BaseException as error:  # shown to the user who asks for the job
                opened.set_exception(InputError(str(error)))

        creating = self.slow_worker.submit(
            CREATE_CAMPAIGN,
            str(path),
            source=str(source),
            classes=classes,
            settings=settings,
            columns=columns,
        )
        creating.add_done_callback(open_created)
        started = self._follow(opened)
        self._creations[path.stem] = (asked, started)
        return started

    def find_creation(self, name: str, asked: object) -> Job[CreatedCampaign] | None:
        """Return the job that creates or created a campaign, if the same was asked before.

        A client that got no reply sends its request again.
        """
        before, started = self._creations.get(name.strip(), (None, None))
        if started is None or before != asked or started.job not in self._jobs:
            return None

        job = self.describe_job(started.job)
        # A creation that failed is tried again, and so is one whose campaign was deleted since.
        is_there = job.result is not None and job.result.slug in self.campaigns
        if not is_there and job.state is not JobState.WAITING:
            return None
        return started

    def train(self, campaign: Campaign) -> Job[ModelRound | None]:
        """Train a model in the background."""
        return self._follow(self.trainer.submit(TRAIN, campaign.location))

    def label_file(
        self, campaign: Campaign, upload: str, owner: str, text: str | None
    ) -> Job[LabelledFile]:
        """Label the rows of an uploaded file in the background.

        Args:
            text: the column of the texts, or a template; None for the usual one.
        """
        source = str(self.uploads.find(upload, owner))
        return self._follow(
            self.slow_worker.submit(
                LABEL_FILE, campaign.location, source=source, upload=upload, text=text
            )
        )

    def encode(self, campaign: Campaign, encoder: str | None = None) -> Job[EncodingResult]:
        """Compute features in the background, or switch to another encoder.

        Args:
            encoder: the encoder to switch to, or None to resume with the current one.
        """
        encoding = self.slow_worker.submit(ENCODE, campaign.location, encoder=encoder)
        return self._follow(encoding, campaign.location)

    def follow_addition(
        self, campaign: Campaign, adding: Future[ImportResult]
    ) -> Job[ImportResult]:
        """Follow items that are being added as a job, and encode them afterwards."""

        def encode_added(added: Future[ImportResult]) -> None:
            if not added.cancelled() and added.exception() is None:
                self.encode_soon(campaign)

        adding.add_done_callback(encode_added)
        return self._follow(adding)

    def encode_soon(self, campaign: Campaign) -> None:
        """Encode new items when no others have come for a moment.

        A client that adds many items sends one request after the other, and an encoding in between
        would keep the next one waiting.
        """
        timer = threading.Timer(_ENCODE_PAUSE, self._encode_added, [campaign])
        timer.daemon = True
        with self._lock:
            previous = self._encode_timers.get(campaign.location)
            self._encode_timers[campaign.location] = timer
        if previous is not None:
            previous.cancel()
        timer.start()

    def _encode_added(self, campaign: Campaign) -> None:
        try:
            if has_unencoded_items(campaign):
                self.encode(campaign)
        except TeeterError as error:
            # The next start of the server encodes them.
            logger.warning("The items of %s cannot be encoded: %s", campaign.name, error)

    def _follow(self, future: Future[ResultT], encoded: str | None = None) -> Job[ResultT]:
        """Keep a job, and return it with the id by which its state is found.

        Args:
            encoded: the location of the campaign whose items it encodes, to say how far it is.
        """
        # Random: the id is all that one needs to read the state of a job.
        job_id = secrets.token_urlsafe(12)
        with self._lock:
            self._jobs[job_id] = (future, encoded)
            while len(self._jobs) > _MAX_JOBS:
                del self._jobs[next(iter(self._jobs))]  # the oldest

        return Job(JobState.WAITING, job_id)

    def describe_job(self, job_id: str) -> Job[Any]:
        """Return the state of a job.

        Raises:
            UnknownResourceError: there is no such job.
        """
        if job_id not in self._jobs:
            raise UnknownResourceError(
                "This background job does not exist, or its result has been discarded."
            )

        future, encoded = self._jobs[job_id]
        job = replace(self._read_state(future), job=job_id)
        if job.state is not JobState.WAITING or encoded is None:
            return job

        status = self.slow_worker.status(encoded)
        if status.activity is not Activity.ENCODING:
            return job
        return replace(
            job, done=status.encoded, total=status.to_encode, seconds_left=status.seconds_left()
        )

    def draw_map(self, campaign: Campaign, kind: MapKind) -> Job[MapFile]:
        """Return the newest map, and start to draw it again if a model or the items are newer.

        An outdated map is returned until the new one is ready.
        """
        model = campaign.newest_model()
        version = 0 if model is None else model.version
        newest = (version, campaign.items.newest_change())
        with self._lock:
            drawings = self._drawings.setdefault((campaign.location, kind), _MapDrawings())
            if drawings.next is not None and drawings.next.done():
                # Only a finished map replaces the one that is shown.
                drawings.current = drawings.next
                drawings.next = None

        status: Job[MapFile] = Job(JobState.WAITING)
        if drawings.current is not None:
            status = self._read_state(drawings.current)

        # t-SNE fails if its package is missing, and would fail again.
        is_hopeless = status.state is JobState.FAILED and kind is MapKind.TSNE
        is_outdated = True
        if status.result is not None:
            is_outdated = (status.result.version, status.result.change) != newest
        if is_outdated and drawings.next is None and not is_hopeless:
            # PCA is fast. The others would delay the next model.
            worker = self.trainer if kind is MapKind.PCA else self.slow_worker
            drawings.next = worker.submit(
                DRAW_MAP, campaign.location, kind=kind, folder=str(self.temp)
            )

        return status

    def _draw_first_map(self, location: str) -> None:
        """Draw the map of a campaign that has a model now, so that it is there when it is opened.

        Later models change its colours only, for which there is time when it is opened.
        """
        is_drawn = (location, MapKind.TSNE) in self._drawings
        if is_drawn or find_spec("openTSNE") is None:
            return
        for campaign in list(self.campaigns.values()):
            if campaign.location == location:
                self.draw_map(campaign, MapKind.TSNE)

    def find_suspects(self, campaign: Campaign, *, again: bool = False) -> Job[list[SuspectLabel]]:
        """Return labels that may be wrong, once they are found.

        Args:
            again: search again if a search is finished.
        """
        with self._lock:
            search = self._searches.get(campaign.location)

        if search is None or (again and search.done()):
            # Shared by all reviewers of the campaign: the search trains several models.
            search = self.trainer.submit(FIND_SUSPECTS, campaign.location, count=_SUSPECTS)
            with self._lock:
                self._searches[campaign.location] = search

        return self._read_state(search)

    def _read_state(self, future: Future[ResultT]) -> Job[ResultT]:
        """Return the state of a future, without paths and arguments in its error or result."""
        if not future.done():
            return Job(JobState.WAITING)
        if future.cancelled():
            return Job(JobState.FAILED, detail="The server is shutting down.")

        error = future.exception()
        if error is not None:
            sentence = _ARGUMENT.sub("", self.redact_paths(str(error)))
            return Job(JobState.FAILED, detail=sentence)

        result: Any = future.result()
        if isinstance(result, ImportResult):
            result = self.redact_import(result)
        elif isinstance(result, EncodingResult):
            result = self._redact_encoding(result)
        return Job(JobState.DONE, result=result)

    def warm_up(self, locations: Iterable[str | Path] = ()) -> None:
        """Start the trainer, and pick items for the annotators who are expected.

        Args:
            locations: campaigns that are about to be labelled, because the server was started for
                them. Campaigns with members are prepared in any case.
        """
        self.trainer.start()
        expected = {self.open(location) for location in locations}

        for slug, campaign in self.campaigns.items():
            if has_unencoded_items(campaign):
                # The encoding was interrupted, or was left to the server from the start.
                self.encode(campaign)

            n_members = len(campaign.people.list())
            is_expected = slug in expected

            if is_expected and not self.auth.requires_login():
                annotator = self.auth.config.default_annotator
                self.trainer.ensure_questions(campaign.location, annotator)
            elif is_expected or n_members:
                n_annotators = n_members or len(self.auth.config.tokens)
                # Their names are known only when they log in, so the items are picked for anyone.
                n_items = min(n_annotators * self.batch_of(campaign), _MAX_READY_ITEMS)
                self.trainer.submit(PICK_AHEAD, campaign.location, count=n_items)

    def batch_of(self, campaign: Campaign) -> int:
        """Return how many items of a campaign are picked together."""
        return campaign.settings.batch or self.batch

    def close(self) -> None:
        """Stop the workers, close the campaigns and remove temporary files."""
        with self._lock:
            timers = list(self._encode_timers.values())

        for timer in timers:
            timer.cancel()

        # Workers first: they may still be writing to these campaigns.
        if self.suggester is not None:
            self.suggester.close()
        self.trainer.stop()
        self.slow_worker.stop()
        self.searcher.stop()

        for campaign in self.campaigns.values():
            campaign.database.close()
        if self.database is not None:
            self.database.close()
        self.uploads.close()
        shutil.rmtree(self.temp, ignore_errors=True)


def make_slug(name: str, taken: Iterable[str]) -> str:
    """Return a name for addresses: lower-case letters, digits and hyphens.

    Args:
        taken: names that the new one must differ from.

    Example:
        >>> make_slug("Straße 1", taken=[]), make_slug("Spam!", taken=["spam"])
        ('strasse-1', 'spam-2')
    """
    # NFKD splits letters from their accents.
    decomposed = normalize("NFKD", name.casefold())
    letters = "".join(character for character in decomposed if not combining(character))
    hyphenated = re.sub(r"[^a-z0-9]+", "-", letters)
    stem = hyphenated.strip("-") or "campaign"

    taken = set(taken)
    slug = stem
    number = 2
    while slug in taken:
        slug = f"{stem}-{number}"
        number += 1
    return slug


def _normalize_location(location: str | Path) -> str:
    """Return a location that is the same for two paths of one file."""
    if "://" in str(location):
        return str(location)
    return str(Path(location).resolve())
