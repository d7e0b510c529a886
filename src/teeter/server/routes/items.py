"""Items: their table, their pages, and what changes them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, File, Form, Query, Request, UploadFile
from fastapi.responses import RedirectResponse, Response
from pydantic import Field

from teeter.campaigns.classes import label_text
from teeter.campaigns.items.columns import parse_column_filter
from teeter.campaigns.items.find_items import Similarities
from teeter.campaigns.records import (
    ITEM_FIELDS,
    MOST_AT_ONCE,
    Answer,
    AnswerKind,
    AnswerOrigin,
    ImportResult,
    ItemColumns,
    ItemDetails,
    ItemFilter,
    ItemKind,
    ItemPage,
    ItemQuery,
    ItemSort,
    Job,
    Permission,
    TableColumn,
)
from teeter.campaigns.settings import Settings
from teeter.errors import InputError, StoreError
from teeter.server.access.permissions import (
    CampaignToAnswer,
    CampaignToManage,
    CampaignToReview,
    User,
    current_user,
    get_workspace,
    permissions_in,
)
from teeter.server.pages import open_campaign_page, wants_part
from teeter.server.routes import ItemId, Label, RequestBody, ShallowJson, SheetField
from teeter.server.uploads import image_response, save_upload
from teeter.server.worker.background import ADD_ITEMS, CHANGE_ITEM, COMPARE_ITEMS, wait_for

router = APIRouter(prefix="/api/v1/campaigns/{slug}")
page_router = APIRouter(include_in_schema=False)


MAX_ITEMS = 1000
"""Items of one request. Larger sets come as a file."""

_MAX_TEXT = 1_000_000

_ADD_SECONDS = 300.0
"""Seconds that a request waits until its items are stored."""

_ITEMS_PER_PAGE = 50
"""Rows of a page of the table of items."""

_COMPARE_SECONDS = 60.0
"""Seconds that a search by meaning may take. The first one starts a process and loads the encoder.
"""

_MAX_ROW_ID = 2**62
"""Larger numbers do not fit into a database."""

ItemIdQuery = Annotated[str, Query(min_length=1, max_length=4096, description="The item's id.")]

ColumnQuery = Annotated[
    Sequence[Annotated[str, Query(max_length=5000)]],
    Query(
        max_length=10, description="COLUMN=VALUE: only items with exactly this value in the column."
    ),
]

RowIdQuery = Annotated[int | None, Query(ge=0, le=_MAX_ROW_ID)]

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


class ItemChangeIn(RequestBody):
    """An item, and what to change about it."""

    item: ItemId
    text: str | None = Field(default=None, max_length=_MAX_TEXT)
    """In a campaign of table rows, the text follows from the columns."""
    features: list[float] | None = Field(default=None, max_length=100_000)
    """The features of the new text, if you supplied those of the other items."""
    columns: ShallowJson | None = Field(default=None, max_length=1000)
    """New values by column, null for a missing one. Other columns stay."""


class ItemIdsIn(RequestBody):
    """Ids of items."""

    items: list[ItemId] = Field(min_length=1, max_length=MAX_ITEMS)


class WithdrawIn(ItemIdsIn):
    """Items to take out of the campaign."""

    reason: str | None = Field(default=None, max_length=2000)


# The table and an item


def _read_query(
    *,
    search: Annotated[str, Query(max_length=500)] = "",
    meaning: Annotated[str, Query(max_length=5000)] = "",
    like: Annotated[str, Query(max_length=4096)] = "",
    label: Annotated[str, Query(max_length=1000)] = "",
    predicted: Annotated[str, Query(max_length=1000)] = "",
    differs: bool = False,
    state: ItemFilter = ItemFilter.ALL,
    column: ColumnQuery = (),
    value: Annotated[
        str | None,
        Query(max_length=4000, description="With it, ``column`` is the name of a column alone."),
    ] = None,
    index: Annotated[
        Sequence[Annotated[int, Query(ge=0, le=_MAX_ROW_ID)]],
        Query(max_length=500, description="Only items of these indices on the map."),
    ] = (),
    sort: ItemSort | Literal[""] = "",
    descending: bool = False,
    after: RowIdQuery = None,
    offset: Annotated[int, Query(ge=0, le=_MAX_ROW_ID)] = 0,
    count: Annotated[int, Query(ge=1, le=500)] = _ITEMS_PER_PAGE,
) -> ItemQuery:
    """Read which items are asked for. Forms send empty fields, which narrow nothing."""
    if value is None:
        columns = tuple(parse_column_filter(text) for text in column)
    else:
        columns = tuple((name, value) for name in column if name and value)
    return ItemQuery(
        search=search.strip(),
        meaning=meaning.strip(),
        like=like or None,
        label=label or None,
        predicted=predicted or None,
        differs=differs,
        state=state,
        columns=columns,
        indices=tuple(index),
        sort=sort or None,
        descending=descending,
        after=after,
        offset=offset,
        count=count,
    )


ItemQueryIn = Annotated[ItemQuery, Depends(_read_query)]


async def _compare_items(
    request: Request, campaign: CampaignToReview, query: ItemQueryIn
) -> Similarities | None:
    """Have all items compared with a text or an item, if the query asks for it."""
    if not query.meaning and query.like is None:
        return None
    searcher = get_workspace(request).searcher
    future = searcher.submit(COMPARE_ITEMS, campaign.location, text=query.meaning, item=query.like)
    return await wait_for(future, _COMPARE_SECONDS)


SimilaritiesIn = Annotated[Similarities | None, Depends(_compare_items)]


@page_router.get("/c/{slug}/items")
def redirect_to_find(request: Request, slug: str) -> Response:
    """Send bookmarks of the table of items to the page that took its place."""
    url = f"/c/{slug}/find"
    if request.url.query:
        url += f"?{request.url.query}"
    return RedirectResponse(url)


@page_router.get("/c/{slug}/find")
def show_find(
    request: Request, slug: str, query: ItemQueryIn, similarities: SimilaritiesIn
) -> Response:
    """Show items to search, sort, filter and answer. htmx asks for the table only."""
    page = open_campaign_page(request, slug, "find", Permission.REVIEW)
    items = page.campaign.items
    found = items.page(query, similarities)
    last_offset = query.offset + len(found.items)
    context: dict[str, Any] = {
        "rows": found.items,
        "hits": found.hits,
        "query": query,
        "rest_query": _query_string(query, is_page=False),
        "previous_query": _query_string(query, max(0, query.offset - query.count)),
        "next_query": _query_string(query, last_offset),
        "has_next": last_offset < found.hits,
        "has_ids": items.have_own_ids(),
        "most_at_once": MOST_AT_ONCE,
    }
    if wants_part(request):
        return page.render("part_find.html", **context)
    return page.render(
        "find.html",
        **context,
        states=list(ItemFilter),
        sorts=list(ItemSort),
        columns=[shown.name for shown in items.columns()],
        can_search_by_meaning=items.can_search_by_meaning(),
        bulk_agreement=page.campaign.review.bulk_agreement(),
    )


def _query_string(query: ItemQuery, offset: int = 0, *, is_page: bool = True) -> str:
    """Return a query as the parameters of the page, or of REST without the place of the page."""
    fields: list[tuple[str, str | None]] = [
        ("search", query.search),
        ("meaning", query.meaning),
        ("like", query.like),
        ("label", query.label),
        ("predicted", query.predicted),
    ]
    if query.differs:
        fields.append(("differs", "true"))
    if query.state is not ItemFilter.ALL:
        fields.append(("state", query.state))
    fields.append(("sort", query.sort))
    if query.descending:
        fields.append(("descending", "true"))
    for column, value in query.columns:
        fields += [("column", column), ("value", value)]
    if is_page and offset:
        fields.append(("offset", str(offset)))
    return urlencode([(name, value) for name, value in fields if value])


@router.get("/items")
def list_items(
    campaign: CampaignToReview, query: ItemQueryIn, similarities: SimilaritiesIn
) -> ItemPage:
    """List the items that fit all parameters, and say how many there are in all.

    ``search`` looks in texts, ids and all columns. ``meaning`` and ``like`` compare the features of
    the items with those of a text or of an item. ``column`` may be repeated: each is a filter.
    """
    return campaign.items.page(query, similarities)


@router.get("/columns")
def list_columns(campaign: CampaignToReview) -> list[TableColumn]:
    """List the columns that items came with, in the order of their files."""
    return campaign.items.columns()


@page_router.get("/c/{slug}/item")
def show_item(
    request: Request, slug: str, id: Annotated[str, Query(max_length=4096)] = ""
) -> Response:
    """Show an item with its answers. Annotators see only their own answer."""
    page = open_campaign_page(request, slug, "find", Permission.ANSWER)

    only_by = None
    if Permission.REVIEW not in page.served.permissions:
        only_by = current_user(request)
    return page.render("item.html", item=page.campaign.items.get(id, only_by=only_by))


@page_router.post("/c/{slug}/item")
def answer_item(
    campaign: CampaignToAnswer,
    slug: str,
    user: User,
    *,
    id: Annotated[str, Form(max_length=4096)],
    label: Annotated[list[Label], Form(max_length=1000)] = [],  # noqa: B006  FastAPI copies it
    kind: Annotated[AnswerKind, Form()] = AnswerKind.LABEL,
) -> Response:
    """Record an answer from the page of an item."""
    text = next(iter(label), None)
    if campaign.settings.several and kind is AnswerKind.LABEL:
        text = label_text(label, several=True)
    # The page of an item shows what the model predicts.
    campaign.answer(Answer(id, user, kind, text or None, origin=AnswerOrigin.SEEN))
    return RedirectResponse(f"/c/{slug}/item?{urlencode({'id': id})}", 303)


@router.get("/item")
def get_item(
    request: Request,
    campaign: CampaignToAnswer,
    user: User,
    id: Annotated[str | None, Query(max_length=4096)] = None,
    index: Annotated[
        int | None, Query(ge=0, le=_MAX_ROW_ID, description="The item's index on the map.")
    ] = None,
) -> ItemDetails:
    """Return an item, by its id or its index on the map. Annotators see only their own answer."""
    only_by = None
    if Permission.REVIEW not in permissions_in(request, campaign):
        only_by = user

    item = id or ""
    if index is not None:
        item = campaign.items.at(index)
    return campaign.items.get(item, only_by=only_by)


@router.get("/image", response_class=Response)
def get_image(campaign: CampaignToAnswer, id: ItemIdQuery) -> Response:
    """Return the image of an item."""
    return image_response(campaign.items.image(id))


# Changes


@router.post("/items")
def add_items(
    request: Request, campaign: CampaignToManage, user: User, body: ItemsIn
) -> ImportResult:
    """Add up to 1,000 items. They are on disk when the request returns, and are encoded afterwards.

    Adding is idempotent by itself: an item whose content the campaign has is a duplicate. An item
    that is not valid refuses the whole request. An image that cannot be fetched is left out alone,
    and reported in ``failed_items``.
    """
    entries = [_as_entry(item, campaign.settings) for item in body.items]
    workspace = get_workspace(request)
    adding = workspace.slow_worker.submit(ADD_ITEMS, campaign.location, items=entries, who=user)
    added = _wait_for(adding)

    workspace.encode_soon(campaign)
    return workspace.redact_import(added)


def _as_entry(item: ItemIn, settings: Settings) -> dict[str, Any]:
    """Return an item as ``Campaign.add`` takes it."""
    given = item.model_dump(exclude={"columns"}, exclude_none=True)
    if settings.has_rows:
        if item.text is not None or item.image is not None or item.features is not None:
            raise InputError("The items of this campaign are rows: give them columns only.")
        for name in ("id", "label"):
            if name in item.columns:
                raise InputError(f"Give {name!r} beside the columns of a row, not among them.")
        return {**item.columns, **given}

    # A path would name a file of the server.
    is_web_link = (item.image or "").lower().startswith(("http://", "https://"))
    if settings.kind == ItemKind.IMAGE and not is_web_link:
        raise InputError("The image of an item must be an http or https link.")

    reserved = ITEM_FIELDS & set(item.columns)
    if reserved:
        raise InputError(f"A column cannot be called {sorted(reserved)[0]!r}: rename the column.")
    return {**item.columns, **given}


def _wait_for(future: Future[ResultT]) -> ResultT:
    try:
        return future.result(_ADD_SECONDS)
    except FutureTimeoutError:
        if future.cancel():
            raise StoreError("The server is busy with other work: try again later.") from None
        # It has begun, so it may still succeed. Done again, it changes nothing more.
        raise StoreError(
            "The server is still working on this request: send it again later."
        ) from None


@router.post("/items/file", status_code=202)
def upload_items(
    request: Request,
    campaign: CampaignToManage,
    user: User,
    *,
    file: Annotated[UploadFile, File(description="CSV, JSONL or Parquet.")],
    text: Annotated[str, Form(max_length=1000)] = "",
    id_column: Annotated[str, Form(max_length=200)] = "",
    labels: Annotated[str, Form(max_length=200)] = "",
    image: Annotated[str, Form(max_length=200, description="A column of links.")] = "",
    sheet: SheetField = "",
) -> Job[ImportResult]:
    """Add the items of a table with all its columns, in the background.

    In a campaign of table rows, the items are the rows.
    """
    columns = ItemColumns(text or None, id_column or None, labels or None, image or None)
    workspace = get_workspace(request)
    source = save_upload(file, workspace.temp, workspace.auth.config.upload_limit)
    items = source
    if sheet:
        items = Path(f"{source}#{sheet}")
    adding = workspace.slow_worker.submit(
        ADD_ITEMS,
        campaign.location,
        items=items,
        who=user,
        columns=columns,
    )
    adding.add_done_callback(lambda _: shutil.rmtree(source.parent, ignore_errors=True))
    return workspace.follow_addition(campaign, adding)


@router.patch("/item")
def change_item(
    request: Request, campaign: CampaignToManage, user: User, body: ItemChangeIn
) -> bool:
    """Change the text, the features or columns of an item, and return whether this changed it.

    Its answers stay, and so do fields that are left out. The history has the old content and the
    new one.
    """
    changes = body.model_dump(exclude={"item"}, exclude_none=True)
    changing = get_workspace(request).slow_worker.submit(
        CHANGE_ITEM, campaign.location, item=body.item, who=user, changes=changes
    )
    return _wait_for(changing)


@router.post("/items/withdraw")
def withdraw_items(campaign: CampaignToManage, user: User, body: WithdrawIn) -> int:
    """Take items out of the campaign, and return how many were in it until now.

    They keep their answers, and can be put back.
    """
    return campaign.items.withdraw(body.items, reason=body.reason, who=user)


@router.post("/items/put-back")
def put_items_back(campaign: CampaignToManage, user: User, body: ItemIdsIn) -> int:
    """Put withdrawn items back, with everything they had, and return how many were withdrawn."""
    return campaign.items.put_back(body.items, who=user)
