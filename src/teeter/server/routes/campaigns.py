"""Campaigns: the list of them, new ones, their settings and their history."""

from __future__ import annotations

import csv
import dataclasses
from dataclasses import replace
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from fastapi import APIRouter, Depends, File, Form, Query, Request, UploadFile
from fastapi.responses import RedirectResponse, Response
from pydantic import Field, create_model

from teeter.campaigns.classes import shortcuts_by_class, validate_classes
from teeter.campaigns.items.image_archives import ARCHIVE_SUFFIX
from teeter.campaigns.items.preview import preview_source
from teeter.campaigns.records import (
    EncodingResult,
    HistoryPage,
    ImportResult,
    ItemColumns,
    Job,
    ModelRound,
    Permission,
    SourcePreview,
)
from teeter.campaigns.settings import Settings, changeable_settings, offered_settings
from teeter.campaigns.store.schema import MAX_ROW_ID
from teeter.encoders import AUTO, ContentKind, choose_encoder, require_own_encoder
from teeter.encoders import names as encoder_names
from teeter.errors import InputError, StoreError
from teeter.server.access.permissions import (
    CampaignToAnswer,
    CampaignToManage,
    User,
    campaign_member,
    can_create_campaigns,
    current_user,
    get_workspace,
    owned_campaign,
    require_campaign_creator,
)
from teeter.server.pages import describe_campaign, open_campaign_page, render_page
from teeter.server.routes import RequestBody, ShallowJson, SheetField
from teeter.server.uploads import CAMPAIGN_SUFFIXES, save_upload, upload_digest
from teeter.server.worker.background import LabelledFile
from teeter.server.workspace import CreatedCampaign, ServedCampaign

router = APIRouter(prefix="/api/v1")
page_router = APIRouter(include_in_schema=False)

_SETTING_TYPES = get_type_hints(Settings)
_ListEntry = Annotated[str, Field(max_length=1000)]

_FIRST_ON_PAGE = ("instructions", "goal", "keys", "batch", "lease", "overlap", "people", "copies")
_OTHERS_ON_PAGE = ("control", "cost", "budget")
"""The settings of a campaign on their page, besides the shown columns. Others have a place of their
own: the classes, the team, the model."""


def _limit_setting(declared: dataclasses.Field[Any], value_type: Any) -> Any:
    """Return the type of a setting in a request: with its meaning and its limits."""
    limits = {**declared.metadata.get("limits", {}), **declared.metadata.get("request", {})}
    if "ge" in limits:
        limits["allow_inf_nan"] = False
    return Annotated[value_type, Field(description=declared.metadata["help"], **limits)]


def _body_field(declared: dataclasses.Field[Any]) -> Any:
    value_type = declared.metadata.get("choices") or _SETTING_TYPES[declared.name]
    if value_type == dict[str, Any]:
        value_type = ShallowJson
    elif value_type == list[str]:
        value_type = list[_ListEntry]
    # Left out, it stays as it is: None is no default that could be sent.
    return (_limit_setting(declared, value_type), Field(default_factory=lambda: None))


if TYPE_CHECKING:
    SettingsIn = RequestBody
else:
    SettingsIn = create_model(
        "SettingsIn",
        __base__=RequestBody,
        __doc__="Settings to change. Settings that are left out stay as they are.",
        **{declared.name: _body_field(declared) for declared in changeable_settings()},
    )


def _form_field(declared: dataclasses.Field[Any]) -> Parameter:
    value_type = _limit_setting(declared, _SETTING_TYPES[declared.name])
    default = declared.default
    if _SETTING_TYPES[declared.name] == list[str]:
        value_type = Annotated[str, Field(description="Comma-separated.", max_length=10_000)]
        default = ""
    return Parameter(
        declared.name,
        Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[value_type, Form()],
    )


def settings_from_form(**values: Any) -> Settings:
    """Return the settings in a form, which has lists as comma-separated texts."""
    for name, value in values.items():
        if _SETTING_TYPES[name] == list[str]:
            values[name] = [entry for entry in _split_names(value) if entry]
    return Settings(**values)


def _split_names(text: str) -> list[str]:
    """Return the names in a comma-separated text. A name with a comma stands in quotes."""
    rows = csv.reader([" ".join(text.splitlines())], skipinitialspace=True)
    return [name.strip() for name in next(rows, [""])]


# FastAPI reads the fields of the form from it.
settings_from_form.__signature__ = Signature(  # type: ignore[attr-defined]
    [_form_field(declared) for declared in offered_settings()]
)


def find_visible_campaigns(request: Request) -> tuple[list[ServedCampaign], dict[str, str]]:
    """Return the campaigns that the user of a request may see, and why others cannot be read now.

    The reasons are by the names of the campaigns.

    Raises:
        StoreError: there are campaigns, and none of them can be read.
    """
    workspace = get_workspace(request)
    workspace.close_missing_campaigns()
    workspace.open_new_campaigns()

    campaigns: list[ServedCampaign] = []
    errors: dict[str, StoreError] = {}
    for slug, campaign in list(workspace.campaigns.items()):
        # Its page says what happened. The list shows what can be opened.
        if not campaign.database.is_in_place():
            continue

        try:
            if campaign_member(request, campaign) is not None:
                campaigns.append(describe_campaign(request, slug, campaign))
        except StoreError as error:
            errors[campaign.name] = error

    # An empty list would look as if everything had been deleted.
    if errors and not campaigns:
        raise next(iter(errors.values()))

    problems = {name: workspace.redact_paths(str(error)) for name, error in errors.items()}
    return campaigns, problems


@page_router.get("/")
def show_home(request: Request) -> Response:
    """List campaigns and reports. A single campaign is opened instead."""
    workspace = get_workspace(request)
    campaigns, unreadable = find_visible_campaigns(request)

    if not workspace.can_create_campaigns and len(campaigns) == len(workspace.campaigns) == 1:
        return _redirect_to_only_campaign(request, campaigns[0])

    # Files and reports are of no concern to annotators.
    if not can_create_campaigns(request):
        return render_page(request, "home.html", campaigns=campaigns, unreadable={}, reports={})

    for file, sentence in workspace.unreadable_files.items():
        unreadable[file] = workspace.redact_paths(sentence)

    reports = {slug: folder.parent.name for slug, folder in workspace.find_reports().items()}
    return render_page(
        request,
        "home.html",
        campaigns=campaigns,
        unreadable=unreadable,
        reports=reports,
        can_create=workspace.can_create_campaigns,
    )


def _redirect_to_only_campaign(request: Request, campaign: ServedCampaign) -> Response:
    # Opening the labelling page assigns items, and others would have to wait for them. So people
    # who decide rather than label begin at the progress.
    has_members = get_workspace(request).campaign_tokens.is_required()
    tab = ""
    if has_members and Permission.DECIDE in campaign.permissions:
        tab = "/progress"
    return RedirectResponse(f"/c/{campaign.slug}{tab}", 303)


@router.get("/campaigns")
def list_campaigns(request: Request) -> list[ServedCampaign]:
    """List the campaigns that you may see and that can be read."""
    campaigns, _ = find_visible_campaigns(request)
    return campaigns


@page_router.get("/new")
def show_new_campaign(request: Request) -> Response:
    """Show the form for a new campaign."""
    # Strategies load torch, which the server otherwise leaves to its worker process.
    from teeter.strategies import SEVERAL_LABELS, names

    require_campaign_creator(request)
    workspace = get_workspace(request)
    strategies = [name for name in names() if name not in SEVERAL_LABELS]
    return render_page(
        request,
        "new.html",
        folders=workspace.list_folders(),
        settings=offered_settings(),
        choices={"strategy": strategies, "encoder": [AUTO, *encoder_names()]},
        auto_choices=[choose_encoder(kind).sentence for kind in ContentKind],
        limit=workspace.auth.config.upload_limit,
    )


@router.post("/uploads", status_code=201)
def upload_source(
    request: Request,
    file: Annotated[UploadFile, File(description="A table, JSON, or a .zip of images.")],
) -> SourcePreview:
    """Upload a file and look into it, before a campaign is made of it."""
    require_campaign_creator(request)
    uploads = get_workspace(request).uploads
    upload = uploads.add(file, current_user(request))
    try:
        return preview_upload(request, upload)
    except BaseException:
        uploads.remove(upload)
        raise


@router.get("/uploads/{upload}")
def preview_upload(
    request: Request,
    upload: str,
    sheet: Annotated[str, Query(max_length=1000)] = "",
    labels: Annotated[
        str, Query(max_length=200, description="The column whose values are counted.")
    ] = "",
) -> SourcePreview:
    """Return the columns and first rows of a file that you uploaded, and the values of a column."""
    require_campaign_creator(request)
    path = get_workspace(request).uploads.find(upload, current_user(request))
    preview = preview_source(_name_sheet(path, sheet), labels or None)
    return replace(preview, upload=upload)


def _name_sheet(path: Path, sheet: str) -> Path:
    if sheet:
        return Path(f"{path}#{sheet}")
    return path


@router.post("/campaigns", status_code=202)
def create_campaign(
    request: Request,
    *,
    name: Annotated[str, Form(max_length=80)],
    classes: Annotated[
        str,
        Form(
            max_length=10_000,
            description="Comma-separated. Quote names with commas. In an audit, by default the "
            "labels of the judges.",
        ),
    ] = "",
    file: Annotated[
        UploadFile | None, File(description="A table, JSON, or a .zip of images.")
    ] = None,
    upload: Annotated[
        str, Form(max_length=100, description="Instead of a file, one that was uploaded before.")
    ] = "",
    sheet: SheetField = "",
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
    judges: Annotated[
        str, Form(max_length=10_000, description="Comma-separated columns of labels to audit.")
    ] = "",
    confidences: Annotated[
        str, Form(max_length=10_000, description="Their columns of confidences, in this order.")
    ] = "",
    require: Annotated[
        float | None,
        Form(ge=0, le=1, allow_inf_nan=False, description="The share that must be right."),
    ] = None,
    settings: Annotated[Settings, Depends(settings_from_form)],
) -> Job[CreatedCampaign]:
    """Create a campaign from an uploaded file or a folder of images, in the background.

    Sent again, it returns the job that creates the campaign, or has created it. If campaigns of
    this server have members, you become the owner of the new one.
    """
    require_campaign_creator(request)
    workspace = get_workspace(request)

    # All is checked before the upload is saved.
    class_names = None
    judge_names = [column for column in _split_names(judges) if column]
    if judge_names:
        columns_of = [*_split_names(confidences), *[""] * len(judge_names)]
        settings = settings.for_audit(dict(zip(judge_names, columns_of, strict=False)), require)
    if classes or not judge_names:
        class_names = validate_classes(_split_names(classes))
        shortcuts_by_class(class_names, settings.keys)
    require_own_encoder(settings.encoder or AUTO)
    settings.require_cost()
    settings.require_strategy()

    # Browsers send an empty file if none was chosen.
    new_file = None
    content = upload or folder
    if file is not None and file.filename:
        new_file = file
        content = upload_digest(new_file)
    columns = ItemColumns(text or None, id_column or None, labels or None, image or None)
    asked = (current_user(request), content, sheet, class_names, settings, columns)
    creation = workspace.find_creation(name, asked)
    if creation is not None:
        return creation

    path = workspace.new_campaign_path(name)
    if sum(map(bool, (new_file, upload, folder))) != 1:
        raise InputError("Give either a file or a folder of images.")
    if upload:
        source = workspace.uploads.find(upload, current_user(request))
    elif new_file is None:
        source = workspace.find_folder(folder)
    else:
        source = Path(new_file.filename or "")
    if workspace.database is not None and (image or source.suffix.lower() == ARCHIVE_SUFFIX):
        raise InputError(
            "A server with --database has no folder for images: create this campaign with teeter "
            "campaign new."
        )
    if upload:
        source = workspace.uploads.copy(upload, current_user(request))
    elif new_file is not None:
        limit = workspace.auth.config.upload_limit
        source = save_upload(new_file, workspace.temp, limit, CAMPAIGN_SUFFIXES)

    return workspace.create_campaign(
        _name_sheet(source, sheet),
        path,
        class_names,
        settings,
        columns=columns,
        owner=current_user(request),
        owned=owned_campaign(request),
        upload=upload or None,
        asked=asked,
    )


@router.get("/jobs/{job_id}")
def get_job(
    request: Request, job_id: str
) -> Job[CreatedCampaign | EncodingResult | ImportResult | LabelledFile | ModelRound]:
    """Return the state of a background job that you started."""
    return get_workspace(request).describe_job(job_id)


@router.get("/campaigns/{slug}")
def get_campaign(request: Request, campaign: CampaignToAnswer, slug: str) -> ServedCampaign:
    """Return a campaign and its progress."""
    return describe_campaign(request, slug, campaign)


@router.get("/campaigns/{slug}/history")
def list_history(
    campaign: CampaignToManage,
    after: Annotated[int, Query(ge=0, le=MAX_ROW_ID)] = 0,
    count: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> HistoryPage:
    """Return every change of the campaign, oldest first, a part at a time."""
    return campaign.history_page(after=after, count=count)


@page_router.get("/c/{slug}/settings")
def show_settings(request: Request, slug: str) -> Response:
    """Show the settings of a campaign that can be changed while people label."""
    page = open_campaign_page(request, slug, "settings", Permission.MANAGE)
    changeable = {declared.name: declared for declared in changeable_settings()}
    return page.render(
        "settings.html",
        settings=page.campaign.settings,
        first=[changeable[name] for name in _FIRST_ON_PAGE],
        others=[changeable[name] for name in _OTHERS_ON_PAGE],
        columns=[shown.name for shown in page.campaign.items.columns()],
        batch=get_workspace(request).batch,
    )


@router.get("/campaigns/{slug}/settings")
def get_settings(campaign: CampaignToManage) -> Settings:
    """Return the settings of the campaign."""
    return _without_folder(campaign.settings)


@router.patch("/campaigns/{slug}/settings")
def patch_settings(campaign: CampaignToManage, user: User, body: SettingsIn) -> Settings:
    """Change settings, all of them or none. A ``cost`` or ``budget`` of null removes it."""
    changes = body.model_dump(exclude_unset=True)
    return _without_folder(campaign.change_settings(**changes, who=user))


def _without_folder(settings: Settings) -> Settings:
    """Return settings as they may leave the server, where the images are in its own folder."""
    return replace(settings, folder=None, rows=settings.has_rows)
