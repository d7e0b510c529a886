"""The pages: made on the server, kept alive by htmx and a little JavaScript of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import FileResponse, PlainTextResponse, RedirectResponse, Response
from fastapi.templating import Jinja2Templates

from teeter import strategies
from teeter.campaigns.db import ItemFilter, ItemQuery
from teeter.campaigns.enums import AnswerKind
from teeter.campaigns.import_export import FORMATS
from teeter.campaigns.shortcuts import RESERVED_KEYS
from teeter.errors import InputError, UnknownResourceError
from teeter.web.api import about, listed, redact_paths
from teeter.web.auth import TooManyLoginsError, WrongTokenError
from teeter.web.background_requests import TrainModel
from teeter.web.charts import AccuracyPoint, accuracy_chart, labels_over_time_chart
from teeter.web.permissions import (
    can_create_campaigns,
    current_user,
    get_workspace,
    permissions_in,
    require_campaign_creator,
    require_permission,
)
from teeter.web.service import AnswerIn, CampaignService

__all__ = ["campaign_page", "page", "refusal", "router", "start_of"]

router = APIRouter()

_templates = Jinja2Templates(directory=Path(__file__).parent / "templates")
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'; "
    "sandbox allow-same-origin"  # without it images beside the page count as another site's
)
_AHEAD = 40
"""Questions that the page has at hand."""

_PAGE = 50
"""Items on a page of the table."""

_FORMS = {
    "csv": "CSV, exact, for programs",
    "spreadsheet": "CSV, safe to open in a spreadsheet",
    "jsonl": "JSON lines",
    "parquet": "Parquet",
    "datasets": "A folder for Hugging Face datasets, zipped",
    "prodigy": "Prodigy's JSON lines",
    "doccano": "doccano's JSON lines",
}


def page(
    request: Request, template: str, told: dict[str, Any] | None = None, status: int = 200
) -> Response:
    """Return a page from its template, with what all pages show."""
    site = get_workspace(request)
    shared = {
        "csrf": request.state.session.csrf_token,
        "annotator": request.state.session.annotator,
        "needs_token": site.auth.requires_token(),
        "folder": site.folder,
    }
    return _templates.TemplateResponse(request, template, {**shared, **(told or {})}, status)


def _wants_part(request: Request) -> bool:
    """Return whether htmx asks for the changing part alone; to go back in the history it needs all of a page."""
    return "hx-request" in request.headers and "hx-history-restore-request" not in request.headers


def campaign_page(
    request: Request, slug: str, tab: str, what: str = "answer"
) -> tuple[CampaignService, dict[str, Any]]:
    """Return a campaign, if whoever asks may do this there, and what every page of it shows."""
    desk = require_permission(request, slug, what)
    return desk, {"campaign": about(request, desk), "tab": tab}


def start_of(
    request: Request, desk: CampaignService, told: dict[str, Any], mode: str, **more: Any
) -> dict[str, Any]:
    """Return what the page begins with on which items are gone through one by one."""
    shown = ("kind", "classes", "strategy", "labelled", "items", "news")
    own = {
        "slug": desk.slug,
        "campaign": desk.identity(),
        "annotator": current_user(request),
        "mode": mode,
    }
    return {
        **own,
        **{name: told["campaign"][name] for name in shown},
        "questions": [],
        "last": [],
        **more,
    }


def refusal(request: Request, sentence: str, status: int) -> Response:
    """Return a page that says what is wrong."""
    return page(request, "refusal.html", {"sentence": sentence, "status": status}, status)


@router.get("/")
def home(request: Request) -> Response:
    """List campaigns and reports; a single campaign opens at once.

    Reviewers and owners of a team begin at its progress: to label is to take questions that others wait for.
    """
    site = get_workspace(request)
    campaigns, troubles = listed(request)
    if len(campaigns) == len(site.desks) == 1 and site.folder is None:
        first = (
            "/progress" if site.roster.is_required() and "decide" in campaigns[0]["rights"] else ""
        )
        return RedirectResponse(f"/c/{campaigns[0]['slug']}{first}", 303)
    told = {"campaigns": campaigns, "reports": {}, "left_out": {}, "makes": False}
    if can_create_campaigns(request):
        told |= {
            "makes": site.folder is not None,
            "reports": {name: folder.parent.name for name, folder in site.reports().items()},
            "left_out": troubles
            | {name: redact_paths(site, why) for name, why in site.left_out.items()},
        }
    return page(request, "home.html", told)


@router.get("/login")
def login(request: Request) -> Response:
    """Ask for a token."""
    return page(request, "login.html")


@router.post("/login")
def log_in(request: Request, token: Annotated[str, Form(max_length=500)] = "") -> Response:
    """Let somebody in by their token."""
    auth = get_workspace(request).auth
    address = request.client.host if request.client else ""
    try:
        request.state.session = auth.log_in(token.strip(), address)
    except TooManyLoginsError as error:
        answer = page(request, "login.html", {"wrong": str(error)}, 429)
        answer.headers["retry-after"] = "60"
        return answer
    except WrongTokenError as error:
        return page(request, "login.html", {"wrong": str(error)}, 401)
    return RedirectResponse("/", 303)


@router.post("/logout")
def log_out(request: Request) -> Response:
    """Forget who this browser speaks for."""
    auth = get_workspace(request).auth
    request.state.session = auth.new_session()
    return RedirectResponse("/login" if auth.requires_token() else "/", 303)


@router.post("/name")
def choose_name(request: Request, annotator: Annotated[str, Form(max_length=80)] = "") -> Response:
    """Choose a name to answer by, where no token is needed."""
    auth = get_workspace(request).auth
    name = annotator.strip()
    if auth.requires_token() or not name or not name.isprintable():
        raise InputError(
            "A name is needed, of letters and the like; where tokens are in use, the token says it."
        )
    back = request.headers.get("referer", "/")
    own = f"{request.url.scheme}://{request.headers.get('host', '')}/"
    request.state.session = auth.session_for_name(name)
    return RedirectResponse(back if back.startswith(own) else "/", 303)


@router.get("/new")
def new(request: Request) -> Response:
    """Offer to make a campaign."""
    require_campaign_creator(request)
    site = get_workspace(request)
    told = {
        "folders": site.image_folders(),
        "strategies": strategies.names(),
        "limit": site.auth.config.upload_limit,
    }
    return page(request, "new.html", told)


@router.get("/c/{slug}")
def label(request: Request, slug: str) -> Response:
    """Show the page to label on."""
    desk, told = campaign_page(request, slug, "label")
    site, annotator = get_workspace(request), current_user(request)
    news = site.trainer.status(desk.where)
    waiting = desk.questions(annotator, _AHEAD, news.explanations)
    if not waiting and desk.give(annotator, site.batch):
        waiting = desk.questions(annotator, _AHEAD, news.explanations)
    site.trainer.ensure_questions(desk.where, annotator)
    start = start_of(request, desk, told, "label", questions=waiting, last=desk.last(annotator))
    return page(request, "label.html", {**told, "start": start, "taken": RESERVED_KEYS})


@router.get("/c/{slug}/second-look")
def second_look(request: Request, slug: str) -> Response:
    """Show labels that may be wrong, one by one."""
    desk, told = campaign_page(request, slug, "second-look", "review")
    get_workspace(request).suspects(desk, anew=True)
    start = start_of(request, desk, told, "suspects", last=desk.last(current_user(request)))
    return page(request, "label.html", {**told, "start": start, "taken": RESERVED_KEYS})


@router.get("/c/{slug}/news")
def news(request: Request, slug: str) -> Response:
    """Return what goes on, as a piece of a page."""
    _, told = campaign_page(request, slug, "")
    return page(request, "part_news.html", told)


@router.get("/c/{slug}/progress")
def progress(request: Request, slug: str) -> Response:
    """Show how the campaign stands; htmx asks for the changing part alone."""
    desk, told = campaign_page(request, slug, "progress")
    found = desk.progress()
    rounds = found["rounds"]
    measured = [
        AccuracyPoint(one["labels"], **one["accuracy"]) for one in rounds if one["accuracy"]
    ]
    told |= {
        "found": found,
        "status": found["status"],
        "most": max([*found["status"]["by_class"].values(), 1]),
        "accuracy_curve": accuracy_chart(measured),
        "label_curve": labels_over_time_chart(found["times"]),
        "flipped": desk.flipped(12) if "review" in permissions_in(request, desk) else [],
        "last_round": rounds[-1] if rounds else None,
    }
    part = _wants_part(request)
    return page(request, "part_progress.html" if part else "progress.html", told)


@router.post("/c/{slug}/train")
def train(request: Request, slug: str) -> Response:
    """Have a model trained now, and say so."""
    site, desk = get_workspace(request), require_permission(request, slug, "manage")
    by_class = desk.progress()["status"]["by_class"]
    if sum(count > 0 for count in by_class.values()) < 2:
        return PlainTextResponse("A model needs labels of two classes.")
    site.trainer.submit(TrainModel(desk.where))
    return PlainTextResponse("A model was asked for: it is trained in the background.")


@router.get("/c/{slug}/map")
def map_page(request: Request, slug: str) -> Response:
    """Show the pool in two dimensions."""
    from importlib.util import find_spec

    desk, told = campaign_page(request, slug, "map", "review")
    get_workspace(request).chart(desk, "pca")
    return page(request, "map.html", {**told, "has_tsne": find_spec("openTSNE") is not None})


@router.get("/c/{slug}/items")
def items(
    request: Request,
    slug: str,
    *,
    search: Annotated[str, Query(max_length=500)] = "",
    label: Annotated[str, Query(max_length=1000)] = "",
    state: str = "all",
    after: Annotated[int | None, Query(ge=0, le=2**62)] = None,
    before: Annotated[int | None, Query(ge=0, le=2**62)] = None,
) -> Response:
    """Show a page of the table of items."""
    desk, told = campaign_page(request, slug, "items", "review")
    wanted = ItemQuery(
        search.strip(),
        label or None,
        ItemFilter(state) if state in list(ItemFilter) else ItemFilter.ALL,
        after,
        before,
        _PAGE,
    )
    found = desk.items(wanted)
    asked = {"search": search, "label": label, "state": state}
    kept = {name: value for name, value in asked.items() if value and value != "all"}
    full = len(found) == _PAGE
    later, earlier = (
        bool(found) and (full or before is not None),
        bool(found) and (after is not None or before is not None),
    )
    told |= {
        "rows": found,
        "states": list(ItemFilter),
        "asked": asked,
        "next": urlencode({**kept, "after": found[-1]["number"]}) if later else None,
        "previous": urlencode({**kept, "before": found[0]["number"]})
        if earlier and not (before and not full)
        else None,
    }
    part = _wants_part(request)
    return page(request, "part_items.html" if part else "items.html", told)


@router.get("/c/{slug}/item")
def item(request: Request, slug: str, id: Annotated[str, Query(max_length=4096)] = "") -> Response:
    """Show one item, with all that people say of it; an annotator is shown their own answer alone."""
    desk, told = campaign_page(request, slug, "items")
    found = desk.item(
        key=id, only=None if "review" in permissions_in(request, desk) else current_user(request)
    )
    return page(request, "item.html", {**told, "one": found})


@router.post("/c/{slug}/item")
def correct(
    request: Request,
    slug: str,
    *,
    id: Annotated[str, Form(max_length=4096)],
    label: Annotated[str, Form(max_length=1000)] = "",
    kind: Annotated[str, Form(max_length=10)] = "label",
) -> Response:
    """Record an answer about one item, from its page."""
    if kind not in list(AnswerKind):
        raise InputError(f"{kind!r} is none of {', '.join(AnswerKind)}.")
    desk = require_permission(request, slug, "answer")
    desk.answer(current_user(request), AnswerIn(id, AnswerKind(kind), label or None))
    return RedirectResponse(f"/c/{slug}/item?{urlencode({'id': id})}", 303)


@router.get("/c/{slug}/export")
def export(request: Request, slug: str) -> Response:
    """Offer the forms that labels go out in."""
    _, told = campaign_page(request, slug, "export", "export")
    return page(
        request,
        "export.html",
        {**told, "forms": {form: _FORMS.get(form, form) for form in FORMATS}},
    )


@router.get("/reports/{name}")
def report(request: Request, name: str) -> Response:
    """Open a benchmark report; its links are inside its folder."""
    require_campaign_creator(request)
    if name not in get_workspace(request).reports():
        raise UnknownResourceError(f"There is no report {name[:100]!r} here.")
    return RedirectResponse(f"/reports/{name}/index.html", 303)


@router.get("/reports/{name}/{path:path}")
def report_file(request: Request, name: str, path: str) -> Response:
    """Return a file of a report; nothing outside its folder, and no script of it runs."""
    require_campaign_creator(request)
    folder = get_workspace(request).reports().get(name)
    root = None if folder is None else folder.resolve()
    found = None if root is None or "\0" in path else (root / path).resolve()
    if root is None or found is None or root not in found.parents or not found.is_file():
        raise UnknownResourceError(f"There is no {path[:100]!r} in a report {name[:100]!r}.")
    return FileResponse(found, headers={"content-security-policy": _REPORT_POLICY})
