"""A campaign on another machine, with the same methods as ``teeter.Campaign``.

Everything goes over the server's REST API, with the HTTP client of Python's standard library. A
request that changes something carries an ``Idempotency-Key``, so that it can be repeated when the
connection breaks: it is done once.
"""

from __future__ import annotations

import http.cookiejar
import io
import json
import time
import urllib.error
import urllib.request
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from datetime import time as clock_time
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from teeter.campaigns.db import ClassDescription
from teeter.campaigns.items import ITEM_FIELDS
from teeter.campaigns.results import (
    EncoderComparison,
    ImportResult,
    ModelInfo,
    Question,
    Status,
    SuspectLabel,
)
from teeter.campaigns.stopping import AccuracyEstimate
from teeter.errors import (
    InputError,
    PermissionDeniedError,
    ServerError,
    ServerUnavailableError,
    UnknownItemError,
    UnknownNameError,
)
from teeter.files import atomic_write
from teeter.model_servers import RefusedRedirects
from teeter.version import __version__

__all__ = ["RemoteCampaign", "connect"]

_API = "/api/v1"
_MAX_ITEMS = 1000
"""Items of one request, and below, characters of one."""
_MAX_CHARACTERS = 700_000

_ATTEMPTS = 4
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 4.0
_POLL_SECONDS = 0.3
_TIMEOUT_SECONDS = 330.0
"""Seconds that one request may take. The server gives up adding items before."""

_FOLDER_FORMAT = "datasets"
_FOLDER_FORMATS = (_FOLDER_FORMAT, "image-folder")
"""What the server writes to a folder comes as a ZIP file."""

_BUSY_CODE = 409
"""The server is still answering the same request."""


def connect(url: str, token: str | None = None, *, campaign: str | None = None) -> RemoteCampaign:
    """Return a campaign of a server that ``teeter serve`` runs.

    Args:
        url: The address of the server, or of a page of the campaign.
        token: The token of the user; None for a server without logins.
        campaign: The name of the campaign, as in the addresses of its pages. It may be left out if
            the server has one campaign only.

    Raises:
        ServerUnavailableError: If the server does not answer.
        PermissionDeniedError: If the token is wrong or missing.
        UnknownNameError: If there is no such campaign.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise InputError(f"{url!r} is not the address of a server: write http://HOST:PORT.")

    # The address of a page is what people copy: /c/NAME/progress.
    folders = parts.path.split("/")
    if campaign is None and len(folders) > 2 and folders[1] == "c":
        campaign = folders[2]

    server = _Server(f"{parts.scheme}://{parts.netloc}", token)
    names = [entry["slug"] for entry in server.get("/campaigns")]
    if campaign is None and len(names) == 1:
        campaign = names[0]
    if campaign not in names:
        listed = ", ".join(names) or "none"
        asked = "Which campaign" if campaign is None else f"There is no campaign {campaign!r}"
        raise UnknownNameError(f"{asked}: this server has {listed}.")
    return RemoteCampaign(server, str(campaign))


class RemoteCampaign:
    """A campaign on a server. Use ``teeter.connect`` to get one.

    The annotator is the user of the token. What a method returns has the types of
    ``teeter.Campaign`` where these are simple, and the JSON of the REST API where they are not.
    """

    def __init__(self, server: _Server, name: str) -> None:
        self._server = server
        self.name = name

    def _get(self, path: str, **query: Any) -> Any:
        return self._server.get(f"/campaigns/{quote(self.name)}{path}", **query)

    def _post(self, path: str, body: Mapping[str, Any], method: str = "POST") -> Any:
        address = f"/campaigns/{quote(self.name)}{path}"
        return self._server.send(method, address, body)

    # Items and classes

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in their order."""
        return tuple(entry["name"] for entry in self._get("/classes"))

    def add_class(self, name: str) -> None:
        """Add a class. Labels stay as they are."""
        self._post("/classes", {"name": name})

    def describe(self, descriptions: Mapping[str, ClassDescription | str]) -> None:
        """Say what classes mean. See ``Campaign.describe``."""
        classes: dict[str, Any] = {}
        for name, given in descriptions.items():
            description = ClassDescription(given) if isinstance(given, str) else given
            classes[name] = {
                "description": description.description,
                "examples": list(description.examples),
            }
        self._post("/classes/describe", {"classes": classes})

    def use_names(self, use: bool) -> None:
        """Let models learn from the names and descriptions of the classes, or not."""
        self._post("/classes/names", {"use": use})

    def add(self, items: Iterable[Any]) -> ImportResult:
        """Add items, a thousand at a time. They are encoded in the background.

        Args:
            items: Texts, pairs of an id and a text, or dictionaries, as ``Campaign.add`` takes
                them. Images are links.

        Returns:
            What happened to them, as ``Campaign.add`` says it.
        """
        kind = self._get("")["kind"]
        new = 0
        labelled = 0
        duplicates: list[tuple[str, str]] = []
        conflicts: list[tuple[str, str, str]] = []
        for part in _split_items(_as_item(entry, kind) for entry in items):
            added = self._post("/items", {"items": part})
            new += added["new"]
            labelled += added["labelled"]
            duplicates += [(item, same) for item, same in added["duplicate_items"]]
            conflicts += [(item, label, held) for item, label, held in added["conflicting_items"]]
        return ImportResult(
            new=new, duplicates=tuple(duplicates), labelled=labelled, conflicts=tuple(conflicts)
        )

    def items(self, **filters: Any) -> Iterator[dict[str, Any]]:
        """Yield the items in their order, page by page.

        Args:
            **filters: ``search``, ``label``, ``state``, and ``column``, such as
                ``column="customer=ACME"`` or a list of such filters.
        """
        after = None
        while True:
            query = {**filters, "count": 500}
            if after is not None:
                query["after"] = after
            page = self._get("/items", **query)
            yield from page["items"]
            after = page["after"]
            if after is None:
                return

    def row(self, item: str) -> dict[str, Any]:
        """Return the columns that an item came with."""
        row: dict[str, Any] = self._get("/item", id=item)["row"]
        return row

    # Settings

    def settings(self) -> dict[str, Any]:
        """Return the settings of the campaign."""
        settings: dict[str, Any] = self._get("/settings")
        return settings

    def change_settings(self, **changes: Any) -> dict[str, Any]:
        """Change settings, such as ``instructions`` or ``show``, and return all of them."""
        settings: dict[str, Any] = self._post("/settings", changes, "PATCH")
        return settings

    # Labelling

    def ask(self, n: int) -> list[Question]:
        """Return n items to label; fewer if fewer are left. See ``Campaign.ask``."""
        while True:
            answer = self._get("/questions", n=n)
            questions = answer["questions"]
            if questions or answer["finished"]:
                return [_question(fields) for fields in questions]
            time.sleep(_POLL_SECONDS)

    def tell(self, item: str, label: str, *, comment: str | None = None) -> None:
        """Record the class of an item. It is on the server's disk when this returns."""
        self._answer(item, "label", label, comment)

    def skip(self, item: str, *, comment: str | None = None) -> None:
        """Skip an item: it may be asked about again after the next training."""
        self._answer(item, "skip", None, comment)

    def mark_unsure(self, item: str, *, comment: str | None = None) -> None:
        """Say that an item's class cannot be told."""
        self._answer(item, "unsure", None, comment)

    def flag(self, item: str, *, comment: str | None = None) -> None:
        """Say that an item does not belong in the campaign."""
        self._answer(item, "flag", None, comment)

    def _answer(self, item: str, kind: str, label: str | None, comment: str | None) -> None:
        body = {"item": str(item), "kind": kind, "label": label, "comment": comment}
        self._post("/answers", body)

    def undo(self, *, item: str | None = None) -> dict[str, Any] | None:
        """Take back your last answer, and return it; None if you have no answer."""
        undone: dict[str, Any] | None = self._post("/undo", {"item": item})["undone"]
        return undone

    # Reviewing

    def decide(self, item: str, label: str | None, *, comment: str | None = None) -> bool:
        """Decide what an item is, and return whether that is new. See ``Campaign.decide``."""
        body = {"item": str(item), "label": label, "comment": comment}
        return bool(self._post("/decisions", body)["new"])

    def undo_decision(self, *, item: str | None = None) -> dict[str, Any] | None:
        """Take back your last decision, and return it; None if you have none."""
        undone: dict[str, Any] | None = self._post("/decisions/undo", {"item": item})["undone"]
        return undone

    def suspects(self, count: int = 20, *, refresh: bool = False) -> list[SuspectLabel]:
        """Return labels that a model which was not trained on them finds unlikely.

        Args:
            count: How many labels to return at most. The server decides how many it searches for.
            refresh: Search again, even if the server remembers the last result.
        """
        query = {"again": "true"} if refresh else {}
        while True:
            answer = self._get("/suspects", **query)
            if answer["state"] == "failed":
                raise ServerError(str(answer["detail"]))
            if answer["state"] == "done":
                return [SuspectLabel(**fields) for fields in answer["suspects"][:count]]
            # Asking again for a new search would begin one each time.
            query = {}
            time.sleep(_POLL_SECONDS)

    def sources(self) -> list[dict[str, Any]]:
        """Return the sources of suggestions, and how far people agree with each."""
        sources: list[dict[str, Any]] = self._get("/sources")
        return sources

    def agreement(self) -> dict[str, Any]:
        """Return how far annotators agree: overall, by class and by pair."""
        agreement: dict[str, Any] = self._get("/agreement")
        return agreement

    # Models and results

    def encode(self, encoder: str | None = None) -> dict[str, Any]:
        """Compute the features of items that lack them, or switch to another encoder."""
        return self._wait_for_job(self._post("/encode", {"encoder": encoder})["job"])

    def train(self) -> ModelInfo | None:
        """Train a model now, and return it; None if fewer than two classes have labels."""
        result = self._wait_for_job(self._post("/train", {})["job"])
        trained = result["trained"]
        if trained is None:
            return None
        return ModelInfo(trained["version"], trained["labels"], tuple(trained["classes"]))

    def _wait_for_job(self, job: str) -> dict[str, Any]:
        while True:
            state = self._server.get(f"/jobs/{quote(job)}")
            if state["state"] == "failed":
                raise ServerError(str(state["detail"]))
            if state["state"] == "done":
                result: dict[str, Any] = state["result"]
                return result
            time.sleep(_POLL_SECONDS)

    def predict(self, contents: Sequence[str]) -> list[tuple[str, float]]:
        """Return the most probable class of new texts, each with a calibrated probability."""
        predictions: list[tuple[str, float]] = []
        for start in range(0, len(contents), _MAX_ITEMS):
            part = list(contents[start : start + _MAX_ITEMS])
            answer = self._post("/predict", {"texts": part})
            predicted = answer["predictions"]
            predictions += [(entry["label"], entry["probability"]) for entry in predicted]
        return predictions

    def labels(self) -> dict[str, str]:
        """Return the label of every labelled item by id."""
        rows = self.items(state="labelled")
        return {row["item"]: row["label"] for row in rows if row["label"] is not None}

    def status(self) -> Status:
        """Return the progress of the campaign, with the advice on whether to stop."""
        fields = dict(self._get("/progress")["status"])
        fields["advice"] = tuple(fields["advice"])
        if fields["accuracy"] is not None:
            fields["accuracy"] = AccuracyEstimate(**fields["accuracy"])
        if fields["comparison"] is not None:
            fields["comparison"] = EncoderComparison(**fields["comparison"])
        return Status(**fields)

    def export(self, path: str | Path, form: str | None = None) -> None:
        """Write labels, predictions and all columns to a file.

        The formats ``datasets`` and ``image-folder`` write a folder.

        Args:
            path: The file. Its ending gives the format: .csv, .jsonl or .parquet.
            form: The format by name. See ``Campaign.export``.
        """
        target = Path(path)
        form = form or target.suffix.removeprefix(".") or _FOLDER_FORMAT
        query = urlencode({"form": form})
        content = self._server.read(f"/campaigns/{quote(self.name)}/export?{query}")

        if form not in _FOLDER_FORMATS:
            atomic_write(target, content)
            return
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            archive.extractall(target)


class _Server:
    """The REST API of a server, for one user."""

    def __init__(self, origin: str, token: str | None) -> None:
        self._origin = origin
        self._token = token
        self._csrf: str | None = None
        cookies = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        # A redirect would send the token to another server.
        self._opener = urllib.request.build_opener(cookies, RefusedRedirects())

    def get(self, path: str, **query: Any) -> Any:
        """Return the JSON that the server answers with."""
        if query:
            path += "?" + urlencode(query, doseq=True)
        return json.loads(self.read(path))

    def read(self, path: str) -> bytes:
        """Return the body that the server answers with."""
        return self._request("GET", path, None)

    def send(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        """Send JSON, and return the JSON that the server answers with."""
        if self._token is None and self._csrf is None:
            self._csrf = self.get("/session")["csrf"]
        return json.loads(self._request(method, path, _dump_json(body).encode()))

    def _request(self, method: str, path: str, body: bytes | None) -> bytes:
        headers = {"user-agent": f"teeter/{__version__}", "accept": "application/json"}
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["content-type"] = "application/json"
            # The same in every attempt: the server does the request once.
            headers["idempotency-key"] = uuid.uuid4().hex
        if self._csrf is not None:
            headers["x-csrf-token"] = self._csrf

        request = urllib.request.Request(
            f"{self._origin}{_API}{path}", data=body, headers=headers, method=method
        )
        pause = _FIRST_PAUSE
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        attempt = 0
        while True:
            is_last = attempt == _ATTEMPTS - 1
            try:
                with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as response:
                    content: bytes = response.read()
                    return content
            except urllib.error.HTTPError as error:
                # 503: the database is away, or the server is busy. Anything else would fail again.
                is_busy = error.code == _BUSY_CODE and time.monotonic() < deadline
                if not is_busy and (error.code != 503 or is_last):
                    raise _as_error(error) from None
                # What is being answered takes as long as it takes: it is no failed attempt.
                attempt -= int(is_busy)
            except (OSError, http.client.HTTPException) as error:
                if is_last:
                    reason = getattr(error, "reason", error)
                    raise ServerUnavailableError(
                        f"{self._origin} does not answer: {reason}."
                    ) from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            attempt += 1


def _dump_json(value: Any) -> str:
    return json.dumps(value, default=_as_json)


def _as_json(value: Any) -> Any:
    """Return a value of a column as JSON has it: dates as text, numbers of numpy as numbers."""
    if isinstance(value, date | clock_time):
        return value.isoformat()
    if hasattr(value, "item"):
        return value.item()
    if isinstance(value, bytes | Path | Decimal | uuid.UUID):
        return value.decode() if isinstance(value, bytes) else str(value)
    raise InputError(f"A column cannot have values of type {type(value).__name__}: use a text.")


def _as_error(error: urllib.error.HTTPError) -> Exception:
    """Return the error that stands for an answer of the server."""
    try:
        sentence = str(json.loads(error.read())["detail"])
    except (ValueError, KeyError, TypeError):
        sentence = f"The server answered with status {error.code}."

    if 300 <= error.code < 400:
        return ServerError(
            f"The server redirects to {error.headers.get('location', 'another address')[:200]}, "
            "where the token is not sent: connect to that server if you trust it."
        )
    if error.code in (401, 403):
        return PermissionDeniedError(sentence)
    if error.code == 404:
        return UnknownItemError(sentence)
    if error.code == 422:
        return InputError(sentence)
    if error.code == 503:
        return ServerUnavailableError(sentence)
    return ServerError(sentence)


def _as_item(entry: Any, kind: str) -> dict[str, Any]:
    """Return an item as the REST API takes it."""
    if isinstance(entry, str):
        return {kind: entry}
    if isinstance(entry, tuple) and len(entry) == 2:
        return {"id": str(entry[0]), kind: entry[1]}
    if not isinstance(entry, Mapping):
        raise InputError(f"An item cannot be of type {type(entry).__name__}.")

    item = {name: entry[name] for name in ITEM_FIELDS if entry.get(name) is not None}
    if "id" in item:
        item["id"] = str(item["id"])
    if "features" in item:
        item["features"] = [float(value) for value in item["features"]]
    columns = {name: value for name, value in entry.items() if name not in ITEM_FIELDS}
    if columns:
        item["columns"] = columns
    return item


def _split_items(items: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield items in parts that fit into one request."""
    part: list[dict[str, Any]] = []
    characters = 0

    for item in items:
        size = len(_dump_json(item))
        if part and (len(part) == _MAX_ITEMS or characters + size > _MAX_CHARACTERS):
            yield part
            part = []
            characters = 0

        part.append(item)
        characters += size

    if part:
        yield part


def _question(fields: Mapping[str, Any]) -> Question:
    pick = fields["pick"]
    reason = dict(pick["scores"])

    if pick["predicted"] is not None:
        reason["predicted"] = pick["predicted"]
        reason["probability"] = pick["probability"]

    return Question(
        item=fields["item"],
        content=fields["content"]["text"],
        arm=pick["arm"],
        rank=pick["rank"],
        reason=reason,
    )
