"""A small Label Studio in memory. It answers as the real one does, and a test can make it fail."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import httpx2

__all__ = [
    "LEGACY_TOKEN",
    "PERSONAL_TOKEN",
    "FakeLabelStudio",
    "count_waiting_tasks",
    "serve_on_loopback",
]

LEGACY_TOKEN = "0123456789abcdef0123456789abcdef01234567"
PERSONAL_TOKEN = "first.second.third"
FAKE_URL = "http://127.0.0.1:8080"

NOT_FOUND_PAGE = "<!doctype html><title>Label Studio</title>"


class RefusedError(Exception):
    """The server answers with an error status."""

    def __init__(self, status: int, detail: str | dict[str, Any]) -> None:
        self.status = status
        self.detail = detail


class FakeLabelStudio:
    """Projects, tasks and annotations of a Label Studio, in dictionaries by id.

    ``transport`` is for the sync under test: ``before_request`` and ``after_request`` can make its
    requests fail. ``client`` is for annotators, whose requests always succeed.
    """

    def __init__(self) -> None:
        self.projects: dict[int, dict[str, Any]] = {}
        self.tasks: dict[int, dict[str, Any]] = {}
        self.annotations: dict[int, dict[str, Any]] = {}
        self.files: dict[int, tuple[str, bytes]] = {}
        self.users = {1: "ann@example.com"}
        self.tokens = {LEGACY_TOKEN: 1}

        self.requests: list[httpx2.Request] = []
        """What the sync requested."""
        self.refresh_count = 0
        """How often a personal access token was exchanged.

        Only the newest access token is valid.
        """

        self.before_request: Callable[[httpx2.Request], httpx2.Response | None]
        self.before_request = lambda request: None
        """Returns a response to send instead of the usual one, or raises."""
        self.after_request: Callable[[httpx2.Request], object] = lambda request: None
        """Called once the request is processed. If it raises, the response is lost."""

        self._clock = datetime(2030, 1, 1, tzinfo=UTC)
        self._last_id = 0

    @property
    def transport(self) -> httpx2.MockTransport:
        """A transport for the sync under test."""
        return httpx2.MockTransport(self.handle)

    def client(self, token: str = LEGACY_TOKEN) -> httpx2.Client:
        """Return the browser of an annotator."""
        return httpx2.Client(
            base_url=FAKE_URL,
            headers={"Authorization": f"Token {token}"},
            transport=httpx2.MockTransport(self._respond),
        )

    def add_user(self, email: str) -> httpx2.Client:
        """Create an account and return the browser of its owner."""
        user_id = len(self.users) + 1
        self.users[user_id] = email
        self.tokens[f"token{user_id}"] = user_id
        return self.client(f"token{user_id}")

    def advance_clock(self, minutes: float) -> None:
        self._clock += timedelta(minutes=minutes)

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request of the sync under test."""
        self.requests.append(request)

        response = self.before_request(request)
        if response is not None:
            return response

        response = self._respond(request)
        self.after_request(request)
        return response

    def _respond(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if not path.startswith("/api/"):
            return httpx2.Response(404, html=NOT_FOUND_PAGE)
        if path == "/api/token/refresh/":
            return self._exchange_token(request)

        user_id = self._authenticate(request.headers.get("Authorization", ""))
        if user_id is None:
            return httpx2.Response(401, json={"status_code": 401, "detail": "Invalid token."})

        try:
            status, content = self._route(request, user_id)
        except RefusedError as refusal:
            key = "detail" if isinstance(refusal.detail, str) else "validation_errors"
            return httpx2.Response(
                refusal.status, json={"status_code": refusal.status, key: refusal.detail}
            )

        if content is None:
            return httpx2.Response(status)
        return httpx2.Response(status, json=content)

    def _exchange_token(self, request: httpx2.Request) -> httpx2.Response:
        if json.loads(request.content)["refresh"] != PERSONAL_TOKEN:
            return httpx2.Response(401, json={"status_code": 401, "detail": "Token is invalid"})

        self.refresh_count += 1
        return httpx2.Response(200, json={"access": f"access{self.refresh_count}"})

    def _authenticate(self, authorization: str) -> int | None:
        """Return the id of the user, or None if the token is not valid."""
        kind, _, token = authorization.partition(" ")
        if kind == "Token":
            return self.tokens.get(token)
        if kind == "Bearer" and token == f"access{self.refresh_count}":
            return 1
        return None

    def _route(self, request: httpx2.Request, user_id: int) -> tuple[int, Any]:
        """Process a request and return the status and content of the response."""
        segments = _path_segments(request)
        query = _query(request)
        body = _body(request)

        match request.method, *segments:
            case "GET", "current-user", "whoami":
                return 200, {"id": user_id, "email": self.users[user_id]}
            case "GET", "users":
                return 200, [{"id": id_, "email": email} for id_, email in self.users.items()]

            case "GET", "projects":
                rows, total = _page(list(self.projects.values()), query, default_size=30)
                return 200, {"count": total, "results": rows}
            case "POST", "projects":
                return 201, self._create_project(body)
            case method, "projects", int(project_id), *rest:
                if project_id not in self.projects:
                    raise RefusedError(404, "No Project matches the given query.")
                return self._route_in_project(
                    method, project_id, rest, query, body, user_id=user_id
                )

            case "GET", "tasks":
                return 200, self._list_tasks(query)
            case "POST", "tasks", int(task_id), "annotations":
                return 201, self._create_annotation(task_id, body, user_id)
            case "PATCH", "tasks", int(task_id):
                self.tasks[task_id].update(body, updated_at=self._now())
                return 200, self.tasks[task_id]
            case "DELETE", "tasks", int(task_id):
                for annotation in self._annotations_of(task_id):
                    del self.annotations[annotation["id"]]
                del self.tasks[task_id]
                return 204, None

            case "PATCH", "annotations", int(annotation_id):
                return 200, self._update_annotation(annotation_id, body)
            case "DELETE", "annotations", int(annotation_id):
                annotation = self.annotations.pop(annotation_id)
                self._update_completion(annotation["task"])
                return 204, None

        raise AssertionError(f"{request.method} {segments} is not part of the fake")

    def _route_in_project(
        self,
        method: str,
        project_id: int,
        segments: list[Any],
        query: dict[str, str],
        body: Any,
        *,
        user_id: int,
    ) -> tuple[int, Any]:
        match method, *segments:
            case ("GET",):
                return 200, self.projects[project_id]
            case ("PATCH",):
                self.projects[project_id].update(body)
                return 200, self.projects[project_id]
            case ("DELETE",):
                del self.projects[project_id]
                self.tasks = {
                    task_id: task
                    for task_id, task in self.tasks.items()
                    if task["project"] != project_id
                }
                return 204, None

            case "POST", "import" if isinstance(body, bytes):
                return 201, self._import_files(body)
            case "POST", "import":
                return 201, self._import_tasks(project_id, body)
            case "GET", "file-uploads":
                return 200, [
                    {"id": id_, "file": f"upload/{project_id}/{id_}-{self.files[id_][0]}"}
                    for id_ in json.loads(query["ids"])
                ]
            case "GET", "next":
                return 200, self._next_task(project_id, user_id)

        raise AssertionError(f"{method} {segments} of a project is not part of the fake")

    def _create_project(self, body: dict[str, Any]) -> dict[str, Any]:
        if not 3 <= len(body["title"]) <= 50:
            raise RefusedError(
                400, {"title": ["Ensure this field has no more than 50 characters."]}
            )

        project = {"id": self._new_id(), **body}
        self.projects[project["id"]] = project
        return project

    def _import_files(self, body: bytes) -> dict[str, Any]:
        """Store the files of a multipart body."""
        file_ids = []
        for part in body.split(b"\r\n--")[:-1]:
            header, _, content = part.partition(b"\r\n\r\n")
            name = header.split(b'filename="')[1].split(b'"')[0].decode()
            if name.lower().endswith((".tif", ".tiff")):
                raise RefusedError(400, {"non_field_errors": [".tiff extension is not supported"]})

            file_id = self._new_id()
            self.files[file_id] = (name, content)
            file_ids.append(file_id)

        return {"task_count": len(file_ids), "file_upload_ids": file_ids}

    def _import_tasks(self, project_id: int, body: list[dict[str, Any]]) -> dict[str, Any]:
        if not body:
            raise RefusedError(400, {"non_field_errors": ["load_tasks: No tasks added"]})

        task_ids = []
        for fields in body:
            task_id = self._new_id()
            now = self._now()
            self.tasks[task_id] = {
                "id": task_id,
                "project": project_id,
                "meta": {},
                "predictions": [],
                "is_labeled": False,
                "overlap": 1,
                "created_at": now,
                "updated_at": now,
                **fields,
            }
            task_ids.append(task_id)

        return {"task_count": len(task_ids), "task_ids": task_ids}

    def _list_tasks(self, query: dict[str, str]) -> dict[str, Any]:
        project_id = int(query["project"])
        if project_id not in self.projects:
            raise RefusedError(404, "No Project matches the given query.")

        rows = [
            {**task, "annotations": self._annotations_of(task_id)}
            for task_id, task in self.tasks.items()
            if task["project"] == project_id
        ]

        if "query" in query:
            (condition,) = json.loads(query["query"])["filters"]["items"]
            assert condition["filter"] == "filter:tasks:updated_at"
            assert condition["operator"] == "greater"
            since = datetime.fromisoformat(condition["value"])
            rows = [row for row in rows if datetime.fromisoformat(row["updated_at"]) > since]

        page, total = _page(rows, query, default_size=100)
        return {"total": total, "tasks": page}

    def _annotations_of(self, task_id: int) -> list[dict[str, Any]]:
        return [
            annotation for annotation in self.annotations.values() if annotation["task"] == task_id
        ]

    def _next_task(self, project_id: int, user_id: int) -> dict[str, Any]:
        """Return the task with the lowest score that a user has not annotated.

        Scores count only if their model version is that of the project. The real Label Studio
        serves other tasks in random order; the fake does not serve them.
        """
        model_version = self.projects[project_id].get("model_version")

        candidates = []
        for task in self.tasks.values():
            annotators = {
                annotation["completed_by"] for annotation in self._annotations_of(task["id"])
            }
            is_open = not task["is_labeled"] and user_id not in annotators
            versions = {prediction["model_version"] for prediction in task["predictions"]}
            if task["project"] == project_id and is_open and model_version in versions:
                candidates.append(task)

        if not candidates:
            raise RefusedError(
                404,
                "There are still some tasks to complete for the user, but they seem to be locked",
            )
        return min(candidates, key=lambda task: float(task["predictions"][0]["score"]))

    def _create_annotation(
        self, task_id: int, body: dict[str, Any], user_id: int
    ) -> dict[str, Any]:
        now = self._now()
        annotation_id = self._new_id()
        self.annotations[annotation_id] = {
            "id": annotation_id,
            "task": task_id,
            "was_cancelled": False,
            "completed_by": user_id,
            "created_at": now,
            "updated_at": now,
            **body,
        }

        self._update_completion(task_id)
        return self.annotations[annotation_id]

    def _update_annotation(self, annotation_id: int, body: dict[str, Any]) -> dict[str, Any]:
        annotation = self.annotations[annotation_id]
        annotation.update(body, updated_at=self._now())
        self._update_completion(annotation["task"])
        return annotation

    def _update_completion(self, task_id: int) -> None:
        """Update whether a task has as many annotations as its overlap asks for."""
        task = self.tasks[task_id]
        skips_count = self.projects[task["project"]].get("skip_queue") == "IGNORE_SKIPPED"
        counted = [
            annotation
            for annotation in self._annotations_of(task_id)
            if skips_count or not annotation["was_cancelled"]
        ]
        task.update(is_labeled=len(counted) >= task["overlap"], updated_at=self._now())

    def _now(self) -> str:
        """Return the time, a second later at every call."""
        self._clock += timedelta(seconds=1)
        return self._clock.isoformat().replace("+00:00", "Z")

    def _new_id(self) -> int:
        self._last_id += 1
        return self._last_id


def _path_segments(request: httpx2.Request) -> list[str | int]:
    segments = request.url.path.removeprefix("/api/").strip("/").split("/")
    return [int(segment) if segment.isdecimal() else segment for segment in segments]


def _query(request: httpx2.Request) -> dict[str, str]:
    values_by_key = parse_qs(request.url.query.decode())
    return {key: values[0] for key, values in values_by_key.items()}


def _body(request: httpx2.Request) -> Any:
    """Return the JSON of a request, or the bytes of anything else."""
    is_json = request.headers.get("Content-Type", "").startswith("application/json")
    if is_json and request.content:
        return json.loads(request.content)
    return request.content


def _page(rows: list[Any], query: dict[str, str], default_size: int) -> tuple[list[Any], int]:
    """Return the rows of the requested page, and the number of rows on all pages."""
    number = int(query.get("page", 1))
    size = int(query.get("page_size", default_size))

    page = rows[(number - 1) * size : number * size]
    if not page and number > 1:
        raise RefusedError(404, "Invalid page.")
    return page, len(rows)


def count_waiting_tasks(studio: FakeLabelStudio) -> Counter[str]:
    """Return how many tasks wait for an annotation, by item id."""
    return Counter(
        task["data"]["teeter_item"] for task in studio.tasks.values() if not task["is_labeled"]
    )


@contextmanager
def serve_on_loopback(studio: FakeLabelStudio) -> Iterator[str]:
    """Serve a fake on a loopback port, for the length of the block, and yield its URL."""
    lock = threading.Lock()

    class LabelStudioHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            request = httpx2.Request(
                self.command,
                f"http://{self.headers['Host']}{self.path}",
                headers=dict(self.headers),
                content=self.rfile.read(length),
            )
            with lock:
                response = studio.handle(request)

            self.send_response(response.status_code)
            for name in ("Content-Type", "Location", "Retry-After"):
                if name in response.headers:
                    self.send_header(name, response.headers[name])
            self.send_header("Content-Length", str(len(response.content)))
            self.end_headers()
            with suppress(OSError):  # The client may be gone.
                self.wfile.write(response.content)

        do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), LabelStudioHandler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
