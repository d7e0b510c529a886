"""The tasks of the background worker: train, pick, explain, find suspects, draw maps, export."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from teeter.base.threads import limit_threads
from teeter.base.wording import pluralize
from teeter.base.worker_process import Handler
from teeter.campaigns.asking.assignment import pick_ahead
from teeter.campaigns.asking.preparing import Preparation
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.export.formats import format_suffix
from teeter.campaigns.items.find_items import SimilarItems, Similarities
from teeter.campaigns.items.image_archives import ARCHIVE_SUFFIX, unpack_images
from teeter.campaigns.items.image_links import ImageFetcher
from teeter.campaigns.items.preview import preview_source
from teeter.campaigns.items.read_items import read_items
from teeter.campaigns.records import (
    Activity,
    EncodingResult,
    ImportResult,
    ItemColumns,
    ItemKind,
    ModelRound,
    QuestionsReady,
    StatusReport,
    SuspectLabel,
)
from teeter.campaigns.settings import Settings
from teeter.classifier import Prediction, label_file, save_classifier
from teeter.errors import InputError
from teeter.server.worker import background, projection
from teeter.server.worker.background import (
    MODEL_FORM,
    LabelledFile,
    MapFile,
    MapKind,
    Request,
    WorkerTask,
    labelled_path,
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

    def handle(request: Request[Any], report: ReportStatus) -> Any:
        # The other cores are for the server, and for a second worker.
        with limit_threads(1, blas=True):
            return handlers.run(request, report)

    return handle


class TaskHandlers:
    """Handles requests, and keeps campaigns open between them."""

    def __init__(self) -> None:
        self._open: dict[str, Preparation] = {}
        self._similar: SimilarItems | None = None
        self._layouts: dict[str, tuple[Hashable, projection.FloatArray]] = {}
        """By campaign, its newest layout by t-SNE, and what that was computed from."""

    def run(self, request: Request[Any], report: ReportStatus) -> Any:
        """Handle a request, and return its result.

        Args:
            request: a task of the list in ``background``, with its arguments.
            report: called with what is being done.

        Raises:
            TeeterError: the request cannot be fulfilled.
        """
        task = request.task
        if task not in _HANDLERS:
            raise TypeError(f"The worker has no task {task.name!r}.")
        if task.activity is not None:
            report(StatusReport(task.activity))
        return _HANDLERS[task](self, request.campaign, report, **request.arguments)

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

    def warm_up(self, _: str, report: ReportStatus) -> None:
        """Load what the first selection needs."""
        import sklearn.cluster
        import sklearn.linear_model  # noqa: F401

    def ensure_questions(
        self, location: str, report: ReportStatus, *, annotator: str, batch: int
    ) -> QuestionsReady:
        """Train if enough labels are new, and pick items if the annotator has few."""
        return self.preparation(location).ensure_questions(annotator, batch, report)

    def pick_ahead(self, location: str, report: ReportStatus, *, count: int) -> None:
        """Pick items for annotators who are expected to come."""
        pick_ahead(self.campaign(location), count)

    def train(self, location: str, report: ReportStatus) -> ModelRound | None:
        """Train a model on all labels; None if fewer than two classes have labels."""
        return self.preparation(location).train(_DEFAULT_BATCH, report)

    def encode(
        self, location: str, report: ReportStatus, *, encoder: str | None = None
    ) -> EncodingResult:
        """Compute the features of all items that lack them, or switch to another encoder."""

        def report_progress(done: int, total: int) -> None:
            report(StatusReport(Activity.ENCODING, done=done, total=total))

        return self.campaign(location).encode(encoder, progress=report_progress).shortened()

    def add_items(self, location: str, report: ReportStatus, **arguments: Any) -> ImportResult:
        """Store items, which are encoded by a later request."""
        return add_items(self.campaign(location), **arguments)

    def change_item(
        self, location: str, report: ReportStatus, *, item: str, who: str, changes: dict[str, Any]
    ) -> bool:
        """Change an item, and return whether something has changed. A new text is encoded."""
        return self.campaign(location).items.change(item, **changes, who=who)

    def find_suspects(
        self, location: str, report: ReportStatus, *, count: int
    ) -> list[SuspectLabel]:
        """Find labels that may be wrong, the least likely first."""
        return self.campaign(location).review.suspects(count)

    def predict(
        self, location: str, report: ReportStatus, *, texts: list[str]
    ) -> tuple[int, list[Prediction]]:
        """Predict the classes of new texts; the result begins with the number of the model."""
        campaign = self.campaign(location)
        if campaign.settings.kind != ItemKind.TEXT:
            raise InputError(
                f"The items of this campaign are of kind {campaign.settings.kind}: only texts can "
                "be sent for prediction."
            )

        classifier = campaign.classifier()
        predictions = classifier.label(texts)
        for prediction in predictions:
            if prediction.label is None:
                raise InputError(f"A text cannot be encoded: {prediction.problem}")
        return classifier.info.model, predictions

    def label_file(
        self, location: str, report: ReportStatus, *, source: str, upload: str, text: str | None
    ) -> LabelledFile:
        """Label the rows of an uploaded file, or the images of an archive, in a file beside it."""
        path = Path(source)
        campaign = self.campaign(location)
        classifier = campaign.classifier()
        target = labelled_path(path)
        target.unlink(missing_ok=True)  # if the process died when it was written

        if path.suffix == ARCHIVE_SUFFIX:
            shutil.rmtree(path.with_suffix(".images"), ignore_errors=True)
            with unpack_images(path, path) as (folder, _):
                predictions = label_file(classifier, folder, target)
        else:
            columns = _known_columns(campaign, path, ItemColumns(text=text))
            predictions = label_file(classifier, path, target, text=columns.text)

        problems = [row.problem for row in predictions if row.problem is not None]
        n_labelled = len(predictions) - len(problems)
        rows = pluralize(n_labelled, "row is", "rows are")
        sentences = [f"{rows} labelled by model {classifier.info.model}."]
        if problems:
            unreadable = pluralize(len(problems), "row")
            sentences.append(f"{unreadable} cannot be read: {problems[0]}")
        return LabelledFile(upload, n_labelled, sentences)

    def export(
        self, location: str, report: ReportStatus, *, form: str, folder: str, reveal: bool = False
    ) -> str:
        """Write labels and predictions, or the model, into ``folder``, and return the file."""
        into = Path(tempfile.mkdtemp(dir=folder))
        if form == MODEL_FORM:
            path = into / "model"
            save_classifier(self.campaign(location).classifier(), path)
        else:
            path = into / f"labels{format_suffix(form)}"
            self.campaign(location).export(path, form, reveal=reveal)
        if path.is_dir():
            archive_path = path.with_suffix(".zip")
            with zipfile.ZipFile(archive_path, "w", zipfile.ZIP_DEFLATED) as archive:
                for file in sorted(path.rglob("*")):
                    archive.write(file, file.relative_to(path))
            path = archive_path
        if not path.exists():
            raise InputError(f"There is nothing to export as {form}: label some items first.")
        return str(path)

    def draw_map(
        self, location: str, report: ReportStatus, *, kind: MapKind, folder: str
    ) -> MapFile:
        """Project the pool to two dimensions, or compute its LDM, into a file inside ``folder``."""
        campaign = self.campaign(location)
        # Read before the items: a change in between makes the next request draw the map again.
        change = campaign.items.newest_change()
        state = campaign.load_state()
        path = Path(tempfile.mkdtemp(dir=folder)) / "map.bin"

        match kind:
            case MapKind.LDM:
                projection.write_ldm(path, state)
            case MapKind.PCA:
                coordinates = projection.project_items(state, projection.project_pca)
                projection.write_map(path, state, coordinates)
            case MapKind.TSNE:
                # It takes minutes and depends on the features only: a new model changes nothing.
                source = (state.revision, change)
                layout = self._layouts.get(location)
                if layout is None or layout[0] != source:
                    coordinates = projection.project_items(state, projection.project_tsne)
                    layout = self._layouts[location] = source, coordinates
                projection.write_map(path, state, layout[1])

        return MapFile(str(path), state.version, change)

    def compare_items(
        self, location: str, report: ReportStatus, *, text: str, item: str | None
    ) -> Similarities:
        """Compare all items with a text or an item."""
        campaign = self.campaign(location)
        # Of one campaign only: the features of a large one take hundreds of megabytes.
        if self._similar is None or self._similar.campaign is not campaign:
            self._similar = SimilarItems(campaign)
        return self._similar.compare(text=text, item=item)

    def create_campaign(
        self, location: str, report: ReportStatus, **arguments: Any
    ) -> ImportResult:
        """Create a campaign from a file of items or a folder of images."""
        return create_campaign(Path(location), **arguments)


_HANDLERS: dict[WorkerTask[Any], Callable[..., Any]] = {
    background.WARM_UP: TaskHandlers.warm_up,
    background.ENSURE_QUESTIONS: TaskHandlers.ensure_questions,
    background.PICK_AHEAD: TaskHandlers.pick_ahead,
    background.TRAIN: TaskHandlers.train,
    background.ENCODE: TaskHandlers.encode,
    background.FIND_SUSPECTS: TaskHandlers.find_suspects,
    background.EXPORT: TaskHandlers.export,
    background.PREDICT: TaskHandlers.predict,
    background.LABEL_FILE: TaskHandlers.label_file,
    background.DRAW_MAP: TaskHandlers.draw_map,
    background.COMPARE_ITEMS: TaskHandlers.compare_items,
    background.ADD_ITEMS: TaskHandlers.add_items,
    background.CHANGE_ITEM: TaskHandlers.change_item,
    background.CREATE_CAMPAIGN: TaskHandlers.create_campaign,
}


def create_campaign(
    target: Path,
    *,
    source: str,
    classes: Sequence[str] | None,
    settings: Settings,
    columns: ItemColumns,
) -> ImportResult:
    """Create a campaign from a file of items or a folder of images.

    The items are encoded by a later request. Nothing is left behind if creating it fails.

    Args:
        target: the file to create.
        settings: all but ``kind`` and ``folder``, which follow from the source.

    Raises:
        InputError: a campaign of this name exists, or the items or settings are invalid.
    """
    if target.exists():
        raise InputError(f"There is already a campaign called {target.stem}: choose another name.")
    with _image_fetcher(target, columns) as fetcher:
        campaign = Campaign.make(
            source,
            classes,
            at=target,
            settings=settings,
            columns=columns,
            fetcher=fetcher,
            encode_now=False,
        )
    campaign.database.close()
    return campaign.imported.shortened()


@contextmanager
def _image_fetcher(target: Path, columns: ItemColumns) -> Iterator[ImageFetcher | None]:
    """Yield what fetches the images of a new campaign into a folder beside it, if it has links.

    The folder is removed again if the campaign cannot be created.
    """
    if columns.image is None:
        yield None
        return

    target = target.resolve()
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


def add_items(
    campaign: Campaign,
    *,
    items: Sequence[Any] | Path,
    who: str,
    columns: ItemColumns | None = None,
) -> ImportResult:
    """Store items. They have no features yet.

    Args:
        items: the items, or the file of a table.
        columns: the columns of the table.

    Raises:
        InputError: an item cannot be added. Then none is, but images that cannot be fetched are
            left out alone.
    """
    fetcher: ImageFetcher | None = None
    notes: list[str] = []
    if isinstance(items, Path):
        columns = _known_columns(campaign, items, columns or ItemColumns())
        folder = campaign.image_folder
        if folder is None and columns.image is not None:
            raise InputError("This campaign has no folder for images: name a column of texts.")
        if folder is not None:
            fetcher = ImageFetcher(folder, max_seconds=_FETCH_SECONDS)
        items = read_items(
            items,
            columns,
            folder=folder,
            fetcher=fetcher,
            rows=campaign.settings.has_rows,
            notes=notes,
        )

    result = campaign.add(items, encode_now=False, who=who)
    result = replace(result, notes=tuple(notes))
    if fetcher is not None:
        result = result.with_failed(fetcher.errors)
    return result.shortened()


def _known_columns(campaign: Campaign, path: Path, columns: ItemColumns) -> ItemColumns:
    """Return columns with those of the campaign's first table, if a file has them, too."""
    if columns.image is not None:
        return columns
    known = campaign.items.source_columns()
    names = preview_source(path).columns
    if not columns.text and known.text in names:
        columns = replace(columns, text=known.text)
    if not columns.id and known.id in names:
        columns = replace(columns, id=known.id)
    return columns
