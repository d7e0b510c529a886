"""A campaign's model labels new items, with and without the campaign."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from campaigns.random_campaigns import SETTINGS, create_campaign, label_batch
from teeter.campaigns.campaign import Campaign
from teeter.campaigns.settings import Settings
from teeter.classifier import load_classifier, save_classifier
from teeter.errors import InputError

SPAM = ("win cash now", "claim your free prize", "urgent offer reply today", "cheap pills online")
HAM = ("the bread was warm", "a calm walk by the river", "she sang to the garden", "apples ripened")


def label_texts(path: Path, count: int = 40, **settings: Any) -> Campaign:
    """Return a campaign of texts, all labelled, with a trained model."""
    campaign = Campaign.make(
        [], ["spam", "ham"], at=path, name="mail", settings=Settings(**settings)
    )
    rows = []
    for number in range(count):
        label, sentences = (("spam", SPAM), ("ham", HAM))[number % 2]
        text = f"{sentences[number // 2 % 4]} {number}"
        rows.append({"id": str(number), "text": text, "label": label})
    campaign.add(rows)
    campaign.train()
    return campaign


@pytest.mark.parametrize("head", ["linear", pytest.param("mlp", marks=pytest.mark.slow)])
def test_new_texts_are_predicted_as_those_of_the_campaign(head: str, tmp_path: Path) -> None:
    campaign = label_texts(tmp_path / "mail.teeter", head=head)
    campaign.export(tmp_path / "labels.csv")
    with (tmp_path / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))

    predictions = campaign.predict([row["text"] for row in rows])

    assert [prediction.label for prediction in predictions] == [row["predicted"] for row in rows]
    confidences = [float(row["confidence"]) for row in rows]
    assert [prediction.probability for prediction in predictions] == pytest.approx(
        confidences, abs=1e-4
    )
    assert campaign.predict(["claim your cash prize"])[0].label == "spam"
    campaign.database.close()


def test_the_saved_model_needs_no_campaign_and_new_items_change_nothing(tmp_path: Path) -> None:
    campaign = label_texts(tmp_path / "mail.teeter")
    new_texts = ["free cash", "the river was calm", "", "Ärger 東京"]
    before = campaign.classifier().predict_proba(new_texts)
    save_classifier(campaign.classifier(), tmp_path / "model")

    campaign.add([{"id": f"new {k}", "text": f"a very different topic {k}"} for k in range(60)])
    after = campaign.classifier().predict_proba(new_texts)
    campaign.database.close()
    (tmp_path / "mail.teeter").unlink()
    loaded = load_classifier(tmp_path / "model")

    np.testing.assert_allclose(after, before, atol=1e-5)
    np.testing.assert_array_equal(loaded.predict_proba(new_texts), before)
    assert loaded.info.labels == 40
    assert loaded.classes == ("spam", "ham")


def test_features_are_predicted_too(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(80, 5)).astype(np.float32)
    labels = (features[:, 0] > 0).astype(np.int64)
    campaign = create_campaign(tmp_path, replace(SETTINGS, control=0.5), features)
    label_batch(campaign, labels, 60)

    predicted = campaign.classifier().predict(features)

    right = [
        name == campaign.classes.names()[label]
        for name, label in zip(predicted, labels, strict=True)
    ]
    assert np.mean(right) > 0.8
    campaign.database.close()


def test_without_a_model_there_is_nothing_to_predict_with(tmp_path: Path) -> None:
    campaign = Campaign.make([], ["spam", "ham"], at=tmp_path / "mail.teeter")
    campaign.add(["win cash now", "a calm walk"])
    with pytest.raises(InputError, match="There is no model yet"):
        campaign.predict(["free cash"])
    campaign.database.close()


def test_features_of_a_users_function_cannot_be_computed_for_new_items(tmp_path: Path) -> None:
    campaign = Campaign.make([], ["spam", "ham"], at=tmp_path / "mail.teeter")
    rows = [{"text": f"text {k}", "label": ["spam", "ham"][k % 2]} for k in range(8)]
    campaign.add(rows, encoder=lambda texts: [[len(text), k] for k, text in enumerate(texts)])
    campaign.train()
    with pytest.raises(InputError, match="You supplied the features"):
        campaign.predict(["free cash"])
    campaign.database.close()
