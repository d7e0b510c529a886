"""A campaign on another machine, with the same methods as ``teeter.Campaign``.

Everything goes over the server's REST API. When the connection breaks, or the server is busy
(status 503), a request is sent again: it may have been done already, and done again it does nothing
more. The list in "Connect other systems" says why, for each request that changes something.
``train`` and ``encode``, which are not on it, are sent once.
"""

from __future__ import annotations

import io
import json
import time
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import date
from datetime import time as clock_time
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx2
from pydantic import TypeAdapter

from teeter.base.files import atomic_write
from teeter.base.outbound_http import AttemptFailedError, is_loopback_url, retry
from teeter.base.version import __version__
from teeter.campaigns.items.item import ITEM_FIELDS, refuse_frame
from teeter.campaigns.records import (
    AccuracyEstimate,
    Agreement,
    AnnotatorStats,
    AnswerReceipt,
    Certificate,
    ClassDescription,
    ClassInfo,
    Decision,
    EncodingResult,
    FinishReport,
    ImportResult,
    ItemDetails,
    ItemFilter,
    ItemPage,
    ItemRow,
    MemberChange,
    ModelRound,
    PredictionImport,
    Question,
    Role,
    SourceReport,
    Status,
    SuspectLabel,
    TableColumn,
    UndoResult,
)
from teeter.campaigns.review.consensus import ConsensusLabel
from teeter.campaigns.settings import Settings
from teeter.classifier import Prediction
from teeter.classifier.classifier import require_texts
from teeter.errors import (
    FileError,
    InputError,
    PermissionDeniedError,
    ServerError,
    UnknownItemError,
    UnknownNameError,
)

ItemT = TypeVar("ItemT")

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

    try:
        server = _Server(f"{parts.scheme}://{parts.netloc}", token)
    except httpx2.InvalidURL as error:
        raise InputError(f"{url!r} is not the address of a server: {error}.") from None

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

    The annotator is the user of the token, so no method has the arguments ``annotator`` and
    ``who``. What the methods return has the types that it has in ``teeter.Campaign``.
    """

    def __init__(self, server: _Server, name: str) -> None:
        self._server = server
        self.name = name
        self.classes = RemoteClasses(self)
        self.items = RemoteItems(self)
        self.people = RemotePeople(self)
        self.review = RemoteReview(self)
        self.suggestions = RemoteSuggestions(self)
        self.finish = RemoteFinish(self)

    def _get(self, path: str, **query: Any) -> Any:
        return self._server.get(f"/campaigns/{quote(self.name)}{path}", **query)

    def _post(
        self,
        path: str,
        body: Mapping[str, Any],
        method: str = "POST",
        *,
        is_repeatable: bool = True,
    ) -> Any:
        address = f"/campaigns/{quote(self.name)}{path}"
        return self._server.send(method, address, body, is_repeatable=is_repeatable)

    # Items and classes

    def add(self, items: Iterable[Any]) -> ImportResult:
        """Add items, a thousand at a time. They are encoded in the background.

        Args:
            items: Texts, pairs of an id and a text, or dictionaries, as ``Campaign.add`` takes
                them. Images are links.

        Returns:
            What happened to them, as ``Campaign.add`` says it. If a reply was lost, items that are
            there under their own ids count as new, because the lost request may have added them.
        """
        refuse_frame(items)
        kind = self._get("")["kind"]
        has_rows = self.settings.rows
        new = 0
        labelled = 0
        duplicates: list[tuple[str, str]] = []
        conflicts: list[tuple[str, str, str]] = []
        failed: list[tuple[str, str]] = []
        for part in _split_items(_as_item(entry, kind, has_rows) for entry in items):
            added = _read(ImportResult, self._post("/items", {"items": part}))
            conflicts += added.conflicting_items
            failed += added.failed_items

            added_before: set[str] = set()
            for item, same in added.duplicate_items:
                if self._server.was_repeated and item == same and item not in added_before:
                    added_before.add(item)
                else:
                    duplicates.append((item, same))

            new += added.new + len(added_before)
            if self._server.was_repeated:
                labelled += sum("label" in item for item in part) - added.conflicts
            else:
                labelled += added.labelled
        return ImportResult(
            new=new,
            duplicates=len(duplicates),
            labelled=labelled,
            conflicts=len(conflicts),
            failed=len(failed),
            duplicate_items=tuple(duplicates),
            conflicting_items=tuple(conflicts),
            failed_items=tuple(failed),
        )

    # Settings

    @property
    def settings(self) -> Settings:
        """The settings of the campaign. ``folder`` stays with the server."""
        return _read_settings(self._get("/settings"))

    def change_settings(self, **changes: Any) -> Settings:
        """Change settings, such as ``instructions`` or ``show``, and return all of them."""
        return _read_settings(self._post("/settings", changes, "PATCH"))

    # Labelling

    def ask(self, n: int) -> list[Question]:
        """Return n items to label; fewer if fewer are left. See ``Campaign.ask``."""
        while True:
            answer = self._get("/questions", n=n)
            questions = answer["questions"]
            if questions or answer["finished"]:
                return [_question(fields) for fields in questions]
            time.sleep(_POLL_SECONDS)

    def tell(self, item: str, label: str, *, comment: str | None = None) -> AnswerReceipt:
        """Record the class of an item. It is on the server's disk when this returns."""
        return self._answer(item, "label", label, comment)

    def skip(self, item: str, *, comment: str | None = None) -> AnswerReceipt:
        """Skip an item: it may be asked about again after the next training."""
        return self._answer(item, "skip", None, comment)

    def mark_unsure(self, item: str, *, comment: str | None = None) -> AnswerReceipt:
        """Say that an item's class cannot be told."""
        return self._answer(item, "unsure", None, comment)

    def flag(self, item: str, *, comment: str | None = None) -> AnswerReceipt:
        """Say that an item does not belong in the campaign."""
        return self._answer(item, "flag", None, comment)

    def _answer(
        self, item: str, kind: str, label: str | None, comment: str | None
    ) -> AnswerReceipt:
        body = {"item": str(item), "kind": kind, "label": label, "comment": comment}
        return _read(AnswerReceipt, self._post("/answers", body))

    def confirm_label(self, item: str, *, comment: str | None = None) -> AnswerReceipt:
        """Confirm an item's label after checking it. It is not suspected again while it stays."""
        return _read(AnswerReceipt, self._post("/keep", {"item": str(item), "comment": comment}))

    def undo(self, *, number: int | None = None) -> UndoResult | None:
        """Take back your last answer, and return it; None if you have none. See ``Campaign.undo``.

        Args:
            number: The answer to take back, as its receipt has it; your last one by default.
        """
        number = number or self._newest_number("/answers")
        if number is None:
            return None

        undone = self._post("/undo", {"number": number})
        return None if undone is None else _read(UndoResult, undone)

    def _newest_number(self, path: str) -> int | None:
        """Return the number of your last answer or decision: an undo names what it takes back."""
        recent = self._get(path, count=1)
        return int(recent[0]["number"]) if recent else None

    # Reviewing

    def decide(self, item: str, label: str | None, *, comment: str | None = None) -> AnswerReceipt:
        """Decide what an item is, whatever annotators say. See ``Campaign.decide``."""
        body = {"item": str(item), "label": label, "comment": comment}
        return _read(AnswerReceipt, self._post("/decisions", body))

    def undo_decision(self, *, number: int | None = None) -> Decision | None:
        """Take back your last decision, and return it; None if you have none."""
        number = number or self._newest_number("/decisions")
        if number is None:
            return None

        undone = self._post("/decisions/undo", {"number": number})
        return None if undone is None else _read(Decision, undone)

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
                suspects = _read(list[SuspectLabel], answer["suspects"])
                return suspects[:count]
            # Asking again for a new search would begin one each time.
            query = {}
            time.sleep(_POLL_SECONDS)

    # Models and results

    def encode(self, encoder: str | None = None) -> EncodingResult:
        """Compute the features of items that lack them, or switch to another encoder."""
        started = self._post("/encode", {"encoder": encoder}, is_repeatable=False)
        return _read(EncodingResult, self._wait_for_job(started["job"]))

    def train(self) -> ModelRound:
        """Train a model now, and return it.

        Raises:
            InputError: If fewer than two classes have labels.
        """
        result = self._wait_for_job(self._post("/train", {}, is_repeatable=False)["job"])
        trained = result["trained"]
        if trained is None:
            raise InputError("Fewer than two classes have labels: label items first, then train.")
        return _read(ModelRound, trained)

    def _wait_for_job(self, job: str) -> dict[str, Any]:
        while True:
            state = self._server.get(f"/jobs/{quote(job)}")
            if state["state"] == "failed":
                raise ServerError(str(state["detail"]))
            if state["state"] == "done":
                result: dict[str, Any] = state["result"]
                return result
            time.sleep(_POLL_SECONDS)

    def predict(self, contents: Sequence[str]) -> list[Prediction]:
        """Return the most probable class of new texts, each with a calibrated probability."""
        contents = require_texts(contents)
        predictions: list[Prediction] = []
        for start in range(0, len(contents), _MAX_ITEMS):
            part = contents[start : start + _MAX_ITEMS]
            answer = self._post("/predict", {"texts": part})
            predicted = answer["predictions"]
            predictions += [Prediction(entry["label"], entry["probability"]) for entry in predicted]
        return predictions

    def labels(self) -> dict[str, ConsensusLabel]:
        """Return the label of every labelled item by id. See ``Campaign.labels``."""
        return {
            row.item: ConsensusLabel(row.label, row.confidence, row.by)
            for row in self.items.find(state="labelled")
            if row.label is not None and row.confidence is not None and row.by is not None
        }

    def status(self) -> Status:
        """Return the progress of the campaign, with the advice on whether to stop."""
        return _read(Status, self._get("/progress")["status"])

    def history(self) -> list[dict[str, Any]]:
        """Return every change of the campaign, oldest first."""
        lines: list[dict[str, Any]] = []
        after = 0
        while True:
            page = self._get("/history", after=after, count=1000)
            lines += page["lines"]
            if page["after"] is None:
                return lines
            after = page["after"]

    def export(self, path: str | Path, form: str | None = None) -> int:
        """Write labels, predictions and all columns to a file.

        The formats ``datasets`` and ``image-folder`` write a folder.

        Args:
            path: The file. Its ending gives the format: .csv, .jsonl or .parquet.
            form: The format by name. See ``Campaign.export``.

        Returns:
            How many items have a label, without withdrawn ones.
        """
        target = Path(path)
        form = form or target.suffix.removeprefix(".") or _FOLDER_FORMAT
        content = self._server.read(f"/campaigns/{quote(self.name)}/export", form=form)

        if form not in _FOLDER_FORMATS:
            atomic_write(target, content)
        else:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                archive.extractall(target)
        return self.status().labelled


class RemoteClasses:
    """The classes of a campaign on a server: ``campaign.classes``."""

    def __init__(self, campaign: RemoteCampaign) -> None:
        self._campaign = campaign

    def names(self) -> tuple[str, ...]:
        """Return the names, in their order."""
        return tuple(entry.name for entry in self.all())

    def all(self) -> list[ClassInfo]:
        """Return the classes with their shortcuts and descriptions, in their order."""
        return _read(list[ClassInfo], self._campaign._get("/classes"))

    def descriptions(self) -> dict[str, ClassDescription]:
        """Return what the classes mean, by class; only of those that were described."""
        return {
            entry.name: ClassDescription(entry.description, entry.examples)
            for entry in self.all()
            if entry.description or entry.examples
        }

    def add(self, name: str) -> None:
        """Add a class. Labels stay as they are."""
        self._campaign._post("/classes", {"name": name})

    def rename(
        self, name: str, new_name: str, *, description: ClassDescription | str | None = None
    ) -> None:
        """Give a class another name, and a description if you like. Labels stay as they are."""
        body: dict[str, Any] = {"name": name, "new_name": new_name}
        if description is not None:
            body |= _describe_class(description)
        self._campaign._post("/classes", body, "PATCH")

    def describe(self, descriptions: Mapping[str, ClassDescription | str]) -> None:
        """Say what classes mean. See ``Classes.describe``."""
        classes = {name: _describe_class(given) for name, given in descriptions.items()}
        self._campaign._post("/classes/describe", {"classes": classes})


class RemoteItems:
    """The items of a campaign on a server: ``campaign.items``."""

    def __init__(self, campaign: RemoteCampaign) -> None:
        self._campaign = campaign

    def columns(self) -> list[TableColumn]:
        """Return the columns that the items came with, in the order of their files."""
        return _read(list[TableColumn], self._campaign._get("/columns"))

    def get(self, item: str) -> ItemDetails:
        """Return an item with its answers. Annotators see only their own answer."""
        return _read(ItemDetails, self._campaign._get("/item", id=item))

    def row(self, item: str) -> dict[str, Any]:
        """Return the columns that an item came with."""
        return self.get(item).row

    def find(
        self,
        *,
        search: str = "",
        label: str | None = None,
        state: ItemFilter | str = ItemFilter.ALL,
        column: str | Sequence[str] = (),
    ) -> Iterator[ItemRow]:
        """Yield items in their order, page by page. See ``Items.find``."""
        query = {"search": search, "state": str(state), "column": column, "count": 500}
        if label is not None:
            query["label"] = label
        while True:
            page = _read(ItemPage, self._campaign._get("/items", **query))
            yield from page.items
            if page.after is None:
                return
            query["after"] = page.after

    def change(
        self,
        item: str,
        *,
        text: str | None = None,
        features: Sequence[float] | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> bool:
        """Change the text, the features or columns of an item. See ``Items.change``."""
        body: dict[str, Any] = {"item": str(item), "text": text, "columns": columns}
        if features is not None:
            body["features"] = [float(value) for value in features]
        return bool(self._campaign._post("/item", body, "PATCH")["changed"])

    def withdraw(self, items: Iterable[str], *, reason: str | None = None) -> int:
        """Take items out of the campaign, a thousand at a time. See ``Items.withdraw``."""
        return self._move(items, "/items/withdraw", reason=reason)

    def put_back(self, items: Iterable[str]) -> int:
        """Put withdrawn items back, with everything they had. See ``Items.put_back``."""
        return self._move(items, "/items/put-back")

    def _move(self, items: Iterable[str], path: str, **fields: Any) -> int:
        if isinstance(items, str):
            raise InputError("Give a list of item ids, even for a single item.")

        moved = 0
        for part in _split_items(str(item) for item in items):
            moved += int(self._campaign._post(path, {"items": part, **fields})["items"])
        return moved


class RemotePeople:
    """The members of a campaign on a server, for owners."""

    def __init__(self, campaign: RemoteCampaign) -> None:
        self._campaign = campaign

    def stats(self) -> list[AnnotatorStats]:
        """Return how fast and how accurate people are: members, then others who have answered."""
        return _read(list[AnnotatorStats], self._campaign._get("/team"))

    def add(self, name: str, role: str = Role.ANNOTATOR) -> str:
        """Add a member, and return their token. The first one must be you, as an owner."""
        return str(self._campaign._post("/people", {"name": name, "role": role})["token"])

    def new_token(self, name: str) -> str:
        """Replace a member's token, and return the new one. The old one no longer works."""
        return str(self._campaign._post("/people/token", {"name": name})["token"])

    def change_role(self, name: str, role: str) -> MemberChange:
        """Give a member another role."""
        return self._change("role", name, role=role)

    def revoke(self, name: str) -> MemberChange:
        """Revoke a member's token. Their sessions end."""
        return self._change("revoke", name)

    def remove(self, name: str) -> MemberChange:
        """Remove a member. Their answers stay, and others can get their open items."""
        return self._change("remove", name)

    def release(self, name: str) -> MemberChange:
        """Let others have the open items of an annotator."""
        return self._change("release", name)

    def _change(self, action: str, name: str, **fields: str) -> MemberChange:
        answer = self._campaign._post(f"/people/{action}", {"name": name, **fields})
        return _read(MemberChange, answer)


class RemoteReview:
    """The reviews of a campaign on a server."""

    def __init__(self, campaign: RemoteCampaign) -> None:
        self._campaign = campaign

    def agreement(self) -> Agreement:
        """Return how far annotators agree: overall, by class and by pair."""
        return _read(Agreement, self._campaign._get("/agreement"))


class RemoteSuggestions:
    """What other models say of the items of a campaign on a server."""

    def __init__(self, campaign: RemoteCampaign) -> None:
        self._campaign = campaign

    def add(
        self, predictions: str | Path | Iterable[Mapping[str, Any]], source: str
    ) -> PredictionImport:
        """Add the predictions of another model as suggestions. They never become labels.

        Args:
            predictions: A file (.csv, .jsonl or .parquet), or rows, as ``Suggestions.add`` takes
                them.
            source: What they are called. Earlier predictions of that name are replaced.
        """
        if isinstance(predictions, str | Path):
            path = Path(predictions)
            name = path.name
            content = _read_file(path)
        else:
            name = "predictions.jsonl"
            content = "".join(f"{_dump_json(row)}\n" for row in predictions).encode()

        address = f"/campaigns/{quote(self._campaign.name)}/predictions"
        stored = self._campaign._server.upload(address, {"source": source}, name, content)
        return _read(PredictionImport, stored)

    def sources(self) -> list[SourceReport]:
        """Return the sources of suggestions, and how often annotators agree with each."""
        return _read(list[SourceReport], self._campaign._get("/sources"))

    def remove(self, name: str) -> None:
        """Remove a source and all its suggestions."""
        self._campaign._post("/sources/remove", {"name": name})


class RemoteFinish:
    """The promise of a campaign on a server, and its certificates."""

    def __init__(self, campaign: RemoteCampaign) -> None:
        self._campaign = campaign

    def look(self) -> FinishReport:
        """Return which items the model may label, with a promise of how many labels are wrong."""
        return _read(FinishReport, self._campaign._get("/finish"))

    def start(
        self,
        error: float = 0.05,
        confidence: float = 0.95,
        *,
        per_class: bool = False,
        draws: int | None = None,
    ) -> FinishReport:
        """Freeze the newest model, and ask about random items next.

        Raises:
            InputError: If there are answers that the model does not know: call ``train`` first.
        """
        body = {"error": error, "confidence": confidence, "per_class": per_class, "draws": draws}
        return _read(FinishReport, self._campaign._post("/finish", body))

    def draw(self, count: int) -> FinishReport:
        """Let the next questions be ``count`` items drawn at random; 0 to go back to picks."""
        return _read(FinishReport, self._campaign._post("/finish/draws", {"count": count}))

    def certify(self) -> Certificate:
        """Write down what is promised now. Exports then include the model's labels."""
        return _read(Certificate, self._campaign._post("/finish/certificates", {}))

    def certificate(self, id: str) -> Certificate:
        """Return a certificate by its id."""
        return _read(Certificate, self._campaign._get(f"/finish/certificates/{quote(id)}"))

    def certificates(self) -> list[Certificate]:
        """Return all certificates, oldest first."""
        return _read(list[Certificate], self._campaign._get("/finish/certificates"))


class _Server:
    """The REST API of a server, for one user."""

    def __init__(self, origin: str, token: str | None) -> None:
        self._origin = origin
        self._token = token
        self._csrf: str | None = None
        self._http = _open_http_client(origin)
        self.was_repeated = False
        """Whether the last request was sent more than once."""

    def get(self, path: str, **query: Any) -> Any:
        """Return the JSON that the server answers with."""
        return json.loads(self.read(path, **query))

    def read(self, path: str, **query: Any) -> bytes:
        """Return the body that the server answers with."""
        return self._request("GET", path, params=query)

    def send(
        self, method: str, path: str, body: Mapping[str, Any], *, is_repeatable: bool = True
    ) -> Any:
        """Send JSON, and return the JSON that the server answers with."""
        self._ensure_csrf_token()
        content = _dump_json(body).encode()
        headers = {"content-type": "application/json"}
        return json.loads(
            self._request(
                method, path, is_repeatable=is_repeatable, content=content, headers=headers
            )
        )

    def upload(self, path: str, fields: Mapping[str, str], name: str, content: bytes) -> Any:
        """Send a file and the fields of a form, and return the JSON of the answer."""
        self._ensure_csrf_token()
        files = {"file": (name, content)}
        return json.loads(self._request("POST", path, data=fields, files=files))

    def _ensure_csrf_token(self) -> None:
        if self._token is None and self._csrf is None:
            self._csrf = self.get("/session")["csrf"]

    def _request(
        self, method: str, path: str, *, is_repeatable: bool = True, **options: Any
    ) -> bytes:
        headers = {"user-agent": f"teeter/{__version__}", "accept": "application/json"}
        headers |= options.pop("headers", {})
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        if self._csrf is not None:
            headers["x-csrf-token"] = self._csrf

        def send_once() -> bytes:
            try:
                response = self._http.request(method, f"{_API}{path}", headers=headers, **options)
            except httpx2.RequestError as error:
                raise AttemptFailedError(f"{self._origin} does not answer: {error}.") from None
            if response.is_success:
                return response.content
            raise _as_error(response)

        def pause(seconds: float) -> None:
            time.sleep(seconds)
            self.was_repeated = True

        self.was_repeated = False
        return retry(
            send_once,
            attempts=_ATTEMPTS if is_repeatable else 1,
            first_pause=_FIRST_PAUSE,
            longest_pause=_LONGEST_PAUSE,
            sleep=pause,
        )


def _open_http_client(origin: str) -> httpx2.Client:
    """Return what sends requests. It follows no redirect, which would take the token elsewhere."""
    return httpx2.Client(
        base_url=origin,
        timeout=_TIMEOUT_SECONDS,
        # A campaign is never closed, so no connection stays open.
        limits=httpx2.Limits(max_keepalive_connections=0),
        # A proxy from the environment cannot reach servers on this machine.
        trust_env=not is_loopback_url(origin),
    )


def _read(record: type[ItemT], answer: Any) -> ItemT:
    """Return a record that a server sent. Fields that this version does not know are left out."""
    return TypeAdapter(record).validate_python(answer)


def _read_settings(values: Mapping[str, Any]) -> Settings:
    """Return the settings that a server sent; one that this version does not know is left out."""
    known = {field.name for field in fields(Settings)}
    return Settings(**{name: value for name, value in values.items() if name in known})


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


def _as_error(response: httpx2.Response) -> Exception:
    """Return the error that stands for an answer of the server."""
    status = response.status_code
    try:
        sentence = str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        sentence = f"The server answered with status {status}."

    if response.is_redirect:
        return ServerError(
            f"The server redirects to {response.headers.get('location', 'another address')[:200]}, "
            "where the token is not sent: connect to that server if you trust it."
        )
    if status in (401, 403):
        return PermissionDeniedError(sentence)
    if status == 404:
        return UnknownItemError(sentence)
    if status == 422:
        return InputError(sentence)
    # The database is away, or the server is busy. Anything else would fail again.
    if status == 503:
        return AttemptFailedError(sentence, response.headers)
    return ServerError(sentence)


def _as_item(entry: Any, kind: str, has_rows: bool) -> dict[str, Any]:
    """Return an item as the REST API takes it."""
    if has_rows and isinstance(entry, Mapping):
        row = {name: str(entry[name]) for name in ("id", "label") if entry.get(name) is not None}
        columns = {name: value for name, value in entry.items() if name not in ("id", "label")}
        return {**row, "columns": columns}
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


def _split_items(items: Iterable[ItemT]) -> Iterator[list[ItemT]]:
    """Yield items, or ids of items, in parts that fit into one request."""
    part: list[ItemT] = []
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


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror}.") from None


def _describe_class(given: ClassDescription | str) -> dict[str, Any]:
    description = ClassDescription(given) if isinstance(given, str) else given
    return {"description": description.description, "examples": list(description.examples)}


def _as_estimate(fields: Mapping[str, Any] | None) -> AccuracyEstimate | None:
    return None if fields is None else AccuracyEstimate(**fields)


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
