"""Models, data and training loops of other libraries, one library per file.

========================= ========================================================================
``huggingface``           texts, images and labels of ``datasets`` for classifiers of transformers
``hf_columns``            the columns of a ``datasets.Dataset``, checked and read
``sentence_transformers`` a frozen sentence encoder as a step of a scikit-learn pipeline
``lightning``             train Lightning modules in a ``teeter.Learner``
``skactiveml``            strategies of teeter in scikit-activeml
========================= ========================================================================

Each file needs the library that it is for, and says which extra to install if that is missing. So
the names below are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from teeter.base.lazy_imports import import_lazily

if TYPE_CHECKING:
    from teeter.adapters.hf_columns import labels_of
    from teeter.adapters.huggingface import Images, Texts
    from teeter.adapters.lightning import LightningTraining
    from teeter.adapters.sentence_transformers import SentenceEncoder
    from teeter.adapters.skactiveml import TeeterStrategy

__all__ = [
    "Images",
    "LightningTraining",
    "SentenceEncoder",
    "TeeterStrategy",
    "Texts",
    "labels_of",
]

# labels_of comes through huggingface, which explains what to install if a library is missing.
__getattr__, __dir__ = import_lazily(
    __name__,
    {
        "hf_columns": ["labels_of"],
        "huggingface": ["Images", "Texts"],
        "lightning": ["LightningTraining"],
        "sentence_transformers": ["SentenceEncoder"],
        "skactiveml": ["TeeterStrategy"],
    },
)
