"""Models: measured on random items by heads that were not trained on them, saved and loaded."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from campaigns.random_campaigns import SETTINGS, create_campaign, draw_features, label_batch
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.learning import training
from teeter.campaigns.learning.classifiers import out_of_fold
from teeter.campaigns.settings import Settings


@pytest.mark.slow
def test_the_estimated_accuracy_is_not_biased_by_what_was_picked(tmp_path: Path) -> None:
    estimates = []
    accuracies = []
    for seed in range(8):
        generator = np.random.default_rng(seed)
        features = generator.normal(size=(200, 5)).astype(np.float32)
        labels = (features[:, 0] + generator.normal(size=200) * 0.6 > 0).astype(np.int64)
        settings = replace(SETTINGS, control=0.4, strategy="margin", seed=seed)
        campaign = create_campaign(tmp_path, settings, features, f"c{seed}")
        for _ in range(4):
            label_batch(campaign, labels, 40)

        estimate = campaign.status().accuracy
        assert estimate is not None
        estimates.append(estimate.share)
        predicted = out_of_fold(features, labels).argmax(axis=1)
        accuracies.append(float((predicted == labels).mean()))
        campaign.database.close()

    assert abs(np.mean(estimates) - np.mean(accuracies)) < 0.035, (
        "control items drawn only from what is left would estimate 0.05 too much"
    )


@pytest.mark.slow
def test_random_labels_are_estimated_to_be_half_right_however_wide_the_features(
    tmp_path: Path,
) -> None:
    campaign = create_campaign(tmp_path, replace(SETTINGS, control=0.9), draw_features(300, 400))
    labels = np.random.default_rng(1).integers(2, size=300)

    label_batch(campaign, labels, 200)

    estimate = campaign.status().accuracy
    assert estimate is not None
    assert estimate.total > 150
    assert 0.35 < estimate.share < 0.65


@pytest.mark.slow
def test_a_network_is_measured_as_a_network(tmp_path: Path) -> None:
    features = np.random.default_rng(0).uniform(-1, 1, size=(300, 2)).astype(np.float32)
    labels = (features[:, 0] * features[:, 1] > 0).astype(np.int64)
    campaign = create_campaign(tmp_path, replace(SETTINGS, head="mlp", control=0.5), features)

    label_batch(campaign, labels, 200)

    estimate = campaign.status().accuracy
    assert estimate is not None
    assert estimate.share > 0.8, "a linear head is half right here"
    assert len(campaign.review.suspects(200)) < 40


@pytest.mark.parametrize("head", ["linear", pytest.param("mlp", marks=pytest.mark.slow)])
def test_a_rare_class_counts_as_much_as_a_frequent_one(head: str, tmp_path: Path) -> None:
    features = draw_features(220, 2)
    features[:20, 0] += 1.5
    campaign = Campaign.make(
        [], ("a", "b"), at=tmp_path / "c.teeter", settings=replace(SETTINGS, head=head)
    )
    campaign.add(
        {"id": f"i{k}", "features": row, "label": "b" if k < 20 else "a"}
        for k, row in enumerate(features)
    )

    campaign.train()

    campaign.export(tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        predicted = [row["predicted"] for row in csv.DictReader(file)]
    assert predicted[:20].count("b") >= 12, "an unweighted model predicts b for a few of these"


def read_predictions(path: Path, count: int) -> tuple[list[str], list[float]]:
    """Return the predicted classes and their probabilities of the first rows of an export."""
    with path.open() as file:
        rows = list(csv.DictReader(file))[:count]

    return [row["predicted"] for row in rows], [float(row["confidence"]) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("head", ["linear", "mlp"])
def test_a_saved_model_is_loaded_and_not_trained_again(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = draw_features(60)
    labels = (features[:, 0] > 0).astype(np.int64)
    campaign = create_campaign(tmp_path, replace(SETTINGS, head=head), features)
    label_batch(campaign, labels, 20)
    campaign.export(tmp_path / "before.csv")
    campaign.database.close()

    def refuse_to_fit(*_: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(training.Learner, "fit", refuse_to_fit)
    reopened = Campaign.open(tmp_path / "c.teeter")
    reopened.export(tmp_path / "after.csv")
    assert (tmp_path / "after.csv").read_text() == (tmp_path / "before.csv").read_text()

    # Neither a class nor items that are added later change what the model predicts.
    reopened.classes.add("later")
    reopened.add({"id": f"n{k}", "features": draw_features(1, 5, k)[0] + 3} for k in range(90))
    reopened.export(tmp_path / "later.csv")
    assert len(reopened.ask(5)) == 5

    classes_before, probabilities_before = read_predictions(tmp_path / "before.csv", 60)
    classes_later, probabilities_later = read_predictions(tmp_path / "later.csv", 60)
    assert classes_later == classes_before
    assert probabilities_later == pytest.approx(probabilities_before, abs=1e-3)


def test_a_model_of_other_features_is_trained_again_and_the_note_says_so(tmp_path: Path) -> None:
    campaign = Campaign.make([], ("a", "b"), at=tmp_path / "t.teeter", settings=Settings(control=0))
    campaign.add([f"apple {k} pear" for k in range(10)] + [f"saw {k} nail" for k in range(10)])
    for question in campaign.ask(12):
        campaign.tell(question.item, "a" if "apple" in (question.content or "") else "b")
    campaign.train()
    assert campaign.prediction_note() is None

    campaign.add(["a plum and an apple", "a drill and a saw"])
    assert campaign.prediction_note() is None, "new items do not change the features of others"
    campaign.add(["a hammer"], encoder=lambda texts: [[len(text), 1.0] for text in texts])

    assert "features or classes have changed" in (campaign.prediction_note() or "")
    assert len(campaign.ask(3)) == 3
