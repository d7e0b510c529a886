"""The pages: made on the server, kept alive by htmx and a little JavaScript of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import FileResponse, PlainTextResponse, RedirectResponse, Response
from fastapi.templating import Jinja2Templates

from teeter import strategies
from teeter.campaigns.exchange import FORMATS
from teeter.errors import InputError, UnknownNameError
from teeter.web.api import about, listed, site_of, who, without_folders
from teeter.web.desk import Desk
from teeter.web.drawing import curve, over_time
from teeter.web.keys import TAKEN
from teeter.web.lookup import STATES, Wanted

__all__ = ["refusal", "router"]

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
    "csv": "CSV, for spreadsheets",
    "jsonl": "JSON lines",
    "parquet": "Parquet",
    "datasets": "A folder for Hugging Face datasets, zipped",
    "prodigy": "Prodigy's JSON lines",
    "doccano": "doccano's JSON lines",
}


def _page(request: Request, template: str, told: dict[str, Any] | None = None, status: int = 200) -> Response:
    site = site_of(request)
    shared = {
        "csrf": request.state.csrf,
        "annotator": request.state.session.annotator,
        "needs_token": site.guard.needs_token,
        "folder": site.folder,
    }
    return _templates.TemplateResponse(request, template, {**shared, **(told or {})}, status)


def _wants_part(request: Request) -> bool:
    """Return whether htmx asks for the changing part alone; to go back in the history it needs all of a page."""
    return "hx-request" in request.headers and "hx-history-restore-request" not in request.headers


def _of(request: Request, slug: str, tab: str) -> tuple[Desk, dict[str, Any]]:
    """Return a campaign, and what every page of it shows."""
    site = site_of(request)
    desk = site.desk(slug)
    return desk, {"campaign": about(site, desk), "tab": tab}


def refusal(request: Request, sentence: str, status: int) -> Response:
    """Return a page that says what is wrong."""
    return _page(request, "refusal.html", {"sentence": sentence}, status)


@router.get("/")
def home(request: Request) -> Response:
    """List campaigns and reports; a single campaign opens at once."""
    site = site_of(request)
    desks = listed(site)
    reports = site.reports()
    if len(site.desks) == 1 and site.folder is None:
        return RedirectResponse(f"/c/{next(iter(site.desks))}", 303)
    told = {
        "campaigns": [about(site, desk) for desk in desks],
        "reports": {name: folder.parent.name for name, folder in reports.items()},
        "left_out": {name: without_folders(site, why) for name, why in site.left_out.items()},
    }
    return _page(request, "home.html", told)


@router.get("/login")
def login(request: Request) -> Response:
    """Ask for a token."""
    return _page(request, "login.html")


@router.post("/login")
def log_in(request: Request, token: Annotated[str, Form(max_length=500)] = "") -> Response:
    """Let somebody in by their token."""
    guard = site_of(request).guard
    session = guard.entered(token.strip())
    if session is None and guard.limit.failed(request.client.host if request.client else ""):
        answer = _page(request, "login.html", {"wrong": "Too many wrong tries: wait a minute."}, 429)
        answer.headers["retry-after"] = "60"
        return answer
    if session is None:
        return _page(request, "login.html", {"wrong": "That token is not known here."}, 401)
    answer = RedirectResponse("/", 303)
    guard.set_cookie(answer, session, secure=request.url.scheme == "https")
    return answer


@router.post("/logout")
def log_out(request: Request) -> Response:
    """Forget who this browser speaks for."""
    answer = RedirectResponse("/login" if site_of(request).guard.needs_token else "/", 303)
    guard = site_of(request).guard
    guard.set_cookie(answer, guard.fresh(), secure=request.url.scheme == "https")
    return answer


@router.post("/name")
def choose_name(request: Request, annotator: Annotated[str, Form(max_length=80)] = "") -> Response:
    """Choose a name to answer by, where no token is needed."""
    guard = site_of(request).guard
    name = annotator.strip()
    if guard.needs_token or not name or not name.isprintable():
        raise InputError("A name is needed, of letters and the like; where tokens are in use, the token says it.")
    back = request.headers.get("referer", "/")
    own = f"{request.url.scheme}://{request.headers.get('host', '')}/"
    answer = RedirectResponse(back if back.startswith(own) else "/", 303)
    guard.set_cookie(answer, guard.named(request.state.session, name), secure=request.url.scheme == "https")
    return answer


@router.get("/new")
def new(request: Request) -> Response:
    """Offer to make a campaign."""
    site = site_of(request)
    told = {"folders": site.image_folders(), "strategies": strategies.names(), "limit": site.guard.upload_limit}
    return _page(request, "new.html", told)


@router.get("/c/{slug}")
def label(request: Request, slug: str) -> Response:
    """Show the page to label on."""
    desk, told = _of(request, slug, "label")
    site, annotator = site_of(request), who(request)
    news = site.trainer.news(str(desk.path))
    site.trainer.look(str(desk.path), annotator)
    start = {
        "slug": slug,
        "campaign": desk.identity(),
        "annotator": annotator,
        "mode": "label",
        "kind": told["campaign"]["kind"],
        "classes": told["campaign"]["classes"],
        "strategy": told["campaign"]["strategy"],
        "questions": desk.questions(annotator, _AHEAD, news.why),
        "last": desk.last(annotator),
        "labelled": told["campaign"]["labelled"],
        "items": told["campaign"]["items"],
        "news": told["campaign"]["news"],
    }
    return _page(request, "label.html", {**told, "start": start, "taken": TAKEN})


@router.get("/c/{slug}/second-look")
def second_look(request: Request, slug: str) -> Response:
    """Show labels that may be wrong, one by one."""
    desk, told = _of(request, slug, "second-look")
    site = site_of(request)
    site.suspects(desk, anew=True)
    start = {
        "slug": slug,
        "campaign": desk.identity(),
        "annotator": who(request),
        "mode": "suspects",
        "kind": told["campaign"]["kind"],
        "classes": told["campaign"]["classes"],
        "strategy": told["campaign"]["strategy"],
        "questions": [],
        "last": desk.last(who(request)),
        "labelled": told["campaign"]["labelled"],
        "items": told["campaign"]["items"],
        "news": told["campaign"]["news"],
    }
    return _page(request, "label.html", {**told, "start": start, "taken": TAKEN})


@router.get("/c/{slug}/news")
def news(request: Request, slug: str) -> Response:
    """Return what goes on, as a piece of a page."""
    _, told = _of(request, slug, "")
    return _page(request, "part_news.html", told)


@router.get("/c/{slug}/progress")
def progress(request: Request, slug: str) -> Response:
    """Show how the campaign stands; htmx asks for the changing part alone."""
    desk, told = _of(request, slug, "progress")
    found = desk.progress()
    rounds = found["rounds"]
    told |= {
        "found": found,
        "status": found["status"],
        "most": max([*found["status"]["by_class"].values(), 1]),
        "accuracy_curve": curve(rounds),
        "label_curve": over_time(found["times"]),
        "flipped": desk.flipped(12),
        "last_round": rounds[-1] if rounds else None,
    }
    part = _wants_part(request)
    return _page(request, "part_progress.html" if part else "progress.html", told)


@router.post("/c/{slug}/train")
def train(request: Request, slug: str) -> Response:
    """Have a model trained now, and say so."""
    site = site_of(request)
    desk = site.desk(slug)
    by_class = desk.progress()["status"]["by_class"]
    if sum(count > 0 for count in by_class.values()) < 2:
        return PlainTextResponse("A model needs labels of two classes.")
    site.trainer.do("train", str(desk.path))
    return PlainTextResponse("A model was asked for: it is trained in the background.")


@router.get("/c/{slug}/map")
def map_page(request: Request, slug: str) -> Response:
    """Show the pool in two dimensions."""
    from importlib.util import find_spec

    desk, told = _of(request, slug, "map")
    site_of(request).chart(desk, "pca")
    return _page(request, "map.html", {**told, "has_tsne": find_spec("openTSNE") is not None})


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
    desk, told = _of(request, slug, "items")
    wanted = Wanted(search.strip(), label or None, state if state in STATES else "all", after, before, _PAGE)
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
        "states": STATES,
        "asked": asked,
        "next": urlencode({**kept, "after": found[-1]["number"]}) if later else None,
        "previous": urlencode({**kept, "before": found[0]["number"]})
        if earlier and not (before and not full)
        else None,
    }
    part = _wants_part(request)
    return _page(request, "part_items.html" if part else "items.html", told)


@router.get("/c/{slug}/item")
def item(request: Request, slug: str, id: Annotated[str, Query(max_length=4096)] = "") -> Response:
    """Show one item, with all that people say of it."""
    desk, told = _of(request, slug, "items")
    found = desk.item(key=id)
    return _page(request, "item.html", {**told, "one": found})


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
    from teeter.web.desk import Said

    if kind not in ("label", "skip", "unsure", "bad"):
        raise InputError(f"{kind!r} is none of label, skip, unsure and bad.")
    desk = site_of(request).desk(slug)
    desk.answer(who(request), Said(id, kind, label or None))  # type: ignore[arg-type]
    return RedirectResponse(f"/c/{slug}/item?{urlencode({'id': id})}", 303)


@router.get("/c/{slug}/export")
def export(request: Request, slug: str) -> Response:
    """Offer the forms that labels go out in."""
    _, told = _of(request, slug, "export")
    return _page(request, "export.html", {**told, "forms": {form: _FORMS.get(form, form) for form in FORMATS}})


@router.get("/reports/{name}")
def report(request: Request, name: str) -> Response:
    """Open a benchmark report; its links are inside its folder."""
    if name not in site_of(request).reports():
        raise UnknownNameError(f"There is no report {name[:100]!r} here.")
    return RedirectResponse(f"/reports/{name}/index.html", 303)


@router.get("/reports/{name}/{path:path}")
def report_file(request: Request, name: str, path: str) -> Response:
    """Return a file of a report; nothing outside its folder, and no script of it runs."""
    folder = site_of(request).reports().get(name)
    root = None if folder is None else folder.resolve()
    found = None if root is None or "\0" in path else (root / path).resolve()
    if root is None or found is None or root not in found.parents or not found.is_file():
        raise UnknownNameError(f"There is no {path[:100]!r} in a report {name[:100]!r}.")
    return FileResponse(found, headers={"content-security-policy": _REPORT_POLICY})
