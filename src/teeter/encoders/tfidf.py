"""Encode texts by their words and letters, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from teeter.encoders.encoder import MAX_FEATURES, MAX_TEXT_LENGTH, Vectors
from teeter.errors import InputError

__all__ = ["encode_texts"]

_MAX_WORD_TERMS = 20_000
_MAX_LETTER_TERMS = 10_000


def encode_texts(texts: Sequence[str]) -> Vectors:
    """Return the features of texts: TF-IDF of words and letters, reduced by an SVD.

    The terms are words, pairs of words, and groups of three or four letters. All texts are encoded
    together: a text has other features next to other texts.

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
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import TfidfVectorizer

    start_of_texts = [text[:MAX_TEXT_LENGTH] for text in texts]

    options: dict[str, Any] = {"sublinear_tf": True, "dtype": np.float32}
    words = TfidfVectorizer(
        ngram_range=(1, 2), max_features=_MAX_WORD_TERMS, token_pattern=r"(?u)\S+", **options
    )
    # Letters compare texts of a single word, which have no other word in common.
    letters = TfidfVectorizer(
        analyzer="char_wb", ngram_range=(3, 4), max_features=_MAX_LETTER_TERMS, **options
    )

    try:
        word_counts = words.fit_transform(start_of_texts)
        letter_counts = letters.fit_transform(start_of_texts)
    except ValueError:
        raise InputError("The texts have no words that tell them apart.") from None

    return _reduce(hstack([word_counts, letter_counts]).tocsr())


def _reduce(counts: Any) -> Vectors:
    """Project sparse rows onto their first singular vectors: (N, V) -> (N, D)."""
    from sklearn.decomposition import TruncatedSVD

    from teeter.threads import limit_threads

    n_texts, n_terms = counts.shape
    width = min(MAX_FEATURES, n_texts - 1, n_terms - 1)

    # One or two texts are too few to decompose, and need no reduction.
    if width < 2:
        return np.asarray(counts.todense(), dtype=np.float32)[:, :MAX_FEATURES]

    # One thread: the products are small, and threads would mostly wait for each other, busily if
    # another program uses a core. Also, features then do not depend on the number of cores.
    # The explained variance is a ratio of zeros if all texts are the same.
    with limit_threads(1, blas=True), np.errstate(divide="ignore", invalid="ignore"):
        reduced = TruncatedSVD(width, n_iter=3, random_state=0).fit_transform(counts)

    lengths = np.linalg.norm(reduced, axis=1, keepdims=True)
    return np.asarray(reduced / np.where(lengths > 0, lengths, 1), dtype=np.float32)
