"""What a transaction guarantees, on every database."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaigns.fake_clock import FakeClock
from campaigns.stores import STORES, begun, new_store, reopened
from teeter.campaigns.records import Answer, AnswerKind
from teeter.campaigns.store import CampaignStore
from teeter.errors import StoreError


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CampaignStore]:
    with new_store(request.param, tmp_path) as database:
        yield begun(database, clock=FakeClock())


def good(item: str) -> Answer:
    return Answer(item, "ann", AnswerKind.LABEL, "good")


def test_a_reading_transaction_cannot_write(store: CampaignStore) -> None:
    with pytest.raises(StoreError), store.reading() as view:
        view.answers.record(good("a0"))

    # The connection serves a writer next.
    with store.writing() as change:
        change.answers.record(good("a0"))
    with store.reading() as view:
        assert [answer.item for answer in view.answers.live()] == ["a0"]


@pytest.mark.parametrize("outer", ["reading", "writing"])
@pytest.mark.parametrize("inner", ["reading", "writing"])
def test_a_transaction_inside_another_raises_at_once(
    outer: str, inner: str, store: CampaignStore
) -> None:
    with (
        getattr(store, outer)(),
        pytest.raises(RuntimeError, match=r"has a transaction of .* open already"),
        getattr(store, inner)(),
    ):
        pass

    with getattr(store, inner)() as later:
        assert later.items.count() == 6


def test_other_threads_have_transactions_of_their_own(store: CampaignStore) -> None:
    counts: list[int] = []

    def count_items() -> None:
        with store.reading() as view:
            counts.append(view.items.count())

    with store.writing():
        thread = threading.Thread(target=count_items)
        thread.start()
        thread.join()
    assert counts == [6]


def test_settings_are_those_of_the_transaction(store: CampaignStore) -> None:
    with store.reading() as view:
        before = view.settings
    other = reopened(store, store.database.url.render_as_string(hide_password=False))
    with other.writing() as change:
        values = json.loads(change.campaign().settings)
        change.write_settings(values | {"lease": 5})
        assert change.settings.lease == 5
    other.database.close()

    assert store.settings is before, "nothing was read since"
    with store.reading() as view:
        assert view.settings.lease == 5
        assert view.lease_seconds == 300
    with store.reading() as view:
        assert view.settings is store.settings, "parsed once"
