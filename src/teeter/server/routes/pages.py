"""The pages: rendered on the server, and kept up to date by htmx and a little JavaScript."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import FileResponse, PlainTextResponse, RedirectResponse, Response
from fastapi.templating import Jinja2Templates

from teeter.base.wording import pluralize
from teeter.campaigns.asking.questions import assign_ready_items, open_questions, recent_answers
from teeter.campaigns.export.formats import FORMATS, require_format
from teeter.campaigns.items.columns import format_cell
from teeter.campaigns.people import SessionKind, note_session
from teeter.campaigns.records import (
    Answer,
    AnswerKind,
    ColumnFilter,
    CoveragePoint,
    FinishReport,
    ItemFilter,
    ItemKind,
    ItemQuery,
    ItemRow,
    ModelRound,
    Permission,
    RecentAnswer,
    ShownQuestion,
)
from teeter.campaigns.settings import offered_settings
from teeter.campaigns.shortcuts import MAX_SHORTCUTS, action_keys, key_caption
from teeter.encoders import (
    AUTO,
    ContentKind,
    choose_encoder,
    encoders,
    is_installed,
    require_own_encoder,
)
from teeter.encoders import names as encoder_names
from teeter.errors import InputError, MissingExtraError, UnknownResourceError
from teeter.server.access import SecurityConfig, TooManyLoginsError, WrongTokenError
from teeter.server.access.middlewares import local_path
from teeter.server.access.permissions import (
    can_create_campaigns,
    current_session,
    current_user,
    get_workspace,
    permissions_in,
    require_campaign_creator,
    require_permission,
)
from teeter.server.charts import (
    AccuracyPoint,
    accuracy_chart,
    coverage_chart,
    labels_over_time_chart,
    reliability_chart,
)
from teeter.server.routes.api import (
    RowIdQuery,
    describe_campaign,
    export_labels,
    find_visible_campaigns,
)
from teeter.server.schemas import CampaignOut, DisagreementOut, LabelMode, LabelPageStart
from teeter.server.service import CampaignService
from teeter.server.worker.requests import MapKind

router = APIRouter(include_in_schema=False)

QUESTIONS_ON_PAGE = 40
"""Items that the labelling page has when it is loaded."""

_ITEMS_PER_PAGE = 50
"""Rows of a page of the table of items."""

_CHANGED_PREDICTIONS = 12
"""Changed predictions on the page of progress."""

_RETRY_SECONDS = 60
"""How long to wait after too many wrong tokens."""

_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'; "
    # Without allow-same-origin, images beside the page would count as those of another site.
    "sandbox allow-same-origin"
)
"""The Content-Security-Policy of reports, which may come from anywhere: no script of them runs."""

_EXPORT_FORMATS = {
    "csv": "CSV with every value unchanged, for programs.",
    "spreadsheet": "CSV that is safe to open in a spreadsheet program: no value runs as a formula.",
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

_templates = Jinja2Templates(directory=Path(__file__).parents[1] / "templates")
_templates.env.filters["pluralize"] = pluralize
_templates.env.globals |= {
    "format_cell": format_cell,
    "action_keys": action_keys,
    "key_caption": key_caption,
    "max_shortcuts": MAX_SHORTCUTS,
}


def render_page(
    request: Request, template: str, *, status: int = 200, **context: object
) -> Response:
    """Return a page.

    Args:
        context: the variables of the template, besides those that all templates have.
    """
    workspace = get_workspace(request)
    session = current_session(request)
    shared: dict[str, object] = {
        "csrf": session.csrf_token,
        "annotator": session.annotator,
        "needs_login": workspace.auth.requires_login(),
        "provider": _provider_name(workspace.auth.config),
        "can_store": workspace.can_create_campaigns,
    }
    return _templates.TemplateResponse(request, template, shared | context, status)


def _provider_name(config: SecurityConfig) -> str | None:
    """Return what the login page calls the login provider; None without one."""
    if config.login is None or config.login.oidc is None:
        return None
    return config.login.oidc.name


def render_error(request: Request, sentence: str, status: int) -> Response:
    """Return a page that says what went wrong."""
    return render_page(request, "refusal.html", status=status, sentence=sentence, code=status)


def _wants_part(request: Request) -> bool:
    """Return whether htmx asks for the changing part of a page only.

    To go back in the history it asks for the whole page.
    """
    headers = request.headers
    return "hx-request" in headers and "hx-history-restore-request" not in headers


@dataclass(frozen=True)
class CampaignPage:
    """A page of a campaign that is being made."""

    request: Request
    service: CampaignService
    campaign: CampaignOut
    tab: str
    """The menu entry that is marked."""

    def render(self, template: str, *, status: int = 200, **context: object) -> Response:
        """Return the page. ``context`` has the variables of the template."""
        return render_page(
            self.request,
            template,
            status=status,
            campaign=self.campaign,
            tab=self.tab,
            **context,
        )

    def render_labelling(
        self,
        mode: LabelMode,
        *,
        questions: list[ShownQuestion] | list[DisagreementOut],
        recent: list[RecentAnswer],
        waiting: int = 0,
        is_name_shared: bool = False,
    ) -> Response:
        """Return the labelling page.

        Args:
            mode: what it is used for.
            questions: the first items.
            recent: what the annotator answered or decided last.
            waiting: number of disagreements that need a decision.
            is_name_shared: whether another browser is used under the same name.
        """
        suggestions = self.service.campaign.suggestions
        start = LabelPageStart(
            slug=self.service.slug,
            campaign=self.service.campaign.store.identity(),
            annotator=current_user(self.request),
            mode=mode,
            kind=self.campaign.kind,
            classes=self.campaign.classes,
            strategy=self.campaign.strategy,
            labelled=self.campaign.labelled,
            items=self.campaign.items,
            news=self.campaign.news,
            questions=questions,
            recent=recent,
            waiting=waiting,
            sources=suggestions.recent_sources() if mode is LabelMode.LABEL else [],
        )
        return self.render("label.html", start=start, is_name_shared=is_name_shared)


def open_campaign_page(
    request: Request, slug: str, tab: str, permission: Permission
) -> CampaignPage:
    """Return a page of a campaign, to be rendered.

    Args:
        tab: the menu entry to mark.
        permission: what the user needs to see the page.

    Raises:
        UnknownResourceError: there is no such campaign.
        PermissionDeniedError: the user lacks the permission.
    """
    service = require_permission(request, slug, permission)
    return CampaignPage(request, service, describe_campaign(request, service), tab)


# The server


@router.get("/")
def show_home(request: Request) -> Response:
    """List campaigns and reports. A single campaign is opened instead."""
    workspace = get_workspace(request)
    visible = find_visible_campaigns(request)

    if (
        not workspace.can_create_campaigns
        and len(visible.campaigns) == len(workspace.services) == 1
    ):
        return _redirect_to_only_campaign(request, visible.campaigns[0])

    # Files and reports are of no concern to annotators.
    if not can_create_campaigns(request):
        return render_page(
            request, "home.html", campaigns=visible.campaigns, unreadable={}, reports={}
        )

    unreadable = dict(visible.errors)
    for file, sentence in workspace.unreadable_files.items():
        unreadable[file] = workspace.redact_paths(sentence)

    reports = {slug: folder.parent.name for slug, folder in workspace.find_reports().items()}
    return render_page(
        request,
        "home.html",
        campaigns=visible.campaigns,
        unreadable=unreadable,
        reports=reports,
        can_create=workspace.can_create_campaigns,
    )


def _redirect_to_only_campaign(request: Request, campaign: CampaignOut) -> Response:
    # Opening the labelling page assigns items, and others would have to wait for them. So people
    # who decide rather than label begin at the progress.
    has_members = get_workspace(request).campaign_tokens.is_required()
    tab = ""
    if has_members and Permission.DECIDE in campaign.permissions:
        tab = "/progress"
    return RedirectResponse(f"/c/{campaign.slug}{tab}", 303)


@router.get("/login")
def show_login(
    request: Request, next_page: Annotated[str, Query(alias="next", max_length=4000)] = ""
) -> Response:
    """Ask for a token, or lead to the login provider."""
    return render_page(request, "login.html", next_page=local_path(next_page))


@router.post("/login")
def log_in(
    request: Request,
    token: Annotated[str, Form(max_length=500)] = "",
    next_page: Annotated[str, Form(alias="next", max_length=4000)] = "",
) -> Response:
    """Log in with a token."""
    auth = get_workspace(request).auth
    page = local_path(next_page)
    address = "" if request.client is None else request.client.host

    try:
        new_session = auth.log_in(token.strip(), address)
    except TooManyLoginsError as error:
        response = render_page(request, "login.html", status=429, error=str(error), next_page=page)
        response.headers["retry-after"] = str(_RETRY_SECONDS)
        return response
    except WrongTokenError as error:
        return render_page(request, "login.html", status=401, error=str(error), next_page=page)

    # The browser forgets the cookie of an earlier login, and whoever has a copy loses it.
    auth.end_session(current_session(request))
    request.state.session = new_session
    return RedirectResponse(page, 303)


@router.post("/logout")
def log_out(request: Request) -> Response:
    """End the session of the browser."""
    auth = get_workspace(request).auth
    auth.end_session(current_session(request))
    request.state.session = auth.new_session()
    return RedirectResponse("/login" if auth.requires_login() else "/", 303)


@router.post("/name")
def choose_name(request: Request, annotator: Annotated[str, Form(max_length=80)] = "") -> Response:
    """Choose a name to answer under, where no login is required."""
    auth = get_workspace(request).auth
    if auth.requires_login():
        raise InputError("You cannot choose a name here, because your login determines it.")

    name = annotator.strip()
    if not name or not name.isprintable():
        raise InputError("The name contains characters that cannot be displayed: change it.")
    request.state.session = auth.session_for_name(name)

    # Back to the page with the form, if it is one of this server.
    referer = request.headers.get("referer", "/")
    origin = f"{request.url.scheme}://{request.headers.get('host', '')}/"
    return RedirectResponse(referer if referer.startswith(origin) else "/", 303)


@router.get("/new")
def show_new_campaign(request: Request) -> Response:
    """Show the form for a new campaign."""
    # Strategies load torch, which the server otherwise leaves to its worker process.
    from teeter.strategies import names

    require_campaign_creator(request)
    workspace = get_workspace(request)
    return render_page(
        request,
        "new.html",
        folders=workspace.list_folders(),
        settings=offered_settings(),
        choices={"strategy": names(), "encoder": [AUTO, *encoder_names()]},
        auto_choices=[choose_encoder(kind).sentence for kind in ContentKind],
        limit=workspace.auth.config.upload_limit,
    )


# Labelling


@router.get("/c/{slug}")
def show_labelling(request: Request, slug: str) -> Response:
    """Show items to label, one by one."""
    page = open_campaign_page(request, slug, "label", Permission.ANSWER)
    workspace = get_workspace(request)
    service = page.service
    annotator = current_user(request)

    explanations = workspace.trainer.status(service.location).explanations
    campaign = service.campaign
    questions = open_questions(campaign, annotator, QUESTIONS_ON_PAGE, explanations)
    if not questions and assign_ready_items(campaign, annotator, workspace.batch):
        questions = open_questions(campaign, annotator, QUESTIONS_ON_PAGE, explanations)
    workspace.trainer.ensure_questions(service.location, annotator)

    recent = recent_answers(campaign, annotator)
    return page.render_labelling(
        LabelMode.LABEL,
        questions=questions,
        recent=recent,
        is_name_shared=_is_name_shared(request, service),
    )


def _is_name_shared(request: Request, service: CampaignService) -> bool:
    """Return whether the default name is used in another browser, too."""
    session = current_session(request)
    default_name = get_workspace(request).auth.config.default_annotator
    if session.is_authenticated or session.annotator != default_name:
        return False
    # The CSRF token is random, and every browser has its own.
    return note_session(
        service.campaign, default_name, SessionKind.BROWSER, identity=session.csrf_token
    )


@router.get("/c/{slug}/review")
def show_suspects(request: Request, slug: str) -> Response:
    """Show labels that may be wrong, one by one. The page asks for them when they are found."""
    page = open_campaign_page(request, slug, "review", Permission.REVIEW)
    get_workspace(request).find_suspects(page.service, again=True)

    recent = recent_answers(page.service.campaign, current_user(request))
    return page.render_labelling(LabelMode.SUSPECTS, questions=[], recent=recent)


@router.get("/c/{slug}/news")
def show_news(request: Request, slug: str) -> Response:
    """Return what is being done in the background, as part of a page."""
    page = open_campaign_page(request, slug, "", Permission.ANSWER)
    return page.render("part_news.html")


# Progress and the map


@router.get("/c/{slug}/progress")
def show_progress(request: Request, slug: str) -> Response:
    """Show the progress of the campaign. htmx asks for the changing part only."""
    page = open_campaign_page(request, slug, "progress", Permission.ANSWER)
    progress = page.service.campaign.progress()

    changed_predictions = []
    if Permission.REVIEW in permissions_in(request, page.service):
        changed_predictions = page.service.campaign.items.changed_predictions(_CHANGED_PREDICTIONS)

    report = None
    try:
        report = page.service.campaign.finish.look()
        finish_sentences = report.sentences
    except InputError as error:
        finish_sentences = [str(error)]

    template = "part_progress.html" if _wants_part(request) else "progress.html"
    return page.render(
        template,
        progress=progress,
        largest_class=max([*progress.status.by_class.values(), 1]),
        accuracy_curve=accuracy_chart(_accuracy_points(progress.rounds)),
        label_curve=labels_over_time_chart(progress.times),
        changed_predictions=changed_predictions,
        last_round=progress.rounds[-1] if progress.rounds else None,
        encoders=_offered_encoders(page.campaign.kind, progress.status.encoder),
        report=report,
        finish_sentences=finish_sentences,
        coverage_curve=None if report is None else coverage_chart(report.curve, _planned(report)),
        reliability=None if report is None else reliability_chart(report.reliability),
    )


def _planned(report: FinishReport) -> list[CoveragePoint]:
    """Return the plan as points of the curve of coverage."""
    return [CoveragePoint(report.draws + step.labels, step.coverage) for step in report.plan]


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


def _accuracy_points(rounds: list[ModelRound]) -> list[AccuracyPoint]:
    """Return the accuracies of the models that were measured."""
    points = []
    for model in rounds:
        accuracy = model.accuracy
        if accuracy is not None:
            point = AccuracyPoint(model.labels, accuracy.share, accuracy.low, accuracy.high)
            points.append(point)
    return points


@router.post("/c/{slug}/train")
def train(request: Request, slug: str) -> Response:
    """Train a model now, and return a sentence about it for the page."""
    service = require_permission(request, slug, Permission.MANAGE)

    status = service.campaign.status()
    if status.unencoded:
        return PlainTextResponse("A model can be trained when all items are encoded.")
    if sum(count > 0 for count in status.by_class.values()) < 2:
        return PlainTextResponse("Training needs labels of at least two classes.")

    get_workspace(request).train(service)
    return PlainTextResponse("A model is being trained in the background.")


@router.post("/c/{slug}/encode")
def encode(
    request: Request, slug: str, encoder: Annotated[str, Form(max_length=200)] = AUTO
) -> Response:
    """Switch to another encoder, and return a sentence about it for the page."""
    service = require_permission(request, slug, Permission.MANAGE)
    require_own_encoder(encoder)

    get_workspace(request).encode(service, encoder)
    return PlainTextResponse(
        "The items are being encoded in the background. You can keep labelling."
    )


@router.get("/c/{slug}/map")
def show_map(request: Request, slug: str) -> Response:
    """Show all items as points."""
    page = open_campaign_page(request, slug, "map", Permission.REVIEW)
    # Drawn while the browser loads the page.
    get_workspace(request).draw_map(page.service, MapKind.PCA)
    return page.render("map.html", has_tsne=find_spec("openTSNE") is not None)


# Items


@router.get("/c/{slug}/items")
def show_items(
    request: Request,
    slug: str,
    *,
    search: Annotated[str, Query(max_length=500)] = "",
    label: Annotated[str, Query(max_length=1000)] = "",
    state: str = ItemFilter.ALL,
    after: RowIdQuery = None,
    before: RowIdQuery = None,
    column: Annotated[str, Query(max_length=1000)] = "",
    value: Annotated[str, Query(max_length=4000)] = "",
) -> Response:
    """Show a page of the table of items. htmx asks for the table only."""
    page = open_campaign_page(request, slug, "items", Permission.REVIEW)

    # An unknown state, as of an old bookmark, shows all items.
    filter_by = ItemFilter(state) if state in list(ItemFilter) else ItemFilter.ALL
    # A value without a column, or a column without a value, narrows nothing yet.
    filters = (ColumnFilter(column, value),) if column and value else ()
    query = ItemQuery(
        search.strip(), label or None, filter_by, after, before, _ITEMS_PER_PAGE, filters
    )
    rows = page.service.campaign.items.page(query).items

    template = "part_items.html" if _wants_part(request) else "items.html"
    return page.render(
        template,
        rows=rows,
        states=list(ItemFilter),
        search=search,
        label=label,
        state=state,
        columns=[shown.name for shown in page.service.campaign.items.columns()],
        column=column,
        value=value,
        next_query=_next_query(rows, query),
        previous_query=_previous_query(rows, query),
    )


def _next_query(rows: list[ItemRow], query: ItemQuery) -> str | None:
    """Return the query string of the next page; None on the last page."""
    # A page that ends before an item has at least that item after it.
    has_next = len(rows) == query.count or query.before is not None
    if not rows or not has_next:
        return None
    return _page_query(query, "after", rows[-1].row_id)


def _previous_query(rows: list[ItemRow], query: ItemQuery) -> str | None:
    """Return the query string of the previous page; None on the first page."""
    has_previous = query.after is not None
    if query.before is not None:
        has_previous = len(rows) == query.count
    if not rows or not has_previous:
        return None
    return _page_query(query, "before", rows[0].row_id)


def _page_query(query: ItemQuery, direction: str, row_id: int) -> str:
    fields: dict[str, str | int] = {}
    if query.search:
        fields["search"] = query.search
    if query.label is not None:
        fields["label"] = query.label
    if query.state is not ItemFilter.ALL:
        fields["state"] = query.state
    for column_filter in query.columns:
        fields["column"] = column_filter.column
        fields["value"] = column_filter.value

    fields[direction] = row_id
    return urlencode(fields)


@router.get("/c/{slug}/item")
def show_item(
    request: Request, slug: str, id: Annotated[str, Query(max_length=4096)] = ""
) -> Response:
    """Show an item with its answers. Annotators see only their own answer."""
    page = open_campaign_page(request, slug, "items", Permission.ANSWER)

    only_by = None
    if Permission.REVIEW not in page.campaign.permissions:
        only_by = current_user(request)
    return page.render("item.html", item=page.service.campaign.items.get(id, only_by=only_by))


@router.post("/c/{slug}/item")
def answer_item(
    request: Request,
    slug: str,
    *,
    id: Annotated[str, Form(max_length=4096)],
    label: Annotated[str, Form(max_length=1000)] = "",
    kind: Annotated[AnswerKind, Form()] = AnswerKind.LABEL,
) -> Response:
    """Record an answer from the page of an item."""
    service = require_permission(request, slug, Permission.ANSWER)
    service.campaign.answer(Answer(id, current_user(request), kind, label or None))
    return _back_to_item(slug, id)


@router.post("/c/{slug}/item/withdraw")
def withdraw_item(
    request: Request, slug: str, id: Annotated[str, Form(max_length=4096)]
) -> Response:
    """Take an item out of the campaign. Its answers are kept."""
    service = require_permission(request, slug, Permission.MANAGE)
    service.campaign.items.withdraw([id], who=current_user(request))
    return _back_to_item(slug, id)


@router.post("/c/{slug}/item/put-back")
def put_item_back(
    request: Request, slug: str, id: Annotated[str, Form(max_length=4096)]
) -> Response:
    """Put a withdrawn item back into the campaign."""
    service = require_permission(request, slug, Permission.MANAGE)
    service.campaign.items.put_back([id], who=current_user(request))
    return _back_to_item(slug, id)


def _back_to_item(slug: str, item_id: str) -> Response:
    """Show the page of an item after a change."""
    return RedirectResponse(f"/c/{slug}/item?{urlencode({'id': item_id})}", 303)


@router.get("/c/{slug}/export")
def show_export(request: Request, slug: str) -> Response:
    """Show the formats of an export, and why some cannot be used."""
    page = open_campaign_page(request, slug, "export", Permission.EXPORT)
    with page.service.campaign.reading() as view:
        labelled_classes = len(page.service.campaign.review.snapshot(view).labelled_classes())

    obstacles = {}
    for form in FORMATS:
        try:
            require_format(form, page.campaign.kind, labelled_classes)
        except (InputError, MissingExtraError) as error:
            obstacles[form] = str(error)

    formats = {form: _EXPORT_FORMATS.get(form, form) for form in FORMATS}
    return page.render("export.html", formats=formats, obstacles=obstacles)


@router.get("/c/{slug}/export/file", response_class=Response)
async def download_export(request: Request, slug: str, form: str) -> Response:
    """Return an export as a file, or else a page that says what went wrong."""
    return await export_labels(request, slug, form)


# Reports


@router.get("/reports/{name}")
def show_report(request: Request, name: str) -> Response:
    """Open a benchmark report, at an address from which its relative links work."""
    require_campaign_creator(request)
    if name not in get_workspace(request).find_reports():
        raise UnknownResourceError(f"There is no report {name[:100]!r}.")
    return RedirectResponse(f"/reports/{name}/index.html", 303)


@router.get("/reports/{name}/{path:path}")
def show_report_file(request: Request, name: str, path: str) -> Response:
    """Return a file of a report."""
    require_campaign_creator(request)
    file = _find_report_file(get_workspace(request).find_reports().get(name), path)
    if file is None:
        raise UnknownResourceError(f"There is no file {path[:100]!r} in the report {name[:100]!r}.")
    return FileResponse(file, headers={"content-security-policy": _REPORT_POLICY})


def _find_report_file(folder: Path | None, path: str) -> Path | None:
    """Return a file inside a folder; None if there is no such file, or it is outside."""
    # A path with a NUL cannot be resolved.
    if folder is None or "\0" in path:
        return None

    root = folder.resolve()
    file = (root / path).resolve()
    if root not in file.parents or not file.is_file():
        return None
    return file
