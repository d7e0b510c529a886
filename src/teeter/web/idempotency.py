"""The header ``Idempotency-Key``: a request that is sent again is answered as before."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias, TypeVar

from fastapi import Header, Request, UploadFile
from pydantic import BaseModel, TypeAdapter

from teeter.campaigns.db.idempotency import RequestState
from teeter.errors import InputError, TeeterError
from teeter.web.permissions import current_user
from teeter.web.service import CampaignService

__all__ = ["IdempotencyKey", "RequestConflictError", "answer_once", "upload_fingerprint"]

IdempotencyKey: TypeAlias = Annotated[
    str | None,
    Header(
        max_length=200,
        pattern=r"^[!-~]+$",
        description="A random string. A request that is sent again with the same string is not "
        "executed again.",
    ),
]

ResponseT = TypeVar("ResponseT")

_CHUNK = 1024 * 1024

_failed: set[tuple[str, str]] = set()
"""Campaigns and keys of failed requests that the database still has as running."""


class RequestConflictError(TeeterError):
    """The same request is being answered, or was interrupted."""


def answer_once(
    request: Request,
    service: CampaignService,
    key: str | None,
    body: BaseModel | Mapping[str, Any] | None,
    response_type: type[ResponseT],
    *,
    action: Callable[[], ResponseT],
) -> ResponseT:
    """Return the answer of an action, or the one that was given to the same request before.

    Only answers are remembered: a request that failed is done again. The answer is stored for two
    days, so it must not hold a secret.

    Args:
        request: The request.
        service: The campaign that it changes.
        key: The value of its header ``Idempotency-Key``, if it has one.
        body: Its body, or the fields of its form.
        response_type: The type of the answer.
        action: Makes the change.

    Raises:
        InputError: If the key came with another request before.
        RequestConflictError: If the same request is being answered, or was interrupted.
    """
    if key is None:
        return action()

    fingerprint = _fingerprint(request, body)
    # Two users may choose the same key.
    user = hashlib.sha256(current_user(request).encode()).hexdigest()[:16]
    stored_key = f"{user}:{key}"
    adapter: TypeAdapter[ResponseT] = TypeAdapter(response_type)
    database = service.campaign.database
    requests = service.campaign.repository.requests

    with database.writing() as connection:
        if (service.location, stored_key) in _failed:
            requests.forget(connection, stored_key)
        before = requests.start(connection, stored_key, fingerprint)
    _failed.discard((service.location, stored_key))
    if before is not None:
        if before.fingerprint != fingerprint:
            raise InputError("This Idempotency-Key was used for another request: choose a new one.")
        if before.response is None:
            raise _conflict(before.state)
        return adapter.validate_json(before.response)

    try:
        response = action()
    except BaseException:
        # Until it is forgotten, also if the database is away now and this fails too.
        _failed.add((service.location, stored_key))
        with contextlib.suppress(TeeterError):
            with database.writing() as connection:
                requests.forget(connection, stored_key)
            _failed.discard((service.location, stored_key))
        raise

    with database.writing() as connection:
        requests.finish(connection, stored_key, adapter.dump_json(response).decode())
    return response


def upload_fingerprint(file: UploadFile) -> str:
    """Return a hash of an uploaded file, which can be read from its start after it."""
    digest = hashlib.sha256()
    while chunk := file.file.read(_CHUNK):
        digest.update(chunk)
    file.file.seek(0)
    return digest.hexdigest()


def _fingerprint(request: Request, body: BaseModel | Mapping[str, Any] | None) -> str:
    fields: Any = body
    if isinstance(body, BaseModel):
        # A field that is null and one that is left out may mean different things.
        fields = body.model_dump(exclude_unset=True)
    # Escaped, because JSON may hold half of a surrogate pair, which has no bytes.
    text = json.dumps([request.method, request.url.path, fields], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _conflict(state: RequestState) -> RequestConflictError:
    if state is RequestState.RUNNING:
        return RequestConflictError(
            "A request with this Idempotency-Key is being answered: send it again later."
        )
    return RequestConflictError(
        "The server was stopped while it answered the request with this Idempotency-Key: look "
        "whether it was done, and send it with a new key if not."
    )
