"""The progress of a campaign, its model, the map of its items, and the promise about the rest."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from fastapi.encoders import jsonable_encoder
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from pydantic import Field

from teeter.campaigns.finish.certificate import certificate_page
from teeter.campaigns.finish.promise import MIN_ERROR
from teeter.campaigns.records import (
    MOST_AT_ONCE,
    CampaignProgress,
    Certificate,
    ChangedPrediction,
    CoveragePoint,
    EncodingResult,
    FinishReport,
    GoalReport,
    ItemKind,
    Job,
    MapLabels,
    ModelRound,
    Permission,
)
from teeter.campaigns.status import describe_bulk_answers, describe_comparison, describe_f1
from teeter.classifier import Prediction
from teeter.encoders import AUTO, encoders, is_installed, require_own_encoder
from teeter.encoders import names as encoder_names
from teeter.errors import InputError
from teeter.server.access.permissions import (
    CampaignToAnswer,
    CampaignToExport,
    CampaignToManage,
    CampaignToReview,
    User,
    get_workspace,
    permissions_in,
)
from teeter.server.charts import (
    accuracy_chart,
    coverage_chart,
    labels_over_time_chart,
    reliability_chart,
)
from teeter.server.pages import open_campaign_page, wants_part
from teeter.server.routes import RequestBody
from teeter.server.uploads import CAMPAIGN_SUFFIXES
from teeter.server.worker.background import PREDICT, MapKind, wait_for

router = APIRouter(prefix="/api/v1/campaigns/{slug}")
page_router = APIRouter(include_in_schema=False)

_CHANGED_PREDICTIONS = 12
"""Changed predictions on the page of the model."""

_MOST_COLUMNS = 7
"""Classes up to which the page of progress has a column for each. Of more, it lists mistakes."""


@page_router.get("/c/{slug}/progress")
def show_progress(
    request: Request, slug: str, seen: Annotated[str, Query(max_length=64)] = ""
) -> Response:
    """Show the progress of the campaign. htmx asks for the changing part only, if it has changed.

    Args:
        seen: identifies what the page shows.
    """
    page = open_campaign_page(request, slug, "progress", Permission.ANSWER)
    progress = page.campaign.progress()
    status = progress.status
    confusion = page.campaign.review.confusion()

    report = None
    try:
        report = page.campaign.finish.look()
        finish_sentences = report.sentences
    except InputError as error:
        finish_sentences = [str(error)]

    # An unchanged part stays as it is: whoever reads it keeps the focus, and what they opened.
    goal = page.campaign.finish.goal()
    shown = repr((status, progress.rounds[-1:], report, finish_sentences, confusion, goal))
    digest = hashlib.sha256(shown.encode()).hexdigest()
    if wants_part(request) and seen == digest:
        return Response(status_code=204)

    coverage_curve = None
    reliability = None
    if report is not None:
        reliability = reliability_chart(report.reliability)
        planned = []
        for step in report.plan:
            n_draws = report.draws + step.labels
            planned.append(CoveragePoint(n_draws, step.coverage))
        coverage_curve = coverage_chart(report.curve, planned)

    accuracies = [
        (model.labels, model.accuracy) for model in progress.rounds if model.accuracy is not None
    ]
    template = "part_progress.html" if wants_part(request) else "progress.html"
    return page.render(
        template,
        seen=digest,
        progress=progress,
        accuracy_curve=accuracy_chart(accuracies),
        last_round=progress.rounds[-1] if progress.rounds else None,
        confusion=confusion,
        f1=describe_f1(status),
        measured=sum(row.accuracy.total for row in confusion if row.accuracy is not None),
        most_columns=_MOST_COLUMNS,
        bulk_answers=status.bulk_agreement and describe_bulk_answers(status.bulk_agreement),
        goal=goal,
        report=report,
        finish_sentences=finish_sentences,
        coverage_curve=coverage_curve,
        reliability=reliability,
    )


@page_router.get("/c/{slug}/model")
def show_model(request: Request, slug: str) -> Response:
    """Show the models of the campaign, and what can be done with the newest one."""
    page = open_campaign_page(request, slug, "model", Permission.ANSWER)
    progress = page.campaign.progress()
    comparison = progress.status.comparison
    changed_predictions = []
    if Permission.REVIEW in permissions_in(request, page.campaign):
        changed_predictions = page.campaign.items.changed_predictions(_CHANGED_PREDICTIONS)

    return page.render(
        "model.html",
        progress=progress,
        comparison=comparison and describe_comparison(comparison),
        label_curve=labels_over_time_chart(progress.times),
        changed_predictions=changed_predictions,
        encoders=_offered_encoders(page.served.kind, progress.status.encoder),
        accepted=",".join(CAMPAIGN_SUFFIXES),
    )


def _offered_encoders(kind: ItemKind, current: str | None) -> list[str]:
    """Return the encoders that a campaign can be switched to on the page, and the current one."""
    if kind is ItemKind.FEATURES:
        return []

    names = [AUTO]
    for name in encoder_names():
        is_offered = encoders.get(name).kind == str(kind) and is_installed(name)
        if is_offered:
            names.append(name)

    # The current encoder may be a model, or several encoders side by side.
    if current is not None and current not in names:
        names.append(current)
    return names


@router.get("/progress")
def get_progress(campaign: CampaignToAnswer) -> CampaignProgress:
    """Return the progress of the campaign, model by model."""
    return campaign.progress()


@router.get("/flipped")
def list_changed_predictions(
    campaign: CampaignToReview, count: Annotated[int, Query(ge=1, le=200)] = 20
) -> list[ChangedPrediction]:
    """Return items whose predicted class changed with the newest model."""
    return campaign.items.changed_predictions(count)


# The model

MAX_PREDICTED_TEXTS = 1000
"""Texts of one request for predictions."""

MAX_PREDICTED_TEXT = 100_000
"""Characters of each of these texts."""


class EncodeIn(RequestBody):
    """A switch to another encoder."""

    encoder: str | None = Field(default=None, max_length=200)
    """Name of a built-in encoder, or None to resume with the current one."""


class PredictIn(RequestBody):
    """Texts to predict the classes of. They are not stored."""

    texts: list[Annotated[str, Field(max_length=MAX_PREDICTED_TEXT)]] = Field(
        min_length=1, max_length=MAX_PREDICTED_TEXTS
    )


_PREDICTION_SECONDS = 60.0
"""Seconds that a request for predictions waits for the worker."""


@router.post("/train", status_code=202)
def train(request: Request, campaign: CampaignToManage) -> Job[ModelRound | None]:
    """Train a model now, in the background.

    The result is null if fewer than two classes have labels.
    """
    return get_workspace(request).train(campaign)


@page_router.post("/c/{slug}/train")
def train_from_page(request: Request, campaign: CampaignToManage) -> Response:
    """Train a model now, and return a sentence about it for the page."""
    status = campaign.status()
    if status.unencoded:
        return PlainTextResponse("A model can be trained when all items are encoded.")
    if len({consensus.label for consensus in campaign.labels().values()}) < 2:
        return PlainTextResponse("Training needs labels of at least two classes.")

    get_workspace(request).train(campaign)
    return PlainTextResponse("A model is being trained in the background.")


@router.post("/encode", status_code=202)
def encode(request: Request, campaign: CampaignToManage, body: EncodeIn) -> Job[EncodingResult]:
    """Compute the features of items, or switch to another encoder, in the background."""
    if body.encoder is not None:
        require_own_encoder(body.encoder)

    return get_workspace(request).encode(campaign, body.encoder)


@router.post("/predict")
async def predict(
    request: Request, response: Response, campaign: CampaignToExport, body: PredictIn
) -> list[Prediction]:
    """Predict the classes of new texts with the newest model. Nothing is stored.

    The header ``X-Model-Version`` has the number of the model.
    """
    worker = get_workspace(request).trainer
    future = worker.submit(PREDICT, campaign.location, texts=body.texts)
    version, predictions = await wait_for(future, _PREDICTION_SECONDS)
    response.headers["x-model-version"] = str(version)
    return predictions


# The map


@page_router.get("/c/{slug}/map")
def show_map(request: Request, slug: str) -> Response:
    """Show all items as points."""
    page = open_campaign_page(request, slug, "map", Permission.REVIEW)
    # Drawn while the browser loads the page.
    get_workspace(request).draw_map(page.campaign, MapKind.PCA)
    return page.render(
        "map.html",
        has_tsne=find_spec("openTSNE") is not None,
        bulk_agreement=page.campaign.review.bulk_agreement(),
        most_at_once=MOST_AT_ONCE,
    )


@router.get("/map", response_class=Response)
def get_map(request: Request, campaign: CampaignToReview, kind: MapKind = MapKind.PCA) -> Response:
    """Return a map of the items in binary form: the number of items, then columns of four bytes.

    The number is an int32. PCA and t-SNE have the columns x and y (float32) and the index of the
    predicted class (int32, -1 for none); ``ldm`` has the LDM (float32). Items that are not on the
    map, such as withdrawn ones, have NaN. Maps are drawn in the background: repeat the request
    while the status is 202.
    """
    drawing = get_workspace(request).draw_map(campaign, kind)

    if drawing.result is None:
        return JSONResponse(jsonable_encoder(drawing), 202)

    return FileResponse(
        drawing.result.file,
        media_type="application/octet-stream",
        headers={"x-model-version": str(drawing.result.version)},
    )


@router.get("/labels")
def list_labels(campaign: CampaignToReview) -> MapLabels:
    """Return the labels of the items on the map, and which items are withdrawn."""
    return campaign.items.labels_on_map()


# The promise: let the model label the rest

MOST_DRAWS = 100_000
"""Random items that can be asked for at once."""


class FinishIn(RequestBody):
    """What is to be promised."""

    error: Annotated[float, Field(ge=MIN_ERROR, lt=0.5)] = 0.05
    """The share of wrong labels that is allowed."""
    confidence: Annotated[float, Field(ge=0.5, lt=1)] = 0.95
    per_class: bool = False
    labelled: Annotated[float | None, Field(gt=0, le=1)] = None
    """For a promise about all labels in the file: the share of the items that is to have one."""
    draws: Annotated[int | None, Field(ge=0, le=MOST_DRAWS)] = None
    """Random items to ask about next. By default as many as the plan needs first."""


class DrawsIn(RequestBody):
    """How many random items to ask about next."""

    count: Annotated[int, Field(ge=0, le=MOST_DRAWS)]


@router.get("/finish")
def get_finish(campaign: CampaignToAnswer) -> FinishReport:
    """Return which items the model may label, or how many random labels that would take.

    It may be asked for as often as you like: the promise allows any number of looks.
    """
    return campaign.finish.look()


@router.get("/finish/goal")
def get_goal(campaign: CampaignToAnswer) -> GoalReport | None:
    """Return how far the campaign is from its goal, or null if it has none."""
    return campaign.finish.goal()


@router.post("/finish", status_code=201)
def start_finish(campaign: CampaignToManage, user: User, body: FinishIn) -> FinishReport:
    """Freeze the newest model, and let the next questions be random items.

    A call with other terms, or after a change, is a new attempt, which needs more random labels
    than the one before it. A call that finds nothing new returns the promise that was started.
    """
    return campaign.finish.start(**body.model_dump(), train=False, who=user)


@router.post("/finish/draws")
def request_draws(campaign: CampaignToManage, user: User, body: DrawsIn) -> FinishReport:
    """Let the next questions be so many random items; 0 to go back to the strategy's picks."""
    return campaign.finish.draw(body.count, who=user)


@router.get("/finish/certificates")
def list_certificates(campaign: CampaignToAnswer) -> list[Certificate]:
    """Return all certificates, oldest first."""
    return campaign.finish.certificates()


@router.post("/finish/certificates", status_code=201)
def certify(campaign: CampaignToManage, user: User) -> Certificate:
    """Certify what is promised now. Exports then have the model's labels."""
    return campaign.finish.certify(who=user)


@router.get("/finish/certificates/{code}")
def get_certificate(
    campaign: CampaignToAnswer, code: Annotated[str, Path(max_length=64)]
) -> Certificate:
    """Return a certificate by its id."""
    return campaign.finish.certificate(code)


@page_router.get("/c/{slug}/certificate")
def download_certificate(
    campaign: CampaignToAnswer, id: Annotated[str, Query(max_length=64)]
) -> Response:
    """Return a certificate as one page to save or print."""
    certificate = campaign.finish.certificate(id)
    # As a file, because the page has a style of its own, which pages of the server must not have.
    name = f"certificate-{certificate.id}.html"
    return Response(
        certificate_page(certificate.content),
        media_type="text/html",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )
