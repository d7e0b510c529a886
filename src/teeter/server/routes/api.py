"""The REST API under /api/v1: everything that the page can do."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, File, Form, Query, Request, UploadFile
from fastapi.responses import FileResponse, JSONResponse, Response
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool

from teeter.campaigns.asking.questions import (
    assign_ready_items,
    count_held_by_others,
    open_questions,
    recent_answers,
)
from teeter.campaigns.classes import validate_classes
from teeter.campaigns.export.formats import FORMATS
from teeter.campaigns.items.columns import parse_column_filter
from teeter.campaigns.records import (
    Answer,
    AnswerReceipt,
    CampaignProgress,
    ChangedPrediction,
    ItemColumns,
    ItemDetails,
    ItemFilter,
    ItemPage,
    ItemQuery,
    MapLabels,
    Permission,
    RecentAnswer,
    ShownQuestion,
    ShownSuggestion,
    UndoResult,
)
from teeter.campaigns.settings import Settings
from teeter.campaigns.shortcuts import shortcuts_by_class
from teeter.encoders import AUTO, require_own_encoder
from teeter.errors import InputError, StoreError
from teeter.server.access.permissions import (
    campaign_member,
    current_session,
    current_user,
    get_workspace,
    owned_campaign,
    permissions_in,
    require_campaign_creator,
    require_permission,
)
from teeter.server.schemas import (
    AnswerIn,
    CampaignOut,
    ConfirmationIn,
    EncodeIn,
    JobOut,
    JobStarted,
    PredictedText,
    PredictIn,
    PredictionsOut,
    QuestionsOut,
    SessionIn,
    SessionOut,
    SuspectsOut,
    UndoIn,
    settings_from_form,
)
from teeter.server.service import CampaignService
from teeter.server.uploads import image_response, save_upload, upload_digest
from teeter.server.worker.requests import ExportLabels, MapKind, PredictTexts
from teeter.server.workspace import CampaignOwner

router = APIRouter(prefix="/api/v1")

_MAX_ROW_ID = 2**62
"""Larger numbers do not fit into a database."""

_PREDICTION_SECONDS = 60.0
"""Seconds that a request for predictions waits for the worker."""

_EXPORT_SECONDS = 600
"""How long a client waits for an export."""

ItemIdQuery = Annotated[str, Query(min_length=1, max_length=4096, description="The item's id.")]
ColumnQuery = Annotated[
    Sequence[Annotated[str, Query(max_length=5000)]],
    Query(
        max_length=10, description="COLUMN=VALUE: only items with exactly this value in the column."
    ),
]
RowIdQuery = Annotated[int | None, Query(ge=0, le=_MAX_ROW_ID)]


@dataclass(frozen=True)
class VisibleCampaigns:
    """The campaigns that a user may see."""

    campaigns: list[CampaignOut]
    errors: dict[str, str]
    """Why campaigns cannot be read now, by their names."""


def find_visible_campaigns(request: Request) -> VisibleCampaigns:
    """Return the campaigns that the user of a request may see.

    Raises:
        StoreError: there are campaigns, and none of them can be read.
    """
    workspace = get_workspace(request)
    workspace.close_missing_campaigns()
    workspace.open_new_campaigns()

    campaigns: list[CampaignOut] = []
    errors: dict[str, StoreError] = {}
    for service in list(workspace.services.values()):
        # Its page says what happened. The list shows what can be opened.
        if not service.campaign.database.is_in_place():
            continue

        try:
            if campaign_member(request, service) is not None:
                campaigns.append(describe_campaign(request, service))
        except StoreError as error:
            errors[service.campaign.name] = error

    # An empty list would look as if everything had been deleted.
    if errors and not campaigns:
        raise next(iter(errors.values()))

    sentences = {name: workspace.redact_paths(str(error)) for name, error in errors.items()}
    return VisibleCampaigns(campaigns, sentences)


def describe_campaign(request: Request, service: CampaignService) -> CampaignOut:
    """Return a campaign, its progress, and what the user of a request may do in it."""
    permissions = permissions_in(request, service)
    return get_workspace(request).describe_campaign(service, permissions)


# Sessions


@router.get("/session")
def get_session(request: Request) -> SessionOut:
    """Return the name you answer under, and the CSRF token to send with every change."""
    return SessionOut(
        annotator=current_user(request),
        csrf=current_session(request).csrf_token,
        needs_token=get_workspace(request).auth.requires_login(),
    )


@router.post("/session")
def choose_name(request: Request, body: SessionIn) -> SessionOut:
    """Choose the name to answer under, on a server that requires no login."""
    auth = get_workspace(request).auth
    if auth.requires_login():
        raise InputError("You cannot choose a name here, because your login determines it.")

    session = auth.session_for_name(body.annotator)
    request.state.session = session
    return SessionOut(annotator=body.annotator, csrf=session.csrf_token, needs_token=False)


# Campaigns


@router.get("/campaigns")
def list_campaigns(request: Request) -> list[CampaignOut]:
    """List the campaigns that you may see and that can be read."""
    return find_visible_campaigns(request).campaigns


@router.post("/campaigns", status_code=202)
def create_campaign(
    request: Request,
    *,
    name: Annotated[str, Form(max_length=80)],
    classes: Annotated[str, Form(max_length=10_000, description="Comma-separated.")],
    file: Annotated[UploadFile | None, File(description="CSV, JSONL or Parquet.")] = None,
    folder: Annotated[
        str, Form(max_length=200, description="A folder of images in the server's folder.")
    ] = "",
    text: Annotated[
        str,
        Form(max_length=1000, description="The column of texts, several columns, or a template."),
    ] = "",
    id_column: Annotated[str, Form(max_length=200)] = "",
    labels: Annotated[str, Form(max_length=200, description="The column of known labels.")] = "",
    image: Annotated[
        str, Form(max_length=200, description="A column of links to images, instead of texts.")
    ] = "",
    settings: Annotated[Settings, Depends(settings_from_form)],
) -> JobStarted:
    """Create a campaign from an uploaded file or a folder of images, in the background.

    Sent again, it returns the job that creates the campaign, or has created it. If campaigns of
    this server have members, you become the owner of the new one.
    """
    require_campaign_creator(request)
    workspace = get_workspace(request)

    # All is checked before the upload is saved.
    class_names = validate_classes(classes.split(","))
    shortcuts_by_class(class_names, settings.keys)
    require_own_encoder(settings.encoder or AUTO)
    settings.require_cost()
    settings.require_strategy()

    if image and workspace.database is not None:
        raise InputError(
            "A server with --database has no folder for images: create this campaign with teeter "
            "campaign new."
        )

    # Browsers send an empty file if none was chosen.
    upload = file if file is not None and file.filename else None
    columns = ItemColumns(text or None, id_column or None, labels or None, image or None)
    content = folder if upload is None else upload_digest(upload)
    asked = (current_user(request), content, class_names, settings, columns)
    creation = workspace.find_creation(name, asked)
    if creation is not None:
        return creation

    path = workspace.new_campaign_path(name)
    if upload is not None and not folder:
        source = save_upload(upload, workspace.temp, workspace.auth.config.upload_limit)
    elif upload is None and folder:
        source = workspace.find_folder(folder)
    else:
        raise InputError("Give either a file or a folder of images.")

    owner = None
    # The owner can use the new campaign with the token that they have already.
    owned = owned_campaign(request)
    if owned is not None:
        owner = CampaignOwner(current_user(request), owned)

    return workspace.create_campaign(
        source, path, class_names, settings, owner=owner, columns=columns, asked=asked
    )


@router.get("/jobs/{job_id}")
def get_job(request: Request, job_id: str) -> JobOut:
    """Return the state of a background job that you started."""
    return get_workspace(request).describe_job(job_id)


@router.get("/campaigns/{slug}")
def get_campaign(request: Request, slug: str) -> CampaignOut:
    """Return a campaign and its progress."""
    return describe_campaign(request, require_permission(request, slug, Permission.ANSWER))


# Labelling


@router.get("/campaigns/{slug}/questions")
def list_questions(
    request: Request, slug: str, n: Annotated[int, Query(ge=1, le=200)] = 20
) -> QuestionsOut:
    """Return items to label.

    If there are none and ``finished`` is false, items are still being picked: repeat the request.
    """
    workspace = get_workspace(request)
    service = require_permission(request, slug, Permission.ANSWER)
    annotator = current_user(request)

    status = workspace.trainer.status(service.location)
    campaign = service.campaign
    questions = open_questions(campaign, annotator, n, status.explanations)

    low = workspace.batch // 2
    if len(questions) < min(n, low) and assign_ready_items(campaign, annotator, workspace.batch):
        questions = open_questions(campaign, annotator, n, status.explanations)

    if len(questions) <= low or any(_lacks_explanation(question) for question in questions):
        workspace.trainer.ensure_questions(service.location, annotator)

    is_finished = not questions and annotator in status.finished_annotators
    counts = campaign.items.count()
    return QuestionsOut(
        questions=questions,
        finished=is_finished,
        held_by_others=count_held_by_others(campaign, annotator) if is_finished else 0,
        news=workspace.describe_news(service),
        busy=status.activity is not None,
        labelled=counts.labelled,
        items=counts.items,
    )


def _lacks_explanation(question: ShownQuestion) -> bool:
    return question.explanation is None and not question.pick.is_blind


@router.post("/campaigns/{slug}/answers")
def record_answer(request: Request, slug: str, body: AnswerIn) -> AnswerReceipt:
    """Record an answer. The answer is on disk when the request returns.

    Sent again, for example because a response was lost, it counts once.
    """
    service = require_permission(request, slug, Permission.ANSWER)
    annotator = current_user(request)
    answer = Answer(body.item, annotator, body.kind, body.label, body.comment)
    shown = None
    if body.suggestion is not None:
        shown = ShownSuggestion(body.suggestion.source, body.suggestion.label)

    receipt = service.campaign.answer(answer, shown=shown)
    get_workspace(request).trainer.ensure_questions(service.location, annotator)
    return replace(receipt, labelled=service.campaign.items.count().labelled)


@router.get("/campaigns/{slug}/answers")
def list_recent_answers(
    request: Request, slug: str, count: Annotated[int, Query(ge=1, le=100)] = 10
) -> list[RecentAnswer]:
    """Return your latest answers, newest first."""
    service = require_permission(request, slug, Permission.ANSWER)
    return recent_answers(service.campaign, current_user(request), count)


@router.post("/campaigns/{slug}/undo")
def undo_answer(request: Request, slug: str, body: UndoIn) -> UndoResult | None:
    """Undo your last answer, by its number. Sent again, it undoes nothing more.

    It returns null if there was nothing to undo, because you have answered since.
    """
    service = require_permission(request, slug, Permission.ANSWER)
    return service.campaign.undo(current_user(request), number=body.number)


@router.post("/campaigns/{slug}/keep")
def confirm_label(request: Request, slug: str, body: ConfirmationIn) -> AnswerReceipt:
    """Record that a label was reviewed and is correct. It is undone like any other answer."""
    campaign = require_permission(request, slug, Permission.REVIEW).campaign
    receipt = campaign.confirm_label(body.item, current_user(request), comment=body.comment)
    return replace(receipt, labelled=campaign.items.count().labelled)


@router.get("/campaigns/{slug}/suspects")
def find_suspects(request: Request, slug: str, again: bool = False) -> SuspectsOut:
    """Return labels that may be wrong. Repeat the request while the state is ``waiting``."""
    service = require_permission(request, slug, Permission.REVIEW)
    status = get_workspace(request).find_suspects(service, again=again)

    suspects = status.result or []
    columns = service.campaign.items.shown_columns([suspect.item for suspect in suspects])
    return SuspectsOut(state=status.state, detail=status.error, suspects=suspects, columns=columns)


@router.post("/campaigns/{slug}/train", status_code=202)
def train(request: Request, slug: str) -> JobStarted:
    """Train a model now, in the background."""
    service = require_permission(request, slug, Permission.MANAGE)
    return get_workspace(request).train(service)


@router.post("/campaigns/{slug}/predict")
async def predict(request: Request, slug: str, body: PredictIn) -> PredictionsOut:
    """Predict the classes of new texts with the newest model. Nothing is stored."""
    service = await run_in_threadpool(require_permission, request, slug, Permission.EXPORT)
    worker = get_workspace(request).trainer
    future = worker.submit(PredictTexts(service.location, tuple(body.texts)))
    try:
        # Shielded, because the worker sets the result later even if no request waits for it.
        predicting = asyncio.shield(asyncio.wrap_future(future))
        predicted = await asyncio.wait_for(predicting, _PREDICTION_SECONDS)
    except TimeoutError:
        raise StoreError("The server is busy with other work: try again later.") from None

    predictions = [
        PredictedText(label=label, probability=probability)
        for label, probability in predicted.predictions
    ]
    return PredictionsOut(model=predicted.model, predictions=predictions)


@router.post("/campaigns/{slug}/encode", status_code=202)
def encode(request: Request, slug: str, body: EncodeIn) -> JobStarted:
    """Compute the features of items, or switch to another encoder, in the background."""
    service = require_permission(request, slug, Permission.MANAGE)
    if body.encoder is not None:
        require_own_encoder(body.encoder)

    return get_workspace(request).encode(service, body.encoder)


# Items


@router.get("/campaigns/{slug}/items")
def list_items(
    request: Request,
    slug: str,
    *,
    search: Annotated[str, Query(max_length=500)] = "",
    label: Annotated[str, Query(max_length=1000)] = "",
    state: ItemFilter = ItemFilter.ALL,
    after: RowIdQuery = None,
    before: RowIdQuery = None,
    count: Annotated[int, Query(ge=1, le=500)] = 50,
    column: ColumnQuery = (),
) -> ItemPage:
    """List items in the order in which they were added, after or before a row id.

    ``search`` looks in texts, ids and all columns. ``column`` may be repeated: each is a filter.
    """
    service = require_permission(request, slug, Permission.REVIEW)
    query = ItemQuery(
        search=search.strip(),
        label=label or None,
        state=state,
        after=after,
        before=before,
        count=count,
        columns=tuple(parse_column_filter(text) for text in column),
    )
    return service.campaign.items.page(query)


@router.get("/campaigns/{slug}/item")
def get_item(
    request: Request,
    slug: str,
    id: Annotated[str | None, Query(max_length=4096)] = None,
    index: Annotated[
        int | None, Query(ge=0, le=_MAX_ROW_ID, description="The item's index on the map.")
    ] = None,
) -> ItemDetails:
    """Return an item, by its id or its index on the map. Annotators see only their own answer."""
    service = require_permission(request, slug, Permission.ANSWER)

    only_by = None
    if Permission.REVIEW not in permissions_in(request, service):
        only_by = current_user(request)

    item = id or ""
    if index is not None:
        item = service.campaign.items.at(index)
    return service.campaign.items.get(item, only_by=only_by)


@router.get("/campaigns/{slug}/image", response_class=Response)
def get_image(request: Request, slug: str, id: ItemIdQuery) -> Response:
    """Return the image of an item."""
    service = require_permission(request, slug, Permission.ANSWER)
    return image_response(service.campaign.items.image(id))


# Progress and the map


@router.get("/campaigns/{slug}/progress")
def get_progress(request: Request, slug: str) -> CampaignProgress:
    """Return the progress of the campaign, model by model."""
    return require_permission(request, slug, Permission.ANSWER).campaign.progress()


@router.get("/campaigns/{slug}/flipped")
def list_changed_predictions(
    request: Request, slug: str, count: Annotated[int, Query(ge=1, le=200)] = 20
) -> list[ChangedPrediction]:
    """Return items whose predicted class changed with the newest model."""
    return require_permission(request, slug, Permission.REVIEW).campaign.items.changed_predictions(
        count
    )


@router.get("/campaigns/{slug}/map", response_class=Response)
def get_map(request: Request, slug: str, kind: MapKind = MapKind.PCA) -> Response:
    """Return a map of the items in binary form: the number of items, then columns of four bytes.

    The number is an int32. PCA and t-SNE have the columns x and y (float32) and the index of the
    predicted class (int32, -1 for none); ``ldm`` has the LDM (float32). Items that are not on the
    map, such as withdrawn ones, have NaN. Maps are drawn in the background: repeat the request
    while the status is 202.
    """
    service = require_permission(request, slug, Permission.REVIEW)
    drawing = get_workspace(request).draw_map(service, kind)

    if drawing.result is None:
        job = JobOut(state=drawing.state, detail=drawing.error)
        return JSONResponse(job.model_dump(mode="json"), 202)

    return FileResponse(
        drawing.result.file,
        media_type="application/octet-stream",
        headers={"x-model-version": str(drawing.result.version)},
    )


@router.get("/campaigns/{slug}/labels")
def list_labels(request: Request, slug: str) -> MapLabels:
    """Return the labels of the items on the map, and which items are withdrawn."""
    return require_permission(request, slug, Permission.REVIEW).campaign.items.labels_on_map()


@router.get("/campaigns/{slug}/export", response_class=Response)
async def export_labels(
    request: Request,
    slug: str,
    form: Annotated[str, Query(json_schema_extra={"enum": list(FORMATS)})] = "csv",
) -> Response:
    """Return labels and predictions as a file.

    In the format ``spreadsheet``, values that a spreadsheet program would run as formulas begin
    with an apostrophe. The format ``csv`` keeps every value unchanged, for programs.
    """
    service = await run_in_threadpool(require_permission, request, slug, Permission.EXPORT)
    workspace = get_workspace(request)
    if form not in FORMATS:
        raise InputError(f"There is no format {form[:50]!r}: choose {', '.join(FORMATS)}.")

    # A folder for this request alone, which is removed when the file is sent.
    folder = tempfile.mkdtemp(dir=workspace.temp)
    future = workspace.trainer.submit(ExportLabels(service.location, form, folder))

    try:
        # Shielded: neither the time limit nor a client that leaves may cancel the future, because
        # the worker sets its result later.
        exporting = asyncio.shield(asyncio.wrap_future(future))
        file = Path(await asyncio.wait_for(exporting, _EXPORT_SECONDS))
    except BaseException as error:
        # The worker may still write into the folder.
        future.add_done_callback(lambda _: shutil.rmtree(folder, ignore_errors=True))
        if not isinstance(error, TimeoutError):
            raise
        raise StoreError("The server is busy with other work: try again later.") from None

    return FileResponse(
        file,
        filename=f"{service.slug}-{form}{file.suffix}",
        background=BackgroundTask(shutil.rmtree, folder, ignore_errors=True),
    )
