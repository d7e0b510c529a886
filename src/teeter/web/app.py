"""The server: pages and the REST interface over campaigns, behind one gate."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles

from teeter.errors import NotAllowedError, StoreError, TeeterError, UnknownNameError
from teeter.version import __version__
from teeter.web import api, pages, team_api, team_pages
from teeter.web.security import Gate, Guard
from teeter.web.site import Site

__all__ = ["make_app"]


def make_app(
    places: Sequence[str | Path] = (),
    *,
    guard: Guard,
    folder: Path | None = None,
    batch: int = 20,
    warm: bool = True,
) -> FastAPI:
    """Return a server of campaigns by their files or addresses, and of all in a folder; ``warm`` starts the trainer."""
    site = Site(places, guard=guard, folder=folder, batch=batch)

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
    app.add_middleware(Gate, guard=guard)
    return app


async def _refused(request: Request, error: Exception) -> Response:
    """Answer a refusal with its sentence."""
    status = 404 if isinstance(error, UnknownNameError) else 503 if isinstance(error, StoreError) else 422
    if isinstance(error, NotAllowedError):
        status = 403
    if isinstance(error, UnknownNameError) and str(error).startswith(("No class", "No strategy")):
        status = 422
    sentence = api.without_folders(request.app.state.site, str(error)).encode("utf-8", "replace").decode()
    if request.url.path.startswith("/api/"):
        return JSONResponse({"detail": sentence}, status)
    return pages.refusal(request, sentence, status)


async def _not_understood(_: Request, error: Exception) -> Response:
    """Say what of a request does not fit, without repeating what was sent."""
    found = error.errors() if isinstance(error, RequestValidationError) else []
    told = [{"where": ".".join(map(str, one["loc"])), "problem": one["msg"]} for one in found]
    sentence = "; ".join(f"{one['where']}: {one['problem']}" for one in told)
    return JSONResponse({"detail": sentence.encode("utf-8", "replace").decode()}, 422)
