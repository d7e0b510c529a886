"""Who answers: the session, the login by a token and the logout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import RedirectResponse, Response

from teeter.errors import InputError
from teeter.server.access import TooManyLoginsError, WrongTokenError
from teeter.server.access.middlewares import local_path
from teeter.server.access.permissions import (
    current_session,
    current_user,
    get_workspace,
)
from teeter.server.pages import render_page
from teeter.server.routes import Name, RequestBody

router = APIRouter(prefix="/api/v1")
page_router = APIRouter(include_in_schema=False)

_RETRY_SECONDS = 60
"""How long to wait after too many wrong tokens."""


class SessionIn(RequestBody):
    """The name to answer under, where no login is required."""

    annotator: Name


@dataclass(frozen=True)
class CurrentSession:
    """Who answers, and the CSRF token that every change must send in the header X-CSRF-Token."""

    annotator: str
    csrf: str
    needs_token: bool


@router.get("/session")
def get_session(request: Request) -> CurrentSession:
    """Return the name you answer under, and the CSRF token to send with every change."""
    return CurrentSession(
        annotator=current_user(request),
        csrf=current_session(request).csrf_token,
        needs_token=get_workspace(request).auth.requires_login(),
    )


@router.post("/session")
def choose_name(request: Request, body: SessionIn) -> CurrentSession:
    """Choose the name to answer under, on a server that requires no login."""
    auth = get_workspace(request).auth
    if auth.requires_login():
        raise InputError("You cannot choose a name here, because your login determines it.")

    session = auth.session_for_name(body.annotator)
    request.state.session = session
    return CurrentSession(annotator=body.annotator, csrf=session.csrf_token, needs_token=False)


@page_router.get("/login")
def show_login(
    request: Request, next_page: Annotated[str, Query(alias="next", max_length=4000)] = ""
) -> Response:
    """Ask for a token, or lead to the login provider."""
    return render_page(request, "login.html", next_page=local_path(next_page))


@page_router.post("/login")
def log_in(
    request: Request,
    token: Annotated[str, Form(max_length=500)] = "",
    next_page: Annotated[str, Form(alias="next", max_length=4000)] = "",
) -> Response:
    """Log in with a token."""
    auth = get_workspace(request).auth
    page = local_path(next_page)
    address = ""
    if request.client is not None:
        address = request.client.host

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


@page_router.post("/logout")
def log_out(request: Request) -> Response:
    """End the session of the browser."""
    auth = get_workspace(request).auth
    auth.end_session(current_session(request))
    request.state.session = auth.new_session()
    target = "/login" if auth.requires_login() else "/"
    return RedirectResponse(target, 303)


@page_router.post("/name")
def submit_name(request: Request, annotator: Annotated[str, Form(max_length=80)] = "") -> Response:
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
    target = referer if referer.startswith(origin) else "/"
    return RedirectResponse(target, 303)
