"""Where a campaign is labelled in Label Studio: a real one, the one in memory, or what a real one once answered."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import pytest

from campaigns.fake_label_studio import LEGACY, PERSONAL, FakeLabelStudio
from teeter.campaigns.campaign import Campaign, Settings
from teeter.campaigns.db import Pick
from teeter.campaigns.label_studio import SyncResult, sync_campaign
from teeter.campaigns.selection import RoundState

__all__ = [
    "LabelStudioBackend",
    "RealLabelStudio",
    "imaginary",
    "real",
    "recorded",
    "running_studio",
]

EXCHANGES = Path(__file__).parent / "label_studio" / "recordings"
_FREE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_UNUSED = (
    "permissions",
    "custom_hotkeys",
    "active_organization_meta",
    "control_weights",
    "parsed_label_config",
)


class LabelStudioBackend:
    """A campaign, and a Label Studio that may be there or only remembered."""

    def __init__(
        self,
        folder: Path,
        url: str,
        transport: httpx.BaseTransport,
        people: list[httpx.Client],
        name: str = "backend",
    ) -> None:
        self.folder, self.url, self.transport, self.people, self._name = (
            folder,
            url,
            transport,
            people,
            name,
        )
        self._marks = itertools.count()
        self.tokens = {"legacy": LEGACY, "personal": PERSONAL}
        self.project = 0
        self.sign_up: Callable[[str], httpx.Client] | None = None

    @property
    def is_live(self) -> bool:
        """Whether people can do something there."""
        return bool(self.people)

    def campaign(
        self, classes: tuple[str, ...] = ("even", "odd"), count: int = 60, **settings: Any
    ) -> Campaign:
        """Numbers to be told even from odd, which is easy."""
        chosen = Settings(**{"kind": "features", "control": 0.1, **settings})
        campaign = Campaign.create(self.folder / "numbers.teeter", "numbers", classes, chosen)
        rows = [[float(k % len(classes)) * 4 + k / 1000, k / 100] for k in range(count)]
        campaign.add({"id": f"n{k}", "features": row} for k, row in enumerate(rows))
        return campaign

    def sync(self, campaign: Campaign, token: str = "legacy", **options: Any) -> SyncResult:
        """Sync as the command does, without waiting."""
        told = {
            "url": self.url,
            "transport": _unclosed(self.transport),
            "sleep": lambda _: None,
            **options,
        }
        marks = patch(
            "secrets.token_hex", side_effect=lambda _: f"{self._name}-{next(self._marks)}"
        )
        with marks, patch("teeter.campaigns.campaign.choose_picks", in_order):
            found = sync_campaign(campaign, self.tokens.get(token, token), **told)
        self.project = found.project
        return found

    def invite(self, email: str) -> None:
        """Let somebody else in."""
        if self.sign_up is not None:
            self.people.append(self.sign_up(email))

    def annotate(self, count: int, label: Callable[[str], str | None], who: int = 0) -> list[str]:
        """Let somebody answer what comes next, so many times; None skips. Returns the items."""
        return (
            [self.answer(self.next(who), label, who) for _ in range(count)] if self.is_live else []
        )

    def next(self, who: int = 0) -> dict[str, Any]:
        """What somebody is shown."""
        return _ok(self.people[who].get(f"/api/projects/{self.project}/next"))

    def answer(self, task: dict[str, Any], label: Callable[[str], str | None], who: int = 0) -> str:
        item = str(task["data"]["teeter_item"])
        told = label(item)
        body = {"result": [], "was_cancelled": True} if told is None else {"result": chosen(told)}
        _ok(self.people[who].post(f"/api/tasks/{task['id']}/annotations/", json=body))
        return item

    def tasks(self) -> list[dict[str, Any]]:
        """All tasks of the project, with their annotations."""
        params = {"project": self.project, "fields": "all", "page": 1, "page_size": 500}
        return list(_ok(self.people[0].get("/api/tasks/", params=params))["tasks"])

    def annotation_of(self, item: str) -> dict[str, Any]:
        """The last annotation of an item."""
        found = [
            one
            for task in self.tasks()
            if task["data"].get("teeter_item") == item
            for one in task["annotations"]
        ]
        return dict(found[-1])

    def change(self, item: str, label: str) -> None:
        number = self.annotation_of(item)["id"]
        body = {"result": chosen(label), "was_cancelled": False}
        _ok(self.people[0].patch(f"/api/annotations/{number}/", json=body))

    def delete(self, item: str) -> None:
        _ok(self.people[0].delete(f"/api/annotations/{self.annotation_of(item)['id']}/"))

    def add_foreign_task(self) -> None:
        body = [{"data": {"text": "another's"}}]
        _ok(self.people[0].post(f"/api/projects/{self.project}/import", json=body))

    def delete_project(self) -> None:
        _ok(self.people[0].delete(f"/api/projects/{self.project}/"))


def in_order(state: RoundState, _: object, n: int) -> list[Pick]:
    """Pick the first that are free, so that what was recorded stays true when strategies change."""
    free = [k for k in range(len(state.keys)) if k not in state.taken]
    return [Pick(state.keys[k], rank, "picked", {}) for rank, k in enumerate(free[:n], start=1)]


def chosen(label: str) -> list[dict[str, Any]]:
    return [
        {"from_name": "label", "to_name": "item", "type": "choices", "value": {"choices": [label]}}
    ]


def _ok(answer: httpx.Response) -> Any:
    assert answer.status_code < 300, (
        f"{answer.request.method} {answer.request.url}: {answer.text[:500]}"
    )
    return answer.json() if answer.content else None


class _Unclosed(httpx.BaseTransport):
    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._inner.handle_request(request)


def _unclosed(transport: httpx.BaseTransport) -> httpx.BaseTransport:
    """The same transport, to be used for another sync afterwards."""
    return _Unclosed(transport)


def imaginary(folder: Path, studio: FakeLabelStudio | None = None) -> LabelStudioBackend:
    """A backend with the Label Studio in memory."""
    studio = studio or FakeLabelStudio()
    backend = LabelStudioBackend(
        folder, "http://127.0.0.1:8080", studio.transport, [studio.client()]
    )
    backend.sign_up = studio.user
    return backend


class Recorder(httpx.BaseTransport):
    """Passes on to a real server, and keeps what was said."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []
        self._real = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._real.handle_request(request)
        answer.read()
        self.said.append({**_asked(request), "status": answer.status_code, **_told(answer)})
        return answer

    def close(self) -> None:
        self._real.close()

    def save(self, name: str) -> None:
        EXCHANGES.mkdir(exist_ok=True)
        lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in self.said)
        (EXCHANGES / f"{name}.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def _asked(request: httpx.Request) -> dict[str, Any]:
    """What was asked, without tokens and what is drawn at random."""
    path = request.url.raw_path.decode()
    is_json = request.headers.get("Content-Type", "").startswith("application/json")
    body = json.loads(request.content) if is_json and request.content else None
    if request.url.path.endswith("/token/refresh/"):
        body = {"refresh": PERSONAL}
    return {"method": request.method, "path": path, "body": body}


def _told(answer: httpx.Response) -> dict[str, Any]:
    """What was answered: a page by its beginning alone, and tokens by words."""
    if "json" not in answer.headers.get("Content-Type", ""):
        return {"page": answer.text.strip()[:60]}
    return {"answer": _scrubbed(answer.json())}


def _scrubbed(found: Any) -> Any:
    if isinstance(found, dict):
        kept = {key: value for key, value in found.items() if key not in _UNUSED}
        return {
            key: "access" if key == "access" else _scrubbed(value) for key, value in kept.items()
        }
    if isinstance(found, list):
        return [_scrubbed(one) for one in found]
    return (
        _FREE.sub("00000000-0000-0000-0000-000000000000", found)
        if isinstance(found, str)
        else found
    )


class Replayer(httpx.BaseTransport):
    """Answers as a real server did, to the same questions in the same order and to no other."""

    def __init__(self, name: str) -> None:
        self.left = json.loads((EXCHANGES / f"{name}.json").read_text(encoding="utf-8"))

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        assert self.left, f"{request.method} {request.url} was not asked then"
        one = self.left.pop(0)
        assert _asked(request) == {key: one[key] for key in ("method", "path", "body")}
        page = {"html": one["page"]} if one.get("page") else {}
        return httpx.Response(
            one["status"], **({"json": one["answer"]} if "answer" in one else page)
        )


@contextmanager
def recorded(folder: Path, name: str) -> Iterator[LabelStudioBackend]:
    """Yield a backend that answers as a real one did; all of it must be asked for."""
    replayer = Replayer(name)
    yield LabelStudioBackend(folder, "http://127.0.0.1:8080", replayer, [], name)
    assert replayer.left == [], "the rest was asked for then, and is not now"


class RealLabelStudio:
    """A Label Studio of our own: on a loopback port, with its data in a temporary folder."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder, self.port = program, folder, _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._personal: str | None = None
        self._users: dict[str, str] = {}

    def start(self) -> float:
        """Start it, wait until it answers, and return how long that took."""
        quiet = {
            "COLLECT_ANALYTICS": "false",
            "LATEST_VERSION_CHECK": "false",
            "HOME": str(self.folder),
        }
        allowed = {
            "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
            "LABEL_STUDIO_DISABLE_SIGNUP_WITHOUT_LINK": "false",
        }
        names = [
            "--username",
            "ann@example.com",
            "--password",
            "only-for-tests",
            "--user-token",
            LEGACY,
        ]
        place = [
            "--data-dir",
            str(self.folder / "data"),
            "--port",
            str(self.port),
            "--internal-host",
            "127.0.0.1",
        ]
        begun = time.monotonic()
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.program, "start", "--no-browser", *place, *names],
                env={**os.environ, **quiet, **allowed},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        while time.monotonic() < begun + 300:
            if self._process.poll() is not None:
                raise RuntimeError(
                    f"Label Studio ended: {(self.folder / 'log').read_text()[-1000:]}"
                )
            try:
                if httpx.get(f"{self.url}/health", timeout=5, trust_env=False).status_code == 200:
                    return time.monotonic() - begun
            except httpx.HTTPError:
                pass
            time.sleep(0.5)
        raise RuntimeError("Label Studio does not answer")

    def stop(self, how: int = signal.SIGTERM) -> None:
        """End it, and what it started."""
        if self._process is not None:
            os.killpg(self._process.pid, how)
            self._process.wait(timeout=60)
            self._process = None

    def client(self, token: str = LEGACY) -> httpx.Client:
        headers = {"Authorization": f"Token {token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)

    def user(self, email: str) -> httpx.Client:
        """Let somebody sign up, or come again."""
        if email not in self._users:
            self._users[email] = self._new_token(email)
        return self.client(self._users[email])

    def _new_token(self, email: str) -> str:
        place = f"{self.url}/user/signup/"
        with httpx.Client(timeout=60, trust_env=False) as browser:
            browser.get(place)
            form = {
                "email": email,
                "password": "only-for-tests",
                "csrfmiddlewaretoken": browser.cookies["csrftoken"],
            }
            answer = browser.post(place, data=form, headers={"Referer": place})
            assert answer.status_code == 302, answer.text[:300]
            return str(browser.get(f"{self.url}/api/current-user/token").json()["token"])

    def personal_token(self) -> str:
        """Return a personal access token; everybody has one at most."""
        if self._personal is None:
            with self.client() as client:
                self._personal = str(_ok(client.post("/api/token/"))["token"])
        return self._personal


@contextmanager
def running_studio() -> Iterator[RealLabelStudio]:
    """Yield a real Label Studio; skip where there is none to be had."""
    program = os.environ.get("TEETER_LABEL_STUDIO") or shutil.which("label-studio")
    if program is None:
        pytest.skip("no label-studio on the PATH, and TEETER_LABEL_STUDIO does not name one")
    folder = Path(tempfile.mkdtemp(prefix="teeter-label-studio-"))
    studio = RealLabelStudio(program, folder)
    try:
        studio.start()
        yield studio
    finally:
        studio.stop(signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def real(folder: Path, studio: RealLabelStudio, name: str) -> Iterator[LabelStudioBackend]:
    """Yield a backend with a real Label Studio; with TEETER_RECORD set, what is said is kept for `recorded`."""
    with closing(Recorder()) as recorder, studio.client() as ann:
        backend = LabelStudioBackend(folder, studio.url, recorder, [ann], name)
        backend.tokens["personal"] = studio.personal_token()
        backend.sign_up = studio.user
        yield backend
        for one in backend.people[1:]:
            one.close()
    if os.environ.get("TEETER_RECORD") and recorder.said:
        recorder.save(name)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
