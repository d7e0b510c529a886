"""The tasks of the background worker: train, pick, explain, find suspects, draw maps, export."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.base.threads import limit_threads
from teeter.base.worker_process import Handler
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.export.formats import format_suffix
from teeter.campaigns.items.image_links import ImageFetcher
from teeter.campaigns.items.read_items import read_items
from teeter.campaigns.learning.encoding import ProgressReport
from teeter.campaigns.learning.rounds import RoundState
from teeter.campaigns.learning.saved_models import load_arrays, load_temperature
from teeter.campaigns.records import AddedItems, EncodingResult, ItemKind, ModelInfo, SuspectLabel
from teeter.campaigns.settings import Settings
from teeter.classifier import Classifier
from teeter.errors import InputError
from teeter.server.worker import projection
from teeter.server.worker.requests import (
    Activity,
    AddItems,
    CampaignCreated,
    ChangeItem,
    CreateCampaign,
    DrawMap,
    EncodeItems,
    EnsureQuestions,
    Explanation,
    ExportLabels,
    FindSuspects,
    MapFile,
    MapKind,
    Neighbour,
    PickAhead,
    PredictTexts,
    QuestionsReady,
    StatusReport,
    TaskRequest,
    TextsPredicted,
    TrainModel,
    WarmUp,
)

__all__ = ["TaskHandlers", "create_campaign", "make_task_handler"]

ReportStatus = Callable[[StatusReport], None]

NICENESS = 5
"""Priority of the worker on Unix. Answers to annotators come first, but the worker must not starve:
beside one busy process Linux gives it 25 % of a core at 5, and only 10 % at 10."""

_DEFAULT_BATCH = 20
"""Items that an annotator gets at a time, where a request does not say."""

_NEIGHBOURS = 3
"""Similar labelled items in an explanation."""

_FETCH_SECONDS = 900.0
"""Seconds that all links of an import may take. Other campaigns wait for the same worker."""

_MAX_LISTED = 1000
"""Duplicates and conflicts that are listed one by one."""

_MAX_PROBLEMS = 20
"""Links whose errors are listed."""

_EXCERPT = 200
"""Characters of a neighbour's text."""


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


@dataclass
class _OpenCampaign:
    """A campaign and what the worker remembers about it."""

    campaign: Campaign
    item_count: int
    settings: Settings
    """The settings that it was opened with."""
    trained_up_to: int | None = None
    """Id of the last answer when the newest model began to be trained; None if not trained here."""
    explained_by: tuple[int, list[str], int] | None = None
    """The model that explained the items below, and the names of the classes then."""
    explained: set[str] = field(default_factory=set)
    exhausted_by: int | None = None
    """Version of the model with which nothing was left to pick ahead."""
    classifier: Classifier | None = None
    """The newest model with its encoder, which takes seconds to load."""
    classifier_revision: tuple[int, tuple[int, int], list[str]] | None = None
    """The model, the features and the names of the classes that it was made from."""


class TaskHandlers:
    """Handles requests, and keeps campaigns open between them."""

    def __init__(self) -> None:
        self._open: dict[str, _OpenCampaign] = {}

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
                return self._ensure_questions(request, report)
            case TrainModel():
                return self._train(request, report)
            case PickAhead():
                report(StatusReport(Activity.PICKING))
                return self.campaign(request.campaign).pick_ahead(request.count)
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
        """Return an open campaign.

        It is opened again if its file was replaced, or if items or settings have changed.
        """
        return self._open_campaign(location).campaign

    def close(self) -> None:
        """Close all campaigns."""
        for entry in self._open.values():
            entry.campaign.database.close()
        self._open.clear()

    def _open_campaign(self, location: str) -> _OpenCampaign:
        entry = self._open.get(location)

        if entry is not None and not entry.campaign.database.is_in_place():
            # Another file has taken its place: what was remembered is of the old one.
            entry.campaign.database.close()
            entry = None

        if entry is None:
            campaign = Campaign.open(location)
            entry = _OpenCampaign(campaign, _count_items(campaign), campaign.settings)
            self._open[location] = entry
            return entry

        campaign = entry.campaign
        with campaign.reading() as view:
            item_count = view.items.count()
            settings = view.settings

        if item_count != entry.item_count or settings != entry.settings:
            campaign.database.close()
            entry.campaign = Campaign.open(location)
            entry.item_count = item_count
            entry.settings = settings
            entry.exhausted_by = None

        return entry

    def _ensure_questions(self, request: EnsureQuestions, report: ReportStatus) -> QuestionsReady:
        entry = self._open_campaign(request.campaign)
        campaign = entry.campaign
        batch = request.batch
        waiting = _open_items(campaign, request.annotator)
        has_few = len(waiting) <= batch // 2

        # While many items wait, a model is trained after a whole batch of new labels. When items
        # are about to be picked anyway, half a batch is enough to make the picks better.
        enough_labels = batch
        if has_few:
            enough_labels = max(1, batch // 2)
        must_train = _count_new_labels(entry) >= enough_labels

        # Loading reads all answers: once for training, picking and explaining together.
        state = None
        if has_few or must_train:
            last_answer = _newest_answer(campaign)
            state = campaign.load_state()
            if must_train:
                _, state = _train_model(entry, state, last_answer, batch, report)

        if has_few:
            report(StatusReport(Activity.PICKING))
            questions = campaign.ask(len(waiting) + batch, request.annotator, state=state)
            waiting = [question.item for question in questions]
        _keep_ready(entry, batch, state)

        explanations = _explain_items(entry, waiting[: 3 * batch], state)
        return QuestionsReady(is_finished=not waiting, explanations=explanations)

    def _train(self, request: TrainModel, report: ReportStatus) -> ModelInfo | None:
        entry = self._open_campaign(request.campaign)
        last_answer = _newest_answer(entry.campaign)
        state = entry.campaign.load_state()
        trained, _ = _train_model(entry, state, last_answer, _DEFAULT_BATCH, report)
        return trained

    def _encode(self, request: EncodeItems, report: ReportStatus) -> EncodingResult:
        campaign = self.campaign(request.campaign)
        return campaign.encode(request.encoder, progress=_report_encoding(report))

    def _change_item(self, request: ChangeItem) -> bool:
        changes = json.loads(request.changes)
        campaign = self.campaign(request.campaign)
        return campaign.items.change(request.item, **changes, who=request.who)

    def _find_suspects(self, request: FindSuspects, report: ReportStatus) -> list[SuspectLabel]:
        report(StatusReport(Activity.FINDING_SUSPECTS))
        return self.campaign(request.campaign).suspects(request.count)

    def _predict(self, request: PredictTexts, report: ReportStatus) -> TextsPredicted:
        report(StatusReport(Activity.PREDICTING))
        entry = self._open_campaign(request.campaign)
        campaign = entry.campaign
        if campaign.settings.kind != ItemKind.TEXT:
            raise InputError(
                f"The items of this campaign are of kind {campaign.settings.kind}: only texts can "
                "be sent for prediction."
            )

        classifier = _load_classifier(entry)
        predictions = []
        for prediction in classifier.label(request.texts):
            if prediction.label is None or prediction.probability is None:
                raise InputError(f"A text cannot be encoded: {prediction.problem}")
            predictions.append((prediction.label, prediction.probability))
        return TextsPredicted(classifier.info.model, predictions)

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
        with campaign.reading() as view:
            change = view.items.newest_change()
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


def _load_classifier(entry: _OpenCampaign) -> Classifier:
    """Return the newest model with its encoder, loaded again only if one of them has changed."""
    campaign = entry.campaign
    with campaign.reading() as view:
        version = view.models.newest_version()
        features = view.encodings.revision()
        revision = (version, features, view.classes.names())

    if entry.classifier is None or entry.classifier_revision != revision:
        entry.classifier = campaign.classifier()
        entry.classifier_revision = revision
    return entry.classifier


def _report_encoding(report: ReportStatus) -> ProgressReport:
    """Return a function that reports the progress of an encoding to the server."""

    def report_progress(done: int, total: int) -> None:
        report(StatusReport(Activity.ENCODING, done=done, total=total))

    return report_progress


def create_campaign(
    request: CreateCampaign, progress: ProgressReport | None = None
) -> CampaignCreated:
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
    imported = campaign.imported
    encoding = imported.encoding
    return CampaignCreated(
        file=str(target),
        new=imported.new,
        duplicates=len(imported.duplicates),
        labelled=imported.labelled,
        encoder=None if encoding is None else encoding.sentence,
        unreadable=0 if encoding is None else len(encoding.unreadable),
        failed=len(imported.failed),
        problems=[reason for _, reason in imported.failed[:_MAX_PROBLEMS]],
        left_out_files=imported.left_out_files,
    )


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


def add_items(campaign: Campaign, request: AddItems) -> AddedItems:
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
    failed = dict(result.failed) if fetcher is None else fetcher.errors
    return AddedItems(
        new=result.new,
        duplicates=len(result.duplicates),
        labelled=result.labelled,
        conflicts=len(result.conflicts),
        duplicate_items=list(result.duplicates[:_MAX_LISTED]),
        conflicting_items=list(result.conflicts[:_MAX_LISTED]),
        failed=len(failed),
        problems=list(failed.values())[:_MAX_PROBLEMS],
        failed_items=list(failed.items())[:_MAX_LISTED],
    )


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


def _count_items(campaign: Campaign) -> int:
    with campaign.reading() as view:
        return view.items.count()


def _open_items(campaign: Campaign, annotator: str) -> list[str]:
    """Return the ids of the items that wait for an annotator."""
    with campaign.reading() as view:
        picks = view.picks.open_picks(annotator)
    return [pick.item for pick in picks]


def _count_new_labels(entry: _OpenCampaign) -> int:
    """Return the number of labels since the newest model began to be trained."""
    with entry.campaign.reading() as view:
        if entry.trained_up_to is not None:
            return view.answers.count_labels_after(row_id=entry.trained_up_to)

        # The model was trained by another process: only the time is known.
        model = view.models.newest_summary()
        trained_at = "" if model is None else model.trained
        return view.answers.count_labels_after(time=trained_at)


def _newest_answer(campaign: Campaign) -> int:
    """Return the row id of the newest answer."""
    with campaign.reading() as view:
        return view.answers.newest_row_id()


def _train_model(
    entry: _OpenCampaign, state: RoundState, last_answer: int, batch: int, report: ReportStatus
) -> tuple[ModelInfo | None, RoundState]:
    """Train a model and pick ahead with it.

    Args:
        last_answer: row id of the newest answer, read before the state: answers that came in
            between count as new.
        batch: how many items an annotator gets at a time.

    Returns:
        The model and the state with it, or None and the same state if fewer than two classes have
        labels or if items are not encoded yet.
    """
    if state.unencoded or len(set(state.labels.values())) < 2:
        return None, state

    campaign = entry.campaign
    report(StatusReport(Activity.TRAINING, labels=len(state.labels), version=state.version + 1))
    trained = campaign.train(state=state, pick_ahead=campaign.ready_items_wanted(batch))

    # Only now: a training that fails is tried again with the next answer.
    entry.trained_up_to = last_answer
    report(StatusReport(None, version=trained.version, is_trained=True))
    return trained, campaign.with_newest_model(state)


def _keep_ready(entry: _OpenCampaign, batch: int, state: RoundState | None) -> None:
    """Pick ahead for the active annotators, unless the newest model found nothing left to pick."""
    campaign = entry.campaign
    with campaign.reading() as view:
        version = view.models.newest_version()

    if entry.exhausted_by == version:
        return
    if not campaign.keep_ready(batch, state=state):
        entry.exhausted_by = version


def _explain_items(
    entry: _OpenCampaign, items: Sequence[str], state: RoundState | None
) -> dict[str, Explanation]:
    """Return explanations of items that were not explained before, as things are now."""
    campaign = entry.campaign
    with campaign.reading() as view:
        explained_by = (
            view.models.newest_version(),
            view.classes.names(),
            # A changed text has other neighbours, and a withdrawn item is no neighbour.
            view.items.newest_change(),
        )

    if explained_by != entry.explained_by:
        entry.explained_by = explained_by
        entry.explained.clear()

    new_items = [item for item in items if item not in entry.explained]
    if not new_items:
        return {}
    # The server keeps explanations, so each is sent once per model.
    entry.explained.update(new_items)

    if state is None:
        state = campaign.load_state()
    row_by_item = {item: row for row, item in enumerate(state.keys)}
    rows = [row_by_item[item] for item in new_items if item in row_by_item]
    neighbours = _nearest_labelled(state, rows)
    probabilities = _class_probabilities(state, rows)

    neighbour_ids = {item for nearest in neighbours for item, _ in nearest}
    with campaign.reading() as view:
        stored_items = view.items.by_id(list(neighbour_ids))
    content_by_item = {item_id: stored.content or "" for item_id, stored in stored_items.items()}

    explanations = {}
    for row, nearest, by_class in zip(rows, neighbours, probabilities, strict=True):
        explanations[state.keys[row]] = Explanation(
            by_class,
            [Neighbour(item, label, content_by_item[item][:_EXCERPT]) for item, label in nearest],
        )
    return explanations


def _nearest_labelled(state: RoundState, rows: Sequence[int]) -> list[list[tuple[str, str]]]:
    """Return for each row the ids and labels of the labelled items with the largest cosine."""
    labelled = np.array(sorted(set(state.labels) - set(rows)), dtype=np.int64)
    if len(labelled) == 0:
        return [[] for _ in rows]

    # (rows, labelled). Cosines rather than distances: long texts have long vectors.
    cosines = _unit_rows(state.features[list(rows)]) @ _unit_rows(state.features[labelled]).T
    order = np.argsort(-cosines, axis=1)[:, :_NEIGHBOURS]  # (rows, neighbours)

    nearest = []
    for positions in order:
        neighbour_rows = [int(row) for row in labelled[positions]]
        nearest.append([(state.keys[row], state.labels[row]) for row in neighbour_rows])
    return nearest


def _unit_rows(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return rows of length 1; zero rows stay zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def _class_probabilities(state: RoundState, rows: Sequence[int]) -> list[list[tuple[str, float]]]:
    """Return classes and probabilities by the saved linear head, the most probable first.

    The lists are empty if there is no model, no linear one, or one of other features.
    """
    arrays = {} if state.weights is None else load_arrays(state.weights)
    if (
        state.weights is None
        or "weight" not in arrays
        or arrays["weight"].shape[1] != state.features.shape[1]
    ):
        return [[] for _ in rows]

    logits = state.features[list(rows)] @ arrays["weight"].T + arrays["bias"]
    logits /= load_temperature(state.weights)
    # Softmax; the largest logit is subtracted so that no power overflows.
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = odds / odds.sum(axis=1, keepdims=True)  # (rows, classes)

    names = [state.classes[index] for index in arrays["seen"]]
    ranked = []
    for row_probabilities in probabilities:
        pairs = [
            (name, round(float(probability), 4))
            for name, probability in zip(names, row_probabilities, strict=True)
        ]
        ranked.append(sorted(pairs, key=lambda pair: -pair[1]))
    return ranked
