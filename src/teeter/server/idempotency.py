"""The header ``Idempotency-Key``: a request that is sent again is answered as before."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ParamSpec, TypeAlias, TypeVar

from fastapi import Depends, Header, Request, UploadFile
from fastapi.routing import APIRoute
from pydantic import BaseModel, TypeAdapter

from teeter.campaigns.store import Connection
from teeter.campaigns.store.locks import new_holder
from teeter.campaigns.store.queries.idempotency import RequestState
from teeter.errors import InputError, StoreError, TeeterError
from teeter.server.access.permissions import current_user, get_workspace
from teeter.server.service import CampaignService
from teeter.server.unwritten_outcomes import UnwrittenOutcomes, WriteOutcome

__all__ = ["Once", "OnceOnly", "RequestConflictError", "upload_fingerprint"]

Parameters = ParamSpec("Parameters")
ResponseT = TypeVar("ResponseT")

_CHUNK = 1024 * 1024


class RequestConflictError(TeeterError):
    """The same request is being answered, or it is not known whether it was done."""


class OnceOnly:
    """Does what a request asks for once, however often it is sent with the same key.

    A dependency of every operation that changes a campaign::

        def revoke_token(request: Request, slug: str, body: NameIn, once: Once) -> MemberChanged:
            team = require_team_permission(request, slug, Permission.MANAGE)
            return once(team.service, body, team.revoke_token, body.name)

    Only answers are remembered: a request that failed is done again. One that failed when its
    change may have been stored is not: only its sender can look. An answer is stored for two days
    as the operation's response type, so it must not hold a secret.
    """

    def __init__(
        self,
        request: Request,
        idempotency_key: Annotated[
            str | None,
            Header(
                max_length=200,
                pattern=r"^[!-~]+$",
                description="A random string. A request that is sent again with the same string "
                "is not executed again.",
            ),
        ] = None,
    ) -> None:
        self._request = request
        self._key = idempotency_key
        self._stored_type = _response_type(request)

    def stored_as(self, stored_type: type[Any]) -> OnceOnly:
        """Return the same, for an action whose result is not yet the operation's response."""
        changed = copy.copy(self)
        changed._stored_type = stored_type
        return changed

    def __call__(
        self,
        service: CampaignService,
        body: BaseModel | Mapping[str, Any] | None,
        action: Callable[Parameters, ResponseT],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> ResponseT:
        """Return what an action returns, or the answer that the same request got before.

        Args:
            service: The campaign that the request changes.
            body: Its body, or the fields of its form.
            action: Makes the change, called with the arguments that follow.
            *args: For the action.
            **kwargs: For the action.

        Raises:
            InputError: If the key came with another request before.
            RequestConflictError: If the same request is being answered, or was interrupted.
        """
        if self._key is None:
            return action(*args, **kwargs)

        fingerprint = _fingerprint(self._request, body)
        # Two users may choose the same key.
        user = hashlib.sha256(current_user(self._request).encode()).hexdigest()[:16]
        unwritten = get_workspace(self._request).unwritten_outcomes
        noted = _NotedRequest(service, f"{user}:{self._key}", unwritten)
        adapter: TypeAdapter[ResponseT] = TypeAdapter(self._stored_type)

        before = noted.start(fingerprint)
        if before is not None:
            return adapter.validate_json(before)

        try:
            response = action(*args, **kwargs)
        except RequestConflictError:
            noted.interrupt()
            raise
        except StoreError:
            # The database may have gone away after the change, while the answer was put together.
            noted.forget_unless_changed()
            raise
        except TeeterError:
            noted.forget()
            raise
        except BaseException:
            noted.forget_unless_changed()
            raise

        noted.finish(adapter.dump_json(response).decode())
        return response


Once: TypeAlias = Annotated[OnceOnly, Depends()]
"""The parameter of an operation that takes the header ``Idempotency-Key``."""


class _NotedRequest:
    """A request with a key, in the database of its campaign."""

    def __init__(self, service: CampaignService, key: str, unwritten: UnwrittenOutcomes) -> None:
        self._database = service.campaign.database
        self._requests = service.campaign.repository.requests
        self._history = service.campaign.repository.history
        self._key = key
        self._holder = new_holder()
        self._unwritten = unwritten
        self._place = (service.location, key)
        self._newest_line = 0
        """The last line of the campaign's history when the request began."""

    def start(self, fingerprint: str) -> str | None:
        """Note that the request is being answered, or return the answer that it got before."""
        with self._database.writing() as connection:
            # What could not be written while the database was away is written now.
            write_outcome = self._unwritten.find(self._place)
            if write_outcome is not None:
                write_outcome(connection)
            before = self._requests.start(connection, self._key, fingerprint, self._holder)
            self._newest_line = self._history.newest_row_id(connection)
        self._unwritten.discard(self._place)

        if before is None:
            return None
        if before.fingerprint != fingerprint:
            raise InputError("This Idempotency-Key was used for another request: choose a new one.")
        if before.response is None:
            raise _conflict(before.state)
        return before.response

    def finish(self, response: str) -> None:
        """Store the answer. The change is done, so a database that went away is no error now."""
        self._write(
            lambda connection: self._requests.finish(connection, self._key, self._holder, response)
        )

    def forget(self) -> None:
        """Let a request that failed before it changed anything be sent again."""
        self._write(lambda connection: self._requests.forget(connection, self._key, self._holder))

    def interrupt(self) -> None:
        """Keep a request that may still be done from being done again."""
        self._write(
            lambda connection: self._requests.interrupt(connection, self._key, self._holder)
        )

    def forget_unless_changed(self) -> None:
        """Let a request be sent again, unless it may have failed after its change was stored."""
        self._write(self._forget_unless_changed)

    def _forget_unless_changed(self, connection: Connection) -> None:
        # Every change has a line. It may be another request's: then nobody can say, and this one
        # must not be done again either.
        if self._history.newest_row_id(connection) == self._newest_line:
            self._requests.forget(connection, self._key, self._holder)
        else:
            self._requests.interrupt(connection, self._key, self._holder)

    def _write(self, write_outcome: WriteOutcome) -> None:
        """Write how the request ended, now or when it is sent again with the database back."""
        try:
            with self._database.writing() as connection:
                write_outcome(connection)
        except TeeterError:
            self._unwritten.add(self._place, write_outcome)


def upload_fingerprint(file: UploadFile) -> str:
    """Return a hash of an uploaded file, which can be read from its start after it."""
    digest = hashlib.sha256()
    while chunk := file.file.read(_CHUNK):
        digest.update(chunk)
    file.file.seek(0)
    return digest.hexdigest()


def _response_type(request: Request) -> Any:
    """Return the type of the answers of the operation that a request is for."""
    route = request.scope["route"]
    if not isinstance(route, APIRoute):
        raise TypeError(f"{request.url.path} is no operation of the REST API.")
    return route.response_model


def _fingerprint(request: Request, body: BaseModel | Mapping[str, Any] | None) -> str:
    try:
        fields: Any = body
        if isinstance(body, BaseModel):
            # A field that is null and one that is left out may mean different things.
            fields = body.model_dump(exclude_unset=True)
        # Escaped, because JSON may hold half of a surrogate pair, which has no bytes.
        text = json.dumps([request.method, request.url.path, fields], sort_keys=True)
    except (RecursionError, ValueError):
        # Both libraries take what is nested this deeply for an object that contains itself.
        raise InputError(
            "The body is nested too deeply for a request with an Idempotency-Key: nest it less "
            "than 200 deep."
        ) from None
    return hashlib.sha256(text.encode()).hexdigest()


def _conflict(state: RequestState) -> RequestConflictError:
    if state is RequestState.RUNNING:
        return RequestConflictError(
            "A request with this Idempotency-Key is being answered: send it again later."
        )
    return RequestConflictError(
        "The server was stopped while it answered the request with this Idempotency-Key, or lost "
        "its database: look whether it was done, and send it with a new key if not."
    )
