"""Sentence encoders as a step of a pipeline: each text encoded once, whatever the rounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import library_models
import teeter
from library_models import CLASSES, TEXTS, sentence_encoder
from teeter.errors import InputError

pytest.importorskip(
    "sentence_transformers", reason="sentence-transformers is not installed: the extra hf"
)

from teeter.models.sentence_transformers import SentenceEncoder


@pytest.fixture
def encoded_counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts were encoded, call by call."""
    counts: list[int] = []
    encoder = sentence_encoder()
    encode = type(encoder).encode

    def encode_and_count(self: Any, texts: list[str], **options: Any) -> Any:
        counts.append(len(texts))
        return encode(self, texts, **options)

    monkeypatch.setattr(type(encoder), "encode", encode_and_count)
    return counts


def test_vectors_are_the_encoder_s() -> None:
    for normalize in (True, False):
        vectors = SentenceEncoder(sentence_encoder(), normalize=normalize).transform(TEXTS)
        expected = sentence_encoder().encode(TEXTS, normalize_embeddings=normalize)
        np.testing.assert_allclose(vectors, expected, rtol=1e-5, atol=1e-6)
        assert vectors.dtype == np.float32
    assert np.allclose(
        np.linalg.norm(SentenceEncoder(sentence_encoder()).transform(TEXTS), axis=1), 1
    )


def test_a_learner_encodes_every_text_once(encoded_counts: list[int]) -> None:
    pipeline = make_pipeline(SentenceEncoder(sentence_encoder()), LogisticRegression())
    learner = teeter.Learner(pipeline, library_models.table(text=TEXTS)["text"], classes=4)
    for _ in range(3):
        rows = learner.ask(8)
        learner.tell(rows, CLASSES[rows])
        learner.fit()
    learner.predict()
    assert sum(encoded_counts) == len(set(TEXTS))


def test_a_text_that_comes_twice_is_encoded_once(encoded_counts: list[int]) -> None:
    vectors = SentenceEncoder(sentence_encoder(), remember=False).transform(["red", "green", "red"])
    assert encoded_counts == [2]
    assert (vectors[0] == vectors[2]).all()
    assert (vectors[0] != vectors[1]).any()


def test_texts_come_as_many_at_a_time_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    encoder = sentence_encoder()
    looked = encoder.forward
    monkeypatch.setattr(
        encoder, "forward", lambda *given, **named: sizes.append(1) or looked(*given, **named)
    )
    SentenceEncoder(encoder, batch_size=2).transform(["red", "green", "blue", "old", "new"])
    assert len(sizes) == 3


def test_what_is_not_to_be_remembered_is_not(encoded_counts: list[int]) -> None:
    step = SentenceEncoder(sentence_encoder(), remember=False)
    assert (step.transform(TEXTS[:5]) == step.transform(TEXTS[:5])).all()
    assert encoded_counts == [5, 5]
    assert step._caches == {}


def test_what_is_remembered_is_of_these_settings() -> None:
    step = SentenceEncoder(sentence_encoder())
    step.transform(TEXTS)
    changed = clone(step).set_params(normalize=False)
    np.testing.assert_allclose(
        changed.transform(TEXTS), sentence_encoder().encode(TEXTS), rtol=1e-5, atol=1e-6
    )
    other = sentence_encoder()
    with torch.no_grad():
        next(other.parameters()).mul_(-1)
    opposite = changed.set_params(encoder=other).transform(TEXTS)
    np.testing.assert_allclose(opposite, -sentence_encoder().encode(TEXTS), rtol=1e-5, atol=1e-6)


def test_the_encoder_s_mode_stays() -> None:
    encoder = sentence_encoder().train()
    SentenceEncoder(encoder).transform(TEXTS)
    assert encoder.training


def test_a_clone_shares_the_encoder() -> None:
    step = SentenceEncoder(sentence_encoder(), batch_size=4)
    copy = clone(step)
    assert copy.encoder is step.encoder
    assert copy.batch_size == 4
    assert "SentenceEncoder" in repr(make_pipeline(copy, LogisticRegression()))


@pytest.mark.parametrize(
    ("encoder", "texts", "sentence"),
    [
        ("all-MiniLM", TEXTS, "The encoder is a str: give a SentenceTransformer"),
        (None, "red", "This is one text: give a list of texts"),
        (None, [], "There is no text to encode"),
        (None, {"text": TEXTS}, "This is a dict of columns: give one column of texts"),
        (None, np.array([TEXTS]), "This is a ndarray of columns: give one column of texts"),
        (None, ["red", None], "Text 1 is a NoneType: give texts, or a table's column of them"),
    ],
)
def test_mistakes_are_reported_in_a_sentence(encoder: Any, texts: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        SentenceEncoder(encoder or sentence_encoder()).transform(texts)
