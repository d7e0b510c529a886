"""The login by an OpenID Connect provider: to its page, and back."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from teeter.errors import PermissionDeniedError
from teeter.web.auth import CALLBACK_PATH, SecurityConfig
from teeter.web.auth.local_paths import local_path
from teeter.web.auth.login_attempts import LoginAttempts
from teeter.web.auth.oidc import LoginRefusedError, OidcProvider, ProviderUnavailableError
from teeter.web.pages import render_page
from teeter.web.permissions import get_workspace

__all__ = ["OidcLogin", "make_oidc_login", "router"]

logger = logging.getLogger(__name__)

router = APIRouter()

_COOKIE_SECONDS = 600
_COOKIE_PATH = "/login"

ParameterQuery = Annotated[str, Query(max_length=4000)]
NextQuery = Annotated[str, Query(alias="next", max_length=4000)]


@dataclass(frozen=True)
class OidcLogin:
    """What the two pages share."""

    provider: OidcProvider
    attempts: LoginAttempts
    cookie_name: str


def make_oidc_login(security: SecurityConfig) -> OidcLogin | None:
    """Return the login by a provider; None if none is configured."""
    login = security.login
    if login is None or login.oidc is None:
        return None

    provider = OidcProvider(login.oidc, f"{login.url}{CALLBACK_PATH}")
    return OidcLogin(provider, LoginAttempts(security.secret), f"{security.cookie_name}_login")


@router.get("/login/oidc")
def begin_login(request: Request, next_page: NextQuery = "") -> Response:
    """Send the browser to the login page of the provider."""
    oidc: OidcLogin = request.app.state.oidc_login
    attempt = oidc.attempts.begin(local_path(next_page))
    try:
        address = oidc.provider.authorization_url(attempt)
    except ProviderUnavailableError as error:
        return _render_failure(request, error, status=502)

    response = RedirectResponse(address, 303)
    # Lax, unlike the session's cookie: the browser comes back from another site.
    response.set_cookie(
        oidc.cookie_name,
        oidc.attempts.encode(attempt),
        max_age=_COOKIE_SECONDS,
        path=_COOKIE_PATH,
        httponly=True,
        samesite="lax",
        secure=request.url.scheme == "https",
    )
    return response


@router.get(CALLBACK_PATH)
def complete_login(
    request: Request,
    code: ParameterQuery = "",
    state: ParameterQuery = "",
    iss: ParameterQuery = "",
    error: ParameterQuery = "",
) -> Response:
    """Log in the person whom the provider sends back."""
    oidc: OidcLogin = request.app.state.oidc_login
    try:
        page = _log_in(request, oidc, code=code, state=state, iss=iss, error=error)
    except ProviderUnavailableError as failure:
        response = _render_failure(request, failure, status=502)
    except (LoginRefusedError, PermissionDeniedError) as failure:
        response = _render_failure(request, failure, status=403)
    else:
        # A page and not a redirect: browsers count a redirect as part of the navigation that began
        # at the provider, and would not send the session's cookie, which is SameSite=Strict.
        response = render_page(request, "logged_in.html", next_page=page)

    response.delete_cookie(oidc.cookie_name, path=_COOKIE_PATH)
    return response


def _log_in(
    request: Request, oidc: OidcLogin, *, code: str, state: str, iss: str, error: str
) -> str:
    """Open a session for a person, and return the page to show.

    Raises:
        LoginRefusedError: this is not the answer to a login of this browser, or it is no proof.
        PermissionDeniedError: the person is not let in.
        ProviderUnavailableError: the provider does not answer.
    """
    attempt = oidc.attempts.take(request.cookies.get(oidc.cookie_name, ""), state)
    if attempt is None:
        raise LoginRefusedError("This login was not begun here, or too long ago: log in again.")

    # Providers that say who they are must be the one that was asked: a code of another provider
    # would otherwise be sent to this one.
    if iss and iss.removesuffix("/") != oidc.provider.config.issuer:
        raise LoginRefusedError("Another provider answered this login: log in again.")
    if error or not code:
        raise LoginRefusedError("The provider did not log you in: log in again.")

    email = oidc.provider.fetch_email(code, attempt)
    auth = get_workspace(request).auth
    seconds = oidc.provider.config.session_hours * 3600
    request.state.session = auth.log_in_by_account(email, seconds)
    return attempt.next


def _render_failure(request: Request, failure: Exception, *, status: int) -> Response:
    logger.warning("Login refused: %s", failure)
    return render_page(request, "login.html", status=status, error=str(failure))
