"""Models learn from class names and predictions while these help, and ignore misleading ones."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.learning.classifiers import cross_fit, out_of_fold
from teeter.campaigns.learning.prior import (
    CLASS_NAMES,
    FADED_LABELS,
    ClassPrior,
    PseudoExamples,
    has_faded,
)
from teeter.campaigns.learning.rounds import RoundSettings, RoundState
from teeter.campaigns.learning.training import agrees_beyond_chance, choose_prior, predict_items
from teeter.campaigns.records import ClassDescription
from teeter.campaigns.settings import Settings
from teeter.campaigns.store import Suggestion
from teeter.campaigns.store.copies import copy_to_location
from teeter.errors import MissingExtraError
from teeter.models import ExampleRegression

Vectors = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

CLASSES = ("animals", "food", "money")
TEXTS = {
    "animals": ["the cat sleeps", "a dog and a cat", "wild animals", "my dog barks", "cat food"],
    "food": ["bread and butter", "we cook soup", "soup with bread", "food for lunch", "cook rice"],
    "money": ["pay the bill", "the bank account", "a bank loan", "money and bank", "pay money"],
}


def make_campaign(path: Path, classes: tuple[str, ...] = CLASSES, **settings: object) -> Campaign:
    campaign = Campaign.make(
        [], classes, at=path, name="texts", settings=Settings(encoder="tfidf", **settings)
    )
    items = []
    for name, texts in TEXTS.items():
        items += [{"id": f"{name}-{k}", "text": text} for k, text in enumerate(texts)]
    campaign.add(items)
    return campaign


@pytest.fixture(scope="module")
def clusters() -> tuple[Vectors, Integers]:
    """Features of four classes that few labels hardly tell apart, and the labels."""
    generator = np.random.default_rng(0)
    centres = 1.4 * np.eye(4, 24)
    labels = generator.integers(4, size=60)
    features = centres[labels] + generator.normal(size=(60, 24))
    return features.astype(np.float32), labels


def prior_of_centres(shift: int = 0, origin: str = CLASS_NAMES) -> ClassPrior:
    centres = (1.4 * np.eye(4, 24)).astype(np.float32)
    labels = np.roll(np.arange(4), shift)
    return ClassPrior(centres, labels, (origin,) * 4)


def test_a_head_learns_from_pseudo_examples_alone() -> None:
    examples = PseudoExamples(np.eye(3, dtype=np.float32) * 5, np.arange(3))
    head = ExampleRegression(examples).fit(np.zeros((0, 3), np.float32), np.zeros(0, np.int64))
    assert head.predict(np.eye(3) * 5).tolist() == [0, 1, 2]


def test_a_good_prior_is_used_and_predicts_more(clusters: tuple[Vectors, Integers]) -> None:
    features, labels = clusters
    chosen = choose_prior(
        prior_of_centres(), features, labels, np.arange(60), n_classes=4, head="linear"
    )
    assert chosen.origins == (CLASS_NAMES,)
    right = (chosen.probabilities.argmax(axis=1) == labels).sum()
    plain_right = (chosen.plain_probabilities.argmax(axis=1) == labels).sum()
    assert right >= plain_right


def test_a_misleading_prior_is_not_used(clusters: tuple[Vectors, Integers]) -> None:
    features, labels = clusters
    misleading = prior_of_centres(shift=1)
    misleading = replace(misleading, features=misleading.features * 3)
    chosen = choose_prior(misleading, features, labels, np.arange(60), n_classes=4, head="linear")
    assert chosen.examples is None
    assert chosen.origins == ()
    np.testing.assert_array_equal(chosen.probabilities, chosen.plain_probabilities)


def test_each_origin_is_judged_by_itself(clusters: tuple[Vectors, Integers]) -> None:
    features, labels = clusters
    good = prior_of_centres()
    bad = prior_of_centres(shift=1, origin="old model")
    both = ClassPrior(
        np.concatenate([good.features, bad.features * 3]),
        np.concatenate([good.labels, bad.labels]),
        (*good.origins, *bad.origins),
    )
    chosen = choose_prior(both, features, labels, np.arange(60), n_classes=4, head="linear")
    assert chosen.origins == (CLASS_NAMES,)


def test_a_prior_fades() -> None:
    assert not has_faded(FADED_LABELS * 2 - 1, 2)
    assert has_faded(FADED_LABELS * 2, 2)


def test_predictions_must_agree_with_labels_more_than_by_chance() -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(3, size=300)
    always_first = np.zeros(300, dtype=np.int64)
    no_overlap = np.full(300, -1)
    half = np.where(generator.random(300) < 0.5, labels, generator.integers(3, size=300))
    assert agrees_beyond_chance(half, labels)
    assert not agrees_beyond_chance((labels + 1) % 3, labels)
    assert not agrees_beyond_chance(always_first, labels)
    assert agrees_beyond_chance(no_overlap, labels), "nothing to compare"


def test_held_out_rows_are_judged_with_pseudo_examples_of_unseen_classes() -> None:
    features = np.array([[1, 0], [1.1, 0], [0, 1], [0, 1.1], [0.9, 0], [0, 0.9]], np.float32)
    labels = np.array([0, 0, 1, 1, 0, 1])
    examples = PseudoExamples(np.array([[-2.0, -2.0]], np.float32), np.array([3]))
    probabilities = out_of_fold(features, labels, examples=examples)
    assert probabilities.shape == (6, 4)
    assert (probabilities[:, 3] > 0).all(), "the class of a pseudo-example is seen"
    assert (probabilities[:, 2] == 0).all()
    assert cross_fit(features, labels, np.array([0]), examples=examples).shape == (1, 4)


def test_names_are_encoded_like_items_and_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = make_campaign(tmp_path / "a.teeter")
    prior = campaign.load_state().prior
    assert prior is not None
    assert prior.labels.tolist() == [0, 1, 2]
    assert prior.origins == (CLASS_NAMES,) * 3
    campaign.database.close()

    monkeypatch.setattr("teeter.campaigns.learning.encoding.load_encoder", fail)
    again = Campaign.open(tmp_path / "a.teeter").load_state().prior
    assert again is not None
    np.testing.assert_allclose(again.features, prior.features, atol=1e-6)


def fail(*_: object) -> None:
    raise AssertionError("the vectors are stored")


def test_descriptions_and_examples_become_pseudo_examples(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path / "a.teeter")
    campaign.classes.describe({"food": ClassDescription("Bread and soup.", ("we cook",))})
    prior = campaign.load_state().prior
    assert prior is not None
    assert prior.labels.tolist() == [0, 1, 1, 1, 2]

    campaign.change_settings(names=False)
    assert campaign.load_state().prior is None


@pytest.mark.parametrize("classes", [("0", "1", "2"), ("class_a", "b", "food")])
def test_names_that_mean_nothing_are_not_used(tmp_path: Path, classes: tuple[str, ...]) -> None:
    assert make_campaign(tmp_path / "a.teeter", classes).load_state().prior is None


def test_campaigns_that_cannot_use_names_have_no_prior(tmp_path: Path) -> None:
    assert make_campaign(tmp_path / "a.teeter", head="mlp").load_state().prior is None
    features = Campaign.make(
        [], CLASSES, at=tmp_path / "f.teeter", settings=Settings(kind="features")
    )
    features.add([{"id": "a", "features": [1.0, 2.0]}, {"id": "b", "features": [2.0, 0.0]}])
    assert features.load_state().prior is None


def test_a_model_predicts_classes_that_have_only_a_name(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path / "a.teeter")
    for item in ("animals-0", "animals-1", "food-0", "food-1"):
        campaign.tell(item, item.split("-")[0])
    campaign.train()

    facts = newest_facts(campaign)
    assert facts["prior"] == [CLASS_NAMES]
    assert facts["classes"] == ["animals", "food"]
    state = campaign.load_state()
    predicted = predict_all(campaign, state)
    assert predicted["money-3"] == "money"


def newest_facts(campaign: Campaign) -> dict[str, object]:
    with campaign.reading() as view:
        return dict(view.models.summaries()[-1].facts)


def predict_all(campaign: Campaign, state: RoundState) -> dict[str, str]:
    predictions = predict_items(state, RoundSettings.from_settings(campaign.settings))
    assert predictions is not None
    labels = [label for label, _ in predictions]
    return dict(zip(state.keys, labels, strict=True))


def test_predictions_of_a_source_become_one_pseudo_example_per_class(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path / "a.teeter", names=False)
    rows = []
    for name, texts in TEXTS.items():
        rows += [{"id": f"{name}-{k}", "label": name} for k in range(len(texts))]
    campaign.suggestions.add(rows, "old model")

    state = campaign.load_state()
    assert state.prior is not None
    assert state.prior.origins == ("old model",) * 3
    animals = state.features[[state.keys.index(f"animals-{k}") for k in range(5)]]
    np.testing.assert_allclose(state.prior.features[0], animals.mean(axis=0), atol=1e-6)

    campaign.suggestions.remove("old model")
    assert campaign.load_state().prior is None


def test_a_new_source_is_not_taken_for_a_removed_one(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path / "a.teeter", names=False)
    rows = [{"id": f"{name}-0", "label": name} for name in CLASSES]
    campaign.suggestions.add(rows, "first")
    first = campaign.load_state().prior
    assert first is not None
    campaign.suggestions.remove("first")

    shifted = [{"id": f"{name}-1", "label": name} for name in CLASSES]
    campaign.suggestions.add(shifted, "second")
    second = campaign.load_state().prior
    assert second is not None
    assert second.origins == ("second",) * 3
    assert not np.array_equal(first.features, second.features)


def test_a_source_that_always_says_the_same_teaches_nothing(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path / "a.teeter", names=False)
    campaign.suggestions.add([{"id": f"food-{k}", "label": "food"} for k in range(5)], "lazy")
    assert campaign.load_state().prior is None


def test_a_campaign_from_before_goes_on_without_names(tmp_path: Path) -> None:
    """Settings that were stored before names were used do not change what a campaign does."""
    campaign = make_campaign(tmp_path / "a.teeter")
    with campaign.writing() as change:
        stored = json.loads(change.campaign().settings)
        del stored["names"]
        change.write_settings(stored)
    campaign.database.close()

    opened = Campaign.open(tmp_path / "a.teeter")
    assert not opened.settings.names
    assert opened.load_state().prior is None
    opened.change_settings(names=True)
    assert Campaign.open(tmp_path / "a.teeter").settings.names


def test_a_missing_encoder_leaves_the_names_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = make_campaign(tmp_path / "a.teeter")

    def raise_missing_extra(*_: object) -> None:
        raise MissingExtraError("The encoder is not installed.")

    monkeypatch.setattr("teeter.campaigns.learning.encoding.load_encoder", raise_missing_extra)
    assert campaign.load_state().prior is None


def test_suggestions_outlive_a_copy_of_the_campaign(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path / "a.teeter")
    campaign.classes.describe({"food": "To eat."})
    campaign.suggestions.add([{"id": "food-0", "label": "food", "probability": 0.5}], "old")
    campaign.load_state()  # stores the vectors of the names

    copy_to_location(campaign.database, campaign.name, str(tmp_path / "b.teeter"))
    copy = Campaign.open(tmp_path / "b.teeter")

    assert copy.classes.descriptions() == campaign.classes.descriptions()
    with copy.reading() as view:
        (source,) = view.suggestions.sources()
        stored = view.suggestions.of_source(source)
    assert stored == [Suggestion("food-0", "food", 0.5, "old")]
    assert copy.load_state().prior is not None
