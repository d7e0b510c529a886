"""Finding items: filters, orders and similarities, compared with a slow transcription."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaigns.random_campaigns import SETTINGS, create_campaign, draw_features
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.items.find_items import SimilarItems
from teeter.campaigns.records import ItemFilter, ItemQuery, ItemRow, ItemSort, PickArm
from teeter.errors import InputError, UnknownItemError

FEATURES = draw_features(120)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """A campaign with a model, wrong labels, several annotators and flags. Tests only read it."""
    campaign = create_campaign(tmp_path_factory.mktemp("find"), SETTINGS, FEATURES)
    for number in range(0, 60, 2):
        label = "ab"[int(FEATURES[number, 0] > 0)]
        campaign.tell(f"i{number}", label, "ann")
        campaign.tell(f"i{number}", label if number % 12 else "b", "bob")
    campaign.flag("i61", "bob")
    campaign.review.decide("i63", "a", "rey")
    campaign.train()
    campaign.items.withdraw(["i5", "i8"])
    campaign.add([{"id": "late", "features": FEATURES[0] + 0.1}])
    return campaign


def find(campaign: Campaign, **query: Any) -> list[str]:
    return [row.item for row in campaign.items.find(**query)]


def fits(row: ItemRow, query: ItemQuery) -> bool:
    """Return whether an item fits a query, from what its row says."""
    is_withdrawn = "withdrawn" in row.state
    state = {
        ItemFilter.ALL: True,
        ItemFilter.LABELLED: row.label is not None and not is_withdrawn,
        ItemFilter.UNLABELLED: row.label is None and not is_withdrawn,
        ItemFilter.FLAGGED: "flag" in row.state,
        ItemFilter.WITHDRAWN: is_withdrawn,
    }[query.state]
    return (
        state
        and query.label in (None, row.label)
        and query.predicted in (None, row.predicted)
        and (not query.differs or None not in (row.label, row.predicted))
        and (not query.differs or row.label != row.predicted)
        and query.search in row.item
    )


def value_of(row: ItemRow, sort: ItemSort) -> Any:
    values = {
        ItemSort.ITEM: row.item,
        ItemSort.LABEL: row.label,
        ItemSort.WHO: ", ".join(row.who) or None,
        ItemSort.PREDICTED: row.predicted,
        ItemSort.PROBABILITY: row.probability,
    }
    return values[sort]


@pytest.mark.parametrize("sort", [None, "item", "label", "who", "predicted", "probability"])
@pytest.mark.parametrize("descending", [False, True])
def test_items_are_filtered_and_sorted_as_if_one_by_one(
    campaign: Campaign, sort: str | None, descending: bool
) -> None:
    rows = list(campaign.items.find())
    assert len(rows) == 121
    choices = itertools.product(
        (None, "a", "b"), (None, "b"), (False, True), ("", "i1"), ("all", "labelled", "unlabelled")
    )
    for label, predicted, differs, search, state in choices:
        query = ItemQuery(
            label=label,
            predicted=predicted,
            differs=differs,
            search=search,
            state=ItemFilter(state),
            sort=None if sort is None else ItemSort(sort),
            descending=descending,
        )
        expected = [row for row in rows if fits(row, query)]
        if sort is None:
            expected = expected[::-1] if descending else expected
        else:
            known = [row for row in expected if value_of(row, ItemSort(sort)) is not None]
            unknown = [row for row in expected if value_of(row, ItemSort(sort)) is None]
            known.sort(key=lambda row: value_of(row, ItemSort(str(sort))), reverse=descending)
            expected = known + unknown

        page = campaign.items.page(replace(query, offset=3, count=7))
        assert page.hits == len(expected)
        values = [value_of(row, ItemSort(sort)) if sort else row.item for row in page.items]
        assert values == [
            value_of(row, ItemSort(sort)) if sort else row.item for row in expected[3:10]
        ]

    assert find(campaign, state="flagged") == ["i61"]
    assert set(find(campaign, state="withdrawn")) == {"i5", "i8"}


def test_disagreements_with_the_model_are_found(campaign: Campaign) -> None:
    differing = list(campaign.items.find(differs=True))
    assert differing
    assert all(row.label != row.predicted for row in differing)
    (late,) = [row for row in campaign.items.find() if row.item == "late"]
    assert (late.predicted, late.probability) == (None, None), "added after the training"


def test_pages_follow_each_other_while_items_are_labelled(tmp_path: Path) -> None:
    campaign = create_campaign(tmp_path, SETTINGS, FEATURES)
    items: list[str] = []
    query = ItemQuery(state=ItemFilter.UNLABELLED, count=10)
    while True:
        page = campaign.items.page(query)
        for row in page.items:
            items.append(row.item)
            campaign.tell(row.item, "a")
        if page.after is None:
            break
        query = replace(query, after=page.after)
    assert len(items) == len(set(items)) == 120


def test_similar_items_are_those_of_the_largest_cosine(campaign: Campaign) -> None:
    rows = list(campaign.items.find(like="i7"))
    vectors = np.vstack([FEATURES, FEATURES[:1] + 0.1]).astype(np.float64)
    lengths = np.linalg.norm(vectors, axis=1)
    cosines = vectors @ vectors[7] / (lengths * lengths[7])
    expected = [("late" if k == 120 else f"i{k}") for k in np.argsort(-cosines, kind="stable")]
    assert [row.item for row in rows] == expected
    assert rows[0].item == "i7"
    assert np.allclose([row.similarity for row in rows], np.sort(cosines)[::-1], atol=1e-5)
    assert find(campaign, like="i7", state="flagged") == ["i61"], "filters hold as well"

    with pytest.raises(UnknownItemError):
        find(campaign, like="lost")
    with pytest.raises(InputError, match="do not come from an encoder of texts"):
        find(campaign, meaning="a lost card")
    with pytest.raises(InputError, match="not both"):
        find(campaign, meaning="a lost card", like="i7")
    with pytest.raises(InputError, match="to sort by similarity"):
        find(campaign, sort="similarity")


def test_texts_are_found_by_meaning_with_the_encoder_of_the_campaign(tmp_path: Path) -> None:
    subjects = {"cat": "purring cat kitten whiskers", "tax": "tax form income office"}
    texts = [f"{subjects['cat' if k % 2 else 'tax']} {k}" for k in range(40)]
    campaign = Campaign.make(texts, ("x", "y"), at=tmp_path / "texts.teeter")
    campaign.encode("tfidf")
    found = list(campaign.items.find(meaning="the KITTEN and its whiskers"))
    assert all("kitten" in row.excerpt for row in found[:20])
    similar = SimilarItems(campaign)
    assert len(similar.compare(text="income tax").cosines) == 40

    campaign.add(["a kitten that came later"])
    assert len(similar.compare(text="income tax").cosines) == 41, "new features are read"
    assert any("later" in row.excerpt for row in campaign.items.find(meaning="kitten"))
    assert not campaign.items.have_own_ids()
    assert campaign.items.can_search_by_meaning()


def test_predictions_of_items_that_wait_for_a_blind_answer_are_not_shown(tmp_path: Path) -> None:
    settings = replace(SETTINGS, control=0.5, holdout=10)
    campaign = create_campaign(tmp_path, settings, FEATURES)
    for question in campaign.ask(40):
        campaign.tell(question.item, "ab"[int(FEATURES[int(question.item[1:]), 0] > 0)])
    campaign.train()
    blind = {question.item for question in campaign.ask(10) if question.arm is not PickArm.PICKED}
    with campaign.reading() as view:
        answered = {answer.item for answer in view.answers.live()}
        holdout = set(view.items.holdout()) - answered

    hidden = {row.item for row in campaign.items.find() if row.predicted is None}
    assert blind
    assert hidden == blind | holdout
    assert hidden.isdisjoint(find(campaign, predicted="a") + find(campaign, predicted="b")), (
        "a filter does not tell either"
    )
    control = sorted(blind - holdout)[0]
    assert campaign.items.get(control).predicted is None
    campaign.tell_all([control], "a")
    assert campaign.items.get(control).predicted is None, "it must still be answered blind"
    index = int(control[1:])
    assert index in campaign.items.labels_on_map().blind
    campaign.tell(control, "b")
    assert campaign.items.get(control).predicted is not None
    assert campaign.items.get(control, only_by="me").predicted is None, "annotators see none"
