from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from campaigns.finish.small_campaigns import KnownItems, label_batches, make_campaign
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.finish import frozen_model
from teeter.campaigns.finish.frozen_model import (
    FrozenFinish,
    choose_model,
    freeze,
    load_finish,
    store_finish,
)
from teeter.campaigns.finish.promise import PromiseTerms
from teeter.errors import InputError

TERMS = PromiseTerms()


def freeze_model(campaign: Campaign, version: int, checkpoint: int | None) -> FrozenFinish:
    with campaign.reading() as view:
        model = view.models.get(version)
        assert model is not None
        return freeze(view, model, checkpoint, TERMS)


def test_a_frozen_model_is_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    items = KnownItems(count=120)
    campaign = make_campaign(tmp_path, items)
    label_batches(campaign, items, 1)
    frozen = freeze_model(campaign, 1, None)

    with campaign.writing() as change:
        store_finish(change, frozen, "me")
        read = load_finish(change)
    assert read is not None

    assert read.items == frozen.items
    assert read.groups == frozen.groups
    assert read.predicted.tolist() == frozen.predicted.tolist()
    assert read.confidences.tolist() == frozen.confidences.tolist()


def test_the_order_of_the_draws_depends_on_the_seed_and_on_the_attempt(tmp_path: Path) -> None:
    items = KnownItems(count=120)
    campaign = make_campaign(tmp_path, items)
    label_batches(campaign, items, 1)
    first = freeze_model(campaign, 1, None)

    assert freeze_model(campaign, 1, None).items == first.items
    with campaign.writing() as change:
        store_finish(change, first, "me")
    second = freeze_model(campaign, 1, None)
    assert second.items != first.items
    assert sorted(second.items) == sorted(first.items)


def test_a_model_of_an_earlier_version_must_be_trained_again(tmp_path: Path) -> None:
    from safetensors.numpy import load, save

    items = KnownItems(count=120)
    campaign = make_campaign(tmp_path, items)
    label_batches(campaign, items, 1)
    with campaign.writing() as change:
        model = change.models.newest()
        assert model is not None
        arrays = load(model.weights)
        del arrays["confidence"]
        change.save_model(save(arrays), model.facts, "me")

        with pytest.raises(InputError, match="train a new model, then start again"):
            choose_model(change, TERMS)


@pytest.mark.slow
def test_control_items_since_a_model_represent_what_it_had_to_label(tmp_path: Path) -> None:
    # The strategy takes the least certain items out of the set meanwhile. If control items that it
    # took first were not counted, the others would be surer than the set.
    ranks: list[float] = []
    for seed in range(30):
        folder = tmp_path / str(seed)
        folder.mkdir()
        items = KnownItems(count=100, distance=2.0, seed=seed)
        campaign = make_campaign(folder, items, control=0.5, seed=seed)
        label_batches(campaign, items, 3, size=20)

        frozen = freeze_model(campaign, 1, 0)
        confidences = frozen.confidences
        share_below = (confidences[:, None] > confidences[None, :]).mean(axis=1)
        ranks += share_below[: frozen.asked_draws].tolist()
        campaign.database.close()

    assert len(ranks) > 300
    assert np.mean(ranks) == pytest.approx(0.5, abs=4 * 0.29 / len(ranks) ** 0.5)


def test_control_items_do_not_speak_for_items_that_were_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen_model, "_enough_controls", lambda *_: 5)
    items = KnownItems(count=120)
    campaign = make_campaign(tmp_path, items, control=0.9)
    label_batches(campaign, items, 1)
    campaign.items.withdraw(["118", "119"])
    campaign.ask(20)

    with campaign.reading() as view:
        assert choose_model(view, TERMS)[1] == 0
    campaign.items.put_back(["118", "119"])
    with campaign.reading() as view:
        assert choose_model(view, TERMS)[1] is None
