"""The REST API of promises: let the model label the rest."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request

from teeter.campaigns.enums import Permission
from teeter.web.finish import CertificateOut, DrawsIn, FinishIn, FinishOut, FinishService
from teeter.web.idempotency import Once
from teeter.web.permissions import current_user, require_permission

__all__ = ["require_finish_permission", "router"]

router = APIRouter(prefix="/api/v1/campaigns/{slug}/finish")


def require_finish_permission(request: Request, slug: str, permission: Permission) -> FinishService:
    """Return the promise of a campaign, for the user of a request.

    Raises:
        UnknownResourceError: there is no such campaign.
        PermissionDeniedError: the user may not do this there.
    """
    service = require_permission(request, slug, permission)
    return FinishService(service, current_user(request))


@router.get("")
def get_finish(request: Request, slug: str) -> FinishOut:
    """Return which items the model may label, or how many random labels that would take.

    It may be asked for as often as you like: the promise allows any number of looks.
    """
    return require_finish_permission(request, slug, Permission.ANSWER).describe()


@router.post("", status_code=201)
def start_finish(request: Request, slug: str, body: FinishIn, once: Once) -> FinishOut:
    """Freeze the newest model, and let the next questions be random items.

    Every further call is a new attempt, which needs more random labels than the one before it.
    """
    finish = require_finish_permission(request, slug, Permission.MANAGE)
    return once(finish.service, body, finish.start, body)


@router.post("/draws")
def request_draws(request: Request, slug: str, body: DrawsIn, once: Once) -> FinishOut:
    """Let the next questions be so many random items; 0 to go back to the strategy's picks."""
    finish = require_finish_permission(request, slug, Permission.MANAGE)
    return once(finish.service, body, finish.request_draws, body.count)


@router.post("/certificates", status_code=201)
def certify(request: Request, slug: str, once: Once) -> CertificateOut:
    """Certify what is promised now. Exports then have the model's labels."""
    finish = require_finish_permission(request, slug, Permission.MANAGE)
    return once(finish.service, None, finish.certify)


@router.get("/certificates/{code}")
def get_certificate(
    request: Request, slug: str, code: Annotated[str, Path(max_length=64)]
) -> CertificateOut:
    """Return a certificate by its id."""
    return require_finish_permission(request, slug, Permission.ANSWER).certificate(code)
