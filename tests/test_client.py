"""``teeter.connect``: a campaign on a server, with the methods of one on disk."""

from __future__ import annotations

import datetime
import inspect
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pyarrow
import pytest
from fastapi.testclient import TestClient

import teeter
from campaigns.finish.audits import answer_rightly, make_audit
from server.servers import make_text_campaign, serve_campaigns
from teeter import client as client_module
from teeter.campaigns import Campaign, Settings
from teeter.campaigns.classes import Classes
from teeter.campaigns.finish.audit_report import Judges
from teeter.campaigns.finish.finish import Finish
from teeter.campaigns.items.items import Items
from teeter.campaigns.people import People
from teeter.campaigns.records import (
    AnswerKind,
    ClassDescription,
    ColumnType,
    ConsensusLabel,
    Decision,
    EncodingResult,
    FinishReport,
    MemberChange,
    Role,
    SourceReport,
    TableColumn,
    UndoResult,
)
from teeter.campaigns.review.review import Review
from teeter.campaigns.store import CampaignStore
from teeter.campaigns.suggestions.suggestions import Suggestions
from teeter.client import (
    RemoteCampaign,
    RemoteClasses,
    RemoteFinish,
    RemoteItems,
    RemoteJudges,
    RemotePeople,
    RemoteReview,
    RemoteSuggestions,
)
from teeter.errors import (
    FileError,
    InputError,
    PermissionDeniedError,
    ServerError,
    ServerUnavailableError,
    UnknownItemError,
)


class Network:
    """The network to a server in this process. Answers may get lost on it."""

    def __init__(self, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
        # The client of tests has a session already: ours must get one of its own.
        client.headers.pop("x-csrf-token", None)
        client.event_hooks = {"response": [self._pass_on]}
        monkeypatch.setattr(client_module, "_open_http_client", lambda _: client)

        self.failures = 0
        """Answers that are lost on the way back."""
        self.sent: list[bytes] = []
        """The bodies of the requests that change something."""

    def _pass_on(self, response: httpx2.Response) -> None:
        if response.request.method == "GET":
            return
        self.sent.append(response.request.read())
        if self.failures:
            self.failures -= 1
            raise httpx2.ReadError("Connection reset by peer")


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    file = make_text_campaign(tmp_path / "texts.teeter")
    with serve_campaigns(file) as client:
        monkeypatch.setattr(client_module, "_FIRST_PAUSE", 0.0)
        yield Network(client, monkeypatch)


@pytest.fixture
def campaign(network: Network) -> RemoteCampaign:
    return teeter.connect("http://127.0.0.1:8765")


def test_a_round_of_labelling_over_the_network(campaign: RemoteCampaign, tmp_path: Path) -> None:
    questions = campaign.ask(4)
    assert len(questions) == 4
    assert campaign.classes.names() == ("spam", "ham")

    for number, question in enumerate(questions[:3]):
        campaign.tell(question.item, ("spam", "ham")[number % 2], comment="sure")
    campaign.flag(questions[3].item)
    undone = campaign.undo()
    assert isinstance(undone, UndoResult)
    assert undone.answer.kind is AnswerKind.FLAG

    labels = campaign.labels()
    assert set(labels) == {question.item for question in questions[:3]}
    assert labels[questions[0].item] == ConsensusLabel("spam", 1.0, "majority")
    model = campaign.train()
    assert (model.version, model.labels) == (1, 3)
    assert campaign.status().labelled == 3
    (prediction,) = campaign.predict(["Win cash now"])
    assert prediction.label in ("spam", "ham")
    assert campaign.export(tmp_path / "out.jsonl") == 3
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert len(lines) == 121
    assert json.loads(lines[0])["id"] == "t0"
    campaign.export(tmp_path / "folder")
    assert (tmp_path / "folder" / "train.parquet").exists()


def test_items_are_added_in_parts_and_a_lost_answer_is_asked_for_again(
    campaign: RemoteCampaign, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_MAX_ITEMS", 3)
    network.failures = 1

    result = campaign.add(
        [
            "first new text",
            ("n2", "second new text"),
            {"id": 3, "text": "third new text", "label": "ham", "customer": "ACME"},
            {"id": "n4", "text": "fourth new text", "customer": "other"},
        ]
    )

    assert (result.new, result.labelled, result.duplicates) == (4, 1, 0)
    assert campaign.add([("copy", "second new text")]).duplicate_items == (("copy", "n2"),)
    assert len(network.sent) == 4
    assert network.sent[0] == network.sent[1] != network.sent[2]
    assert campaign.items.row("3") == {"customer": "ACME"}
    matches = [row.item for row in campaign.items.find(column="customer=ACME")]
    assert matches == ["3"]
    assert len(list(campaign.items.find())) == 125


def test_settings_and_classes_can_be_changed(campaign: RemoteCampaign) -> None:
    campaign.classes.add("maybe")
    changed = campaign.change_settings(instructions="Read all of it.")

    assert campaign.classes.names() == ("spam", "ham", "maybe")
    assert changed == campaign.settings
    assert changed.instructions == "Read all of it."
    with pytest.raises(InputError, match="No strategy is called 'lost'"):
        campaign.change_settings(strategy="lost")


def test_errors_of_the_server_are_errors_here(network: Network, campaign: RemoteCampaign) -> None:
    with pytest.raises(InputError, match="No class is called 'lost'"):
        campaign.tell("t1", "lost")
    with pytest.raises(UnknownItemError, match="No item is called 'lost'"):
        campaign.items.row("lost")
    with pytest.raises(InputError, match="There is no campaign 'lost': this server has texts"):
        teeter.connect("http://127.0.0.1:8765/c/lost/progress")
    network.failures = 99
    with pytest.raises(ServerUnavailableError, match="does not answer"):
        campaign.tell("t1", "spam")


@pytest.mark.parametrize("address", ["127.0.0.1:8765", "http://127.0.0.1:port"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="is not the address of a server"):
        teeter.connect(address)


def test_a_wrong_token_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make_text_campaign(tmp_path / "texts.teeter")
    owned_campaign = Campaign.open(file)
    token = owned_campaign.people.add("olga", "owner")
    owned_campaign.database.close()

    with serve_campaigns(file) as client:
        Network(client, monkeypatch)

        with pytest.raises(PermissionDeniedError):
            teeter.connect("http://127.0.0.1:8765", "wrong")

        campaign = teeter.connect("http://127.0.0.1:8765/c/texts", token)
        assert campaign.tell("t1", "ham").recorded
        assert not campaign.tell("t1", "ham").recorded, "it was there already"
        assert campaign.labels()["t1"].label == "ham"


def test_an_undo_whose_answer_was_lost_takes_back_one_answer(
    campaign: RemoteCampaign, network: Network
) -> None:
    campaign.tell("t1", "ham")
    campaign.tell("t2", "ham")
    network.failures = 1

    undone = campaign.undo()

    assert undone is not None
    assert undone.answer.item == "t2"
    assert set(campaign.labels()) == {"t1"}


def test_an_undo_names_the_answer(campaign: RemoteCampaign) -> None:
    first = campaign.tell("t1", "ham")
    second = campaign.tell("t2", "ham")

    assert campaign.undo(number=first.number) is None, "not the last answer"
    undone = campaign.undo(number=second.number)
    assert undone == campaign.undo(number=second.number)
    assert set(campaign.labels()) == {"t1"}
    assert campaign.review.undo_decision() is None, "there is none"


def test_a_training_is_not_asked_for_again(campaign: RemoteCampaign, network: Network) -> None:
    campaign.tell("t1", "ham")
    campaign.tell("t2", "spam")
    network.failures = 1
    network.sent.clear()

    with pytest.raises(ServerUnavailableError, match="does not answer"):
        campaign.train()
    assert len(network.sent) == 1


def test_dates_of_columns_are_sent_as_texts(campaign: RemoteCampaign) -> None:
    campaign.add([{"id": "d", "text": "dated", "day": datetime.date(2024, 2, 29)}])

    assert campaign.items.row("d") == {"day": "2024-02-29"}
    with pytest.raises(InputError, match="cannot have values of type object"):
        campaign.add([{"text": "other", "thing": object()}])


def test_decisions_and_descriptions(campaign: RemoteCampaign) -> None:
    receipt = campaign.review.decide("t1", "ham")
    assert receipt.recorded
    repeated = campaign.review.decide("t1", "ham")
    assert (repeated.number, repeated.recorded) == (receipt.number, False)
    assert campaign.labels()["t1"].label == "ham", "a decision without an answer"

    undone = campaign.review.undo_decision()
    assert isinstance(undone, Decision)
    assert (undone.item, undone.label) == ("t1", "ham")

    campaign.classes.describe({"spam": "Advertisements."})
    assert campaign.classes.descriptions() == {"spam": ClassDescription("Advertisements.")}
    assert campaign.review.agreement().items == 0

    encoded = campaign.encode()
    assert isinstance(encoded, EncodingResult)
    assert (encoded.encoded, encoded.unencoded) == (0, 0)


def test_items_and_classes_are_changed_as_in_a_campaign(
    campaign: RemoteCampaign, tmp_path: Path
) -> None:
    assert campaign.items.change("t1", text="Another text", columns={"n": 5})
    assert not campaign.items.change("t1", text="Another text")
    assert campaign.items.row("t1") == {"n": 5}
    assert campaign.items.columns() == [TableColumn("n", ColumnType.INTEGER)]
    assert campaign.items.withdraw(["t1", "t2"], reason="private") == 2
    assert campaign.status().withdrawn == 2
    assert [row.item for row in campaign.items.find(state="withdrawn")] == ["t1", "t2"]
    assert campaign.items.put_back(["t1", "t2", "t3"]) == 2
    campaign.classes.rename("spam", "ads", description="Offers.")
    assert campaign.classes.names() == ("ads", "ham")
    assert campaign.classes.descriptions() == {"ads": ClassDescription("Offers.")}
    for name in ("unused", "adverts"):
        campaign.classes.add(name)
    campaign.classes.remove("unused")
    campaign.classes.merge("adverts", "ads")
    assert campaign.classes.names() == ("ads", "ham")

    events = [line["what"] for line in campaign.history()]
    assert events[0] == "created"
    assert events[-10:] == [
        "item changed",
        "columns changed",
        "withdrawn",
        "put back",
        "class renamed",
        "described",
        "class",
        "class",
        "class removed",
        "classes merged",
    ]


def test_data_frames_are_added_with_their_columns(
    campaign: RemoteCampaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_MAX_FILE_ROWS", 2)
    rows = [{"id": f"f{number}", "text": f"hello {number}", "size": number} for number in range(5)]
    frame = pyarrow.Table.from_pylist([*rows, {"id": "f5", "text": None, "size": None}])
    added = campaign.add(frame)
    assert added.new == 5
    assert len(added.notes) == 1
    assert added.notes[0].startswith("1 row without a text was left out")
    assert campaign.items.row("f4") == rows[4]
    assert campaign.add(frame).duplicates == 5

    # The text of this campaign is in the column of the first table, whatever others are called.
    other = pyarrow.table({"id": ["g1"], "text": ["a"], "title": ["b"]})
    campaign.add(other)
    assert campaign.items.get("g1").content.text == "a"
    with pytest.raises(InputError, match="Cannot predict a Table: give a list of texts"):
        campaign.predict(frame)


def test_predictions_are_added_from_rows_and_files(
    campaign: RemoteCampaign, tmp_path: Path
) -> None:
    rows = [{"id": f"t{n}", "label": "spam", "probability": 0.9} for n in range(5)]
    added = campaign.suggestions.add([*rows, {"id": "lost", "label": "ham"}], "rules")
    assert (added.source, added.stored, added.unknown_items) == ("rules", 5, 1)
    file = tmp_path / 'a "name" ü.csv'
    file.write_text("id,label\nt1,ham\n")
    assert campaign.suggestions.add(file, "rules").stored == 1

    (source,) = campaign.suggestions.sources()
    assert isinstance(source, SourceReport)
    assert (source.name, source.items, source.usage) == ("rules", 1, None)
    campaign.suggestions.remove("rules")
    assert campaign.suggestions.sources() == []
    with pytest.raises(FileError, match="Cannot read"):
        campaign.suggestions.add(tmp_path / "lost.csv", "rules")


@pytest.mark.parametrize("encoder", ["table-rows", "tfidf"])
def test_rows_of_a_table_are_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoder: str
) -> None:
    file = tmp_path / "rows.teeter"
    settings = Settings(rows=True, encoder=encoder)
    Campaign.make([], ("low", "high"), at=file, name="rows", settings=settings).database.close()
    with serve_campaigns(file) as client:
        Network(client, monkeypatch)
        campaign = teeter.connect("http://127.0.0.1:8765")

        result = campaign.add({"id": n, "age": n, "text": "a note"} for n in range(12))

        assert result.new == 12
        assert campaign.items.row("3") == {"age": 3, "text": "a note"}
        assert campaign.items.change("3", columns={"age": 77})
        (row,) = [row for row in campaign.items.find() if row.item == "3"]
        assert row.excerpt == "age: 77\ntext: a note"


NOT_REMOTE = {
    "audit": "POST /campaigns creates audits, too",
    "history_page": "history",
    "newest_model": "status has its number, and GET /progress everything about it",
    "progress": "status, and GET /progress",
    "answer": "tell, skip, mark_unsure and flag; the annotator is the user of the token",
    "back_up": "a backup holds what the server must not give away, such as hashes of tokens",
    "classifier": "the model stays on the server; predict uses it there",
    "export_obstacles": "export says it",
    "identity": "tells campaigns of one name apart for the page",
    "image_folder": "the images stay with the server, which serves them",
    "load_state": "the server's worker does it",
    "make": "POST /campaigns; a client belongs to one campaign",
    "open": "connect",
    "parse_settings": "the server reads them",
    "prediction_note": "predictions come from the newest model of the server",
    "reading": "a transaction of the database",
    "restore": "it replaces the file that the server has open",
    "show": "the server's page is there already",
    "writing": "a transaction of the database",
}
"""Methods of Campaign that a client lacks, and why or what to use instead."""

PARTS = {
    "classes": (Classes, RemoteClasses),
    "items": (Items, RemoteItems),
    "people": (People, RemotePeople),
    "review": (Review, RemoteReview),
    "finish": (Finish, RemoteFinish),
    "judges": (Judges, RemoteJudges),
    "suggestions": (Suggestions, RemoteSuggestions),
}
"""The parts of a campaign, here and there."""

PARTS_NOT_REMOTE = {
    "classes.current_names": "the server takes old names as well",
    "items.unanswered_copies": "tell(…, copies=True) answers them",
    "items.read_again": "for files on the server's machine",
    "items.content": "questions and items.get have it",
    "items.newest_change": "the map of the page asks for it",
    "people.is_team": "GET /campaigns/NAME says it",
    "suggestions.visible": "questions have them",
    "items.at": "the map of the page asks for it",
    "items.changed_predictions": "the page of progress asks for them",
    "items.source_columns": "the server knows them where it reads a file",
    "items.count": "status",
    "items.image": "the images stay with the server, which serves them",
    "items.labels_on_map": "the map of the page asks for them",
    "items.next_number": "items without an id get one from their content",
    "items.page": "find",
    "items.can_search_by_meaning": "for the page; the server refuses a search it cannot make",
    "items.have_own_ids": "for the page",
    "items.shown_columns": "questions and rows have them",
    "finish.note": "GET /finish says it in sentences",
    "finish.pursue_goal": "the server does it after each training",
    "people.add_as_in": "the hash of a token stays with the server",
    "people.find": "stats has the members",
    "people.find_by_token": "the server knows whose token it is",
    "people.find_by_token_prefix": "the server knows whose token it is",
    "people.list": "stats has the members",
    "people.require": "the server checks it",
    "review.disagreements": "GET /disagreements gives a page of them, with their contents",
    "review.recent_decisions": "undo_decision undoes the last one",
    "review.bulk_agreement": "status",
    "review.agreement_in": "a transaction of the database",
    "review.snapshot": "a transaction of the database",
    "judges.is_running": "report has it",
    "judges.page": "the page of the audit has it as a file",
    "judges.require_ended": "the server checks it",
    "suggestions.ask": "POST /suggest; the language model is that of the server",
    "suggestions.recent_sources": "for pages; sources measures them",
}
"""Methods of the parts that a client lacks, and why or what to use instead."""


def public_names(owner: type) -> set[str]:
    return {name for name in vars(owner) if not name.startswith("_")}


def require_same_signature(name: str, ours: Any, theirs: Any) -> None:
    assert isinstance(ours, property) == isinstance(theirs, property), name
    if isinstance(ours, property):
        ours = ours.fget
        theirs = theirs.fget
    ours = inspect.signature(ours)
    theirs = inspect.signature(theirs)
    assert ours.return_annotation == theirs.return_annotation, name
    # A client may lack arguments, such as the annotator, and has none of its own.
    extra = set(theirs.parameters) - set(ours.parameters)
    assert extra <= {"refresh"}, name


def test_an_answer_is_given_to_near_copies_and_undone_with_them(campaign: RemoteCampaign) -> None:
    # So low that chains join most of the texts.
    assert campaign.change_settings(copies=0.05).copies == 0.05
    copies = campaign.items.get("t1").copies
    assert copies

    receipt = campaign.tell("t1", "ham", copies=True)
    assert receipt.count == 1 + len(copies)
    undone = campaign.undo(number=receipt.number)
    assert undone is not None
    assert (undone.answer.item, undone.count) == ("t1", receipt.count)
    assert campaign.undo() is None

    for refused in (1.5, -0.1, "high"):
        with pytest.raises(InputError):
            campaign.change_settings(copies=refused)
    assert campaign.change_settings(copies=None).copies is None
    assert campaign.tell("t1", "ham", copies=True).count == 1


def test_the_client_has_the_methods_of_a_campaign() -> None:
    # Its settings are an attribute, those of a client are read from the server.
    local = public_names(Campaign) | public_names(CampaignStore) | {"settings"}
    remote = public_names(RemoteCampaign)

    assert local - remote == set(NOT_REMOTE)
    assert not remote - local
    for name in local & remote - {"settings"}:
        require_same_signature(name, vars(Campaign)[name], vars(RemoteCampaign)[name])


def test_the_client_has_the_parts_of_a_campaign(campaign: RemoteCampaign) -> None:
    missing = set()
    for part, (ours, theirs) in PARTS.items():
        assert type(getattr(campaign, part)) is theirs
        assert public_names(theirs) <= public_names(ours)
        missing |= {f"{part}.{name}" for name in public_names(ours) - public_names(theirs)}
        for name in public_names(theirs):
            require_same_signature(name, vars(ours)[name], vars(theirs)[name])

    assert missing == set(PARTS_NOT_REMOTE)


def test_an_audit_is_read_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = make_audit(tmp_path, 60, require=0.9)
    answer_rightly(campaign, 20)
    expected = campaign.judges.report()
    campaign.database.close()
    with serve_campaigns(tmp_path / "audit.teeter") as client:
        Network(client, monkeypatch)
        remote = teeter.connect("http://127.0.0.1:8765")
        assert remote.judges.report() == expected
        with pytest.raises(InputError, match="end the audit first"):
            remote.export(tmp_path / "early.csv")
        assert remote.export(tmp_path / "early.csv", reveal=True) == 20
        assert not remote.judges.end().is_running
        assert remote.export(tmp_path / "out.csv") == 20


def test_members_are_added_and_changed(
    network: Network, campaign: RemoteCampaign, tmp_path: Path
) -> None:
    campaign.tell("t1", "ham")
    (me,) = campaign.people.stats()
    assert (me.name, me.role, me.answers) == ("me", None, 1)

    token = campaign.people.add("olga", Role.OWNER)
    owned = teeter.connect("http://127.0.0.1:8765", token)
    owned.people.add("ann")
    assert owned.people.change_role("ann", "reviewer") == MemberChange("ann")
    assert owned.people.new_token("ann") != token
    assert owned.people.revoke("ann") == MemberChange("ann")
    people = owned.people.stats()
    assert [(person.name, person.role) for person in people] == [
        ("olga", Role.OWNER),
        ("ann", Role.REVIEWER),
        ("me", None),
    ]
    assert owned.people.release("me").released == people[-1].open
    assert owned.people.remove("ann") == MemberChange("ann", 0)
    with pytest.raises(PermissionDeniedError, match="olga is the only owner"):
        owned.people.remove("olga")


def test_a_promise_is_made_over_the_network(campaign: RemoteCampaign) -> None:
    with pytest.raises(InputError, match="There is no model yet"):
        campaign.finish.look()
    for number in range(12):
        campaign.tell(f"t{number}", ("spam", "ham")[number % 2])
    campaign.train()
    campaign.tell("t12", "spam")
    with pytest.raises(InputError, match=r"1 answer is newer than model \d+: train first"):
        campaign.finish.start()
    campaign.train()

    plan = campaign.finish.look()
    assert isinstance(plan, FinishReport)
    assert (plan.is_started, plan.items) == (False, 108)
    started = campaign.finish.start(error=0.1, draws=30)
    assert (started.is_started, started.waiting_draws, started.error) == (True, 30, 0.1)
    assert campaign.finish.start(error=0.1, draws=30) == campaign.finish.look(), "sent again"
    assert campaign.finish.draw(5).waiting_draws == 5
    with pytest.raises(InputError, match="There is nothing to certify"):
        campaign.finish.certify()
    assert campaign.finish.certificates() == []


def test_a_folder_of_images_is_unpacked(
    campaign: RemoteCampaign, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("cat/1.png", b"png")
    request = campaign._server.request

    def read_archive(method: str, path: str, **options: Any) -> bytes:
        return file.getvalue() if "/export" in path else request(method, path, **options)

    monkeypatch.setattr(campaign._server, "request", read_archive)

    campaign.export(tmp_path / "out", "image-folder")

    assert (tmp_path / "out" / "cat" / "1.png").read_bytes() == b"png"


def test_a_server_may_be_newer_or_older(
    campaign: RemoteCampaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sends fields that this version does not know, and lacks those that came later."""
    request = campaign._server.request

    def change_answer(method: str, path: str, **options: Any) -> bytes:
        answer = json.loads(request(method, path, **options))
        if path.endswith("/answers"):
            del answer["late"], answer["recorded"]
            answer["colour"] = "red"
        if path.endswith("/settings"):
            del answer["names"]
            answer["colour"] = "red"
        if path.endswith("/progress"):
            del answer["status"]["withdrawn"]
            answer["status"]["colour"] = "red"
        return json.dumps(answer).encode()

    monkeypatch.setattr(campaign._server, "request", change_answer)

    receipt = campaign.tell("t0", "spam")
    assert (receipt.late, receipt.recorded, receipt.labelled) == (False, True, 1)
    assert campaign.settings.names
    assert campaign.status().withdrawn == 0


def test_the_token_does_not_follow_a_redirect() -> None:
    tokens: list[str | None] = []

    class RedirectingHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.append(self.headers["authorization"])
            self.send_response(302)
            port = self.server.server_port  # type: ignore[attr-defined]
            self.send_header("location", f"http://localhost:{port}/other")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), RedirectingHandler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        with pytest.raises(ServerError, match="redirects to http://localhost"):
            teeter.connect(f"http://127.0.0.1:{server.server_port}", "SECRET")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

    assert tokens == ["Bearer SECRET"], "one request, to the server that was named"
