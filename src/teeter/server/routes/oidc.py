"""The login by an OpenID Connect provider: to its page, and back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse, Response

from teeter.errors import PermissionDeniedError
from teeter.server.access import CALLBACK_PATH, SecurityConfig
from teeter.server.access.middlewares import HOME, local_path
from teeter.server.access.oidc import (
    LoginAttempt,
    LoginAttempts,
    LoginRefusedError,
    OidcProvider,
    ProviderUnavailableError,
)
from teeter.server.access.permissions import (
    current_session,
    get_workspace,
)
from teeter.server.access.sessions import protect_cookie_name
from teeter.server.pages import render_page

logger = logging.getLogger(__name__)

router = APIRouter(include_in_schema=False)

_COOKIE_SECONDS = 600

_MAX_CONCURRENT = 8
"""Threads of the server that may wait for the provider at the same time."""

_QUEUE_SECONDS = 10.0
"""Time for which a login waits for one of these threads."""

T = TypeVar("T")

ParameterQuery = Annotated[str, Query(max_length=4000)]
NextQuery = Annotated[str, Query(alias="next", max_length=4000)]


@dataclass(frozen=True)
class OidcLogin:
    """What the two pages share."""

    provider: OidcProvider
    attempts: LoginAttempts
    cookie_name: str
    is_https: bool
    """Whether browsers reach this server by TLS. The cookie must be Secure even if a proxy does not
    say so with the request."""
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_CONCURRENT))

    async def run(self, handle: Callable[[], T]) -> T:
        """Run a function that may wait for the provider, in a thread.

        Stops a provider that is slow, and anybody who begins many logins meanwhile, from taking all
        threads of the server: requests wait here, where waiting costs nothing.

        Raises:
            ProviderUnavailableError: too many others wait.
        """
        try:
            async with asyncio.timeout(_QUEUE_SECONDS):
                await self.slots.acquire()
        except TimeoutError:
            raise ProviderUnavailableError(
                "Too many logins are in progress: try again later, or log in with a token."
            ) from None

        try:
            return await run_in_threadpool(handle)
        finally:
            self.slots.release()


def make_oidc_login(security: SecurityConfig) -> OidcLogin | None:
    """Return the login by a provider; None if none is configured."""
    login = security.login
    if login is None or login.oidc is None:
        return None

    is_https = str(login.url).startswith("https://")
    return OidcLogin(
        OidcProvider(login.oidc, f"{login.url}{CALLBACK_PATH}"),
        LoginAttempts(security.secret),
        protect_cookie_name(f"{security.cookie_name}_login", is_https=is_https),
        is_https,
    )


@router.get("/login/oidc")
async def begin_login(request: Request, next_page: NextQuery = "") -> Response:
    """Send the browser to the login page of the provider."""
    oidc: OidcLogin = request.app.state.oidc_login
    attempt = oidc.attempts.begin(local_path(next_page))
    try:
        address = await oidc.run(lambda: oidc.provider.authorization_url(attempt))
    except ProviderUnavailableError as error:
        return await _render_failure(request, error, status=502, next_page=attempt.next)

    response = RedirectResponse(address, 303)
    # Lax, unlike the session's cookie: the browser comes back from another site.
    response.set_cookie(
        oidc.cookie_name,
        oidc.attempts.encode(attempt),
        max_age=_COOKIE_SECONDS,
        httponly=True,
        samesite="lax",
        secure=oidc.is_https,
    )
    return response


@router.get(CALLBACK_PATH)
async def complete_login(
    request: Request,
    code: ParameterQuery = "",
    state: ParameterQuery = "",
    iss: ParameterQuery = "",
    error: ParameterQuery = "",
) -> Response:
    """Log in the person whom the provider sends back."""
    oidc: OidcLogin = request.app.state.oidc_login
    # Taken before anything else, so that every answer uses an attempt up, refusals too.
    cookie = request.cookies.get(oidc.cookie_name, "")
    attempt = oidc.attempts.take(cookie, state)
    next_page = HOME
    if attempt is not None:
        next_page = attempt.next

    try:
        if attempt is None:
            raise LoginRefusedError(
                "This login was not started here, or was started too long ago: log in again."
            )
        if error or not code:
            raise LoginRefusedError("The provider did not log you in: log in again.")

        email = await oidc.run(lambda: _fetch_email(oidc.provider, code, iss, attempt))
        seconds = oidc.provider.config.session_hours * 3600
        auth = get_workspace(request).auth
        new_session = auth.log_in_by_account(email, seconds)
        # The browser forgets the cookie of an earlier login, and whoever has a copy loses it.
        await run_in_threadpool(auth.end_session, current_session(request))
        request.state.session = new_session
    except ProviderUnavailableError as failure:
        response = await _render_failure(request, failure, status=502, next_page=next_page)
    except (LoginRefusedError, PermissionDeniedError) as failure:
        response = await _render_failure(request, failure, status=403, next_page=next_page)
    else:
        response = RedirectResponse(next_page, 303)

    # Browsers ignore a deletion of a protected cookie that is not Secure.
    response.delete_cookie(oidc.cookie_name, secure=oidc.is_https, httponly=True, samesite="lax")
    return response


def _fetch_email(provider: OidcProvider, code: str, issuer: str, attempt: LoginAttempt) -> str:
    provider.require_issuer(issuer)
    return provider.fetch_email(code, attempt)


async def _render_failure(
    request: Request, failure: Exception, *, status: int, next_page: str
) -> Response:
    logger.warning("Login refused: %s", failure)
    # In a thread: whether a login is required may take a query.
    return await run_in_threadpool(
        render_page, request, "login.html", status=status, error=str(failure), next_page=next_page
    )
