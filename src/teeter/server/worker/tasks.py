"""The tasks of the background worker: train, pick, explain, find suspects, draw maps, export."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from teeter.base.threads import limit_threads
from teeter.base.worker_process import Handler
from teeter.campaigns.asking.assignment import pick_ahead
from teeter.campaigns.asking.preparing import Preparation
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.export.formats import format_suffix
from teeter.campaigns.items.image_links import ImageFetcher
from teeter.campaigns.items.read_items import read_items
from teeter.campaigns.learning.encoding import ProgressReport
from teeter.campaigns.records import (
    Activity,
    EncodingResult,
    ImportResult,
    ItemKind,
    StatusReport,
    SuspectLabel,
)
from teeter.classifier import Prediction
from teeter.errors import InputError
from teeter.server.worker import projection
from teeter.server.worker.requests import (
    AddItems,
    ChangeItem,
    CreateCampaign,
    DrawMap,
    EncodeItems,
    EnsureQuestions,
    ExportLabels,
    FindSuspects,
    MapFile,
    MapKind,
    PickAhead,
    PredictTexts,
    TaskRequest,
    TrainModel,
    WarmUp,
)

ReportStatus = Callable[[StatusReport], None]

NICENESS = 5
"""Priority of the worker on Unix. Answers to annotators come first, but the worker must not starve:
beside one busy process Linux gives it 25 % of a core at 5, and only 10 % at 10."""

_DEFAULT_BATCH = 20
"""Items that an annotator gets at a time, where a request does not say."""

_FETCH_SECONDS = 900.0
"""Seconds that all links of an import may take. Other campaigns wait for the same worker."""


def make_task_handler() -> Handler:
    """Set up a new worker process, and return what handles its requests."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    handlers = TaskHandlers()

    def handle(request: TaskRequest[Any], report: ReportStatus) -> Any:
        # The other cores are for the server, and for a second worker.
        with limit_threads(1, blas=True):
            return handlers.run(request, report)

    return handle


class TaskHandlers:
    """Handles requests, and keeps campaigns open between them."""

    def __init__(self) -> None:
        self._open: dict[str, Preparation] = {}

    def run(self, request: TaskRequest[Any], report: ReportStatus) -> Any:
        """Handle a request, and return its result.

        Args:
            request: one of the requests in ``requests``.
            report: called with what is being done.

        Raises:
            TeeterError: the request cannot be fulfilled.
        """
        match request:
            case EnsureQuestions():
                preparation = self.preparation(request.campaign)
                return preparation.ensure_questions(request.annotator, request.batch, report)
            case TrainModel():
                return self.preparation(request.campaign).train(_DEFAULT_BATCH, report)
            case PickAhead():
                report(StatusReport(Activity.PICKING))
                return pick_ahead(self.campaign(request.campaign), request.count)
            case FindSuspects():
                return self._find_suspects(request, report)
            case ExportLabels():
                return self._export(request, report)
            case DrawMap():
                return self._draw_map(request, report)
            case CreateCampaign():
                report(StatusReport(Activity.CREATING))
                return create_campaign(request, _report_encoding(report))
            case EncodeItems():
                return self._encode(request, report)
            case AddItems():
                return add_items(self.campaign(request.campaign), request)
            case ChangeItem():
                return self._change_item(request)
            case PredictTexts():
                return self._predict(request, report)
            case WarmUp():
                return _load_libraries()
            case _:
                raise TypeError(f"Cannot handle a request of type {type(request).__name__}.")

    def campaign(self, location: str) -> Campaign:
        """Return an open campaign."""
        return self.preparation(location).campaign

    def preparation(self, location: str) -> Preparation:
        """Return what trains and picks for a campaign, which is opened if it was not."""
        preparation = self._open.get(location)
        if preparation is not None and not preparation.campaign.database.is_in_place():
            # Another file has taken its place: what was remembered is of the old one.
            preparation.campaign.database.close()
            preparation = None

        if preparation is None:
            preparation = self._open[location] = Preparation(Campaign.open(location))
        return preparation

    def close(self) -> None:
        """Close all campaigns."""
        for preparation in self._open.values():
            preparation.campaign.database.close()
        self._open.clear()

    def _encode(self, request: EncodeItems, report: ReportStatus) -> EncodingResult:
        campaign = self.campaign(request.campaign)
        return campaign.encode(request.encoder, progress=_report_encoding(report)).shortened()

    def _change_item(self, request: ChangeItem) -> bool:
        changes = json.loads(request.changes)
        campaign = self.campaign(request.campaign)
        return campaign.items.change(request.item, **changes, who=request.who)

    def _find_suspects(self, request: FindSuspects, report: ReportStatus) -> list[SuspectLabel]:
        report(StatusReport(Activity.FINDING_SUSPECTS))
        return self.campaign(request.campaign).suspects(request.count)

    def _predict(self, request: PredictTexts, report: ReportStatus) -> tuple[int, list[Prediction]]:
        report(StatusReport(Activity.PREDICTING))
        campaign = self.campaign(request.campaign)
        if campaign.settings.kind != ItemKind.TEXT:
            raise InputError(
                f"The items of this campaign are of kind {campaign.settings.kind}: only texts can "
                "be sent for prediction."
            )

        classifier = campaign.classifier()
        predictions = classifier.label(request.texts)
        for prediction in predictions:
            if prediction.label is None:
                raise InputError(f"A text cannot be encoded: {prediction.problem}")
        return classifier.info.model, predictions

    def _export(self, request: ExportLabels, report: ReportStatus) -> str:
        report(StatusReport(Activity.EXPORTING))
        folder = Path(tempfile.mkdtemp(dir=request.folder))
        path = folder / f"labels{format_suffix(request.format)}"

        self.campaign(request.campaign).export(path, request.format)
        if path.is_dir():
            path = _zip_folder(path)
        if not path.exists():
            raise InputError(
                f"There is nothing to export as {request.format}: label some items first."
            )
        return str(path)

    def _draw_map(self, request: DrawMap, report: ReportStatus) -> MapFile:
        report(StatusReport(Activity.DRAWING_MAP))
        campaign = self.campaign(request.campaign)
        # Read before the items: a change in between makes the next request draw the map again.
        change = campaign.items.newest_change()
        state = campaign.load_state()
        path = Path(tempfile.mkdtemp(dir=request.folder)) / "map.bin"

        match request.kind:
            case MapKind.LDM:
                projection.write_ldm(path, state)
            case MapKind.PCA:
                coordinates = projection.project_items(state, projection.project_pca)
                projection.write_map(path, state, coordinates)
            case MapKind.TSNE:
                coordinates = projection.project_items(state, projection.project_tsne)
                projection.write_map(path, state, coordinates)

        return MapFile(str(path), state.version, change)


def _report_encoding(report: ReportStatus) -> ProgressReport:
    """Return a function that reports the progress of an encoding to the server."""

    def report_progress(done: int, total: int) -> None:
        report(StatusReport(Activity.ENCODING, done=done, total=total))

    return report_progress


def create_campaign(
    request: CreateCampaign, progress: ProgressReport | None = None
) -> ImportResult:
    """Create a campaign from a file of items or a folder of images.

    Only enough items to begin with are encoded. Nothing is left behind if creating it fails.

    Args:
        progress: called with the number of encoded items and the number of all items.

    Raises:
        InputError: a campaign of this name exists, or the items or settings are invalid.
    """
    target = Path(request.campaign)
    if target.exists():
        raise InputError(f"There is already a campaign called {target.stem}: choose another name.")
    with _image_fetcher(request) as fetcher:
        campaign = Campaign.make(
            request.source,
            request.classes,
            at=target,
            settings=request.settings,
            columns=request.columns,
            fetcher=fetcher,
            encode_all=False,
            progress=progress,
        )
    campaign.database.close()
    return campaign.imported.shortened()


@contextmanager
def _image_fetcher(request: CreateCampaign) -> Iterator[ImageFetcher | None]:
    """Yield what fetches the images of a new campaign into a folder beside it, if it has links.

    The folder is removed again if the campaign cannot be created.
    """
    if request.columns.image is None:
        yield None
        return

    target = Path(request.campaign).resolve()
    folder = target.with_name(f"{target.stem}.images")
    is_new = not folder.exists()
    folder.mkdir(exist_ok=True)
    try:
        # Links only: an upload has no files beside it, and its owner none of our credentials.
        yield ImageFetcher(folder, max_seconds=_FETCH_SECONDS)
    except BaseException:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def add_items(campaign: Campaign, request: AddItems) -> ImportResult:
    """Store the items of a request. They have no features yet.

    Raises:
        InputError: an item cannot be added. Then none is, but images that cannot be fetched are
            left out alone.
    """
    source = Path(request.source)
    items: Sequence[Any]
    fetcher: ImageFetcher | None = None
    if request.columns is None:
        items = json.loads(source.read_text())
    else:
        folder = campaign.image_folder
        if folder is None and request.columns.image is not None:
            raise InputError("This campaign has no folder for images: name a column of texts.")
        if folder is not None:
            fetcher = ImageFetcher(folder, max_seconds=_FETCH_SECONDS)
        items = read_items(
            source,
            request.columns,
            folder=folder,
            fetcher=fetcher,
            rows=campaign.settings.has_rows,
        )

    result = campaign.add(items, encode_all=False, who=request.who)
    if fetcher is not None:
        result = result.with_failed(fetcher.errors)
    return result.shortened()


def _load_libraries() -> None:
    """Load what the first selection needs."""
    import sklearn.cluster
    import sklearn.linear_model  # noqa: F401


def _zip_folder(folder: Path) -> Path:
    archive_path = folder.with_suffix(".zip")
    with zipfile.ZipFile(archive_path, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return archive_path
