"""The REST API that changes a campaign: its items, its classes and its settings."""

from __future__ import annotations

import json
import secrets
import shutil
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, File, Form, Query, Request, UploadFile
from pydantic import BaseModel, Field

from teeter.campaigns.classes import MAX_DESCRIPTION, MAX_EXAMPLES
from teeter.campaigns.items.item import ITEM_FIELDS
from teeter.campaigns.records import (
    ClassDescription,
    ClassInfo,
    HistoryPage,
    ImportResult,
    ItemColumns,
    ItemKind,
    Permission,
    TableColumn,
)
from teeter.campaigns.settings import Settings
from teeter.campaigns.store.schema import MAX_ROW_ID
from teeter.errors import InputError, StoreError
from teeter.server.access.permissions import current_user, get_workspace, require_permission
from teeter.server.schemas import ItemId, JobStarted, RequestBody, SettingsIn, ShallowJson
from teeter.server.uploads import save_upload
from teeter.server.worker.requests import AddItems, ChangeItem, TaskRequest

router = APIRouter(prefix="/api/v1/campaigns/{slug}")

MAX_ITEMS = 1000
"""Items of one request. Larger sets come as a file."""

_MAX_TEXT = 1_000_000
_ADD_SECONDS = 300.0
"""Seconds that a request waits until its items are stored."""

ResultT = TypeVar("ResultT")


class ItemIn(RequestBody):
    """An item to add: a text, a link to an image, features or columns, as the campaign has them."""

    id: str | None = Field(default=None, min_length=1, max_length=4096)
    """By default a hash of the content, or the link of the image."""
    text: str | None = Field(default=None, max_length=_MAX_TEXT)
    image: str | None = Field(default=None, max_length=4000)
    """A public http or https link, which the server fetches."""
    features: list[float] | None = Field(default=None, max_length=100_000)
    label: str | None = Field(default=None, max_length=1000)
    """The class, if it is known."""
    columns: ShallowJson = Field(default_factory=dict, max_length=1000)
    """Further values, which stay with the item. In a campaign of table rows they are the item."""


class ItemsIn(RequestBody):
    """Items to add. Items whose content the campaign already has are not added again."""

    items: list[ItemIn] = Field(min_length=1, max_length=MAX_ITEMS)


Description = Annotated[str, Field(max_length=MAX_DESCRIPTION)]


class ItemChangeIn(RequestBody):
    """An item, and what to change about it."""

    item: ItemId
    text: str | None = Field(default=None, max_length=_MAX_TEXT)
    """In a campaign of table rows, the text follows from the columns."""
    features: list[float] | None = Field(default=None, max_length=100_000)
    """The features of the new text, if you supplied those of the other items."""
    columns: ShallowJson | None = Field(default=None, max_length=1000)
    """New values by column, null for a missing one. Other columns stay."""


class ItemChanged(BaseModel):
    """What happened to an item."""

    item: str
    changed: bool
    """False if the item had this content and these columns before."""


class ItemIdsIn(RequestBody):
    """Ids of items."""

    items: list[ItemId] = Field(min_length=1, max_length=MAX_ITEMS)


class WithdrawIn(ItemIdsIn):
    """Items to take out of the campaign."""

    reason: str | None = Field(default=None, max_length=2000)


class ItemsMoved(BaseModel):
    """How many items were withdrawn or put back. Those that already were do not count."""

    items: int


class ClassChangeIn(RequestBody):
    """A class, and what to change about it."""

    name: str = Field(min_length=1, max_length=1000)
    new_name: str | None = Field(default=None, min_length=1, max_length=1000)
    description: Description | None = None
    """What the class means; empty to remove it."""
    examples: list[Description] | None = Field(default=None, max_length=MAX_EXAMPLES)


class ClassIn(RequestBody):
    """A class to add."""

    name: str = Field(min_length=1, max_length=1000)


class ClassesOut(BaseModel):
    """All classes, in their order."""

    classes: list[ClassInfo]


@router.post("/items")
def add_items(request: Request, slug: str, body: ItemsIn) -> ImportResult:
    """Add up to 1,000 items. They are on disk when the request returns, and are encoded afterwards.

    Adding is idempotent by itself: an item whose content the campaign has is a duplicate. An item
    that is not valid refuses the whole request. An image that cannot be fetched is left out alone,
    and reported in ``failed_items``.
    """
    service = require_permission(request, slug, Permission.MANAGE)
    entries = [_as_entry(item, service.campaign.settings) for item in body.items]
    workspace = get_workspace(request)
    source = workspace.temp / f"items-{secrets.token_hex(8)}.json"
    source.write_text(json.dumps(entries))
    try:
        addition = AddItems(service.location, str(source), current_user(request))
        added = _wait_for_worker(request, addition)
    finally:
        source.unlink(missing_ok=True)

    workspace.encode_soon(service)
    return workspace.redact_import(added)


def _as_entry(item: ItemIn, settings: Settings) -> dict[str, Any]:
    """Return an item as ``Campaign.add`` takes it."""
    given = item.model_dump(exclude={"columns"}, exclude_none=True)
    if settings.has_rows:
        _require_row(item)
        return {**item.columns, **given}

    # A path would name a file of the server.
    is_web_link = (item.image or "").lower().startswith(("http://", "https://"))
    if settings.kind == ItemKind.IMAGE and not is_web_link:
        raise InputError("The image of an item must be an http or https link.")

    reserved = ITEM_FIELDS & set(item.columns)
    if reserved:
        raise InputError(f"A column cannot be called {sorted(reserved)[0]!r}: rename the column.")
    return {**item.columns, **given}


def _require_row(item: ItemIn) -> None:
    if item.text is not None or item.image is not None or item.features is not None:
        raise InputError("The items of this campaign are rows: give them columns only.")
    for name in ("id", "label"):
        if name in item.columns:
            raise InputError(f"Give {name!r} beside the columns of a row, not among them.")


def _wait_for_worker(request: Request, task: TaskRequest[ResultT]) -> ResultT:
    future = get_workspace(request).slow_worker.submit(task)
    try:
        return future.result(_ADD_SECONDS)
    except FutureTimeoutError:
        if future.cancel():
            raise StoreError("The server is busy with other work: try again later.") from None
        # It has begun, so it may still succeed. Done again, it changes nothing more.
        raise StoreError(
            "The server is still working on this request: send it again later."
        ) from None


@router.patch("/item")
def change_item(request: Request, slug: str, body: ItemChangeIn) -> ItemChanged:
    """Change the text, the features or columns of an item. Its answers stay.

    Fields that are left out stay as they are. The history has the old content and the new one.
    """
    service = require_permission(request, slug, Permission.MANAGE)
    changes = body.model_dump(exclude={"item"}, exclude_none=True)
    change = ChangeItem(service.location, body.item, json.dumps(changes), current_user(request))
    return ItemChanged(item=change.item, changed=_wait_for_worker(request, change))


@router.post("/items/withdraw")
def withdraw_items(request: Request, slug: str, body: WithdrawIn) -> ItemsMoved:
    """Take items out of the campaign. They keep their answers, and can be put back."""
    service = require_permission(request, slug, Permission.MANAGE)
    user = current_user(request)
    return ItemsMoved(
        items=service.campaign.items.withdraw(body.items, reason=body.reason, who=user)
    )


@router.post("/items/put-back")
def put_items_back(request: Request, slug: str, body: ItemIdsIn) -> ItemsMoved:
    """Put withdrawn items back, with everything they had."""
    service = require_permission(request, slug, Permission.MANAGE)
    return ItemsMoved(items=service.campaign.items.put_back(body.items, who=current_user(request)))


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
) -> JobStarted:
    """Add the items of a table with all its columns, in the background.

    In a campaign of table rows, the items are the rows.
    """
    service = require_permission(request, slug, Permission.MANAGE)
    columns = ItemColumns(text or None, id_column or None, labels or None, image or None)
    workspace = get_workspace(request)
    source = save_upload(file, workspace.temp, workspace.auth.config.upload_limit)
    adding = workspace.slow_worker.submit(
        AddItems(service.location, str(source), current_user(request), columns)
    )
    adding.add_done_callback(lambda _: shutil.rmtree(source.parent, ignore_errors=True))
    return workspace.follow_addition(service, adding)


@router.post("/classes")
def add_class(request: Request, slug: str, body: ClassIn) -> ClassesOut:
    """Add a class after the others, unless it is there already. Labels stay as they are."""
    service = require_permission(request, slug, Permission.MANAGE)
    service.campaign.classes.add(body.name, who=current_user(request))
    return ClassesOut(classes=service.campaign.classes.all())


@router.patch("/classes")
def change_class(request: Request, slug: str, body: ClassChangeIn) -> ClassesOut:
    """Rename a class, or change what it means. Its labels stay.

    Answers with the old name still count for the class. Fields that are left out stay.
    """
    service = require_permission(request, slug, Permission.MANAGE)
    user = current_user(request)
    campaign = service.campaign
    description = None
    if body.description is not None or body.examples is not None:
        before = campaign.classes.descriptions().get(body.name, ClassDescription(""))
        description = ClassDescription(
            before.description if body.description is None else body.description,
            before.examples if body.examples is None else tuple(body.examples),
        )

    if body.new_name is not None:
        campaign.classes.rename(body.name, body.new_name, description=description, who=user)
    elif description is not None:
        campaign.classes.describe({body.name: description}, who=user)
    return ClassesOut(classes=service.campaign.classes.all())


@router.get("/columns")
def list_columns(request: Request, slug: str) -> list[TableColumn]:
    """List the columns that items came with, in the order of their files."""
    service = require_permission(request, slug, Permission.REVIEW)
    return [
        TableColumn(name=column.name, type=column.type)
        for column in service.campaign.items.columns()
    ]


@router.get("/history")
def list_history(
    request: Request,
    slug: str,
    after: Annotated[int, Query(ge=0, le=MAX_ROW_ID)] = 0,
    count: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> HistoryPage:
    """Return every change of the campaign, oldest first, a part at a time."""
    service = require_permission(request, slug, Permission.MANAGE)
    return service.campaign.history_page(after=after, count=count)


@router.get("/settings")
def get_settings(request: Request, slug: str) -> Settings:
    """Return the settings of the campaign."""
    return _without_folder(require_permission(request, slug, Permission.MANAGE).campaign.settings)


@router.patch("/settings")
def patch_settings(request: Request, slug: str, body: SettingsIn) -> Settings:
    """Change settings, all of them or none. A ``cost`` or ``budget`` of null removes it."""
    service = require_permission(request, slug, Permission.MANAGE)
    changes = body.model_dump(exclude_unset=True)
    return _without_folder(service.campaign.change_settings(**changes, who=current_user(request)))


def _without_folder(settings: Settings) -> Settings:
    """Return settings as they may leave the server, where the images are in its own folder."""
    return replace(settings, folder=None, rows=settings.has_rows)
