"""Models and data of other libraries, one library per file.

========================= ========================================================================
``huggingface``           texts, images and labels of ``datasets`` for classifiers of transformers
``sentence_transformers`` a frozen sentence encoder as a step of a scikit-learn pipeline
========================= ========================================================================

Each file needs the library that it is for, and says which extra to install if that is missing. So
the names below are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from teeter.base.lazy_imports import import_lazily

if TYPE_CHECKING:
    from teeter.models.adapters.huggingface import Images, Texts, labels_of
    from teeter.models.adapters.sentence_transformers import SentenceEncoder

__all__ = ["Images", "SentenceEncoder", "Texts", "labels_of"]

__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "huggingface": ["Images", "Texts", "labels_of"],
        "sentence_transformers": ["SentenceEncoder"],
    },
)
