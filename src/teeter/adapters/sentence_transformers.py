"""Sentence-transformers encoders as a step of a scikit-learn pipeline, whose last step is the head."""

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
    if (error.name or "").split(".")[0] != "sentence_transformers":
        raise
    raise MissingExtraError("This needs sentence-transformers: pip install 'teeter[hf]'.") from None

__all__ = ["SentenceEncoder"]

Vectors = npt.NDArray[np.float32]


class SentenceEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Vectors of texts by a frozen encoder: ``make_pipeline(SentenceEncoder(encoder), LogisticRegression())``.

    A text is encoded once and remembered, in the clones that a ``teeter.Learner`` makes each round as well.
    """

    def __init__(
        self,
        encoder: SentenceTransformer,
        *,
        normalize: bool = True,
        batch_size: int = 32,
        remember: bool = True,
    ) -> None:
        """Keep the parameters.

        Args:
            encoder: a ``SentenceTransformer``, which is not trained.
            normalize: whether vectors have length 1.
            batch_size: texts at a time.
            remember: whether vectors are kept, 4 bytes a number, so that no text is encoded twice.
        """
        self.encoder = encoder
        self.normalize = normalize
        self.batch_size = batch_size
        self.remember = remember
        self._vectors: dict[
            tuple[SentenceTransformer, bool], dict[str, Vectors]
        ] = {}  # by what made them

    def __sklearn_clone__(self) -> Self:
        """Return a copy that shares the encoder, which never changes, and what is remembered."""
        copy = type(self)(**self.get_params(deep=False))
        copy._vectors = self._vectors
        return copy

    def __sklearn_is_fitted__(self) -> bool:
        """Tell that there is nothing to fit."""
        return True

    def fit(self, texts: Sequence[str], labels: Any = None) -> Self:
        """Return self: an encoder comes trained."""
        if not isinstance(self.encoder, SentenceTransformer):
            raise InputError(
                f"The encoder is a {type(self.encoder).__name__}: give a SentenceTransformer."
            )
        return self

    def transform(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of texts: (N, D)."""
        self.fit(texts)
        listed = _checked(texts)
        known = (
            self._vectors.setdefault((self.encoder, self.normalize), {}) if self.remember else {}
        )
        new = [text for text in dict.fromkeys(listed) if text not in known]
        if new:
            with evaluation_mode(self.encoder, None):  # so that its mode stays as it was
                found = self.encoder.encode(
                    new,
                    batch_size=self.batch_size,
                    normalize_embeddings=self.normalize,
                    show_progress_bar=False,
                )
            known.update(zip(new, np.asarray(found, dtype=np.float32), strict=True))
        return np.stack([known[text] for text in listed])


def _checked(texts: Any) -> list[str]:
    if isinstance(texts, str):
        raise InputError("This is one text: give a list of texts.")
    if (
        isinstance(texts, Mapping) or getattr(texts, "ndim", 1) != 1
    ):  # whose items may be names of columns
        raise InputError(f"This is a {type(texts).__name__} of columns: give one column of texts.")
    listed = list(texts)
    if not listed:
        raise InputError("There is no text to encode.")
    for row, text in enumerate(listed):
        if not isinstance(text, str):
            raise InputError(
                f"Text {row} is a {type(text).__name__}: give texts, or a table's column of them."
            )
    return listed
