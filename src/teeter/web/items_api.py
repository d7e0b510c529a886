"""The REST API that changes a campaign: add items and classes, and change settings."""

from __future__ import annotations

import json
import secrets
import shutil
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Request, UploadFile
from pydantic import BaseModel, ConfigDict, Field

from teeter.campaigns.change_settings import change_settings
from teeter.campaigns.consensus import ConsensusMethod
from teeter.campaigns.enums import ItemKind, Permission
from teeter.campaigns.items import ITEM_FIELDS
from teeter.errors import InputError, StoreError
from teeter.web.background_requests import AddItems, ItemColumns
from teeter.web.idempotency import IdempotencyKey, answer_once, upload_fingerprint
from teeter.web.permissions import current_user, get_workspace, require_permission
from teeter.web.schemas import AddedItems, ClassOut, JobStarted
from teeter.web.service import CampaignService
from teeter.web.uploads import save_upload

__all__ = ["MAX_ITEMS", "router"]

router = APIRouter(prefix="/api/v1/campaigns/{slug}")

MAX_ITEMS = 1000
"""Items of one request. Larger sets come as a file."""

_MAX_TEXT = 1_000_000
_ADD_SECONDS = 300.0
"""Seconds that a request waits until its items are stored."""


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ItemIn(_Body):
    """An item to add: a text, a link to an image, or features, as the campaign has them."""

    id: str | None = Field(default=None, min_length=1, max_length=4096)
    """By default a hash of the content, or the link of the image."""
    text: str | None = Field(default=None, max_length=_MAX_TEXT)
    image: str | None = Field(default=None, max_length=4000)
    """A public http or https link, which the server fetches."""
    features: list[float] | None = Field(default=None, max_length=100_000)
    label: str | None = Field(default=None, max_length=1000)
    """The class, if it is known."""
    columns: dict[str, Any] = Field(default_factory=dict, max_length=1000)
    """Further values, which stay with the item."""


class ItemsIn(_Body):
    """Items to add. Items whose content the campaign already has are not added again."""

    items: list[ItemIn] = Field(min_length=1, max_length=MAX_ITEMS)


class ClassIn(_Body):
    """A class to add."""

    name: str = Field(min_length=1, max_length=1000)


class ClassesOut(BaseModel):
    """All classes, in their order."""

    classes: list[ClassOut]


class SettingsIn(_Body):
    """Settings to change. Settings that are left out stay as they are."""

    strategy: str | None = Field(default=None, max_length=80)
    options: dict[str, Any] | None = Field(default=None, max_length=50)
    head: str | None = Field(default=None, max_length=80)
    control: float | None = Field(default=None, ge=0, lt=1)
    cost: float | None = Field(default=None, ge=0, le=1e12)
    budget: float | None = Field(default=None, ge=0, le=1e15)
    instructions: str | None = Field(default=None, max_length=20_000)
    keys: list[Annotated[str, Field(max_length=20)]] | None = Field(default=None, max_length=100)
    lease: float | None = Field(default=None, ge=0, le=1e6)
    overlap: float | None = Field(default=None, ge=0, le=1)
    people: int | None = Field(default=None, ge=2, le=1000)
    show: list[Annotated[str, Field(max_length=1000)]] | None = Field(default=None, max_length=100)
    consensus: ConsensusMethod | None = None


class SettingsOut(BaseModel):
    """The settings of a campaign."""

    kind: str
    strategy: str
    options: dict[str, Any]
    head: str
    control: float
    audit: int
    seed: int
    cost: float | None
    budget: float | None
    instructions: str
    encoder: str | None
    keys: list[str]
    lease: float
    overlap: float
    people: int
    show: list[str]
    consensus: str


@router.post("/items")
def add_items(
    request: Request, slug: str, body: ItemsIn, idempotency_key: IdempotencyKey = None
) -> AddedItems:
    """Add up to 1,000 items. They are on disk when the request returns, and are encoded afterwards.

    Adding is idempotent by itself: an item whose content the campaign has is a duplicate.
    """
    service = require_permission(request, slug, Permission.MANAGE)
    kind = ItemKind(service.campaign.settings.kind)
    entries = [_as_entry(item, kind) for item in body.items]

    def add() -> AddedItems:
        source = get_workspace(request).temp / f"items-{secrets.token_hex(8)}.json"
        source.write_text(json.dumps(entries))
        try:
            return _wait_for_items(request, service, source)
        finally:
            source.unlink(missing_ok=True)

    return answer_once(request, service, idempotency_key, body, AddedItems, action=add)


def _as_entry(item: ItemIn, kind: ItemKind) -> dict[str, Any]:
    """Return an item as ``Campaign.add`` takes it."""
    # A path would name a file of the server.
    is_web_link = (item.image or "").lower().startswith(("http://", "https://"))
    if kind is ItemKind.IMAGE and not is_web_link:
        raise InputError("The image of an item must be an http or https link.")

    reserved = ITEM_FIELDS & set(item.columns)
    if reserved:
        raise InputError(f"A column cannot be called {sorted(reserved)[0]!r}: rename the column.")
    return {**item.columns, **item.model_dump(exclude={"columns"}, exclude_none=True)}


def _wait_for_items(request: Request, service: CampaignService, source: Path) -> AddedItems:
    workspace = get_workspace(request)
    adding = workspace.slow_worker.submit(
        AddItems(service.location, str(source), current_user(request))
    )
    try:
        added = adding.result(_ADD_SECONDS)
    except FutureTimeoutError:
        raise StoreError("The server is busy with other work: try again later.") from None

    workspace.encode_soon(service)
    return AddedItems(**asdict(added))


@router.post("/items/file", status_code=202)
def upload_items(
    request: Request,
    slug: str,
    *,
    file: Annotated[UploadFile, File(description="CSV, JSONL or Parquet.")],
    text: Annotated[str, Form(max_length=1000)] = "",
    id_column: Annotated[str, Form(max_length=200)] = "",
    labels: Annotated[str, Form(max_length=200)] = "",
    image: Annotated[str, Form(max_length=200, description="A column of links.")] = "",
    idempotency_key: IdempotencyKey = None,
) -> JobStarted:
    """Add the items of a table with all its columns, in the background."""
    service = require_permission(request, slug, Permission.MANAGE)
    workspace = get_workspace(request)
    columns = ItemColumns(text or None, id_column or None, labels or None, image or None)

    def start() -> JobStarted:
        source = save_upload(file, workspace.temp, workspace.auth.config.upload_limit)
        adding = workspace.slow_worker.submit(
            AddItems(service.location, str(source), current_user(request), columns)
        )
        adding.add_done_callback(lambda _: shutil.rmtree(source.parent, ignore_errors=True))
        return workspace.follow_addition(service, adding)

    form = {"file": upload_fingerprint(file), "name": file.filename, **asdict(columns)}
    return answer_once(request, service, idempotency_key, form, JobStarted, action=start)


@router.post("/classes")
def add_class(
    request: Request, slug: str, body: ClassIn, idempotency_key: IdempotencyKey = None
) -> ClassesOut:
    """Add a class after the others. Labels stay as they are."""
    service = require_permission(request, slug, Permission.MANAGE)

    def add() -> ClassesOut:
        service.campaign.add_class(body.name, who=current_user(request))
        return ClassesOut(classes=service.list_classes())

    return answer_once(request, service, idempotency_key, body, ClassesOut, action=add)


@router.get("/settings")
def get_settings(request: Request, slug: str) -> SettingsOut:
    """Return the settings of the campaign."""
    return _describe_settings(require_permission(request, slug, Permission.MANAGE))


@router.patch("/settings")
def patch_settings(
    request: Request, slug: str, body: SettingsIn, idempotency_key: IdempotencyKey = None
) -> SettingsOut:
    """Change settings, all of them or none. A ``cost`` or ``budget`` of null removes it."""
    service = require_permission(request, slug, Permission.MANAGE)
    changes = body.model_dump(exclude_unset=True)
    for name in sorted(set(changes) - {"cost", "budget"}):
        if changes[name] is None:
            raise InputError(f"{name} must have a value.")

    def change() -> SettingsOut:
        change_settings(service.campaign, changes, who=current_user(request))
        return _describe_settings(service)

    return answer_once(request, service, idempotency_key, body, SettingsOut, action=change)


def _describe_settings(service: CampaignService) -> SettingsOut:
    settings = service.campaign.settings
    values = {name: getattr(settings, name) for name in SettingsOut.model_fields}
    return SettingsOut(**values)
