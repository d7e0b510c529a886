"""The server: pages and the REST API over campaigns, behind the security middlewares."""

from __future__ import annotations

import errno
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from teeter.base.version import __version__
from teeter.campaigns.suggestions.language_model import LanguageModel
from teeter.errors import (
    MissingExtraError,
    PermissionDeniedError,
    StoreError,
    TeeterError,
    UnknownAnnotatorError,
    UnknownItemError,
    UnknownResourceError,
)
from teeter.server.access import (
    SecurityConfig,
    TooManyLoginsError,
    WrongTokenError,
    security_middleware,
)
from teeter.server.pages import render_error
from teeter.server.routes import (
    campaigns,
    classes,
    export,
    items,
    judges,
    labelling,
    login,
    people,
    progress,
    review,
    system,
    webhooks,
)
from teeter.server.routes.webhooks import WebhookSender
from teeter.server.worker.background import BackgroundTaskError
from teeter.server.workspace import Workspace

logger = logging.getLogger(__name__)

STATUS_BY_ERROR: dict[type[TeeterError], HTTPStatus] = {
    # What the address names does not exist.
    UnknownItemError: HTTPStatus.NOT_FOUND,
    UnknownAnnotatorError: HTTPStatus.NOT_FOUND,
    UnknownResourceError: HTTPStatus.NOT_FOUND,
    # The client may not do this, or not now.
    PermissionDeniedError: HTTPStatus.FORBIDDEN,
    WrongTokenError: HTTPStatus.UNAUTHORIZED,
    TooManyLoginsError: HTTPStatus.TOO_MANY_REQUESTS,
    # The server fails.
    StoreError: HTTPStatus.SERVICE_UNAVAILABLE,
    BackgroundTaskError: HTTPStatus.INTERNAL_SERVER_ERROR,
    # Everything else is about the content of the request.
    TeeterError: HTTPStatus.UNPROCESSABLE_ENTITY,
}
"""The HTTP status of each error.

One that is not listed has the status of its closest base class.
"""


ROUTERS = (
    campaigns.router,
    labelling.router,
    items.router,
    progress.router,
    judges.router,
    export.router,
    classes.router,
    review.router,
    people.router,
    webhooks.router,
    login.router,
    campaigns.page_router,
    labelling.page_router,
    items.page_router,
    progress.page_router,
    judges.page_router,
    export.page_router,
    classes.page_router,
    review.page_router,
    people.page_router,
    login.page_router,
    system.router,
)
"""The routers of the server.

Their routes have full paths and hold no state, so all applications of a process share them.
``include_router`` would analyse every route again for each application, which takes 50 ms.
"""


def status_of(error: TeeterError) -> HTTPStatus:
    """Return the HTTP status of an error.

    Example:
        >>> from teeter.errors import UnknownItemError, UnknownNameError
        >>> int(status_of(UnknownItemError())), int(status_of(UnknownNameError()))
        (404, 422)
    """
    # The closest base class decides.
    for error_class in type(error).__mro__:
        if error_class in STATUS_BY_ERROR:
            return STATUS_BY_ERROR[error_class]
    return HTTPStatus.INTERNAL_SERVER_ERROR


def make_app(
    places: Sequence[str | Path] = (),
    *,
    security: SecurityConfig,
    folder: Path | None = None,
    database: str | None = None,
    batch: int = 20,
    warm: bool = True,
    language_model: LanguageModel | None = None,
) -> FastAPI:
    """Return the server as an ASGI application.

    Args:
        places: files or database URLs of campaigns to serve.
        security: who may use it.
        folder: serve all campaigns and reports in it too, and create new campaigns there.
        database: URL of a database: serve all its campaigns too, and create new ones there.
        batch: number of items that are picked at a time.
        warm: whether to start the trainer with the server, rather than with the first request.
        language_model: ask this language model for suggestions. Texts are sent to its server.
    """
    workspace = Workspace(
        places,
        security=security,
        folder=folder,
        database=database,
        batch=batch,
        language_model=language_model,
    )

    request_metrics = CollectorRegistry()
    webhook_sender = WebhookSender(lambda: list(workspace.campaigns.values()))

    @asynccontextmanager
    async def run_workspace(_: FastAPI) -> AsyncIterator[None]:
        if warm:
            workspace.warm_up(places)
        webhook_sender.start()
        if workspace.suggester is not None:
            workspace.suggester.start()
        yield
        webhook_sender.stop()
        workspace.close()

    app = FastAPI(
        title="teeter",
        version=__version__,
        summary="Label a pool of items, a few at a time.",
        openapi_url="/api/v1/openapi.json",
        # FastAPI's pages load scripts of other sites, which the security headers forbid.
        docs_url=None,
        redoc_url=None,
        lifespan=run_workspace,
        middleware=[
            Middleware(system.RequestTimesMiddleware, registry=request_metrics),
            *security_middleware(workspace.auth),
        ],
        routes=[route for router in ROUTERS for route in router.routes],
    )
    app.state.workspace = workspace
    app.state.request_metrics = request_metrics
    _add_oidc_login(app, security)

    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"), name="static")

    # Starlette picks the handler of the closest base class of an error.
    app.exception_handler(TeeterError)(_on_teeter_error)
    app.exception_handler(RequestValidationError)(_on_validation_error)
    app.exception_handler(HTTPException)(_on_http_error)
    app.exception_handler(OSError)(_on_os_error)
    return app


def _add_oidc_login(app: FastAPI, security: SecurityConfig) -> None:
    """Add the pages of the login by a provider, if one is configured.

    Raises:
        MissingExtraError: the packages for it are not installed.
    """
    if security.login is None or security.login.oidc is None:
        return

    # Imported here: joserfc is needed for this login only.
    try:
        from teeter.server.routes import oidc
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"Logging in with OpenID Connect needs {error.name}: pip install 'teeter[team]'."
        ) from None

    app.state.oidc_login = oidc.make_oidc_login(security)
    app.router.routes.extend(oidc.router.routes)


async def _on_teeter_error(request: Request, error: TeeterError) -> Response:
    """Answer with the sentence of an error, without the paths in it."""
    sentence = request.app.state.workspace.redact_paths(str(error))
    return _error_response(request, sentence, status_of(error))


async def _on_validation_error(request: Request, error: RequestValidationError) -> Response:
    """Say which fields of a request are invalid, without repeating what was sent."""
    problems = []
    for problem in error.errors():
        field = ".".join(str(part) for part in problem["loc"])
        problems.append(f"{field}: {problem['msg']}")

    return _error_response(request, "; ".join(problems), HTTPStatus.UNPROCESSABLE_ENTITY)


async def _on_http_error(request: Request, error: HTTPException) -> Response:
    """Answer what Starlette raises: no such route or method, or a body that cannot be read."""
    # Uploads are stored in temporary files while they arrive, so reading one may fill the disk.
    if isinstance(error.__cause__, OSError):
        return await _on_os_error(request, error.__cause__)

    sentence = error.detail
    if error.status_code == HTTPStatus.NOT_FOUND:
        sentence = "There is no page at this address."
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        sentence = f"This address does not answer to {request.method}."
    return _error_response(request, sentence, error.status_code, error.headers)


async def _on_os_error(request: Request, error: OSError) -> Response:
    """Say that the server's disk fails, but not where."""
    logger.warning("%s %s: %s", request.method, request.url.path, error)

    problem = "cannot be read or written"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        problem = "is full"

    sentence = (
        f"The server's disk {problem}. Saved answers are safe. Tell the person who runs the "
        f"server, and try again."
    )
    return _error_response(request, sentence, HTTPStatus.SERVICE_UNAVAILABLE)


def _error_response(
    request: Request, sentence: str, status: int, headers: Mapping[str, str] | None = None
) -> Response:
    """Answer with a sentence: as JSON to programs, as a page to people."""
    # A lone surrogate in a request must not make the answer to it fail.
    sentence = sentence.encode("utf-8", "replace").decode()

    if request.url.path.startswith("/api/"):
        return JSONResponse({"detail": sentence}, status, headers)

    response = render_error(request, sentence, status)
    response.headers.update(headers or {})
    return response
