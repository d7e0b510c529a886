"""The header ``Idempotency-Key``: a request that is sent again is answered as before."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Annotated, TypeAlias, TypeVar

from fastapi import Header, Request
from pydantic import BaseModel

from teeter.campaigns.db.idempotency import AnsweredRequest
from teeter.errors import InputError
from teeter.web.permissions import current_user
from teeter.web.service import CampaignService

__all__ = ["IdempotencyKey", "answer_once"]

IdempotencyKey: TypeAlias = Annotated[
    str | None,
    Header(
        max_length=200,
        pattern=r"^[!-~]+$",
        description="A random string. A request that is sent again with the same string is not "
        "executed again.",
    ),
]

ResponseT = TypeVar("ResponseT", bound=BaseModel)

_lock = threading.Lock()
_running: set[tuple[str, str]] = set()
"""The campaigns and keys of requests that are being answered by this server."""


def answer_once(
    request: Request,
    service: CampaignService,
    key: str | None,
    body: BaseModel,
    response_type: type[ResponseT],
    *,
    action: Callable[[], ResponseT],
) -> ResponseT:
    """Return the answer of an action, or the one that was given to the same request before.

    Only answers are remembered: a request that failed is done again.

    Args:
        request: The request.
        service: The campaign that it changes.
        key: The value of its header ``Idempotency-Key``, if it has one.
        body: Its body.
        response_type: The type of the answer.
        action: Makes the change.

    Raises:
        InputError: If the key came with another request before, or is in use at the moment.
    """
    if key is None:
        return action()

    asked = f"{request.method} {request.url.path}\n{body.model_dump_json()}"
    fingerprint = hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()
    # Two users may choose the same key.
    user = hashlib.sha256(current_user(request).encode()).hexdigest()[:16]
    stored_key = f"{user}:{key}"
    repository = service.campaign.repository.requests

    with service.campaign.database.reading() as connection:
        answered = repository.find(connection, stored_key)
    if answered is not None:
        if answered.fingerprint != fingerprint:
            raise InputError("This Idempotency-Key was used for another request: choose a new one.")
        return response_type.model_validate_json(answered.response)

    running = (service.location, stored_key)
    with _lock:
        if running in _running:
            raise InputError(
                "A request with this Idempotency-Key is still being processed: wait for its "
                "response."
            )
        _running.add(running)
    try:
        response = action()
        with service.campaign.database.writing() as connection:
            answer = AnsweredRequest(fingerprint, response.model_dump_json())
            repository.add(connection, stored_key, answer)
        return response
    finally:
        with _lock:
            _running.discard(running)
