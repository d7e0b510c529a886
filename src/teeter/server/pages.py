"""Pages: rendered on the server, and kept up to date by htmx and a little JavaScript."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.encoders import jsonable_encoder
from fastapi.responses import Response
from fastapi.templating import Jinja2Templates

from teeter.base.wording import pluralize
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.classes import MAX_SHORTCUTS, action_keys, key_caption
from teeter.campaigns.items.columns import format_cell
from teeter.campaigns.records import (
    Disagreement,
    Permission,
    RecentAnswer,
    ShownQuestion,
)
from teeter.server.access import SecurityConfig
from teeter.server.access.permissions import (
    current_session,
    current_user,
    get_workspace,
    permissions_in,
    require_permission,
)
from teeter.server.workspace import ServedCampaign

QUESTIONS_ON_PAGE = 40
"""Items that the labelling page has when it is loaded."""

_MOST_BUTTONS = 16
"""Classes up to which all have a button of the same size. Above, a field finds them by name."""

_templates = Jinja2Templates(directory=Path(__file__).parent / "templates")

_templates.env.filters["pluralize"] = pluralize
_templates.env.globals |= {
    "format_cell": format_cell,
    "action_keys": action_keys,
    "key_caption": key_caption,
    "max_shortcuts": MAX_SHORTCUTS,
    "most_buttons": _MOST_BUTTONS,
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


def wants_part(request: Request) -> bool:
    """Return whether htmx asks for the changing part of a page only.

    To go back in the history it asks for the whole page.
    """
    headers = request.headers
    return "hx-request" in headers and "hx-history-restore-request" not in headers


class LabelMode(StrEnum):
    """What the labelling page is used for."""

    LABEL = "label"
    SUSPECTS = "suspects"
    DECIDE = "decide"


@dataclass(frozen=True)
class CampaignPage:
    """A page of a campaign that is being made."""

    request: Request
    campaign: Campaign
    served: ServedCampaign
    """What the templates have of it."""
    tab: str
    """The menu entry that is marked."""

    def render(self, template: str, **context: Any) -> Response:
        """Return the page. ``context`` has the variables of the template."""
        return render_page(
            self.request,
            template,
            campaign=self.served,
            tab=self.tab,
            **context,
        )

    def render_labelling(
        self,
        mode: LabelMode,
        *,
        questions: list[ShownQuestion] | list[Disagreement],
        recent: list[RecentAnswer],
        waiting: int = 0,
        is_name_shared: bool = False,
        is_waiting: bool = False,
    ) -> Response:
        """Return the labelling page.

        Args:
            mode: what it is used for.
            questions: the first items.
            recent: what the annotator answered or decided last.
            waiting: number of disagreements that need a decision.
            is_name_shared: whether another browser is used under the same name.
            is_waiting: whether items are asked for only when the annotator says so.
        """
        suggestions = self.campaign.suggestions
        sources = []
        if mode is LabelMode.LABEL and not self.served.is_auditing:
            sources = suggestions.recent_sources()
        start = {
            **vars(self.served),
            # So that unsent answers never go to another campaign of the same name.
            "campaign": self.campaign.identity(),
            "annotator": current_user(self.request),
            "mode": mode,
            "questions": questions,
            "recent": recent,
            "waiting": waiting,
            "is_waiting": is_waiting,
            "sources": sources,
        }
        return self.render(
            "label.html", start=jsonable_encoder(start), is_name_shared=is_name_shared
        )


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
    campaign = require_permission(request, slug, permission)
    return CampaignPage(request, campaign, describe_campaign(request, slug, campaign), tab)


def describe_campaign(request: Request, slug: str, campaign: Campaign) -> ServedCampaign:
    """Return a campaign, its progress, and what the user of a request may do in it."""
    permissions = permissions_in(request, campaign)
    return get_workspace(request).describe_campaign(slug, campaign, permissions)
