"""A small Label Studio in memory: it answers as the real one was seen to, and can be made to fail."""

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

import httpx

__all__ = ["LEGACY", "PERSONAL", "FakeLabelStudio", "serving", "waiting_tasks"]

LEGACY = "0123456789abcdef0123456789abcdef01234567"
PERSONAL = "first.second.third"
_PAGE = "<!doctype html><title>Label Studio</title>"


class RefusedError(Exception):
    """An answer that is not 2xx."""

    def __init__(self, status: int, detail: str | dict[str, Any]) -> None:
        self.status, self.detail = status, detail


class FakeLabelStudio:
    """Projects, tasks and annotations; ``handle`` is what a transport calls."""

    def __init__(self) -> None:
        self.projects: dict[int, dict[str, Any]] = {}
        self.tasks: dict[int, dict[str, Any]] = {}
        self.annotations: dict[int, dict[str, Any]] = {}
        self.files: dict[int, tuple[str, bytes]] = {}
        self.users = {1: "ann@example.com"}
        self.tokens = {LEGACY: 1}
        self.asked: list[httpx.Request] = []
        self.access = 0
        """How many times a personal token was refreshed."""
        self.before: Callable[[httpx.Request], httpx.Response | None] = lambda request: None
        """What may answer in its place, or raise."""
        self.after: Callable[[httpx.Request], None] = lambda request: None
        """What may raise when the work is done, as if the connection broke then."""
        self._time = datetime(2030, 1, 1, tzinfo=UTC)
        self._number = 0

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self.handle)

    def client(self, token: str = LEGACY) -> httpx.Client:
        """Somebody's browser."""
        headers = {"Authorization": f"Token {token}"}
        return httpx.Client(
            base_url="http://127.0.0.1:8080",
            headers=headers,
            transport=httpx.MockTransport(self._answer),
        )

    def user(self, email: str) -> httpx.Client:
        """Somebody new."""
        number = len(self.users) + 1
        self.users[number] = email
        self.tokens[f"token{number}"] = number
        return self.client(f"token{number}")

    def wait(self, minutes: float) -> None:
        """Let time pass."""
        self._time += timedelta(minutes=minutes)

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        answer = self.before(request)
        if answer is None:
            answer = self._answer(request)
            self.after(request)
        return answer

    def _answer(self, request: httpx.Request) -> httpx.Response:
        path, method = request.url.path, request.method
        query = {key: values[0] for key, values in parse_qs(request.url.query.decode()).items()}
        if not path.startswith("/api/"):
            return httpx.Response(404, html=_PAGE)
        if path == "/api/token/refresh/":
            return self._refresh(request)
        who = self._who(request.headers.get("Authorization", ""))
        if who is None:
            return httpx.Response(401, json={"status_code": 401, "detail": "Invalid token."})
        words = [
            int(word) if word.isdecimal() else word
            for word in path.removeprefix("/api/").strip("/").split("/")
        ]
        is_json = request.headers.get("Content-Type", "").startswith("application/json")
        body = json.loads(request.content) if is_json and request.content else request.content
        try:
            status, found = self._found(method, words, query, body, who)
        except RefusedError as refusal:
            key = "detail" if isinstance(refusal.detail, str) else "validation_errors"
            return httpx.Response(
                refusal.status, json={"status_code": refusal.status, key: refusal.detail}
            )
        return httpx.Response(status) if found is None else httpx.Response(status, json=found)

    def _refresh(self, request: httpx.Request) -> httpx.Response:
        if json.loads(request.content)["refresh"] != PERSONAL:
            return httpx.Response(401, json={"status_code": 401, "detail": "Token is invalid"})
        self.access += 1
        return httpx.Response(200, json={"access": f"access{self.access}"})

    def _who(self, told: str) -> int | None:
        kind, _, token = told.partition(" ")
        if kind == "Bearer":
            return 1 if token == f"access{self.access}" else None
        return self.tokens.get(token) if kind == "Token" else None

    def _found(
        self, method: str, words: list[Any], query: dict[str, str], body: Any, who: int
    ) -> tuple[int, Any]:
        match method, *words:
            case "GET", "current-user", "whoami":
                return 200, {"id": who, "email": self.users[who]}
            case "GET", "users":
                return 200, [{"id": number, "email": email} for number, email in self.users.items()]
            case "GET", "projects":
                rows, total = _page(list(self.projects.values()), query, 30)
                return 200, {"count": total, "results": rows}
            case "POST", "projects":
                return 201, self._new_project(body)
            case _, "projects", int(number), *rest:
                return self._of_project(method, number, rest, query, body, who=who)
            case "GET", "tasks":
                return 200, self._listed(query)
            case "POST", "tasks", int(number), "annotations":
                return 201, self._new_annotation(number, body, who)
            case "PATCH", "tasks", int(number):
                self.tasks[number].update(body, updated_at=self._now())
                return 200, self.tasks[number]
            case "DELETE", "tasks", int(number):
                self.annotations = {
                    k: one for k, one in self.annotations.items() if one["task"] != number
                }
                del self.tasks[number]
                return 204, None
            case _, "annotations", int(number):
                return self._changed(method, number, body)
        raise AssertionError(f"{method} {words} was never seen on a real one")

    def _new_project(self, body: dict[str, Any]) -> dict[str, Any]:
        if not 3 <= len(body["title"]) <= 50:
            raise RefusedError(
                400, {"title": ["Ensure this field has no more than 50 characters."]}
            )
        project = {"id": self._next(), **body}
        self.projects[project["id"]] = project
        return project

    def _of_project(
        self,
        method: str,
        number: int,
        rest: list[Any],
        query: dict[str, str],
        body: Any,
        *,
        who: int,
    ) -> tuple[int, Any]:
        if number not in self.projects:
            raise RefusedError(404, "No Project matches the given query.")
        match method, *rest:
            case ("GET",):
                return 200, self.projects[number]
            case ("PATCH",):
                self.projects[number].update(body)
                return 200, self.projects[number]
            case ("DELETE",):
                del self.projects[number]
                self.tasks = {
                    k: task for k, task in self.tasks.items() if task["project"] != number
                }
                return 204, None
            case "POST", "import":
                return 201, self._imported(number, body)
            case "GET", "file-uploads":
                wanted = json.loads(query["ids"])
                return 200, [
                    {"id": k, "file": f"upload/{number}/{k}-{self.files[k][0]}"} for k in wanted
                ]
            case "GET", "next":
                return 200, self._next_task(number, who)
        raise AssertionError(f"{method} {rest} was never seen on a real one")

    def _imported(self, project: int, body: Any) -> dict[str, Any]:
        if isinstance(body, bytes):
            numbers = []
            for part in body.split(b"\r\n--")[:-1]:
                head, _, data = part.partition(b"\r\n\r\n")
                name = head.split(b'filename="')[1].split(b'"')[0].decode()
                if name.lower().endswith((".tif", ".tiff")):
                    raise RefusedError(
                        400, {"non_field_errors": [".tiff extension is not supported"]}
                    )
                numbers.append(self._next())
                self.files[numbers[-1]] = (name, data)
            return {"task_count": len(numbers), "file_upload_ids": numbers}
        if not body:
            raise RefusedError(400, {"non_field_errors": ["load_tasks: No tasks added"]})
        numbers = []
        for one in body:
            numbers.append(self._next())
            now = self._now()
            self.tasks[numbers[-1]] = {
                "id": numbers[-1],
                "project": project,
                "meta": {},
                "predictions": [],
                "is_labeled": False,
                "overlap": 1,
                "created_at": now,
                "updated_at": now,
                **one,
            }
        return {"task_count": len(numbers), "task_ids": numbers}

    def _listed(self, query: dict[str, str]) -> dict[str, Any]:
        project = int(query["project"])
        if project not in self.projects:
            raise RefusedError(404, "No Project matches the given query.")
        rows = [{**task, "annotations": self._of(number)} for number, task in self.tasks.items()]
        rows = [row for row in rows if row["project"] == project]
        if "query" in query:
            (changed,) = json.loads(query["query"])["filters"]["items"]
            assert (changed["filter"], changed["operator"]) == (
                "filter:tasks:updated_at",
                "greater",
            )
            since = datetime.fromisoformat(changed["value"])
            rows = [row for row in rows if datetime.fromisoformat(row["updated_at"]) > since]
        some, total = _page(rows, query, 100)
        return {"total": total, "tasks": some}

    def _of(self, task: int) -> list[dict[str, Any]]:
        return [one for one in self.annotations.values() if one["task"] == task]

    def _next_task(self, project: int, who: int) -> dict[str, Any]:
        version = self.projects[project].get("model_version")
        open_ = [
            task
            for task in self.tasks.values()
            if task["project"] == project and not task["is_labeled"]
        ]
        open_ = [
            task
            for task in open_
            if who not in {one["completed_by"] for one in self._of(task["id"])}
        ]
        scored = [
            task
            for task in open_
            if any(one["model_version"] == version for one in task["predictions"])
        ]
        if not scored:
            raise RefusedError(
                404,
                "There are still some tasks to complete for the user, but they seem to be locked",
            )
        return min(scored, key=lambda task: float(task["predictions"][0]["score"]))

    def _new_annotation(self, task: int, body: dict[str, Any], who: int) -> dict[str, Any]:
        now = self._now()
        number = self._next()
        values = {"was_cancelled": False, "completed_by": who, "created_at": now, "updated_at": now}
        self.annotations[number] = {"id": number, "task": task, **values, **body}
        self._count(task)
        return self.annotations[number]

    def _changed(self, method: str, number: int, body: Any) -> tuple[int, Any]:
        task = self.annotations[number]["task"]
        if method == "DELETE":
            del self.annotations[number]
            self._count(task)
            return 204, None
        self.annotations[number].update(body, updated_at=self._now())
        self._count(task)
        return 200, self.annotations[number]

    def _count(self, number: int) -> None:
        task = self.tasks[number]
        ignore = self.projects[task["project"]].get("skip_queue") == "IGNORE_SKIPPED"
        counted = [one for one in self._of(number) if ignore or not one["was_cancelled"]]
        task.update(is_labeled=len(counted) >= task["overlap"], updated_at=self._now())

    def _now(self) -> str:
        self._time += timedelta(seconds=1)
        return self._time.isoformat().replace("+00:00", "Z")

    def _next(self) -> int:
        self._number += 1
        return self._number


def _page(rows: list[Any], query: dict[str, str], usual: int) -> tuple[list[Any], int]:
    page, size = int(query.get("page", 1)), int(query.get("page_size", usual))
    some = rows[(page - 1) * size : page * size]
    if not some and page > 1:
        raise RefusedError(404, "Invalid page.")
    return some, len(rows)


def waiting_tasks(studio: FakeLabelStudio) -> Counter[str]:
    """How many tasks each item has that wait for an answer."""
    return Counter(
        task["data"]["teeter_item"] for task in studio.tasks.values() if not task["is_labeled"]
    )


@contextmanager
def serving(studio: FakeLabelStudio) -> Iterator[str]:
    """Put it on a loopback port, and yield its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_any(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            url = f"http://{self.headers['Host']}{self.path}"
            request = httpx.Request(
                self.command, url, headers=dict(self.headers), content=self.rfile.read(length)
            )
            with lock:
                answer = studio.handle(request)
            self.send_response(answer.status_code)
            for name in ("Content-Type", "Location", "Retry-After"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(answer.content)

        do_GET = do_POST = do_PATCH = do_DELETE = do_any  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    lock = threading.Lock()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
