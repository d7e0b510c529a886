"""The pool head in campaigns: what it learns from, what judges it, and when it is trained again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from campaigns.random_campaigns import SETTINGS, create_campaign, item_number
from teeter.campaigns.asking.preparing import Preparation
from teeter.campaigns.asking.selection import find_suspects
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.learning import classifiers, training
from teeter.campaigns.learning.prior import FADED_LABELS
from teeter.campaigns.learning.rounds import RoundSettings, rescale_model
from teeter.campaigns.learning.saved_models import load_arrays, scale_features
from teeter.models import ExampleRegression, PoolHead

WIDTH = 10


def draw_classes(
    count: int, seed: int = 0
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return rows of two classes that a few labels hardly tell apart, and their classes."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(2, size=count)
    features = generator.normal(size=(count, WIDTH))
    features[:, :3] += np.where(labels[:, None] == 1, 0.8, -0.8)
    return features.astype(np.float32), labels


@pytest.fixture
def campaign(tmp_path: Path) -> Iterator[Campaign]:
    """A campaign of 300 items with six labels of each class."""
    features, labels = draw_classes(300)
    campaign = create_campaign(tmp_path, SETTINGS, features)
    tell_some(campaign, labels, 6)
    yield campaign
    campaign.database.close()


def tell_some(campaign: Campaign, labels: npt.NDArray[np.int64], per_class: int) -> list[int]:
    rows = [int(row) for k in (0, 1) for row in np.flatnonzero(labels == k)[:per_class]]
    for row in rows:
        campaign.tell(f"i{row}", "ab"[labels[row]])
    return rows


def newest_arrays(campaign: Campaign) -> dict[str, npt.NDArray[np.float64]]:
    with campaign.reading() as view:
        model = view.models.newest()
    assert model is not None
    return load_arrays(model.weights)


def test_new_campaigns_have_a_pool_head(campaign: Campaign) -> None:
    assert campaign.settings.head == "pool"


def test_the_model_in_use_learns_from_the_pool_and_the_model_that_picks_does_not(
    campaign: Campaign,
) -> None:
    campaign.train()

    features, labels = draw_classes(300)
    scaled, _ = scale_features(features)
    rows = np.array([*np.flatnonzero(labels == 0)[:6], *np.flatnonzero(labels == 1)[:6]])
    rows.sort()
    arrays = newest_arrays(campaign)
    pool = np.delete(scaled, rows, axis=0)
    with_pool = PoolHead().fit(scaled[rows], labels[rows], pool=pool)
    alone = ExampleRegression().fit(scaled[rows], labels[rows])
    for prefix, expected in (("", with_pool), ("picking.", alone)):
        weight = arrays[f"{prefix}weight"]
        np.testing.assert_allclose(weight[1] - weight[0], expected.coef_[0], atol=1e-4)

    predictions = campaign.predict(list(features))
    right = np.mean([p.label == "ab"[k] for p, k in zip(predictions, labels, strict=True)])
    assert right > alone.score(scaled, labels) + 0.02


def test_the_status_says_what_the_model_learned_from(campaign: Campaign) -> None:
    assert campaign.status().learned is None
    campaign.train()
    assert campaign.status().learned == "Model 1 learned from 12 labels and 288 unlabelled items."


def test_withdrawn_items_teach_nothing(campaign: Campaign) -> None:
    campaign.items.withdraw([f"i{row}" for row in range(200, 300)])
    campaign.train()

    learned = campaign.status().learned
    assert learned is not None
    assert "188 unlabelled items" in learned


def test_flagged_items_teach_nothing(campaign: Campaign) -> None:
    for row in range(250, 300):
        campaign.flag(f"i{row}")
    campaign.train()

    learned = campaign.status().learned
    assert learned is not None
    assert "238 unlabelled items" in learned


def test_the_accuracy_is_that_of_the_newest_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model may have as many labels as the one before, and another pool."""
    features, labels = draw_classes(400)
    campaign = create_campaign(tmp_path, replace(SETTINGS, control=0.5), features)
    for question in campaign.ask(40):
        campaign.tell(question.item, "ab"[labels[item_number(question.item)]])
    campaign.train()

    def always_wrong(features: Any, labels: Any, judged: Any, **options: Any) -> Any:
        return np.eye(2)[1 - labels[judged]]

    monkeypatch.setattr(training, "cross_fit", always_wrong)
    campaign.train()
    accuracy = campaign.status().accuracy
    assert accuracy is not None
    assert accuracy.right == 0
    campaign.database.close()


def test_labels_of_the_holdout_are_never_known(tmp_path: Path) -> None:
    features, labels = draw_classes(120)
    campaign = create_campaign(tmp_path, replace(SETTINGS, holdout=40), features)
    with campaign.reading() as view:
        holdout = {item_number(item) for item in view.items.holdout()}
    others = [row for row in range(120) if row not in holdout]
    for row in [*holdout, *others[:10]]:
        campaign.tell(f"i{row}", "ab"[labels[row]])
    campaign.train()
    before = newest_arrays(campaign)["weight"]
    learned = campaign.status().learned
    assert learned is not None
    assert "10 labels and 110 unlabelled items" in learned

    # Another model is trained with a new seed, which a head does not depend on.
    for row in holdout:
        campaign.tell(f"i{row}", "ba"[labels[row]])
    campaign.train()
    np.testing.assert_array_equal(newest_arrays(campaign)["weight"], before)
    campaign.database.close()


def test_the_judges_are_pool_heads_that_do_not_know_the_labels_they_judge(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fold has the labels of the others only, and all other rows as its pool."""
    fitted = []

    class Recorder(PoolHead):
        def fit(self, X: Any, y: Any, sample_weight: Any = None, *, pool: Any = None) -> PoolHead:
            fitted.append((np.asarray(X), pool, self.iterations))
            return super().fit(X, y, sample_weight, pool=pool)

    monkeypatch.setattr(classifiers, "PoolHead", Recorder)
    state = campaign.load_state()
    settings = RoundSettings.from_settings(campaign.settings)
    training.train_model(state, settings)

    folds = [fit for fit in fitted if fit[2] == classifiers.FOLD_ITERATIONS]
    assert len(folds) == classifiers.FOLDS[classifiers.ClassifierKind.POOL]
    for rows, pool, _ in folds:
        assert len(rows) < 12
        assert len(rows) + len(pool) == 300
        known = {row.tobytes() for row in rows}
        assert not known & {row.tobytes() for row in pool}

    places, labels = training.labelled_items(state)
    held_out = training.judge_labels(state, places, labels, "pool")
    flipped = replace(state, labels={**state.labels, int(places[0]): "ab"[1 - labels[0]]})
    again = training.judge_labels(flipped, *training.labelled_items(flipped), "pool")
    np.testing.assert_allclose(again[0], held_out[0], atol=1e-9)


def test_a_large_pool_is_sampled_for_the_judges(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "MAX_FOLD_POOL", 50)
    state = campaign.load_state()
    drawn = training.draw_fold_pool(state, "pool")
    assert drawn is not None
    assert len(drawn) == 50
    assert not set(drawn.tolist()) & state.labels.keys()
    np.testing.assert_array_equal(drawn, training.draw_fold_pool(state, "pool"))
    assert training.draw_fold_pool(state, "linear") is None


def test_with_many_labels_the_pool_is_left_out(campaign: Campaign) -> None:
    settings = RoundSettings.from_settings(campaign.settings)
    _, labels = draw_classes(300)
    state = campaign.load_state()
    n_labels = 2 * FADED_LABELS
    few = {row: "ab"[labels[row]] for row in range(n_labels - 1)}
    many = {row: "ab"[labels[row]] for row in range(n_labels)}

    _, facts_of_few = training.train_model(replace(state, labels=few), settings)
    weights, facts_of_many = training.train_model(replace(state, labels=many), settings)
    assert "pool" in facts_of_few
    assert "pool" not in facts_of_many

    linear = replace(settings, head="linear")
    expected, _ = training.train_model(replace(state, labels=many), linear)
    assert weights == expected


def test_a_linear_head_learns_from_labels_alone(tmp_path: Path) -> None:
    features, labels = draw_classes(100)
    campaign = create_campaign(tmp_path, replace(SETTINGS, head="linear"), features)
    tell_some(campaign, labels, 3)
    campaign.train()
    assert campaign.status().learned == "Model 1 learned from 6 labels."
    arrays = newest_arrays(campaign)
    np.testing.assert_array_equal(arrays["weight"], arrays["picking.weight"])
    campaign.database.close()


def test_both_models_are_rescaled_when_items_are_added(campaign: Campaign) -> None:
    campaign.train()
    with campaign.reading() as view:
        model = view.models.newest()
    assert model is not None
    features, _ = draw_classes(300)
    more = np.concatenate([features, features[:100] + 5])
    scaled, scaler = scale_features(more)
    old_scaled, _ = scale_features(features)

    before = load_arrays(model.weights)
    after = load_arrays(rescale_model(model.weights, scaler))
    for prefix in ("", "picking."):
        old = old_scaled @ before[f"{prefix}weight"].T + before[f"{prefix}bias"]
        new = scaled[:300] @ after[f"{prefix}weight"].T + after[f"{prefix}bias"]
        np.testing.assert_allclose(new, old, atol=1e-4)


@pytest.mark.parametrize(
    ("n_new", "is_trained"), [(10, False), (40, True)], ids=["a few", "more than a twentieth"]
)
def test_items_that_are_added_later_are_learned_from(
    campaign: Campaign, n_new: int, is_trained: bool
) -> None:
    preparation = Preparation(campaign)
    preparation.train(10, lambda report: None)
    features, _ = draw_classes(n_new, seed=1)
    campaign.add({"id": f"i{300 + k}", "features": row} for k, row in enumerate(features))

    preparation.ensure_questions("me", 10, lambda report: None)
    assert campaign.status().version == 1 + is_trained
    preparation.ensure_questions("me", 10, lambda report: None)
    assert campaign.status().version == 1 + is_trained, "once is enough"


def test_withdrawals_are_unlearned(campaign: Campaign) -> None:
    preparation = Preparation(campaign)
    preparation.train(10, lambda report: None)
    campaign.items.withdraw([f"i{row}" for row in range(250, 300)])
    preparation.ensure_questions("me", 10, lambda report: None)
    assert campaign.status().version == 2


def test_as_many_new_items_as_withdrawn_ones_are_a_change(campaign: Campaign) -> None:
    preparation = Preparation(campaign)
    preparation.train(10, lambda report: None)
    campaign.items.withdraw([f"i{row}" for row in range(250, 300)])
    features, _ = draw_classes(50, seed=2)
    campaign.add({"id": f"i{300 + k}", "features": row} for k, row in enumerate(features))
    preparation.ensure_questions("me", 10, lambda report: None)
    assert campaign.status().version == 2


def test_without_layers_the_model_that_picks_is_fitted_to_its_own_labels(tmp_path: Path) -> None:
    features, labels = draw_classes(300)
    campaign = create_campaign(tmp_path, replace(SETTINGS, control=0.5), features)
    for question in campaign.ask(30):
        campaign.tell(question.item, "ab"[labels[item_number(question.item)]])
    campaign.train()
    state = campaign.load_state()
    assert state.weights is not None
    settings = RoundSettings.from_settings(campaign.settings)
    stored = training.load_picker(state, settings, 5)
    # Other features than those of the saved model, as after a change of the encoder.
    moved, scaler = scale_features(features[:, ::-1].copy())
    weights = rescale_model(state.weights, scaler)
    picker = training.load_picker(
        replace(state, weights=weights, features=moved, scaler=scaler), settings, 5
    )

    assert set(picker.pool.labelled.tolist()) == set(stored.pool.labelled.tolist())
    assert not set(picker.pool.labelled.tolist()) & state.random
    assert type(picker.models[0]) is ExampleRegression
    campaign.database.close()


def test_suspects_and_exported_probabilities_are_judged_with_the_pool(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = []
    original = training.out_of_fold

    def record(features: Any, labels: Any, **options: Any) -> npt.NDArray[np.float64]:
        judged.append((options["head"], len(options["pool"])))
        return original(features, labels, **options)

    monkeypatch.setattr(training, "out_of_fold", record)
    state = campaign.load_state()
    training.predict_out_of_fold(state, "pool")
    find_suspects(state, RoundSettings.from_settings(campaign.settings), 5)
    assert judged == [("pool", 288)] * 2
