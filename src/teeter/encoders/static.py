"""Encode texts by the mean of fixed vectors of their word pieces, which is very fast."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from teeter.encoders.encoder import ContentKind, Encoder, Encoding, checksum_files, normalize_rows
from teeter.encoders.registry import encoders
from teeter.encoders.weights import WeightsPackage
from teeter.errors import FileError, MissingExtraError

__all__ = ["STATIC_PACKAGE", "StaticEncoder"]

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
        self.name = "static"
        table = table or STATIC_PACKAGE.require_file(*_TABLE)
        tokenizer = tokenizer or STATIC_PACKAGE.require_file(*_TOKENIZER)
        self._checksum = checksum_files([table, tokenizer])
        self._tokenizer = _load_tokenizer(tokenizer)
        self._table = _load_table(table)

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


def _load_table(path: Path) -> Any:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)[_TABLE_NAME].astype(np.float32)
    except (SafetensorError, KeyError, OSError):
        raise FileError(f"{path} has no table of vectors: install wordllama again.") from None
