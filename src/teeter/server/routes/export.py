"""Labels, predictions and the model as files, and files that the model labels."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, File, Form, Query, Request, UploadFile
from fastapi.responses import FileResponse, Response
from starlette.background import BackgroundTask

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.export.formats import FORMATS
from teeter.campaigns.items.columns import ADDED_COLUMNS, SHORT_COLUMNS
from teeter.campaigns.records import Job, Permission
from teeter.errors import InputError, UnknownResourceError
from teeter.server.access.permissions import (
    CampaignToExport,
    User,
    get_workspace,
)
from teeter.server.pages import open_campaign_page
from teeter.server.worker.background import (
    EXPORT,
    MODEL_FORM,
    LabelledFile,
    labelled_path,
    wait_for,
)

router = APIRouter(prefix="/api/v1/campaigns/{slug}")
page_router = APIRouter(include_in_schema=False)

_EXPORT_SECONDS = 600
"""How long a client waits for an export."""

_EXPORT_FORMATS = {
    "csv": "CSV with every value of your table unchanged.",
    "spreadsheet": "CSV that is safe to open in a spreadsheet program: no value runs as a formula.",
    "xlsx": "An Excel workbook with numbers, dates and texts, and no formulas.",
    "jsonl": "One JSON object per line, with all answers.",
    "parquet": "A typed table, smaller than CSV.",
    "datasets": "A zipped folder for the Hugging Face datasets library.",
    "prodigy": "JSON lines for Prodigy.",
    "doccano": "JSON lines for doccano.",
    "label-studio": "Tasks with annotations and predictions for Label Studio.",
    "spacy": "Labelled texts for spaCy's textcat.",
    "image-folder": "A zipped folder that contains a folder of images for each class.",
    "cleanlab": "Labels with out-of-fold probabilities, as arrays for cleanlab.",
}


@page_router.get("/c/{slug}/export")
def show_export(request: Request, slug: str, reveal: bool = False) -> Response:
    """Show the formats of an export, and why some cannot be used."""
    page = open_campaign_page(request, slug, "export", Permission.EXPORT)
    obstacles = page.campaign.export_obstacles()
    formats = {form: _EXPORT_FORMATS.get(form, form) for form in FORMATS if form not in obstacles}
    return page.render(
        "export.html",
        formats=formats,
        obstacles=obstacles,
        glossary=ADDED_COLUMNS,
        short=SHORT_COLUMNS,
        note=page.campaign.finish.note(),
        reveal=reveal,
    )


@page_router.get("/c/{slug}/export/file", response_class=Response)
async def download_export(
    request: Request, campaign: CampaignToExport, slug: str, form: str, reveal: bool = False
) -> Response:
    """Return an export as a file, or else a page that says what went wrong."""
    return await export_labels(request, campaign, slug, form, reveal)


@page_router.get("/c/{slug}/model/file", response_class=Response)
@router.get("/model", response_class=Response)
async def download_model(request: Request, campaign: CampaignToExport, slug: str) -> Response:
    """Return the newest model as a zipped folder, for ``teeter.load_classifier``."""
    return await _send_export(request, campaign, f"{slug}-model", MODEL_FORM)


@router.post("/predict/file", status_code=202)
def label_uploaded_file(
    request: Request,
    campaign: CampaignToExport,
    user: User,
    file: Annotated[UploadFile, File(description="A table, JSON lines, or a .zip of images.")],
    text: Annotated[str, Form(max_length=5000)] = "",
) -> Job[LabelledFile]:
    """Label the rows of a file with the newest model, in the background.

    Nothing is added to the campaign. The result is kept for an hour.
    """
    workspace = get_workspace(request)
    upload = workspace.uploads.add(file, user)
    return workspace.label_file(campaign, upload, user, text or None)


@router.get("/predict/file/{upload}", response_class=Response)
def download_labelled_file(
    request: Request, campaign: CampaignToExport, user: User, upload: str
) -> Response:
    """Return a file with the predicted classes as further columns, in the format that came."""
    path = labelled_path(get_workspace(request).uploads.find(upload, user))
    if not path.exists():
        raise UnknownResourceError("The file is not labelled yet.")
    return FileResponse(path, filename=path.name)


@router.get("/export", response_class=Response)
async def export_labels(
    request: Request,
    campaign: CampaignToExport,
    slug: str,
    form: Annotated[str, Query(json_schema_extra={"enum": list(FORMATS)})] = "csv",
    reveal: Annotated[
        bool, Query(description="Although an audit goes on, whose judges the file shows.")
    ] = False,
) -> Response:
    """Return labels and predictions as a file.

    In the format ``spreadsheet``, values that a spreadsheet program would run as formulas begin
    with an apostrophe. The format ``csv`` keeps every value unchanged.
    """
    if form not in FORMATS:
        raise InputError(f"There is no format {form[:50]!r}: choose {', '.join(FORMATS)}.")
    return await _send_export(request, campaign, f"{slug}-{form}", form, reveal=reveal)


async def _send_export(
    request: Request, campaign: Campaign, name: str, form: str, *, reveal: bool = False
) -> Response:
    workspace = get_workspace(request)
    # A folder for this request alone, which is removed when the file is sent.
    folder = tempfile.mkdtemp(dir=workspace.temp)
    future = workspace.trainer.submit(
        EXPORT, campaign.location, form=form, folder=folder, reveal=reveal
    )

    try:
        file = await wait_for(future, _EXPORT_SECONDS)
    except BaseException:
        # The worker may still write into the folder.
        future.add_done_callback(lambda _: shutil.rmtree(folder, ignore_errors=True))
        raise

    return FileResponse(
        file,
        filename=f"{name}{Path(file).suffix}",
        background=BackgroundTask(shutil.rmtree, folder, ignore_errors=True),
    )
