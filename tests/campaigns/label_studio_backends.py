"""A campaign with a Label Studio to label it in: the fake, a real server, or recorded responses."""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx2
import pytest

from campaigns.fake_label_studio import FAKE_URL, LEGACY_TOKEN, PERSONAL_TOKEN, FakeLabelStudio
from campaigns.ports import ReservedPort
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.integrations.label_studio import LabelStudio, SyncResult
from teeter.campaigns.learning.rounds import RoundState
from teeter.campaigns.records import PickArm
from teeter.campaigns.settings import Settings
from teeter.campaigns.store import Pick

__all__ = [
    "LabelStudioBackend",
    "RealLabelStudio",
    "fake_backend",
    "real_backend",
    "recorded_backend",
    "result_with",
    "run_label_studio",
]

RECORDINGS = Path(__file__).parent / "integrations" / "label_studio" / "recordings"

START_TIMEOUT = 300.0
"""Seconds; the first start of a Label Studio creates its database."""

# What a recording leaves out: random ids, and large fields that teeter does not read.
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_UNUSED_FIELDS = (
    "permissions",
    "custom_hotkeys",
    "active_organization_meta",
    "control_weights",
    "parsed_label_config",
)

ChooseLabel = Callable[[str], str | None]
"""Returns the label that an annotator chooses for an item, or None to skip it."""


class LabelStudioBackend:
    """A campaign's folder, a Label Studio, and the browsers of the annotators in it.

    With recorded responses there are no annotators: what they did is part of the recording.
    """

    def __init__(
        self,
        folder: Path,
        url: str,
        transport: httpx2.BaseTransport,
        browsers: list[httpx2.Client],
        name: str = "backend",
    ) -> None:
        self.folder = folder
        self.url = url
        self.transport = transport
        self.browsers = browsers
        self.tokens = {"legacy": LEGACY_TOKEN, "personal": PERSONAL_TOKEN}
        self.project_id = 0
        self.sign_up: Callable[[str], httpx2.Client] | None = None
        self._name = name
        self._markers = itertools.count()

    @property
    def has_annotators(self) -> bool:
        return bool(self.browsers)

    def create_campaign(
        self, classes: tuple[str, ...] = ("even", "odd"), count: int = 60, **settings: Any
    ) -> Campaign:
        """Create a campaign of items n0, n1, … whose features tell the classes apart easily."""
        chosen_settings = Settings(**{"kind": "features", "control": 0.1, **settings})
        campaign = Campaign.make(
            [], classes, at=self.folder / "numbers.teeter", settings=chosen_settings
        )

        rows = [[float(k % len(classes)) * 4 + k / 1000, k / 100] for k in range(count)]
        campaign.add({"id": f"n{k}", "features": row} for k, row in enumerate(rows))
        return campaign

    def sync(self, campaign: Campaign, token: str = "legacy", **options: Any) -> SyncResult:
        """Sync once, without waiting, in an order that does not depend on a strategy."""
        arguments = {
            "url": self.url,
            "transport": _KeepOpen(self.transport),
            "sleep": lambda _: None,
            **options,
        }
        markers = patch(
            "secrets.token_hex", side_effect=lambda _: f"{self._name}-{next(self._markers)}"
        )
        with (
            markers,
            patch("teeter.campaigns.asking.selection.choose_picks", pick_in_order),
            LabelStudio(campaign, self.tokens.get(token, token), **arguments) as label_studio,
        ):
            result = label_studio.sync()

        self.project_id = result.project
        return result

    def invite(self, email: str) -> None:
        """Add another annotator."""
        if self.sign_up is not None:
            self.browsers.append(self.sign_up(email))

    def annotate(self, count: int, choose_label: ChooseLabel, annotator: int = 0) -> list[str]:
        """Let an annotator answer the next tasks, and return their items."""
        if not self.has_annotators:
            return []
        return [
            self.annotate_task(self.next_task(annotator), choose_label, annotator)
            for _ in range(count)
        ]

    def next_task(self, annotator: int = 0) -> dict[str, Any]:
        """Return the task that Label Studio shows to an annotator."""
        path = f"/api/projects/{self.project_id}/next"
        return _require_success(self.browsers[annotator].get(path))

    def annotate_task(
        self, task: dict[str, Any], choose_label: ChooseLabel, annotator: int = 0
    ) -> str:
        """Answer a task, and return its item."""
        item_id = str(task["data"]["teeter_item"])
        label = choose_label(item_id)

        body = {"result": [], "was_cancelled": True}
        if label is not None:
            body = {"result": result_with(label)}
        path = f"/api/tasks/{task['id']}/annotations/"
        _require_success(self.browsers[annotator].post(path, json=body))
        return item_id

    def list_tasks(self) -> list[dict[str, Any]]:
        """Return all tasks of the project, with their annotations."""
        params = {"project": self.project_id, "fields": "all", "page": 1, "page_size": 500}
        content = _require_success(self.browsers[0].get("/api/tasks/", params=params))
        return list(content["tasks"])

    def last_annotation(self, item_id: str) -> dict[str, Any]:
        annotations = [
            annotation
            for task in self.list_tasks()
            if task["data"].get("teeter_item") == item_id
            for annotation in task["annotations"]
        ]
        return dict(annotations[-1])

    def change_annotation(self, item_id: str, label: str) -> None:
        annotation_id = self.last_annotation(item_id)["id"]
        body = {"result": result_with(label), "was_cancelled": False}
        path = f"/api/annotations/{annotation_id}/"
        _require_success(self.browsers[0].patch(path, json=body))

    def delete_annotation(self, item_id: str) -> None:
        annotation_id = self.last_annotation(item_id)["id"]
        _require_success(self.browsers[0].delete(f"/api/annotations/{annotation_id}/"))

    def add_foreign_task(self) -> None:
        """Create a task that teeter did not send."""
        body = [{"data": {"text": "not an item of the campaign"}}]
        path = f"/api/projects/{self.project_id}/import"
        _require_success(self.browsers[0].post(path, json=body))

    def delete_project(self) -> None:
        _require_success(self.browsers[0].delete(f"/api/projects/{self.project_id}/"))


def pick_in_order(state: RoundState, _: object, n: int) -> list[Pick]:
    """Pick the first free items, so that recordings stay valid when strategies change."""
    free = [k for k in range(len(state.keys)) if k not in state.taken]
    return [
        Pick(state.keys[k], rank, PickArm.PICKED, {}) for rank, k in enumerate(free[:n], start=1)
    ]


def result_with(label: str) -> list[dict[str, Any]]:
    """Return the result of an annotation that chooses one label."""
    return [
        {"from_name": "label", "to_name": "item", "type": "choices", "value": {"choices": [label]}}
    ]


def _require_success(response: httpx2.Response) -> Any:
    request = response.request
    assert response.is_success, f"{request.method} {request.url}: {response.text[:500]}"
    if not response.content:
        return None
    return response.json()


class _KeepOpen(httpx2.BaseTransport):
    """A transport that stays open when its client is closed, for the next sync."""

    def __init__(self, inner: httpx2.BaseTransport) -> None:
        self._inner = inner

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return self._inner.handle_request(request)


def fake_backend(folder: Path, studio: FakeLabelStudio | None = None) -> LabelStudioBackend:
    """Return a backend with the Label Studio in memory."""
    studio = studio or FakeLabelStudio()
    backend = LabelStudioBackend(folder, FAKE_URL, studio.transport, [studio.client()])
    backend.sign_up = studio.add_user
    return backend


# Recordings


class Recorder(httpx2.BaseTransport):
    """Passes requests on to a real server, and records them with the responses."""

    def __init__(self) -> None:
        self.exchanges: list[dict[str, Any]] = []
        self._network = httpx2.HTTPTransport()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        response = self._network.handle_request(request)
        response.read()
        self.exchanges.append({**_describe_request(request), **_describe_response(response)})
        return response

    def close(self) -> None:
        self._network.close()

    def save(self, name: str) -> None:
        RECORDINGS.mkdir(exist_ok=True)
        lines = ",\n".join(json.dumps(exchange, ensure_ascii=False) for exchange in self.exchanges)
        (RECORDINGS / f"{name}.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")


def _describe_request(request: httpx2.Request) -> dict[str, Any]:
    """Return what identifies a request, without tokens and uploaded files."""
    is_json = request.headers.get("Content-Type", "").startswith("application/json")
    body = None
    if is_json and request.content:
        body = json.loads(request.content)
    if request.url.path.endswith("/token/refresh/"):
        body = {"refresh": PERSONAL_TOKEN}

    return {"method": request.method, "path": request.url.raw_path.decode(), "body": body}


def _describe_response(response: httpx2.Response) -> dict[str, Any]:
    """Return a response without tokens; of a page only its beginning."""
    status = response.status_code
    if "json" in response.headers.get("Content-Type", ""):
        return {"status": status, "answer": _remove_secrets(response.json())}
    return {"status": status, "page": response.text.strip()[:60]}


def _remove_secrets(content: Any) -> Any:
    if isinstance(content, dict):
        cleaned = {
            key: _remove_secrets(value)
            for key, value in content.items()
            if key not in _UNUSED_FIELDS
        }
        if "access" in cleaned:
            cleaned["access"] = "access"
        return cleaned

    if isinstance(content, list):
        return [_remove_secrets(entry) for entry in content]
    if isinstance(content, str):
        return _UUID.sub("00000000-0000-0000-0000-000000000000", content)
    return content


class Replayer(httpx2.BaseTransport):
    """Answers as a real server did, if the requests are the recorded ones in the same order."""

    def __init__(self, name: str) -> None:
        self.remaining = json.loads((RECORDINGS / f"{name}.json").read_text(encoding="utf-8"))

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        request.read()
        assert self.remaining, f"{request.method} {request.url} is not in the recording"

        exchange = self.remaining.pop(0)
        expected = {key: exchange[key] for key in ("method", "path", "body")}
        assert _describe_request(request) == expected

        if "answer" in exchange:
            return httpx2.Response(exchange["status"], json=exchange["answer"])
        if exchange.get("page"):
            return httpx2.Response(exchange["status"], html=exchange["page"])
        return httpx2.Response(exchange["status"])


@contextmanager
def recorded_backend(folder: Path, name: str) -> Iterator[LabelStudioBackend]:
    """Yield a backend with recorded responses, all of which must be requested."""
    replayer = Replayer(name)
    yield LabelStudioBackend(folder, FAKE_URL, replayer, [], name)
    assert replayer.remaining == [], "these recorded requests were not made"


# A real server


class RealLabelStudio:
    """A real Label Studio on a loopback port, with its data in a temporary folder."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program = program
        self.folder = folder
        self.port = ReservedPort()
        self.url = f"http://127.0.0.1:{self.port.number}"
        self._process: subprocess.Popen[bytes] | None = None
        self._personal_token: str | None = None
        self._tokens_by_email: dict[str, str] = {}

    def start(self) -> None:
        """Start the server and wait until it answers."""
        environment = {
            **os.environ,
            "HOME": str(self.folder),
            "COLLECT_ANALYTICS": "false",
            "LATEST_VERSION_CHECK": "false",
            "LABEL_STUDIO_ENABLE_LEGACY_API_TOKEN": "true",
            "LABEL_STUDIO_DISABLE_SIGNUP_WITHOUT_LINK": "false",
        }
        options = {
            "--data-dir": str(self.folder / "data"),
            "--port": str(self.port.number),
            "--internal-host": "127.0.0.1",
            "--username": "ann@example.com",
            "--password": "only-for-tests",
            "--user-token": LEGACY_TOKEN,
        }
        command = [self.program, "start", "--no-browser"]
        command += itertools.chain.from_iterable(options.items())

        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_until_healthy(self._process)

    def _wait_until_healthy(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            if process.poll() is not None:
                log = (self.folder / "log").read_text()
                raise RuntimeError(f"Label Studio ended: {log[-1000:]}")

            try:
                if httpx2.get(f"{self.url}/health", timeout=5, trust_env=False).is_success:
                    return
            except httpx2.HTTPError:
                pass
            time.sleep(0.5)

        raise RuntimeError("Label Studio does not answer")

    def stop(self, signal_number: int = signal.SIGTERM) -> None:
        """End the server and the processes that it started."""
        if self._process is not None:
            os.killpg(self._process.pid, signal_number)
            self._process.wait(timeout=60)
            self._process = None

    def client(self, token: str = LEGACY_TOKEN) -> httpx2.Client:
        """Return the browser of an annotator."""
        headers = {"Authorization": f"Token {token}"}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)

    def sign_in(self, email: str) -> httpx2.Client:
        """Return the browser of an annotator, who signs up the first time."""
        if email not in self._tokens_by_email:
            self._tokens_by_email[email] = self._sign_up(email)
        return self.client(self._tokens_by_email[email])

    def _sign_up(self, email: str) -> str:
        """Create an account through the sign-up form, and return its legacy token."""
        form_url = f"{self.url}/user/signup/"
        with httpx2.Client(timeout=60, trust_env=False) as browser:
            browser.get(form_url)
            form = {
                "email": email,
                "password": "only-for-tests",
                "csrfmiddlewaretoken": browser.cookies["csrftoken"],
            }
            response = browser.post(form_url, data=form, headers={"Referer": form_url})
            assert response.status_code == 302, response.text[:300]

            token = browser.get(f"{self.url}/api/current-user/token").json()["token"]
            return str(token)

    def personal_token(self) -> str:
        """Return a personal access token; a user can have only one."""
        if self._personal_token is None:
            with self.client() as client:
                content = _require_success(client.post("/api/token/"))
            self._personal_token = str(content["token"])
        return self._personal_token


@contextmanager
def run_label_studio() -> Iterator[RealLabelStudio]:
    """Yield a real Label Studio; skip the test if none is installed."""
    program = os.environ.get("TEETER_LABEL_STUDIO") or shutil.which("label-studio")
    if program is None:
        pytest.skip("no label-studio on the PATH, and TEETER_LABEL_STUDIO is not set")

    folder = Path(tempfile.mkdtemp(prefix="teeter-label-studio-"))
    studio = RealLabelStudio(program, folder)
    try:
        studio.start()
        yield studio
    finally:
        studio.stop(signal.SIGKILL)
        studio.port.release()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def real_backend(folder: Path, studio: RealLabelStudio, name: str) -> Iterator[LabelStudioBackend]:
    """Yield a backend with a real Label Studio; record it if TEETER_RECORD is set."""
    with closing(Recorder()) as recorder, studio.client() as browser:
        backend = LabelStudioBackend(folder, studio.url, recorder, [browser], name)
        backend.tokens["personal"] = studio.personal_token()
        backend.sign_up = studio.sign_in
        yield backend
        for other_browser in backend.browsers[1:]:
            other_browser.close()

    if os.environ.get("TEETER_RECORD") and recorder.exchanges:
        recorder.save(name)
