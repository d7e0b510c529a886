"""The model of a campaign: training, its features and its predictions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import Field

from teeter.campaigns.records import EncodingResult, Job, ModelRound
from teeter.classifier import Prediction
from teeter.encoders import require_own_encoder
from teeter.server.access.permissions import (
    CampaignToExport,
    CampaignToManage,
    get_workspace,
)
from teeter.server.routes import RequestBody
from teeter.server.worker.background import PREDICT, wait_for

router = APIRouter(prefix="/api/v1/campaigns/{slug}")
page_router = APIRouter(include_in_schema=False)


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
    if sum(count > 0 for count in status.by_class.values()) < 2:
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
