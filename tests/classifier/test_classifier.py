"""Classifiers: probabilities, chunks, and contents that cannot be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
import torch
from torch import nn

from classifier.trained import TEXTS, network_classifier, text_classifier
from teeter.classifier import classifier as module
from teeter.encoders import make_encoder
from teeter.errors import InputError


def test_a_network_head_computes_what_torch_computes() -> None:
    classifier = network_classifier()
    features = np.random.default_rng(2).normal(size=(20, 4)).astype(np.float32)

    modules: list[nn.Module] = []
    for layer in classifier.head.layers:
        linear = nn.Linear(layer.weight.shape[1], len(layer.bias)).double()
        linear.load_state_dict(
            {"weight": torch.from_numpy(layer.weight), "bias": torch.from_numpy(layer.bias)}
        )
        modules += [linear, nn.ReLU()]
    network = nn.Sequential(*modules[:-1])
    scaled = (torch.from_numpy(features).double() - torch.from_numpy(classifier.head.centre)) / 2
    expected = (network(scaled) / 1.7).softmax(dim=1)

    np.testing.assert_allclose(
        classifier.predict_proba(features), expected.detach().numpy(), rtol=1e-10
    )


def test_a_high_temperature_makes_it_less_sure_and_changes_no_class() -> None:
    cold = text_classifier(1.0)
    warm = text_classifier(4.0)

    assert warm.predict(TEXTS) == cold.predict(TEXTS)
    assert (warm.predict_proba(TEXTS).max(axis=1) < cold.predict_proba(TEXTS).max(axis=1)).all()


def test_logits_of_any_size_give_probabilities() -> None:
    classifier = network_classifier()
    probabilities = classifier.predict_proba(np.full((2, 4), 1e6, dtype=np.float32))

    assert np.isfinite(probabilities).all()
    assert probabilities.sum(axis=1) == pytest.approx(1)


def test_chunks_change_nothing_and_report_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = TEXTS * 5
    in_one_chunk = text_classifier().predict_proba(texts)
    monkeypatch.setattr(module, "CHUNK", 3)

    np.testing.assert_allclose(text_classifier().predict_proba(texts), in_one_chunk, atol=1e-7)
    reported: list[tuple[int, int]] = []
    labelled = text_classifier().label(texts, lambda done, total: reported.append((done, total)))
    assert len(labelled) == 20
    assert reported[0] == (3, 20)
    assert reported[-1] == (20, 20)
    assert labelled[0].probability == pytest.approx(in_one_chunk[0].max())


def test_nothing_to_label() -> None:
    assert text_classifier().predict_proba([]).shape == (0, 3)
    assert text_classifier().predict([]) == []


def test_an_image_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    from PIL import Image

    paths = []
    for number in range(4):
        path = tmp_path / f"{number}.png"
        Image.new("RGB", (8, 8), (60 * number, 0, 0)).save(path)
        paths.append(str(path))
    encoder = make_encoder("pixels", "image")
    encoder.fit(paths)
    width = encoder.encode(paths[:1]).vectors.shape[1]
    head = module.ClassifierHead(
        np.zeros(width),
        1.0,
        (module.Layer(np.ones((2, width), np.float32), np.zeros(2, np.float32)),),
    )
    classifier = module.Classifier(["light", "dark"], head, encoder, text_classifier().info)
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"not an image")

    predictions = classifier.label([*paths, str(broken)])

    assert [prediction.label is None for prediction in predictions] == [False] * 4 + [True]
    assert "broken.png" in (predictions[4].problem or "")
    with pytest.raises(InputError, match=r"Content 1 cannot be read: .*broken\.png"):
        classifier.predict([paths[0], str(broken)])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["x", "y", "z", "w"]], "give rows of 4 numbers"),
        ([[1.0, 2.0]], r"4 features per item, but the data has the shape \(1, 2\)"),
        ([[1.0, 2.0, np.nan, 4.0]], "missing or infinite"),
    ],
)
def test_features_that_do_not_fit_are_refused(rows: list[list[float]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        network_classifier().predict_proba(rows)


def test_one_text_is_not_a_list_of_letters() -> None:
    with pytest.raises(InputError, match="give a list of texts"):
        text_classifier().predict("win cash now")


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (pyarrow.table({"text": TEXTS}), r"a Table: give a list of texts, such as frame\['text'\]"),
        (["one", None], "Content 1 is of type NoneType: give a list of texts"),
        ([{"text": "one"}], "Content 0 is of type dict"),
        ([float("nan")], "Content 0 is of type float"),
    ],
)
def test_what_is_no_text_is_refused_instead_of_predicted(contents: Any, message: str) -> None:
    for method in (text_classifier().predict, text_classifier().label):
        with pytest.raises(InputError, match=message):
            method(contents)
