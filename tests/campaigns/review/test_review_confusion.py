"""The confusion of classes: by random items answered blind, out of fold, against a slow count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from campaigns.random_campaigns import SETTINGS, create_campaign, draw_features, item_number
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.learning.saved_models import replace_class
from teeter.campaigns.records import Answer, AnswerKind, AnswerOrigin, ItemQuery
from teeter.campaigns.store.queries.trained_models import ModelQueries

FEATURES = draw_features(200)


def true_label(item: str) -> str:
    # Not a line in the features, so that models make mistakes.
    first, second = FEATURES[item_number(item)][:2]
    return "ab"[int(first + second**2 > 0.7)]


def label_rounds(campaign: Campaign, rounds: int = 4) -> None:
    for _ in range(rounds):
        for question in campaign.ask(20):
            campaign.tell(question.item, true_label(question.item))
    campaign.train()


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    made = create_campaign(tmp_path, replace(SETTINGS, control=0.5), FEATURES)
    label_rounds(made)
    return made


def count_slowly(campaign: Campaign, without: list[str]) -> dict[tuple[str, str], int]:
    """Count pairs of label and prediction of the measuring items, one by one."""
    with campaign.reading() as view:
        arrays = load(view.models.newest_weights(1)[0])
        items = view.encodings.encoded_items()
        control = view.picks.control_items()
        snapshot = campaign.review.snapshot(view)
        classes = view.classes.names()
    counts: dict[tuple[str, str], int] = {}
    for place, unseen in zip(arrays["places"], arrays["unseen"], strict=True):
        item = items[place]
        if item in control and item in snapshot.measuring_labels and item not in without:
            pair = snapshot.measuring_labels[item], classes[unseen]
            counts[pair] = counts.get(pair, 0) + 1
    return counts


def counts_of(campaign: Campaign) -> dict[tuple[str, str], int]:
    rows = campaign.review.confusion()
    return {(row.label, name): n for row in rows for name, n in row.predicted.items()}


def test_it_counts_random_items_out_of_fold_as_the_accuracy_does(campaign: Campaign) -> None:
    rows = campaign.review.confusion()
    model = campaign.newest_model()
    assert model is not None

    assert [row.label for row in rows] == ["a", "b"]
    assert counts_of(campaign) == count_slowly(campaign, [])
    right = sum(row.predicted.get(row.label, 0) for row in rows)
    total = sum(sum(row.predicted.values()) for row in rows)
    assert (right, total) == model.control
    assert 0 < right < total, "models that know these labels make no mistakes"
    first = rows[0]
    assert first.accuracy is not None
    assert (first.accuracy.right, first.accuracy.total) == (
        first.predicted["a"],
        sum(first.predicted.values()),
    )


def test_it_follows_corrected_labels_and_leaves_out_what_measures_nothing(
    campaign: Campaign,
) -> None:
    before = counts_of(campaign)
    with campaign.reading() as view:
        labels = campaign.review.snapshot(view).measuring_labels
        control = sorted(view.picks.control_items())
    corrected, withdrawn, flagged = [item for item in control if labels[item] == "a"][:3]

    campaign.tell(corrected, "b")
    campaign.items.withdraw([withdrawn])
    campaign.flag(flagged)

    after = counts_of(campaign)
    assert after == count_slowly(campaign, [withdrawn, flagged])
    assert sum(after.values()) == sum(before.values()) - 2
    assert sum(n for pair, n in after.items() if pair[0] == "b") == 1 + sum(
        n for pair, n in before.items() if pair[0] == "b"
    )


def test_answers_with_a_prediction_in_view_do_not_count(tmp_path: Path) -> None:
    campaign = create_campaign(tmp_path, replace(SETTINGS, control=0.5), FEATURES)
    items = [f"i{k}" for k in range(120)]
    assert campaign.review.confusion() == []
    campaign.tell_all(items[:60], "a")
    campaign.tell_all(items[60:120], "b")
    for _ in range(2):
        for question in campaign.ask(20):
            campaign.answer(
                Answer(
                    question.item,
                    "me",
                    AnswerKind.LABEL,
                    true_label(question.item),
                    origin=AnswerOrigin.SEEN,
                )
            )
    campaign.train()
    assert campaign.review.confusion() == []


def test_the_larger_of_holdout_and_control_items_counts(tmp_path: Path) -> None:
    campaign = create_campaign(tmp_path, replace(SETTINGS, control=0.2), FEATURES)
    items = [f"i{k}" for k in range(60)]
    with campaign.writing() as change:
        change.items.add_to_holdout(items, "me")
    for item in items:
        campaign.tell(item, true_label(item))
    label_rounds(campaign)

    model = campaign.newest_model()
    assert model is not None
    assert model.holdout[1] > model.control[1] > 0
    rows = campaign.review.confusion()
    assert sum(row.predicted.get(row.label, 0) for row in rows) == model.holdout[0]
    assert sum(sum(row.predicted.values()) for row in rows) == model.holdout[1]


def test_models_of_earlier_versions_and_missing_features_give_none(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    with campaign.reading() as view:
        weights = view.models.newest_weights(1)[0]
    campaign.add([{"id": "new", "features": FEATURES[0] + 1}])
    assert campaign.review.confusion()

    arrays = load(weights)
    merged = load(replace_class(weights, 1, 0))
    assert set(merged["unseen"]) == {0}
    assert "unseen" not in load(replace_class(save(without_unseen(arrays)), 1, 0))

    monkeypatch.setattr(ModelQueries, "newest_weights", lambda *_: [save(without_unseen(arrays))])
    campaign.tell("new", "a")
    assert campaign.review.confusion() == []


def without_unseen(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array for name, array in arrays.items() if name != "unseen"}


def test_items_of_a_cell_are_found_by_what_unseen_models_predict(campaign: Campaign) -> None:
    with campaign.reading() as view:
        control = view.picks.control_items()
    for row in campaign.review.confusion():
        for predicted, count in row.predicted.items():
            query = ItemQuery(label=row.label, predicted=predicted, count=200)
            found = {item.item for item in campaign.items.page(query).items}
            assert len(found & control) == count
