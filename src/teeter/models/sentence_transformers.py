"""Encoders of sentence-transformers as a step of a scikit-learn pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin

from teeter.errors import InputError, MissingExtraError
from teeter.models.torch_model import evaluation_mode

try:
    from sentence_transformers import SentenceTransformer
except ModuleNotFoundError as error:
    # Anything else that is missing is a broken installation and not a missing extra.
    library, _, _ = (error.name or "").partition(".")
    if library != "sentence_transformers":
        raise
    raise MissingExtraError("This needs sentence-transformers: pip install 'teeter[hf]'.") from None

__all__ = ["SentenceEncoder"]

Vectors = npt.NDArray[np.float32]


class SentenceEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A frozen encoder of texts: ``make_pipeline(SentenceEncoder(encoder), LogisticRegression())``.

    Each text is encoded once and cached. The clones that a ``teeter.Learner`` makes each round
    share the cache.
    """

    def __init__(
        self,
        encoder: SentenceTransformer,
        *,
        normalize: bool = True,
        batch_size: int = 32,
        remember: bool = True,
    ) -> None:
        """Store the parameters, as scikit-learn requires.

        Args:
            encoder: a ``SentenceTransformer``, which is not trained.
            normalize: whether vectors have length 1.
            batch_size: texts at a time.
            remember: whether vectors are cached, 4 bytes per number, so that no text is encoded
                twice.
        """
        self.encoder = encoder
        self.normalize = normalize
        self.batch_size = batch_size
        self.remember = remember

        # Vectors by text, for each encoder and setting that made them: both may be changed.
        self._caches: dict[tuple[SentenceTransformer, bool], dict[str, Vectors]] = {}

    def __sklearn_clone__(self) -> Self:
        """Return a copy that shares the encoder, which never changes, and the cache."""
        copy = type(self)(**self.get_params(deep=False))
        copy._caches = self._caches
        return copy

    def __sklearn_is_fitted__(self) -> bool:
        """Return True: there is nothing to fit."""
        return True

    def fit(self, texts: Sequence[str], labels: Any = None) -> Self:
        """Check the encoder and return self: it is trained already."""
        if not isinstance(self.encoder, SentenceTransformer):
            raise InputError(
                f"The encoder is a {type(self.encoder).__name__}: give a SentenceTransformer."
            )
        return self

    def transform(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts: (N, D)."""
        self.fit(texts)
        text_list = _require_texts(texts)

        cache: dict[str, Vectors] = {}
        if self.remember:
            key = (self.encoder, self.normalize)
            cache = self._caches.setdefault(key, cache)

        # Each text once, in the order given: its batch can change the last bits of a vector.
        distinct = dict.fromkeys(text_list)
        new_texts = [text for text in distinct if text not in cache]
        if new_texts:
            # encode() leaves the encoder in evaluation mode: restore the mode it was in.
            with evaluation_mode(self.encoder, None):
                vectors = self.encoder.encode(
                    new_texts,
                    batch_size=self.batch_size,
                    normalize_embeddings=self.normalize,
                    show_progress_bar=False,
                )
            vectors = np.asarray(vectors, dtype=np.float32)
            cache.update(zip(new_texts, vectors, strict=True))

        return np.stack([cache[text] for text in text_list])


def _require_texts(texts: Any) -> list[str]:
    if isinstance(texts, str):
        raise InputError("This is one text: give a list of texts.")

    # Iterating over a mapping or a frame would give the names of its columns.
    if isinstance(texts, Mapping) or getattr(texts, "ndim", 1) != 1:
        raise InputError(f"This is a {type(texts).__name__} of columns: give one column of texts.")

    text_list = list(texts)
    if not text_list:
        raise InputError("There is no text to encode.")
    for row, text in enumerate(text_list):
        if not isinstance(text, str):
            raise InputError(
                f"Text {row} is a {type(text).__name__}: give texts, or a table's column of them."
            )
    return text_list
