"""A client for Label Studio's REST API.

Methods are named after what the API does and return the records of ``payloads``. Requests that are
safe to repeat are retried; every refusal of the server becomes one sentence.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
from pydantic import BaseModel, TypeAdapter, ValidationError

from teeter.base.outbound_http import AttemptFailedError, is_loopback_url, retry
from teeter.campaigns.integrations.label_studio.payloads import (
    FileUpload,
    ImportResponse,
    LabelStudioTask,
    NewTask,
    Project,
    User,
)
from teeter.errors import InputError, ServerError, ServerUnavailableError

Record = TypeVar("Record")

MAX_ATTEMPTS = 5
"""How often a request is sent before the server counts as unavailable."""

FIRST_PAUSE = 0.5
"""Seconds before the second attempt. Each further pause is twice as long."""

TIMEOUT = 30.0
"""Seconds without any data after which a request fails."""

NOT_PROCESSED_STATUSES = frozenset({429, 503})
"""The server refused to process the request, so any request can be sent again."""

UNCERTAIN_STATUSES = frozenset({500, 502, 504})
"""The server may have processed the request, so only one that changes nothing is sent again."""

TASKS_PER_PAGE = 500
PROJECTS_PER_PAGE = 100

TASK_FIELDS = (
    # Of tasks and annotations alike.
    "id",
    "created_at",
    "updated_at",
    # Of tasks.
    "data",
    "annotations",
    "is_labeled",
    # Of annotations.
    "result",
    "completed_by",
    "was_cancelled",
)

_MAX_DETAIL_LENGTH = 300


class NotFoundError(ServerError):
    """The server does not have what was requested."""


class ListingChangedError(ServerUnavailableError):
    """A list changed while its pages were read, so an entry may have been missed."""

    def __init__(self, url: str) -> None:
        super().__init__(f"A list at {url} changed while it was being read. Run the sync again.")


def normalize_url(url: str) -> str:
    """Return the root URL of a Label Studio, given the URL of any of its pages.

    Raises:
        InputError: it is no HTTP URL, or it contains a password.

    Example:
        >>> normalize_url("https://studio.example/label/projects/3/data?tab=1")
        'https://studio.example/label'
    """
    url = url.strip()
    not_a_url = InputError(f"{url!r} is not a URL. Use one such as http://localhost:8080.")

    try:
        parts = urlsplit(url)
        _ = parts.port  # Raises a ValueError if it is no port number.
    except ValueError:
        raise not_a_url from None

    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise not_a_url
    if not url.isprintable():
        raise not_a_url
    if parts.username or parts.password:
        raise InputError("Remove the user name and password from the URL; teeter uses a token.")

    # Label Studio may be served below a prefix, which comes before the path of the page.
    prefix, *_ = re.split(r"/(?:projects|user|api)(?:/|$)", parts.path)
    return f"{parts.scheme}://{parts.netloc}{prefix.rstrip('/')}"


def is_personal_access_token(token: str) -> bool:
    """Return whether a token is a personal access token, and not a legacy token.

    A personal access token is a JSON Web Token: three parts separated by dots.
    """
    return token.count(".") == 2


class LabelStudioClient:
    """A connection to a Label Studio, with the token of one of its users."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare a connection; nothing is sent yet.

        Args:
            url: URL of the Label Studio, or of any of its pages.
            token: A legacy token or a personal access token. It is only kept in memory.
            transport: Replaces the network in tests.
            sleep: Waits for a number of seconds between two attempts.

        Raises:
            InputError: the URL or the token cannot be right.
        """
        self.url = normalize_url(url)
        self._token = token.strip()
        # It is sent as a header.
        is_printable = self._token.isascii() and self._token.isprintable()
        if not self._token or not is_printable or " " in self._token:
            raise InputError(
                "The token is empty or contains invalid characters. Copy it from Label Studio "
                "again."
            )
        self._access_token: str | None = None
        self._sleep = sleep
        self._http = httpx2.Client(
            base_url=self.url,
            transport=transport,
            timeout=TIMEOUT,
            # A proxy from the environment cannot reach servers on this machine.
            trust_env=not is_loopback_url(self.url),
        )

        self.before_attempt: Callable[[], None] = lambda: None
        """Called before every attempt to send a request."""

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    # Users

    def get_current_user(self) -> User:
        """Return the user whom the token belongs to."""
        return self._parse(User, self._request("GET", "/api/current-user/whoami"))

    def list_users(self) -> list[User]:
        """Return all users of the organisation."""
        return self._parse(list[User], self._request("GET", "/api/users/"))

    # Projects

    def get_project(self, project_id: int) -> Project:
        """Return a project.

        Raises:
            NotFoundError: there is no such project.
        """
        return self._parse(Project, self._request("GET", f"/api/projects/{project_id}/"))

    def find_project(self, text: str) -> int | None:
        """Return the id of the first project whose description contains a text."""
        rows = self._list_pages(
            "/api/projects/",
            rows_key="results",
            total_key="count",
            # The other fields include statistics, which the server computes for each project.
            include="id,description",
            page_size=PROJECTS_PER_PAGE,
        )

        for row in rows:
            project = self._parse(Project, row)
            if text in project.description:
                return project.id
        return None

    def create_project(self, fields: Mapping[str, Any]) -> int:
        """Create a project and return its id."""
        response = self._request("POST", "/api/projects/", json=dict(fields))
        return self._parse(Project, response).id

    def update_project(self, project_id: int, **values: str | bool) -> None:
        """Change fields of a project."""
        self._request("PATCH", f"/api/projects/{project_id}/", json=values)

    # Tasks

    def list_tasks(
        self, project_id: int, updated_after: datetime | None = None
    ) -> list[LabelStudioTask]:
        """Return the tasks of a project with their annotations.

        A task may be listed twice if the list grows meanwhile.

        Args:
            updated_after: Return only tasks that changed after this time.

        Raises:
            ListingChangedError: the list became shorter while it was read.
        """
        params: dict[str, Any] = {
            "project": project_id,
            # Includes annotations. Do not add only_annotated: the server ignores it.
            "fields": "all",
            "include": ",".join(TASK_FIELDS),
            "page_size": TASKS_PER_PAGE,
        }
        if updated_after is not None:
            condition = {
                "filter": "filter:tasks:updated_at",
                "operator": "greater",
                "type": "Datetime",
                "value": updated_after.isoformat().replace("+00:00", "Z"),
            }
            query = {"filters": {"conjunction": "and", "items": [condition]}}
            params["query"] = json.dumps(query)

        rows = self._list_pages("/api/tasks/", rows_key="tasks", total_key="total", **params)
        return self._parse(list[LabelStudioTask], list(rows))

    def import_tasks(self, project_id: int, tasks: Sequence[NewTask]) -> list[int]:
        """Create tasks and return their ids, in the same order."""
        response = self._request(
            "POST",
            f"/api/projects/{project_id}/import",
            # Otherwise the response has only the number of tasks.
            params={"return_task_ids": "true"},
            json=[task.to_json() for task in tasks],
        )
        return self._parse(ImportResponse, response).task_ids

    def update_task(self, task_id: int, *, overlap: int) -> None:
        """Change how many annotations a task needs."""
        self._request("PATCH", f"/api/tasks/{task_id}/", json={"overlap": overlap})

    # Files

    def import_files(self, project_id: int, files: Sequence[tuple[str, bytes]]) -> list[int]:
        """Upload files, given as names and contents, without creating tasks; return their ids."""
        # Each part needs another key: of parts with the same key only the last is stored.
        parts = [
            (str(number), (name, content, "application/octet-stream"))
            for number, (name, content) in enumerate(files)
        ]
        response = self._request(
            "POST",
            f"/api/projects/{project_id}/import",
            # Otherwise every file becomes a task of its own.
            params={"commit_to_project": "false"},
            files=parts,
        )
        return self._parse(ImportResponse, response).file_upload_ids

    def list_file_uploads(self, project_id: int, ids: Sequence[int]) -> list[FileUpload]:
        """Return where uploaded files are stored."""
        response = self._request(
            "GET",
            f"/api/projects/{project_id}/file-uploads",
            params={"ids": json.dumps(list(ids))},
        )
        return self._parse(list[FileUpload], response)

    # Requests

    def _list_pages(
        self, path: str, *, rows_key: str, total_key: str, **params: Any
    ) -> Iterator[Any]:
        """Yield the rows of all pages of a list.

        Pages are cut by position. If the list grows while it is read, rows move to later pages and
        may be yielded twice; if it shrinks, a row could move to a page that was read already, so
        that is an error.
        """
        page_number = 1
        rows_read = 0
        total = 0

        while page_number == 1 or rows_read < total:
            try:
                page = self._request("GET", path, params={"page": page_number, **params})
            except NotFoundError:
                if page_number == 1:
                    raise
                raise ListingChangedError(self.url) from None

            if not isinstance(page, dict):
                raise self._unexpected_response()
            rows = page.get(rows_key)
            new_total = page.get(total_key)
            if not isinstance(rows, list) or not isinstance(new_total, int):
                raise self._unexpected_response()

            ends_early = not rows and rows_read < new_total
            if new_total < total or ends_early:
                raise ListingChangedError(self.url)
            total = new_total

            yield from rows
            rows_read += len(rows)
            page_number += 1

    def _request(self, method: str, path: str, **options: Any) -> Any:
        """Send a request and return the JSON of the response."""
        response = self._send_with_retries(method, path, options)

        if response.status_code == 401 and is_personal_access_token(self._token):
            # An access token expires after five minutes; get another, once.
            self._access_token = None
            response = self._send_with_retries(method, path, options)

        return self._read_json(response)

    def _send_with_retries(
        self, method: str, path: str, options: Mapping[str, Any]
    ) -> httpx2.Response:
        """Send a request until the server processes it.

        Raises:
            ServerUnavailableError: the last attempt failed, or one that must not be repeated.
        """
        try:
            return retry(
                lambda: self._send_once(method, path, options),
                attempts=MAX_ATTEMPTS,
                first_pause=FIRST_PAUSE,
                sleep=self._sleep,
            )
        except ServerUnavailableError as error:
            raise ServerUnavailableError(
                f"{error}. Nothing is lost; run the sync again later."
            ) from None

    def _send_once(self, method: str, path: str, options: Mapping[str, Any]) -> httpx2.Response:
        """Send a request once and return the response, unless it is a temporary error.

        Raises:
            AttemptFailedError: the request can be sent again.
            ServerUnavailableError: the server may have processed a request that changes something.
        """
        # Attempts and pauses can take minutes, so a lock may have to be extended meanwhile.
        self.before_attempt()

        changes_nothing = method == "GET"
        try:
            authorization = f"Token {self._token}"
            # A personal access token is only accepted in exchange for an access token.
            if is_personal_access_token(self._token):
                if self._access_token is None:
                    self._access_token = self._fetch_access_token()
                authorization = f"Bearer {self._access_token}"
            response = self._http.request(
                method, path, headers={"Authorization": authorization}, **options
            )
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            # Without a connection nothing was sent.
            reason = f"Cannot connect to {self.url} ({_describe(error)})"
            raise AttemptFailedError(reason) from None
        except httpx2.HTTPError as error:
            reason = f"The connection to {self.url} was lost ({_describe(error)})"
            if changes_nothing:
                raise AttemptFailedError(reason) from None
            raise ServerUnavailableError(reason) from None

        status = response.status_code
        if status not in NOT_PROCESSED_STATUSES | UNCERTAIN_STATUSES:
            return response

        reason = f"{self.url} responded with status {status}{_detail(response)}"
        if changes_nothing or status in NOT_PROCESSED_STATUSES:
            raise AttemptFailedError(reason, response.headers)
        raise ServerUnavailableError(reason)

    def _fetch_access_token(self) -> str:
        """Exchange the personal access token for an access token, which expires in five minutes."""
        response = self._http.post("/api/token/refresh/", json={"refresh": self._token})

        status = response.status_code
        if status in NOT_PROCESSED_STATUSES | UNCERTAIN_STATUSES:
            raise ServerUnavailableError(f"{self.url} responded with status {status}")

        return self._parse(_AccessToken, self._read_json(response)).access

    def _read_json(self, response: httpx2.Response) -> Any:
        """Return the JSON of a response.

        Raises:
            NotFoundError: the status is 404.
            ServerError: any other status that is not a success, or no JSON.
        """
        status = response.status_code
        if status in (401, 403):
            raise self._access_error(response)
        if response.is_redirect:
            # Not followed: a POST would become a GET, and the token could reach another host.
            target = response.headers.get("Location", "another URL")
            raise ServerError(f"{self.url} redirects to {target}. Use that URL instead.")

        content = _json_or_none(response)
        is_page = content is None and bool(response.content)

        if status == 404:
            if content is None:
                # A page for browsers, so the URL leads to some other server or path.
                raise NotFoundError(f"There is no Label Studio at {self.url}. Check the URL.")
            path = response.request.url.path
            raise NotFoundError(f"{self.url} has no {path}{_detail(response)}.")
        if is_page:
            raise ServerError(
                f"{self.url} returned a page instead of JSON. Check that this is the address of "
                "Label Studio."
            )
        if response.is_error:
            raise ServerError(
                f"{self.url} rejected the request with status {status}{_detail(response)}."
            )

        return content

    def _access_error(self, response: httpx2.Response) -> ServerError:
        """Return an error for a token that is invalid (401) or lacks a permission (403)."""
        detail = _detail(response)
        if response.status_code == 403:
            return ServerError(
                f"{self.url} denies access to the owner of this token{detail}. "
                "Ask for access to the project."
            )

        cause = "The token is wrong or has expired"
        if not is_personal_access_token(self._token):
            cause += ", or legacy tokens are disabled"
        return ServerError(
            f"{self.url} rejects the token{detail}. {cause}. "
            "Create a token under Account & Settings in Label Studio."
        )

    def _parse(self, record: type[Record], content: Any) -> Record:
        try:
            return TypeAdapter(record).validate_python(content)
        except ValidationError:
            raise self._unexpected_response() from None

    def _unexpected_response(self) -> ServerError:
        return ServerError(
            f"{self.url} returned unexpected JSON. Check that this is the address of Label Studio."
        )


class _AccessToken(BaseModel):
    access: str


def _json_or_none(response: httpx2.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _detail(response: httpx2.Response) -> str:
    """Return the server's explanation of an error as " (…)" on one line, or an empty string."""
    content = _json_or_none(response)
    if not isinstance(content, dict):
        return ""

    explanation = str(content.get("validation_errors") or content.get("detail") or "")

    # The text comes from a server and goes to a terminal.
    without_controls = "".join(
        character if character.isprintable() else " " for character in explanation
    )
    line = " ".join(without_controls.split())
    if not line:
        return ""
    return f" ({line[:_MAX_DETAIL_LENGTH]})"


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__


MAX_READ_ATTEMPTS = 3
"""How often a list that changes while it is read is read again."""

CHANGE_OVERLAP = timedelta(seconds=60)
"""How far before the newest known change to look for others. Label Studio writes some changes late,
with a time that has passed already."""


class ProjectTasks:
    """The tasks of a project, as they were when they were last read."""

    def __init__(self, client: LabelStudioClient, project_id: int) -> None:
        """Start without tasks; ``refresh`` reads them."""
        self.client = client
        self.project_id = project_id
        self.by_id: dict[int, LabelStudioTask] = {}

    def refresh(self, *, full: bool = False) -> None:
        """Read the tasks that changed since the last time.

        Args:
            full: Read all tasks. Only this notices that tasks were deleted.

        Raises:
            ListingChangedError: tasks were deleted during every attempt to read them.
        """
        updated_after = None
        newest_change = self._newest_change()
        if newest_change is not None and not full:
            updated_after = newest_change - CHANGE_OVERLAP

        tasks = self._list_tasks(updated_after)
        tasks_by_id = {task.id: task for task in tasks}

        if updated_after is None:
            self.by_id = tasks_by_id
        else:
            # Tasks that did not change are not in the list, and stay as they are.
            self.by_id |= tasks_by_id

    def _newest_change(self) -> datetime | None:
        return max((task.updated_at for task in self.by_id.values()), default=None)

    def _list_tasks(self, updated_after: datetime | None) -> list[LabelStudioTask]:
        attempt = 1
        while True:
            try:
                return self.client.list_tasks(self.project_id, updated_after)
            except ListingChangedError:
                if attempt == MAX_READ_ATTEMPTS:
                    raise
            attempt += 1
