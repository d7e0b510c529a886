"""The REST interface: everything that the page can do, under /api/v1."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, File, Form, Query, Request, UploadFile
from fastapi.responses import FileResponse, JSONResponse, Response
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool

from teeter.campaigns.db import ItemFilter, ItemQuery
from teeter.campaigns.enums import AnswerKind
from teeter.campaigns.import_export import FORMATS
from teeter.campaigns.shortcuts import shortcuts_by_class
from teeter.errors import InputError, StoreError, UnknownNameError
from teeter.web import schemas
from teeter.web.images import image_response
from teeter.web.permissions import (
    allowed,
    own_desk,
    person_in,
    require_maker,
    rights_in,
    site_of,
    who,
)
from teeter.web.service import AnswerIn, CampaignService, is_blind
from teeter.web.uploads import save_upload
from teeter.web.workspace import Workspace

__all__ = ["about", "listed", "redact_paths", "router"]

router = APIRouter(prefix="/api/v1")

_NUMBER = 2**62
"""Larger ones do not fit a database."""

_EXPORT_SECONDS = 600

Id = Annotated[str, Query(min_length=1, max_length=4096, description="The item's id.")]


def listed(request: Request) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the campaigns that are somebody's to see, and why others cannot be read now, by their names.

    Those of the folder that are gone are let go of. Where nothing can be read at all, that is refused.
    """
    site = site_of(request)
    for slug, desk in list(site.desks.items()):
        file = None if site.folder is None else desk.path
        if (
            not desk.is_there()
            and file is not None
            and file.parent.resolve() == Path(site.folder or "").resolve()
        ):
            del site.desks[slug]
            desk.close()
    site.look_into_folder()
    found: list[dict[str, Any]] = []
    troubles: dict[str, StoreError] = {}
    for desk in [one for one in list(site.desks.values()) if one.is_there()]:
        try:
            if person_in(request, desk) is not None:
                found.append(about(request, desk))
        except StoreError as error:
            troubles[desk.name] = error
    if troubles and not found:
        raise next(iter(troubles.values()))
    return found, {name: redact_paths(site, str(error)) for name, error in troubles.items()}


def redact_paths(site: Workspace, sentence: str) -> str:
    """Return a sentence without where files and databases are, which is nobody's business."""
    folders = {site.temp} if site.folder is None else {site.temp, site.folder.absolute()}
    for desk in list(site.desks.values()):
        folders |= set() if desk.images is None else {desk.images}
        if desk.path is None:
            sentence = sentence.replace(f"database {desk.said}", "database").replace(
                desk.said, desk.name
            )
        else:
            folders |= {desk.path.parent}
    every = {form for one in folders for form in (one, one.resolve())}
    for folder in sorted(every, key=lambda one: len(str(one)), reverse=True):
        sentence = sentence.replace(f"{folder}{os.sep}", "").replace(
            str(folder), folder.name or str(folder)
        )
    return sentence


def about(request: Request, desk: CampaignService) -> dict[str, Any]:
    """Return a campaign, how it stands, and what whoever asks may do there."""
    site, rights = site_of(request), rights_in(request, desk)
    settings, (version, trained) = desk.campaign.settings, desk.newest_version()
    news = site.trainer.news(desk.where)
    news.version = news.version or version
    if news.trained is None:
        news.trained = trained
    return {
        "slug": desk.slug,
        "name": desk.name,
        "kind": settings.kind,
        "strategy": settings.strategy,
        "instructions": settings.instructions,
        "classes": desk.classes(),
        "model": version,
        "news": redact_paths(site, news.sentence()),
        "rights": sorted(rights),
        "team": desk.is_team(),
        **desk.counts(),
    }


@router.get("/session")
def session(request: Request) -> schemas.SessionOut:
    """Say who answers, and what a program must send with every change."""
    needs = site_of(request).guard.needs_token
    return schemas.SessionOut(annotator=who(request), csrf=request.state.csrf, needs_token=needs)


@router.post("/session")
def choose_name(
    request: Request, told: schemas.SessionIn, response: Response
) -> schemas.SessionOut:
    """Choose a name to answer by, where no token is needed."""
    guard = site_of(request).guard
    if guard.needs_token:
        raise InputError("Here a token says who answers.")
    made = guard.named(request.state.session, told.annotator)
    guard.set_cookie(response, made, secure=request.url.scheme == "https")
    return schemas.SessionOut(annotator=told.annotator, csrf=guard.csrf(made), needs_token=False)


@router.get("/campaigns")
def campaigns(request: Request) -> list[schemas.CampaignOut]:
    """List the campaigns that can be read."""
    return [schemas.CampaignOut(**one) for one in listed(request)[0]]


@router.post("/campaigns", status_code=202)
def make_campaign(
    request: Request,
    *,
    name: Annotated[str, Form(max_length=80)],
    classes: Annotated[str, Form(max_length=10_000, description="With commas between them.")],
    file: Annotated[UploadFile | None, File(description="CSV, JSONL or Parquet.")] = None,
    folder: Annotated[
        str, Form(max_length=200, description="A folder of images inside the server's.")
    ] = "",
    keys: Annotated[str, Form(max_length=200)] = "",
    text: Annotated[str, Form(max_length=200, description="The column of texts.")] = "",
    id_column: Annotated[str, Form(max_length=200)] = "",
    labels: Annotated[
        str, Form(max_length=200, description="The column of labels that are known.")
    ] = "",
    instructions: Annotated[str, Form(max_length=20_000)] = "",
    strategy: Annotated[str, Form(max_length=80)] = "ldm-s",
    audit: Annotated[int, Form(ge=0, le=1_000_000)] = 0,
    cost: Annotated[float | None, Form(ge=0, le=1e12, allow_inf_nan=False)] = None,
    budget: Annotated[float | None, Form(ge=0, le=1e15, allow_inf_nan=False)] = None,
) -> dict[str, str]:
    """Make a campaign from an uploaded file or a folder of images; answers with a job. Who makes it owns it."""
    require_maker(request)
    site = site_of(request)
    path = site.place_for(name)
    names = [one.strip() for one in classes.split(",")]
    chosen = [one.strip() for one in keys.split(",") if one.strip()]
    shortcuts_by_class(names, chosen)
    uploaded = file is not None and bool(file.filename)
    if uploaded == bool(folder):
        raise InputError("Give a file or a folder of images, one of the two.")
    limit = site.guard.upload_limit
    things = (
        save_upload(file, site.temp, limit)
        if uploaded and file is not None
        else site.inside(folder)
    )
    settings = {
        "keys": chosen,
        "instructions": instructions,
        "strategy": strategy,
        "audit": audit,
        "cost": cost,
        "budget": budget,
    }
    columns = {"text": text or None, "key": id_column or None, "label": labels or None}
    own = own_desk(request)
    owner = None if own is None else (who(request), own)
    return {"job": site.make(things, path, names, settings, owner=owner, **columns)}


@router.get("/jobs/{number}")
def job(request: Request, number: str) -> schemas.JobOut:
    """Say what became of a job."""
    site = site_of(request)
    return schemas.JobOut(**_scrubbed(site, site.job(number)))


def _scrubbed(site: Workspace, told: dict[str, Any]) -> dict[str, Any]:
    """Return a job's state without where files are."""
    return told if "detail" not in told else {**told, "detail": redact_paths(site, told["detail"])}


@router.get("/campaigns/{slug}")
def campaign(request: Request, slug: str) -> schemas.CampaignOut:
    """Say how a campaign stands."""
    return schemas.CampaignOut(**about(request, allowed(request, slug, "answer")))


@router.get("/campaigns/{slug}/questions")
def questions(
    request: Request, slug: str, n: Annotated[int, Query(ge=1, le=200)] = 20
) -> schemas.QuestionsOut:
    """Return what to label next; where nothing waits yet, it is being picked: ask again."""
    site = site_of(request)
    desk, annotator = allowed(request, slug, "answer"), who(request)
    news = site.trainer.news(desk.where)
    found = desk.questions(annotator, n, news.why)
    few = min(n, site.batch // 2)
    if len(found) < few and desk.give(annotator, site.batch):
        found = desk.questions(annotator, n, news.why)
    if len(found) <= site.batch // 2 or any(
        "probabilities" not in one and not is_blind(one) for one in found
    ):
        site.trainer.look(desk.where, annotator)
    told = about(request, desk)
    return schemas.QuestionsOut(
        questions=found,
        finished=not found and annotator in news.finished,
        news=told["news"],
        busy=news.doing is not None,
        labelled=told["labelled"],
        items=told["items"],
    )


@router.post("/campaigns/{slug}/answers")
def answer(request: Request, slug: str, told: schemas.AnswerIn) -> schemas.AnswerOut:
    """Record an answer: it is on disk when this returns."""
    site = site_of(request)
    desk, annotator = allowed(request, slug, "answer"), who(request)
    new = desk.answer(
        annotator, AnswerIn(told.item, AnswerKind(told.kind), told.label, told.comment)
    )
    site.trainer.look(desk.where, annotator)
    return schemas.AnswerOut(new=new, labelled=desk.counts()["labelled"])


@router.get("/campaigns/{slug}/answers")
def last_answers(
    request: Request, slug: str, count: Annotated[int, Query(ge=1, le=100)] = 10
) -> list[dict[str, Any]]:
    """Return your last answers, the newest first."""
    return allowed(request, slug, "answer").last(who(request), count)


@router.post("/campaigns/{slug}/undo")
def undo(request: Request, slug: str, told: schemas.UndoIn) -> schemas.UndoOut:
    """Take back your last answer."""
    return schemas.UndoOut(undone=allowed(request, slug, "answer").undo(who(request), told.item))


@router.post("/campaigns/{slug}/keep")
def keep(request: Request, slug: str, told: schemas.ItemIn) -> schemas.AnswerOut:
    """Say after a second look that a label is right."""
    desk = allowed(request, slug, "review")
    desk.keep(who(request), told.item, told.comment)
    return schemas.AnswerOut(new=True, labelled=desk.counts()["labelled"])


@router.get("/campaigns/{slug}/suspects")
def suspects(request: Request, slug: str, anew: bool = False) -> dict[str, Any]:
    """Return labels that may be wrong, once they are found: ask again while the state is waiting."""
    site, desk = site_of(request), allowed(request, slug, "review")
    told = site.suspects(desk, anew=anew)
    if told["state"] != "done":
        return _scrubbed(site, told)
    return {"state": "done", "suspects": told["result"]}


@router.post("/campaigns/{slug}/train", status_code=202)
def train(request: Request, slug: str) -> dict[str, str]:
    """Have a model trained now."""
    site = site_of(request)
    return {"job": site.remember(site.trainer.do("train", allowed(request, slug, "manage").where))}


@router.get("/campaigns/{slug}/items")
def items(
    request: Request,
    slug: str,
    *,
    search: Annotated[str, Query(max_length=500)] = "",
    label: Annotated[str, Query(max_length=1000)] = "",
    state: Annotated[str, Query(json_schema_extra={"enum": list(ItemFilter)})] = "all",
    after: Annotated[int | None, Query(ge=0, le=_NUMBER)] = None,
    before: Annotated[int | None, Query(ge=0, le=_NUMBER)] = None,
    count: Annotated[int, Query(ge=1, le=500)] = 50,
) -> schemas.ItemsOut:
    """List items in their order, so many behind the item of a number, or before it."""
    if state not in list(ItemFilter):
        raise InputError(f"{state!r} is none of {', '.join(ItemFilter)}.")
    wanted = ItemQuery(search.strip(), label or None, ItemFilter(state), after, before, count)
    found = allowed(request, slug, "review").items(wanted)
    first, last = (found[0]["number"], found[-1]["number"]) if found else (None, None)
    return schemas.ItemsOut(items=found, after=last if len(found) == count else None, before=first)


@router.get("/campaigns/{slug}/item")
def item(
    request: Request,
    slug: str,
    id: Annotated[str | None, Query(max_length=4096)] = None,
    place: Annotated[
        int | None, Query(ge=0, le=_NUMBER, description="Its place on the map.")
    ] = None,
) -> dict[str, Any]:
    """Return an item with all that people say of it; an annotator is told their own answer alone."""
    desk = allowed(request, slug, "answer")
    only = None if "review" in rights_in(request, desk) else who(request)
    if place is None:
        return desk.item(key=id or "", only=only)
    numbers = desk.numbers()
    if place >= len(numbers):
        raise UnknownNameError(f"There is no item at place {place}.")
    return desk.item(number=numbers[place], only=only)


@router.get("/campaigns/{slug}/image", response_class=Response)
def image(request: Request, slug: str, id: Id) -> Response:
    """Return an item's image."""
    return image_response(allowed(request, slug, "answer").image(id))


@router.get("/campaigns/{slug}/progress")
def progress(request: Request, slug: str) -> dict[str, Any]:
    """Return how the campaign stands, round by round."""
    return allowed(request, slug, "answer").progress()


@router.get("/campaigns/{slug}/flipped")
def flipped(
    request: Request, slug: str, count: Annotated[int, Query(ge=1, le=200)] = 20
) -> list[dict[str, Any]]:
    """Return items whose predicted class changed with the newest model."""
    return allowed(request, slug, "review").flipped(count)


@router.get("/campaigns/{slug}/map", response_class=Response)
def chart(request: Request, slug: str, how: Literal["pca", "tsne", "ldm"] = "pca") -> Response:
    """Return the map: a count (int32), then x, y (float32) and predicted class (int32) of every item; or their LDM.

    It is drawn in the background: ask again while the answer is 202.
    """
    site = site_of(request)
    told = site.chart(allowed(request, slug, "review"), how)
    if told["state"] != "done":
        return JSONResponse(_scrubbed(site, told), 202)
    headers = {"x-model-version": str(told["result"]["version"])}
    return FileResponse(
        told["result"]["file"], media_type="application/octet-stream", headers=headers
    )


@router.get("/campaigns/{slug}/labels")
def labels(request: Request, slug: str) -> dict[str, Any]:
    """Return the places of labelled items on the map, and the numbers of their classes."""
    desk = allowed(request, slug, "review")
    return {"classes": list(desk.campaign.classes), "labels": desk.labelled_places()}


@router.get("/campaigns/{slug}/export", response_class=Response)
async def export(
    request: Request,
    slug: str,
    form: Annotated[str, Query(json_schema_extra={"enum": list(FORMATS)})] = "csv",
) -> Response:
    """Return labels and predictions as a file."""
    site, desk = site_of(request), await run_in_threadpool(allowed, request, slug, "export")
    if form not in FORMATS:
        raise InputError(f"{form[:50]!r} is none of {', '.join(FORMATS)}.")
    own = tempfile.mkdtemp(
        dir=site.temp
    )  # of this request alone: it is removed when the file is sent
    waiting = site.trainer.do("export", desk.where, form=form, folder=own)
    try:
        file = Path(
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(waiting)), _EXPORT_SECONDS)
        )
    except BaseException as error:
        waiting.add_done_callback(lambda _: shutil.rmtree(own, ignore_errors=True))
        if not isinstance(error, TimeoutError):
            raise
        raise StoreError(
            "The export takes long, for other work goes first: try again in a while."
        ) from None
    gone = BackgroundTask(shutil.rmtree, own, ignore_errors=True)
    return FileResponse(file, filename=f"{desk.slug}-{form}{file.suffix}", background=gone)
