"""The contract over every database: what is written is there, nothing is forgotten, and an error
leaves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event

from campaigns.history_replay import replay_answers
from campaigns.stores import STORES, begun, new_store
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.items.item import parse_items
from teeter.campaigns.records import Answer, AnswerKind, PickArm
from teeter.campaigns.settings import Settings
from teeter.campaigns.store import BatchOrigin, CampaignStore, Database, Pick, Reading
from teeter.campaigns.store.locks import LockName
from teeter.errors import InputError, StoreError, UnknownNameError

ORIGIN = BatchOrigin("ldm-s", seed=0, model_version=0)


@pytest.fixture(params=STORES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with new_store(request.param, tmp_path) as database:
        yield database


@pytest.fixture
def store(database: Database) -> CampaignStore:
    return begun(database)


def label(item: str, annotator: str, name: str) -> Answer:
    return Answer(item, annotator, AnswerKind.LABEL, name)


def record_label(
    store: CampaignStore,
    item: str,
    name: str,
    annotator: str = "ann",
) -> None:
    with store.writing() as change:
        change.answers.record(label(item, annotator, name))


def live_labels(store: CampaignStore) -> dict[tuple[str, str], str | None]:
    with store.reading() as view:
        answers = view.answers.live()
    return {(answer.item, answer.annotator): answer.label for answer in answers}


def open_items(view: Reading, annotator: str | None = None) -> list[str]:
    return [pick.item for pick in view.picks.open_picks(annotator)]


def make_picks(*items: str) -> list[Pick]:
    return [Pick(item, rank, PickArm.PICKED, {}) for rank, item in enumerate(items, start=1)]


def test_classes_keep_their_order_and_differ(store: CampaignStore) -> None:
    with store.writing() as change:
        change.classes.add(["mixed"], "owner")
        assert change.classes.names() == ["good", "poor", "mixed"]

    for name in ("good", " ", ""):
        with (
            store.writing() as change,
            pytest.raises(InputError, match="Cannot add the class"),
        ):
            change.classes.add([name], "owner")


def test_items_come_back_in_order_and_duplicates_are_reported(store: CampaignStore) -> None:
    with store.writing() as change:
        items = parse_items([("b", "new"), ("c", "text 3"), ("d", "new")], "text")
        new, duplicates = change.items.add(items, "owner")

    assert [item.key for item in new] == ["b"]
    assert duplicates == [("c", "a3"), ("d", "b")]
    with store.reading() as view:
        item_ids = [item.item_id for item in view.items.all()]
        assert item_ids == ["a0", "a1", "a2", "a3", "a4", "a5", "b"]
        assert view.items.get("b").content == "new"
        assert view.items.aliases() == {"c": "a3", "d": "b"}


def test_two_different_items_of_one_id_are_refused_and_nothing_is_added(
    store: CampaignStore,
) -> None:
    items = parse_items([("b", "new"), ("a1", "another")], "text")
    with (
        pytest.raises(InputError, match="Two different items have the id 'a1'"),
        store.writing() as change,
    ):
        change.items.add(items, "owner")

    with store.reading() as view:
        assert len(view.items.all()) == 6


def test_features_come_back_bit_by_bit(store: CampaignStore) -> None:
    vectors = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    item_ids = [f"a{k}" for k in range(6)]
    with store.writing() as change:
        encoding = change.encodings.add("small", version="3", state=b"state")
        change.encodings.make_current(encoding.row_id)
        for values in (vectors * 2, vectors):
            features = dict(zip(item_ids, values, strict=True))
            errors = {"a5": "a5 is broken."}
            change.encodings.write(encoding.row_id, features, errors)

    with store.reading() as view:
        stored = view.encodings.read()
        row_id = view.items.get("a2").row_id
        vector = view.encodings.vector_of(row_id)
        current = view.encodings.current()
    assert stored.keys == item_ids
    assert np.array_equal(stored.vectors, vectors)
    assert stored.unreadable == {"a5": "a5 is broken."}
    assert current is not None
    assert (current.encoder, current.version, current.state) == ("small", "3", b"state")
    assert current.revision == 2
    assert vector is not None
    assert np.array_equal(vector, vectors[2])


def test_features_of_two_lengths_are_reported(store: CampaignStore) -> None:
    with store.writing() as change:
        encoding = change.encodings.add("small")
        change.encodings.make_current(encoding.row_id)
        features = {"a0": np.ones(3, np.float32), "a1": np.ones(4, np.float32)}
        change.encodings.write(encoding.row_id, features)
        with pytest.raises(InputError, match=r"features differ in length: \[3, 4\]"):
            change.encodings.require_equal_lengths(encoding.row_id)

    with (
        store.reading() as view,
        pytest.raises(StoreError, match="differ in length"),
    ):
        view.encodings.read()


def test_an_encoding_is_current_only_when_it_is_marked_so(store: CampaignStore) -> None:
    with store.writing() as change:
        first = change.encodings.add("first")
        second = change.encodings.add("second")
        assert change.encodings.current() is None

        change.encodings.make_current(first.row_id)
        change.encodings.write(second.row_id, {"a1": np.ones(2, np.float32)})
        assert change.encodings.missing_items(second.row_id) == ["a0", "a2", "a3", "a4", "a5"]
        assert change.encodings.count_missing(first.row_id) == 6
        assert change.encodings.encoded_row_ids() == []
        assert not change.encodings.has_vectors()

        change.encodings.make_current(second.row_id)
        assert change.encodings.has_vectors()
        assert len(change.encodings.encoded_row_ids()) == 1
        change.encodings.remove(first.row_id)
        assert [stored.encoder for stored in change.encodings.all()] == ["second"]


def test_the_last_answer_of_each_annotator_is_live(store: CampaignStore) -> None:
    record_label(store, "a0", "good")
    record_label(store, "a0", "poor")
    record_label(store, "a0", "good", "bob")

    assert live_labels(store) == {("a0", "ann"): "poor", ("a0", "bob"): "good"}
    with store.reading() as view:
        lines = view.history.lines("answer")
        assert [line["label"] for line in lines] == ["good", "poor", "good"]
        assert view.answers.recent("ann", 5)[0].label == "poor"


def test_unknown_names_are_refused_with_a_hint(store: CampaignStore) -> None:
    with pytest.raises(UnknownNameError, match=r"No class is called 'godo'. Did you mean 'good'\?"):
        record_label(store, "a0", "godo")
    with pytest.raises(UnknownNameError, match="No item is called 'a99'"):
        record_label(store, "a99", "good")
    assert live_labels(store) == {}


def test_undo_restores_the_earlier_answer_and_opens_the_pick(store: CampaignStore) -> None:
    with store.writing() as change:
        picks = [
            Pick("a1", 1, PickArm.PICKED, {"ldm": 0.01}),
            Pick("a2", 2, PickArm.CONTROL, {}),
        ]
        change.picks.add_batch("ann", picks, ORIGIN)
    record_label(store, "a1", "good")
    record_label(store, "a1", "poor")

    with store.writing() as change:
        undone = change.answers.undo("ann")
        assert undone is not None
        assert (undone.answer.label, undone.before and undone.before.label) == ("poor", "good")
        assert open_items(change) == ["a2"]

        change.answers.undo("ann")
        assert open_items(change, "ann") == ["a1", "a2"]
        assert open_items(change, "bob") == []
        assert change.answers.undo("ann") is None
        assert change.answers.undo("bob") is None
    assert live_labels(store) == {}


def test_picks_say_why_and_an_answer_closes_them(store: CampaignStore) -> None:
    with store.writing() as change:
        pick = Pick("a3", 1, PickArm.PICKED, {"ldm": 0.25, "predicted": "good"})
        origin = BatchOrigin("ldm-s", seed=3, model_version=2)
        change.picks.add_batch("ann", [pick], origin)
        assert change.picks.open_picks() == [pick]

        change.answers.record(label("a3", "bob", "good"))
        message = "another annotator's answer does not close it"
        assert change.picks.open_picks() == [pick], message

        change.answers.record(Answer("a3", "ann", AnswerKind.SKIP))
        assert change.picks.open_picks() == []


def test_picks_made_ahead_go_to_the_next_annotator_who_asks(store: CampaignStore) -> None:
    with store.writing() as change:
        change.picks.add_batch(None, make_picks("a1", "a2", "a3"), ORIGIN)
        assert change.picks.count_ready() == 3
        assert open_items(change) == []

        assert change.picks.assign("ann", 2) == 2
        assert open_items(change, "ann") == ["a1", "a2"]
        assert [pick.item for pick in change.picks.ready_picks()] == ["a3"]
        assert change.picks.count_open_by_annotator() == {"ann": 2}

        change.save_model(b"", {}, "ann")
        assert change.picks.count_ready() == 0, "an older model picked it"


def test_models_are_numbered_and_the_newest_is_found(store: CampaignStore) -> None:
    with store.writing() as change:
        assert change.models.newest() is None
        assert change.save_model(b"\x00\x01", {"labels": 3}, "ann").version == 1
        assert change.save_model(b"\x02", {"labels": 5}, "ann").version == 2

    with store.reading() as view:
        model = view.models.newest()
        summaries = view.models.summaries()
        assert view.models.newest_weights(5) == [b"\x02", b"\x00\x01"]
    assert model is not None
    assert (model.version, model.weights) == (2, b"\x02")
    assert [summary.facts["labels"] for summary in summaries] == [3, 5]


def test_a_lock_has_one_holder_until_it_is_released(store: CampaignStore) -> None:
    with store.writing() as change:
        holder = change.locks.acquire(LockName.PICKING, 10)
        assert holder is not None
        assert change.locks.acquire(LockName.PICKING, 10) is None
        assert change.locks.acquire(LockName.LABEL_STUDIO, 10) is not None, "another lock"

    with store.writing() as change:
        change.locks.release(LockName.PICKING, "another holder")
        assert change.locks.is_taken(LockName.PICKING, 10)
        change.locks.release(LockName.PICKING, holder)
        assert not change.locks.is_taken(LockName.PICKING, 10)


def test_an_error_leaves_nothing_behind(store: CampaignStore) -> None:
    def write_half() -> None:
        with store.writing() as change:
            change.answers.record(label("a0", "ann", "good"))
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        write_half()

    assert live_labels(store) == {}
    with store.reading() as view:
        lines = view.history.lines()
    assert [line["what"] for line in lines] == ["class", "class", "added"]


def test_campaigns_in_one_database_do_not_meet(store: CampaignStore) -> None:
    other = begun(store.database, "others", texts=2)
    record_label(store, "a0", "good")

    assert live_labels(other) == {}
    with store.writing() as change:
        assert change.locks.acquire(LockName.PICKING, 10) is not None
    with other.writing() as change:
        assert len(change.items.all()) == 2
        assert change.picks.open_picks() == []
        assert change.locks.acquire(LockName.PICKING, 10) is not None


Step = tuple[str, str, str, str]
"""What is done, on which item, by whom, and with which class."""

STEPS = st.lists(
    st.tuples(
        st.sampled_from([*AnswerKind, "undo"]),
        st.sampled_from(["a0", "a1", "a2"]),
        st.sampled_from(["ann", "bob"]),
        st.sampled_from(["good", "poor"]),
    ),
    max_size=25,
)


@pytest.mark.parametrize("kind", STORES)
@given(steps=STEPS)
def test_the_history_tells_every_state(
    kind: str, steps: Sequence[Step], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with new_store(kind, tmp_path_factory.mktemp("store")) as database:
        stored, replayed, expected = play_steps(database, steps)
    assert stored == expected
    assert replayed == expected


def play_steps(database: Database, steps: Sequence[Step]) -> list[dict[tuple[str, str], Answer]]:
    """Return the live answers after some steps: by the tables, by the history, and as
    they must be.
    """
    store = begun(database, texts=3)
    given_answers: dict[tuple[str, str], list[Answer]] = {}
    order: dict[str, list[tuple[str, str]]] = {"ann": [], "bob": []}
    for step, item, annotator, name in steps:
        with store.writing() as change:
            if step == "undo":
                undone = change.answers.undo(annotator)
                assert (undone is None) == (order[annotator] == [])
                if order[annotator]:
                    given_answers[order[annotator].pop()].pop()
            else:
                kind = AnswerKind(step)
                answer_label = name if kind is AnswerKind.LABEL else None
                answer = Answer(item, annotator, kind, answer_label)
                receipt = change.answers.record(answer)
                answers = given_answers.setdefault((item, annotator), [])
                # What an annotator says again counts once, and is taken back once.
                assert receipt.recorded == (answers[-1:] != [answer])
                if receipt.recorded:
                    answers.append(answer)
                    order[annotator].append((item, annotator))

    expected = {place: answers[-1] for place, answers in given_answers.items() if answers}
    with store.reading() as view:
        live = view.answers.live()
        replayed = replay_answers(view.history.lines())
    stored = {(answer.item, answer.annotator): answer for answer in live}
    return [stored, replayed, expected]


def test_a_skip_taken_back_after_the_item_was_picked_again_is_one_open_pick(
    store: CampaignStore,
) -> None:
    with store.writing() as change:
        change.picks.add_batch("ann", make_picks("a1"), ORIGIN)
        change.answers.record(Answer("a1", "ann", AnswerKind.SKIP))
        later = BatchOrigin("ldm-s", seed=0, model_version=1)
        change.picks.add_batch("ann", make_picks("a1"), later)

        change.answers.undo("ann")
        assert open_items(change, "ann") == ["a1"]
        change.answers.record(label("a1", "ann", "good"))
        assert open_items(change, "ann") == []


def test_an_answer_is_withdrawn_by_its_number_and_later_ones_stay(store: CampaignStore) -> None:
    with store.writing() as change:
        change.picks.add_batch("queue", make_picks("a1"), ORIGIN)
        first, second = (
            change.answers.record(label("a1", "ann", name), asked_of="queue").number
            for name in ("good", "poor")
        )
        assert open_items(change) == [], "the queue's pick is answered"
        change.answers.withdraw(first)
        assert open_items(change) == []
    assert live_labels(store) == {("a1", "ann"): "poor"}

    with store.writing() as change:
        undone = change.answers.withdraw(second)
        assert undone is not None
        assert undone.before is None
        assert change.answers.withdraw(second) is None
        assert replay_answers(change.history.lines()) == {}
    assert live_labels(store) == {}


def test_a_withdrawn_item_is_open_again_unless_another_annotator_answered_it(
    store: CampaignStore,
) -> None:
    with store.writing() as change:
        change.picks.add_batch("queue", make_picks("a1", "a2"), ORIGIN)
        receipts = [
            change.answers.record(label(item, "ann", "good"), asked_of="queue")
            for item in ("a1", "a2")
        ]
        change.answers.record(label("a2", "bob", "poor"))

        for receipt in receipts:
            change.answers.withdraw(receipt.number)
        assert open_items(change, "queue") == ["a1"]
    assert live_labels(store) == {("a2", "bob"): "poor"}


def test_an_answer_may_have_been_given_earlier(store: CampaignStore) -> None:
    then = "2026-01-02T03:04:05.678+00:00"
    with store.writing() as change:
        change.answers.record(label("a1", "ann", "good"), at=then)

    with store.reading() as view:
        assert view.connection.exec_driver_sql("select at from answers").scalar() == then
        assert view.history.lines()[-1]["at"] > then


@pytest.fixture
def campaign(database: Database) -> Iterator[Campaign]:
    location = database.url.render_as_string(hide_password=False)
    settings = Settings(kind="features", strategy="margin", control=0)
    campaign = Campaign.make([], ["left", "right"], at=location, name="points", settings=settings)
    vectors = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    campaign.add({"id": f"p{k}", "features": vector} for k, vector in enumerate(vectors))
    yield campaign
    campaign.database.close()


NUL_IN = {
    "comment": lambda campaign: campaign.tell("p0", "left", comment="seen\0twice"),
    "comment of a decision": lambda campaign: campaign.review.decide("p0", "left", comment="a\0b"),
    "item id": lambda campaign: campaign.tell("p\0", "left"),
    "item id that is decided on": lambda campaign: campaign.review.decide("p\0", "left"),
    "class": lambda campaign: campaign.tell("p0", "le\0ft"),
    "new class": lambda campaign: campaign.classes.add("up\0"),
    "annotator's name": lambda campaign: campaign.tell("p0", "left", "ann\0"),
    "annotator's name that asks": lambda campaign: campaign.ask(1, "ann\0"),
    "annotator's name that undoes": lambda campaign: campaign.undo("ann\0"),
    "name of a new member": lambda campaign: campaign.people.add("ann\0"),
    "name of a member": lambda campaign: campaign.people.revoke("ann\0"),
    "name in the history": lambda campaign: campaign.classes.add("up", who="ann\0"),
    "id of a new item": lambda campaign: campaign.add([{"id": "q\0", "features": [1, 2, 3]}]),
    "label of a new item": lambda campaign: campaign.add(
        [{"id": "q", "features": [1, 2, 3], "label": "le\0ft"}]
    ),
}


@pytest.mark.parametrize("field", NUL_IN)
def test_a_nul_character_is_refused_and_the_field_is_named(field: str, campaign: Campaign) -> None:
    before = campaign.history()
    with pytest.raises(InputError, match=r"(NUL|control) character") as caught:
        NUL_IN[field](campaign)
    assert re.search("comment|id|class|name|label", str(caught.value))
    assert campaign.history() == before


def test_a_text_with_a_nul_character_makes_no_campaign(database: Database) -> None:
    location = database.url.render_as_string(hide_password=False)
    campaign = Campaign.make([], ["good", "poor"], at=location, name="texts")
    with pytest.raises(
        InputError, match=r"The text 'one\\x00two' has a NUL character at position 3"
    ):
        campaign.add(["fine", "one\0two"])
    assert campaign.status().items == 0
    campaign.database.close()

    with pytest.raises(InputError, match=r"The campaign's name .* has a NUL character"):
        Campaign.make([], ["good", "poor"], at=location, name="te\0xts")


def test_a_search_with_a_nul_character_is_refused(store: CampaignStore) -> None:
    searches = [(("a\0b",), "search"), (("", [("column", "a\0b")]), "value of a column")]
    for arguments, field in searches:
        with (
            store.reading() as view,
            pytest.raises(InputError, match=f"The {field} .* has a NUL character"),
        ):
            view.items.search(*arguments)

    with store.reading() as view:
        assert view.items.by_id(["a1", "a\0"]).keys() == {"a1"}


@pytest.mark.parametrize("row_id", [2**31, 2**62, 2**63, 2**80, -1, -(2**80)])
def test_a_row_id_that_no_database_has_is_no_row(row_id: int, store: CampaignStore) -> None:
    with store.reading() as view:
        with pytest.raises(UnknownNameError, match="There is no item with the row id"):
            view.items.get_by_row_id(row_id)
        assert view.items.by_row_id([row_id]) == {}


def test_a_value_that_does_not_fit_is_the_input_s_fault(store: CampaignStore) -> None:
    """Whatever slips through the checks must not read as an outage, which people would wait for."""
    if store.database.path is not None:
        pytest.skip("SQLite stores every text and every integer of 64 bits")
    with pytest.raises(InputError, match="cannot store a value"), store.writing() as change:
        change.items.request_annotators(["a0"], 2**40)


def test_classes_are_read_once_however_many_are_added(store: CampaignStore) -> None:
    statements: list[str] = []

    def note_statement(*arguments: object) -> None:
        statements.append(str(arguments[2]))

    event.listen(store.database.engine, "before_cursor_execute", note_statement)
    names = [f"class {k}" for k in range(300)]
    with store.writing() as change:
        change.classes.add(names, "owner")

    assert sum("FROM classes" in statement for statement in statements) == 1
    with store.reading() as view:
        assert view.classes.names() == ["good", "poor", *names]
