"""The server: pages and the REST interface over campaigns, behind one gate."""

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
from starlette.exceptions import HTTPException

from teeter.errors import PermissionDeniedError, StoreError, TeeterError, UnknownNameError
from teeter.version import __version__
from teeter.web import api, pages, team_api, team_pages
from teeter.web.security import SecurityConfig, SecurityMiddleware
from teeter.web.workspace import Workspace

__all__ = ["make_app"]

log = logging.getLogger(__name__)


def make_app(
    places: Sequence[str | Path] = (),
    *,
    guard: SecurityConfig,
    folder: Path | None = None,
    batch: int = 20,
    warm: bool = True,
) -> FastAPI:
    """Return a server of campaigns by their files or addresses, and of all in a folder; ``warm`` starts the trainer."""
    site = Workspace(places, guard=guard, folder=folder, batch=batch)

    @asynccontextmanager
    async def living(_: FastAPI) -> AsyncIterator[None]:
        if warm:
            site.warm_up(places)
        yield
        site.close()

    app = FastAPI(
        title="teeter",
        version=__version__,
        summary="Label a pool of things, a few at a time.",
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=living,
    )
    app.state.site = site
    app.include_router(api.router)
    app.include_router(team_api.router)
    app.include_router(pages.router, include_in_schema=False)
    app.include_router(team_pages.router, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=Path(__file__).parent / "static"), name="static")
    app.add_exception_handler(TeeterError, _refused)
    app.add_exception_handler(RequestValidationError, _not_understood)
    app.add_exception_handler(HTTPException, _answered)
    app.add_exception_handler(OSError, _cannot_write)
    app.add_middleware(SecurityMiddleware, guard=guard)
    return app


async def _refused(request: Request, error: Exception) -> Response:
    """Answer a refusal with its sentence."""
    status = (
        404
        if isinstance(error, UnknownNameError)
        else 503
        if isinstance(error, StoreError)
        else 422
    )
    if isinstance(error, PermissionDeniedError):
        status = 403
    if isinstance(error, UnknownNameError) and str(error).startswith(("No class", "No strategy")):
        status = 422
    return _told(request, api.redact_paths(request.app.state.site, str(error)), status)


async def _not_understood(request: Request, error: Exception) -> Response:
    """Say what of a request does not fit, without repeating what was sent."""
    found = error.errors() if isinstance(error, RequestValidationError) else []
    return _told(
        request, "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in found), 422
    )


async def _answered(request: Request, error: Exception) -> Response:
    """Say what a request is answered with that no route takes, or whose body could not be taken."""
    if isinstance(error.__cause__, OSError):  # the body is kept in a file while it comes
        return await _cannot_write(request, error.__cause__)
    status, sentence, headers = 500, str(error), None
    if isinstance(error, HTTPException):
        status, sentence, headers = error.status_code, error.detail, error.headers
    if status == HTTPStatus.NOT_FOUND:
        sentence = "There is no such page here."
    return _told(request, sentence, status, headers)


async def _cannot_write(request: Request, error: Exception) -> Response:
    """Say that the server's disk does not take or give something, and not where."""
    log.warning("%s %s: %s", request.method, request.url.path, error)
    why = (
        "is full"
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        else "cannot be read or written"
    )
    sentence = f"The server's disk {why}. What was acknowledged is safe; tell whoever runs it, and try again."
    return _told(request, sentence, 503)


def _told(
    request: Request, sentence: str, status: int, headers: Mapping[str, str] | None = None
) -> Response:
    """Answer with a sentence: as JSON to programs, as a page to people."""
    sentence = sentence.encode("utf-8", "replace").decode()
    if request.url.path.startswith("/api/"):
        return JSONResponse({"detail": sentence}, status, headers)
    answer = pages.refusal(request, sentence, status)
    answer.headers.update(headers or {})
    return answer
