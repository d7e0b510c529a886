"""The contract over every store: what is written is there, what is changed stays told, and an error leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaigns.stores import STORES, begun, new_store
from teeter.campaigns.db.database import Database
from teeter.campaigns.db.repository import Answer, CampaignRepository, Pick, live_answers
from teeter.campaigns.items import parse_items
from teeter.errors import InputError, StoreError, UnknownNameError


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with new_store(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def repository(store: Database) -> CampaignRepository:
    return begun(store)


def label(
    store: Database, repository: CampaignRepository, item: str, name: str, who: str = "ann"
) -> None:
    with store.writing() as connection:
        repository.answer(connection, Answer(item, who, "label", name))


def held(store: Database, repository: CampaignRepository) -> dict[tuple[str, str], str | None]:
    with store.reading() as connection:
        return {(one.item, one.annotator): one.label for one in repository.answers(connection)}


def test_classes_keep_their_order_and_differ(
    store: Database, repository: CampaignRepository
) -> None:
    with store.writing() as connection:
        repository.add_class(connection, "mixed", "owner")
        assert list(repository.classes(connection)) == ["good", "poor", "mixed"]
    for name in ("good", " ", ""):
        with store.writing() as connection, pytest.raises(InputError, match="Cannot add a class"):
            repository.add_class(connection, name, "owner")


def test_items_come_back_in_order_and_content_that_is_there_is_told(
    store: Database, repository: CampaignRepository
) -> None:
    with store.writing() as connection:
        things = parse_items([("b", "new"), ("c", "text 3"), ("d", "new")], "text")
        new, duplicates = repository.add_items(connection, things, "owner")
    assert [item.key for item in new] == ["b"]
    assert duplicates == [("c", "a3"), ("d", "b")]
    with store.reading() as connection:
        assert [row.key for row in repository.items(connection)] == [
            "a0",
            "a1",
            "a2",
            "a3",
            "a4",
            "a5",
            "b",
        ]
        assert repository.item(connection, "b").content == "new"


def test_two_different_things_of_one_id_are_refused_and_nothing_is_added(
    store: Database, repository: CampaignRepository
) -> None:
    things = parse_items([("b", "new"), ("a1", "another")], "text")
    with (
        pytest.raises(InputError, match="Two items are called 'a1', and they differ"),
        store.writing() as connection,
    ):
        repository.add_items(connection, things, "owner")
    with store.reading() as connection:
        assert len(repository.items(connection)) == 6


def test_features_come_back_bit_by_bit(store: Database, repository: CampaignRepository) -> None:
    vectors = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    with store.writing() as connection:
        numbers = [row.id for row in repository.items(connection)]
        repository.write_vectors(connection, numbers, vectors * 2)
        repository.write_vectors(connection, numbers, vectors)
    with store.reading() as connection:
        found, values = repository.vectors(connection)
    assert found == numbers
    assert np.array_equal(values, vectors)


def test_features_of_two_lengths_are_told(store: Database, repository: CampaignRepository) -> None:
    with store.writing() as connection:
        numbers = [row.id for row in repository.items(connection)]
        repository.write_vectors(
            connection, numbers[:2], [np.ones(3, np.float32), np.ones(4, np.float32)]
        )
    with (
        store.reading() as connection,
        pytest.raises(StoreError, match="features differ in length"),
    ):
        repository.vectors(connection)


def test_the_last_answer_of_each_annotator_holds(
    store: Database, repository: CampaignRepository
) -> None:
    label(store, repository, "a0", "good")
    label(store, repository, "a0", "poor")
    label(store, repository, "a0", "good", "bob")
    assert held(store, repository) == {("a0", "ann"): "poor", ("a0", "bob"): "good"}
    with store.reading() as connection:
        told = [line for line in repository.history(connection) if line["what"] == "answer"]
        assert [line["label"] for line in told] == ["good", "poor", "good"]
        assert repository.last_answers(connection, "ann", 5)[0].label == "poor"


def test_what_is_not_there_is_told_with_a_hint(
    store: Database, repository: CampaignRepository
) -> None:
    with pytest.raises(UnknownNameError, match=r"No class is called 'godo'. Did you mean 'good'\?"):
        label(store, repository, "a0", "godo")
    with pytest.raises(UnknownNameError, match="No item is called 'a99'"):
        label(store, repository, "a99", "good")
    assert held(store, repository) == {}


def test_undo_brings_back_what_was_said_before_and_opens_the_question(
    store: Database, repository: CampaignRepository
) -> None:
    with store.writing() as connection:
        picks = [Pick("a1", 1, "picked", {"ldm": 0.01}), Pick("a2", 2, "control", {})]
        repository.write_batch(connection, "ann", picks, strategy="ldm-s", seed=0, version=0)
    label(store, repository, "a1", "good")
    label(store, repository, "a1", "poor")
    with store.writing() as connection:
        undone = repository.undo(connection, "ann")
        assert undone is not None
        assert (undone.answer.label, undone.before and undone.before.label) == ("poor", "good")
        assert [pick.item for pick in repository.open_picks(connection)] == ["a2"]
        repository.undo(connection, "ann")
        assert [pick.item for pick in repository.open_picks(connection, "ann")] == ["a1", "a2"]
        assert repository.open_picks(connection, "bob") == []
        assert repository.undo(connection, "ann") is None
        assert repository.undo(connection, "bob") is None
    assert held(store, repository) == {}


def test_picks_tell_why_and_an_answer_closes_them(
    store: Database, repository: CampaignRepository
) -> None:
    with store.writing() as connection:
        pick = Pick("a3", 1, "picked", {"ldm": 0.25, "predicted": "good"})
        repository.write_batch(connection, "ann", [pick], strategy="ldm-s", seed=3, version=2)
        assert repository.open_picks(connection) == [pick]
        repository.answer(connection, Answer("a3", "bob", "label", "good"))
        assert repository.open_picks(connection) == [pick], "another's answer does not close it"
        repository.answer(connection, Answer("a3", "ann", "skip"))
        assert repository.open_picks(connection) == []


def test_models_are_numbered_and_the_newest_is_found(
    store: Database, repository: CampaignRepository
) -> None:
    with store.writing() as connection:
        assert repository.model(connection) is None
        assert repository.write_model(connection, b"\x00\x01", {"labels": 3}, "ann") == 1
        assert repository.write_model(connection, b"\x02", {"labels": 5}, "ann") == 2
    with store.reading() as connection:
        row = repository.model(connection)
    assert row is not None
    assert (row.version, row.weights) == (2, b"\x02")


def test_an_error_leaves_nothing_behind(store: Database, repository: CampaignRepository) -> None:
    def half() -> None:
        with store.writing() as connection:
            repository.answer(connection, Answer("a0", "ann", "label", "good"))
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        half()
    assert held(store, repository) == {}
    with store.reading() as connection:
        assert [line["what"] for line in repository.history(connection)] == [
            "class",
            "class",
            "added",
        ]


def test_campaigns_in_one_store_do_not_meet(
    store: Database, repository: CampaignRepository
) -> None:
    other = begun(store, "others", texts=2)
    label(store, repository, "a0", "good")
    assert held(store, other) == {}
    with store.reading() as connection:
        assert len(other.items(connection)) == 2
        assert other.open_picks(connection) == []


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["label", "skip", "unsure", "bad", "undo"]),
        st.sampled_from(["a0", "a1", "a2"]),
        st.sampled_from(["ann", "bob"]),
        st.sampled_from(["good", "poor"]),
    ),
    max_size=25,
)


@pytest.mark.parametrize("kind", STORES)
@given(steps=STEPS)
def test_history_tells_every_state(
    kind: str, steps: list[tuple[str, str, str, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with new_store(kind, tmp_path_factory.mktemp("store")) as store:
        now, told, expected = _played(store, steps)
    assert now == expected
    assert told == expected


def _played(
    store: Database, steps: list[tuple[str, str, str, str]]
) -> list[dict[tuple[str, str], Answer]]:
    """Return what holds after the steps: by the tables, by the history, and by what was said."""
    repository = begun(store, texts=3)
    said: dict[tuple[str, str], list[Answer]] = {}
    order: dict[str, list[tuple[str, str]]] = {"ann": [], "bob": []}
    for what, item, who, name in steps:
        with store.writing() as connection:
            if what == "undo":
                undone = repository.undo(connection, who)
                assert (undone is None) == (order[who] == [])
                if order[who]:
                    said[order[who].pop()].pop()
            else:
                answer = Answer(item, who, what, name if what == "label" else None)  # type: ignore[arg-type]
                repository.answer(connection, answer)
                said.setdefault((item, who), []).append(answer)
                order[who].append((item, who))
    expected = {place: answers[-1] for place, answers in said.items() if answers}
    with store.reading() as connection:
        now = {(one.item, one.annotator): one for one in repository.answers(connection)}
        told = live_answers(repository.history(connection))
    return [now, told, expected]


def test_a_skip_taken_back_after_it_was_asked_again_is_one_question(
    store: Database, repository: CampaignRepository
) -> None:
    with store.writing() as connection:
        repository.write_batch(
            connection, "ann", [Pick("a1", 1, "picked", {})], strategy="ldm-s", seed=0, version=0
        )
        repository.answer(connection, Answer("a1", "ann", "skip"))
        repository.write_batch(
            connection, "ann", [Pick("a1", 1, "picked", {})], strategy="ldm-s", seed=0, version=1
        )
        repository.undo(connection, "ann")
        assert [pick.item for pick in repository.open_picks(connection, "ann")] == ["a1"]
        repository.answer(connection, Answer("a1", "ann", "label", "good"))
        assert repository.open_picks(connection, "ann") == []


def test_an_answer_is_taken_back_by_its_number_and_what_came_after_it_stays(
    store: Database, repository: CampaignRepository
) -> None:
    with store.writing() as connection:
        repository.write_batch(
            connection, "queue", [Pick("a1", 1, "picked", {})], strategy="ldm-s", seed=0, version=0
        )
        first = repository.answer(
            connection, Answer("a1", "ann", "label", "good"), asked="queue"
        ).number
        assert repository.open_picks(connection) == [], "the question of the queue is answered"
        second = repository.answer(
            connection, Answer("a1", "ann", "label", "poor"), asked="queue"
        ).number
        repository.withdraw(connection, first)
        assert repository.open_picks(connection) == []
    assert held(store, repository) == {("a1", "ann"): "poor"}
    with store.writing() as connection:
        undone = repository.withdraw(connection, second)
        assert undone is not None
        assert undone.before is None
        assert repository.withdraw(connection, second) is None
        assert live_answers(repository.history(connection)) == {}
    assert held(store, repository) == {}


def test_what_is_taken_back_is_asked_again_unless_another_answered_it(
    store: Database, repository: CampaignRepository
) -> None:
    with store.writing() as connection:
        picks = [Pick(f"a{k}", k, "picked", {}) for k in (1, 2)]
        repository.write_batch(connection, "queue", picks, strategy="ldm-s", seed=0, version=0)
        numbers = [
            repository.answer(connection, Answer(f"a{k}", "ann", "label", "good"), asked="queue")
            for k in (1, 2)
        ]
        repository.answer(connection, Answer("a2", "bob", "label", "poor"))
        for one in numbers:
            repository.withdraw(connection, one.number)
        assert [pick.item for pick in repository.open_picks(connection, "queue")] == ["a1"]
    assert held(store, repository) == {("a2", "bob"): "poor"}


def test_an_answer_may_have_been_given_before(
    store: Database, repository: CampaignRepository
) -> None:
    then = "2026-01-02T03:04:05.678+00:00"
    with store.writing() as connection:
        repository.answer(connection, Answer("a1", "ann", "label", "good"), at=then)
    with store.reading() as connection:
        assert connection.exec_driver_sql("select at from answers").scalar() == then
        assert repository.history(connection)[-1]["at"] > then
