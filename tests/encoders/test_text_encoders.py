"""Features of texts by their words and letters."""

from __future__ import annotations

import numpy as np
import pytest

from teeter.encoders import encode_texts
from teeter.errors import InputError


def test_similar_texts_have_similar_features() -> None:
    texts = [
        "the card was lost",
        "my card is lost",
        "a lost card",
        "exchange rate today",
        "what is the exchange rate",
    ]

    features = encode_texts(texts * 3 + ["…", "a"])

    lengths = np.linalg.norm(features, axis=1)
    assert np.isfinite(features).all()
    assert lengths[:15] == pytest.approx(1, abs=1e-4)
    assert features[0] @ features[1] > features[0] @ features[3] + 0.2


@pytest.mark.parametrize("texts", [["one"], ["one", "two"], ["same", "same", "same"]])
def test_a_few_texts_have_features_too(texts: list[str]) -> None:
    features = encode_texts(texts)

    assert features.shape[0] == len(texts)
    assert np.isfinite(features).all()


def test_texts_without_a_single_term_are_refused() -> None:
    with pytest.raises(InputError, match="no words that tell them apart"):
        encode_texts(["  ", "\n"])
