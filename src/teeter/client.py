"""A campaign on another machine, with the same methods as ``teeter.Campaign``.

Everything goes over the server's REST API. When the connection breaks, or the server is busy
(status 503), a request is sent again: it may have been done already, and done again it does nothing
more. The list in "Connect other systems" says why, for each request that changes something.
``train`` and ``encode``, which are not on it, are sent once.

An answer becomes the record that the server made it from. Fields that this version does not know
are left out, and those that an older server does not send have their defaults.

Programs that only talk to a server should start at once, so importing this module loads neither
torch nor NumPy nor SQLAlchemy.
"""

from __future__ import annotations

import io
import json
import time
import uuid
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import date
from datetime import time as clock_time
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

import httpx2
from pydantic import TypeAdapter

from teeter.base.files import atomic_write
from teeter.base.outbound_http import AttemptFailedError, is_loopback_url, retry
from teeter.base.version import __version__
from teeter.campaigns.records import (
    ITEM_FIELDS,
    ROW_FIELDS,
    Agreement,
    AnnotatorStats,
    AnswerKind,
    AnswerReceipt,
    AuditReport,
    CampaignProgress,
    Certificate,
    ClassAccuracy,
    ClassDescription,
    ClassInfo,
    ConsensusLabel,
    Decision,
    EncodingResult,
    FinishReport,
    GoalReport,
    HistoryPage,
    ImportResult,
    ItemDetails,
    ItemFilter,
    ItemPage,
    ItemRow,
    ItemSort,
    Job,
    JobState,
    MemberChange,
    ModelRound,
    PredictionImport,
    Question,
    RecentAnswer,
    Role,
    ShownQuestion,
    SourceReport,
    Status,
    SuspectLabel,
    TableColumn,
    UndoResult,
)
from teeter.campaigns.settings import Settings
from teeter.errors import (
    FileError,
    InputError,
    PermissionDeniedError,
    ServerError,
    UnknownItemError,
    UnknownNameError,
)

if TYPE_CHECKING:
    from teeter.classifier import Prediction

RecordT = TypeVar("RecordT")

_API = "/api/v1"
_MAX_ITEMS = 1000
"""Items of one request, and below, characters of one."""
_MAX_CHARACTERS = 700_000

_MAX_FILE_ROWS = 100_000
"""Rows of a data frame that are sent at a time, and below, their bytes."""
_MAX_FILE_BYTES = 20_000_000

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

    names = [entry["slug"] for entry in json.loads(server.request("GET", "/campaigns"))]
    if campaign is None and len(names) == 1:
        campaign = names[0]
    if campaign not in names:
        listed = ", ".join(names) or "none"
        asked = "Which campaign" if campaign is None else f"There is no campaign {campaign!r}"
        raise UnknownNameError(f"{asked}: this server has {listed}.")
    return RemoteCampaign(server, str(campaign))


class _Remote:
    """A campaign on a server, or a part of it: sends requests, and reads records."""

    def __init__(self, server: _Server, name: str) -> None:
        self._server = server
        self.name = name
        self._address = f"/campaigns/{quote(name)}"

    def _get(self, record: type[RecordT], path: str, **query: Any) -> RecordT:
        return _read(record, self._server.request("GET", self._address + path, params=query))

    def _send(
        self,
        record: type[RecordT],
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        method: str = "POST",
        is_repeatable: bool = True,
    ) -> RecordT:
        answer = self._server.request(
            method,
            self._address + path,
            is_repeatable=is_repeatable,
            content=_dump_json(body or {}).encode(),
        )
        return _read(record, answer)

    def _undo(self, record: Any, recent_path: str, path: str, number: int | None) -> Any:
        """Take back an answer or decision by its number: an undo names what it takes back."""
        if number is None:
            recent = self._get(list[RecentAnswer], recent_path, count=1)
            if not recent:
                return None
            number = recent[0].number
        return self._send(record, path, {"number": number})

    def _wait_for(self, record: Any, job: Job[Any], path: str) -> Any:
        """Return the result of a job, whose state is found at a path."""
        while job.state is JobState.WAITING:
            time.sleep(_POLL_SECONDS)
            job = _read(Job[Any], self._server.request("GET", path))
        if job.state is JobState.FAILED:
            raise ServerError(str(job.detail))
        return TypeAdapter(record).validate_python(job.result)


class RemoteCampaign(_Remote):
    """A campaign on a server. Use ``teeter.connect`` to get one.

    The annotator is the user of the token, so no method has the arguments ``annotator`` and
    ``who``. What the methods return has the types that it has in ``teeter.Campaign``.
    """

    def __init__(self, server: _Server, name: str) -> None:
        super().__init__(server, name)
        self.classes = RemoteClasses(server, name)
        self.items = RemoteItems(server, name)
        self.people = RemotePeople(server, name)
        self.review = RemoteReview(server, name)
        self.suggestions = RemoteSuggestions(server, name)
        self.finish = RemoteFinish(server, name)
        self.judges = RemoteJudges(server, name)

    # Items and settings

    def add(self, items: Iterable[Any]) -> ImportResult:
        """Add items, a thousand at a time. They are encoded in the background.

        Args:
            items: A data frame, or texts, pairs of an id and a text, or dictionaries, as
                ``Campaign.add`` takes them. Images are links.

        Returns:
            What happened to them, as ``Campaign.add`` says it. If a reply was lost, items that are
            there under their own ids count as new, because the lost request may have added them.
        """
        from teeter.data.table_files import arrow_table_of

        table = arrow_table_of(items)
        if table is not None:
            return self._add_table(table)
        settings = self.settings
        result = ImportResult()
        for part in _split_items(_as_item(entry, settings) for entry in items):
            added = self._send(ImportResult, "/items", {"items": part})
            if self._server.was_repeated:
                # What the request before this one would have returned.
                duplicates = []
                added_before: set[str] = set()
                for item, same in added.duplicate_items:
                    if item == same and item not in added_before:
                        added_before.add(item)
                    else:
                        duplicates.append((item, same))
                added = replace(
                    added,
                    new=added.new + len(added_before),
                    duplicates=len(duplicates),
                    duplicate_items=tuple(duplicates),
                    labelled=sum("label" in item for item in part) - added.conflicts,
                )
            result = result.plus(added)
        return result

    def _add_table(self, table: Any) -> ImportResult:
        """Add the rows of a ``pyarrow.Table`` as files, each with a part of them."""
        from pyarrow import ArrowException, parquet

        n_files = 1 + max(table.num_rows // _MAX_FILE_ROWS, table.nbytes // _MAX_FILE_BYTES)
        rows = -(-table.num_rows // n_files)
        result = ImportResult()
        for start in range(0, table.num_rows, rows):
            content = io.BytesIO()
            try:
                parquet.write_table(table.slice(start, rows), content)
            except ArrowException as error:
                raise InputError(f"The data frame cannot be sent: {error}") from None
            files = {"file": ("frame.parquet", content.getvalue())}
            answer = self._server.request("POST", f"{self._address}/items/file", files=files)
            job = _read(Job[Any], answer)
            result = result.plus(self._wait_for(ImportResult, job, f"/jobs/{job.job}"))
        return result

    @property
    def settings(self) -> Settings:
        """The settings of the campaign. ``folder`` stays with the server."""
        return self._get(Settings, "/settings")

    def change_settings(self, **changes: Any) -> Settings:
        """Change settings, such as ``instructions`` or ``show``, and return all of them."""
        return self._send(Settings, "/settings", changes, method="PATCH")

    # Labelling

    def ask(self, n: int) -> list[Question]:
        """Return n items to label; fewer if fewer are left. See ``Campaign.ask``."""
        while True:
            answer = self._get(dict[str, Any], "/questions", n=n)
            if answer["questions"] or answer["finished"]:
                questions = TypeAdapter(list[ShownQuestion]).validate_python(answer["questions"])
                return [question.as_question() for question in questions]
            time.sleep(_POLL_SECONDS)

    def tell(
        self,
        item: str,
        label: str | Collection[str],
        *,
        comment: str | None = None,
        copies: bool = False,
    ) -> AnswerReceipt:
        """Record the class of an item, or all its labels if it may have several.

        With ``copies``, it is recorded for its near copies, too; see ``Campaign.answer``. It is on
        the server's disk when this returns.
        """
        return self._answer(item, AnswerKind.LABEL, comment, label, copies=copies)

    def tell_all(self, items: Sequence[str], label: str | Collection[str]) -> AnswerReceipt:
        """Record one class, or all labels, for up to 200 items at once.

        One ``undo`` takes all of it back.
        """
        body = {"items": [str(item) for item in items], "label": _label_as_json(label)}
        return self._send(AnswerReceipt, "/answers/bulk", body)

    def skip(self, item: str, *, comment: str | None = None) -> AnswerReceipt:
        """Skip an item: it may be asked about again after the next training."""
        return self._answer(item, AnswerKind.SKIP, comment)

    def mark_unsure(self, item: str, *, comment: str | None = None) -> AnswerReceipt:
        """Say that an item's class cannot be told."""
        return self._answer(item, AnswerKind.UNSURE, comment)

    def flag(self, item: str, *, comment: str | None = None) -> AnswerReceipt:
        """Say that an item does not belong in the campaign."""
        return self._answer(item, AnswerKind.FLAG, comment)

    def _answer(
        self,
        item: str,
        kind: AnswerKind,
        comment: str | None,
        label: str | Collection[str] | None = None,
        *,
        copies: bool = False,
    ) -> AnswerReceipt:
        given = _label_as_json(label)
        body = {"item": str(item), "kind": kind, "label": given, "comment": comment}
        return self._send(AnswerReceipt, "/answers", body | {"copies": copies})

    def confirm_label(self, item: str, *, comment: str | None = None) -> AnswerReceipt:
        """Confirm an item's label after checking it. It is not suspected again while it stays."""
        return self._send(AnswerReceipt, "/keep", {"item": str(item), "comment": comment})

    def undo(self, *, number: int | None = None) -> UndoResult | None:
        """Take back your last answer, and return it; None if you have none. See ``Campaign.undo``.

        Args:
            number: The answer to take back, as its receipt has it; your last one by default.
        """
        undone: UndoResult | None = self._undo(UndoResult | None, "/answers", "/undo", number)
        return undone

    # Models and results

    def encode(self, encoder: str | None = None) -> EncodingResult:
        """Compute the features of items that lack them, or switch to another encoder."""
        job = self._send(Job[Any], "/encode", {"encoder": encoder}, is_repeatable=False)
        result: EncodingResult = self._wait_for(EncodingResult, job, f"/jobs/{job.job}")
        return result

    def train(self) -> ModelRound:
        """Train a model now, and return it.

        Raises:
            InputError: If fewer than two classes have labels.
        """
        job = self._send(Job[Any], "/train", is_repeatable=False)
        model: ModelRound | None = self._wait_for(ModelRound | None, job, f"/jobs/{job.job}")
        if model is None:
            raise InputError("Fewer than two classes have labels: label items first, then train.")
        return model

    def predict(self, contents: Sequence[str]) -> list[Prediction]:
        """Return the most probable class of new texts, each with a calibrated probability."""
        from teeter.classifier import Prediction
        from teeter.classifier.classifier import require_texts

        contents = require_texts(contents)
        predictions: list[Prediction] = []
        for start in range(0, len(contents), _MAX_ITEMS):
            texts = contents[start : start + _MAX_ITEMS]
            predictions += self._send(list[Prediction], "/predict", {"texts": texts})
        return predictions

    def labels(self) -> dict[str, ConsensusLabel]:
        """Return the label of every labelled item by id. See ``Campaign.labels``."""
        rows = self.items.find(state=ItemFilter.LABELLED)
        return {row.item: row.consensus for row in rows if row.consensus is not None}

    def status(self) -> Status:
        """Return the progress of the campaign, with the advice on whether to stop."""
        return self._get(CampaignProgress, "/progress").status

    def history(self) -> list[dict[str, Any]]:
        """Return every change of the campaign, oldest first."""
        lines: list[dict[str, Any]] = []
        after: int | None = 0
        while after is not None:
            page = self._get(HistoryPage, "/history", after=after, count=1000)
            lines += page.lines
            after = page.after
        return lines

    def export(self, path: str | Path, form: str | None = None, *, reveal: bool = False) -> int:
        """Write labels, predictions and all columns to a file.

        The formats ``datasets`` and ``image-folder`` write a folder.

        Args:
            path: The file. Its ending gives the format: .csv, .xlsx, .jsonl or .parquet.
            form: The format by name. See ``Campaign.export``.
            reveal: Export although an audit goes on.

        Returns:
            How many items have a label, without withdrawn ones.
        """
        target = Path(path)
        form = form or target.suffix.removeprefix(".") or _FOLDER_FORMAT
        content = self._server.request(
            "GET", f"{self._address}/export", params={"form": form, "reveal": reveal}
        )

        if form not in _FOLDER_FORMATS:
            atomic_write(target, content)
        else:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                archive.extractall(target)
        return self.status().labelled

    def to_frame(self, kind: str | None = None, *, reveal: bool = False) -> Any:
        """Return your table with the labels as a data frame. See ``Campaign.to_frame``."""
        # Needs numpy and pyarrow, which the other methods do without.
        from teeter.campaigns.items.arrow_columns import frame_of_export

        with TemporaryDirectory(prefix="teeter-") as folder:
            self.export(Path(folder) / "items.parquet", reveal=reveal)
            return frame_of_export(Path(folder) / "items.parquet", kind)


class RemoteClasses(_Remote):
    """The classes of a campaign on a server: ``campaign.classes``."""

    def names(self) -> tuple[str, ...]:
        """Return the names, in their order."""
        return tuple(entry.name for entry in self.all())

    def all(self) -> list[ClassInfo]:
        """Return the classes with their shortcuts and descriptions, in their order."""
        return self._get(list[ClassInfo], "/classes")

    def descriptions(self) -> dict[str, ClassDescription]:
        """Return what the classes mean, by class; only of those that were described."""
        described = [entry for entry in self.all() if entry.description or entry.examples]
        return {
            entry.name: ClassDescription(entry.description, entry.examples) for entry in described
        }

    def add(self, name: str) -> None:
        """Add a class. Labels stay as they are."""
        self._send(list[ClassInfo], "/classes", {"name": name})

    def rename(
        self, name: str, new_name: str, *, description: ClassDescription | str | None = None
    ) -> None:
        """Give a class another name, and a description if you like. Labels stay as they are."""
        body: dict[str, Any] = {"name": name, "new_name": new_name}
        if description is not None:
            body |= _describe_class(description)
        self._send(list[ClassInfo], "/classes", body, method="PATCH")

    def merge(self, name: str, into: str) -> None:
        """Make a class part of another one. See ``Classes.merge``."""
        self._send(list[ClassInfo], "/classes/merge", {"name": name, "into": into})

    def remove(self, name: str) -> None:
        """Remove a class that nothing names."""
        self._send(list[ClassInfo], "/classes/remove", {"name": name})

    def describe(self, descriptions: Mapping[str, ClassDescription | str]) -> None:
        """Say what classes mean. See ``Classes.describe``."""
        classes = {name: _describe_class(given) for name, given in descriptions.items()}
        self._send(list[ClassInfo], "/classes/describe", {"classes": classes})


class RemoteItems(_Remote):
    """The items of a campaign on a server: ``campaign.items``."""

    def columns(self) -> list[TableColumn]:
        """Return the columns that the items came with, in the order of their files."""
        return self._get(list[TableColumn], "/columns")

    def get(self, item: str) -> ItemDetails:
        """Return an item with its answers. Annotators see only their own answer."""
        return self._get(ItemDetails, "/item", id=item)

    def row(self, item: str) -> dict[str, Any]:
        """Return the columns that an item came with."""
        return self.get(item).row

    def find(
        self,
        *,
        search: str = "",
        meaning: str = "",
        like: str | None = None,
        label: str | None = None,
        predicted: str | None = None,
        differs: bool = False,
        state: ItemFilter | str = ItemFilter.ALL,
        column: str | Sequence[str] = (),
        sort: ItemSort | str | None = None,
        descending: bool = False,
    ) -> Iterator[ItemRow]:
        """Yield the items that fit, page by page. See ``Items.find``."""
        query: dict[str, Any] = {
            "search": search,
            "meaning": meaning,
            "like": like,
            "label": label,
            "predicted": predicted,
            "differs": differs,
            "state": str(state),
            "column": column,
            "sort": sort,
            "descending": descending,
            "count": 500,
        }
        query = {name: value for name, value in query.items() if value is not None}
        offset = 0
        while True:
            page = self._get(ItemPage, "/items", **query)
            yield from page.items
            # Items that get a label meanwhile may leave the list: row ids stay, places do not.
            if page.after is not None:
                query["after"] = page.after
                continue
            offset += len(page.items)
            if not page.items or "after" in query or offset >= page.hits:
                return
            query["offset"] = offset

    def change(
        self,
        item: str,
        *,
        text: str | None = None,
        features: Sequence[float] | None = None,
        columns: Mapping[str, Any] | None = None,
    ) -> bool:
        """Change the text, the features or columns of an item. See ``Items.change``."""
        body = {"item": str(item), "text": text, "features": features, "columns": columns}
        return self._send(bool, "/item", body, method="PATCH")

    def withdraw(self, items: Iterable[str], *, reason: str | None = None) -> int:
        """Take items out of the campaign, a thousand at a time. See ``Items.withdraw``."""
        return self._move(items, "/items/withdraw", reason=reason)

    def put_back(self, items: Iterable[str]) -> int:
        """Put withdrawn items back, with everything they had. See ``Items.put_back``."""
        return self._move(items, "/items/put-back")

    def _move(self, items: Iterable[str], path: str, **fields: Any) -> int:
        if isinstance(items, str):
            raise InputError("Give a list of item ids, even for a single item.")

        parts = _split_items(str(item) for item in items)
        return sum(self._send(int, path, {"items": part, **fields}) for part in parts)


class RemotePeople(_Remote):
    """The members of a campaign on a server, for owners."""

    def stats(self) -> list[AnnotatorStats]:
        """Return how fast and how accurate people are: members, then others who have answered."""
        return self._get(list[AnnotatorStats], "/team")

    def add(self, name: str, role: str = Role.ANNOTATOR) -> str:
        """Add a member, and return their token. The first one must be you, as an owner."""
        added = self._send(dict[str, str], "/people", {"name": name, "role": role})
        return added["token"]

    def new_token(self, name: str) -> str:
        """Replace a member's token, and return the new one. The old one no longer works."""
        return self._send(dict[str, str], "/people/token", {"name": name})["token"]

    def change_role(self, name: str, role: str) -> MemberChange:
        """Give a member another role."""
        return self._send(MemberChange, "/people/role", {"name": name, "role": role})

    def revoke(self, name: str) -> MemberChange:
        """Revoke a member's token. Their sessions end."""
        return self._send(MemberChange, "/people/revoke", {"name": name})

    def remove(self, name: str) -> MemberChange:
        """Remove a member. Their answers stay, and others can get their open items."""
        return self._send(MemberChange, "/people/remove", {"name": name})

    def release(self, name: str) -> MemberChange:
        """Let others have the open items of an annotator."""
        return self._send(MemberChange, "/people/release", {"name": name})


class RemoteReview(_Remote):
    """The reviews of a campaign on a server."""

    def suspects(self, count: int = 20, *, refresh: bool = False) -> list[SuspectLabel]:
        """Return labels that a model which was not trained on them finds unlikely.

        Args:
            count: How many labels to return at most. The server decides how many it searches for.
            refresh: Search again, even if the server remembers the last result.
        """
        job = self._get(Job[Any], "/suspects", again=refresh)
        # Asking again for a new search would begin one each time.
        suspects: list[SuspectLabel] = self._wait_for(
            list[SuspectLabel], job, f"{self._address}/suspects"
        )
        return suspects[:count]

    def decide(self, item: str, label: str | None, *, comment: str | None = None) -> AnswerReceipt:
        """Decide what an item is, whatever annotators say. See ``Review.decide``."""
        body = {"item": str(item), "label": label, "comment": comment}
        return self._send(AnswerReceipt, "/decisions", body)

    def undo_decision(self, *, number: int | None = None) -> Decision | None:
        """Take back your last decision, and return it; None if you have none."""
        decision: Decision | None = self._undo(
            Decision | None, "/decisions", "/decisions/undo", number
        )
        return decision

    def confusion(self) -> list[ClassAccuracy]:
        """Return what the model takes the items of each class for. See ``Review.confusion``."""
        return self._get(list[ClassAccuracy], "/confusion")

    def agreement(self) -> Agreement:
        """Return how far annotators agree: overall, by class and by pair."""
        return self._get(Agreement, "/agreement")


class RemoteSuggestions(_Remote):
    """What other models say of the items of a campaign on a server."""

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
            try:
                content = path.read_bytes()
            except OSError as error:
                raise FileError(f"Cannot read {path}: {error.strerror}.") from None
        else:
            name = "predictions.jsonl"
            lines = [f"{_dump_json(row)}\n" for row in predictions]
            content = "".join(lines).encode()

        stored = self._server.request(
            "POST",
            f"{self._address}/predictions",
            data={"source": source},
            files={"file": (name, content)},
        )
        return _read(PredictionImport, stored)

    def sources(self) -> list[SourceReport]:
        """Return the sources of suggestions, and how often annotators agree with each."""
        return self._get(list[SourceReport], "/sources")

    def remove(self, name: str) -> None:
        """Remove a source and all its suggestions."""
        self._send(list[SourceReport], "/sources/remove", {"name": name})


class RemoteFinish(_Remote):
    """The promise of a campaign on a server, and its certificates."""

    def look(self) -> FinishReport:
        """Return which items the model may label, with a promise of how many labels are wrong."""
        return self._get(FinishReport, "/finish")

    def start(
        self,
        error: float = 0.05,
        confidence: float = 0.95,
        *,
        per_class: bool = False,
        labelled: float | None = None,
        draws: int | None = None,
    ) -> FinishReport:
        """Freeze the newest model, and ask about random items next.

        Raises:
            InputError: If there are answers that the model does not know: call ``train`` first.
        """
        terms = {
            "error": error,
            "confidence": confidence,
            "per_class": per_class,
            "labelled": labelled,
            "draws": draws,
        }
        return self._send(FinishReport, "/finish", terms)

    def draw(self, count: int) -> FinishReport:
        """Let the next questions be ``count`` items drawn at random; 0 to go back to picks."""
        return self._send(FinishReport, "/finish/draws", {"count": count})

    def certify(self) -> Certificate:
        """Write down what is promised now. Exports then include the model's labels."""
        return self._send(Certificate, "/finish/certificates")

    def goal(self) -> GoalReport | None:
        """Return how far the campaign is from its goal; None without a goal."""
        optional: Any = GoalReport | None
        report: GoalReport | None = self._get(optional, "/finish/goal")
        return report

    def certificate(self, id: str) -> Certificate:
        """Return a certificate by its id."""
        return self._get(Certificate, f"/finish/certificates/{quote(id)}")

    def certificates(self) -> list[Certificate]:
        """Return all certificates, oldest first."""
        return self._get(list[Certificate], "/finish/certificates")


class RemoteJudges(_Remote):
    """The judges of an audit on a server."""

    def report(self) -> AuditReport:
        """Return what the answers so far say of each judge. See ``Judges.report``."""
        return self._get(AuditReport, "/judges")

    def end(self) -> AuditReport:
        """End the audit: what judges say is hidden no more. See ``Judges.end``."""
        return self._send(AuditReport, "/judges/end")


class _Server:
    """The REST API of a server, for one user."""

    def __init__(self, origin: str, token: str | None) -> None:
        self._origin = origin
        self._token = token
        self._csrf: str | None = None
        self._http = _open_http_client(origin)
        self.was_repeated = False
        """Whether the last request was sent more than once."""

    def request(
        self, method: str, path: str, *, is_repeatable: bool = True, **options: Any
    ) -> bytes:
        """Return the body that the server answers with."""
        headers = {"user-agent": f"teeter/{__version__}", "accept": "application/json"}
        if "content" in options:
            headers["content-type"] = "application/json"
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        elif method != "GET":
            if not self._csrf:
                session = json.loads(self.request("GET", "/session"))
                self._csrf = session["csrf"]
            headers["x-csrf-token"] = str(self._csrf)

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


def _read(record: type[RecordT], answer: bytes) -> RecordT:
    return TypeAdapter(record).validate_python(json.loads(answer))


def _dump_json(value: Any) -> str:
    return json.dumps(value, default=_as_json)


def _as_json(value: Any) -> Any:
    """Return a value of a column as JSON has it: dates as text, numbers of numpy as numbers."""
    if isinstance(value, date | clock_time):
        return value.isoformat()
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Path | Decimal | uuid.UUID):
        return str(value)
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
    # The database is away, or the server is busy. Anything else would fail again.
    if status == 503:
        return AttemptFailedError(sentence, response.headers)
    return _ERROR_BY_STATUS.get(status, ServerError)(sentence)


_ERROR_BY_STATUS: dict[int, type[Exception]] = {
    401: PermissionDeniedError,
    403: PermissionDeniedError,
    404: UnknownItemError,
    422: InputError,
}


def _as_item(entry: Any, settings: Settings) -> dict[str, Any]:
    """Return an item as the REST API takes it."""
    if isinstance(entry, str):
        entry = {settings.kind: entry}
    elif isinstance(entry, tuple) and len(entry) == 2:
        entry = {"id": entry[0], settings.kind: entry[1]}
    elif not isinstance(entry, Mapping):
        raise InputError(f"An item cannot be of type {type(entry).__name__}.")

    fields = ROW_FIELDS if settings.rows else ITEM_FIELDS
    item = {name: entry[name] for name in fields if entry.get(name) is not None}
    for name in ROW_FIELDS & item.keys():
        item[name] = str(item[name])
    columns = {name: value for name, value in entry.items() if name not in fields}
    if columns:
        item["columns"] = columns
    return item


def _split_items(items: Iterable[RecordT]) -> Iterator[list[RecordT]]:
    """Yield items, or ids of items, in parts that fit into one request."""
    part: list[RecordT] = []
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


def _describe_class(given: ClassDescription | str) -> dict[str, Any]:
    if isinstance(given, str):
        given = ClassDescription(given)
    return asdict(given)


def _label_as_json(label: str | Collection[str] | None) -> str | list[str] | None:
    """Return a label, or several as the list that JSON has for any collection."""
    if label is None or isinstance(label, str):
        return label
    return list(label)
