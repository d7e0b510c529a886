"""Encoders: functions that turn texts and images into features.

==========================  ======================================================================
``tfidf``                   texts by their words and letters; needs no model
``pixels``                  images by their pixels, colours and edges; needs no model
``sentence_transformers``   texts by a pretrained model
``encoder``                 what an encoder is, and how a user's own function is called
==========================  ======================================================================

Importing this package is cheap: scikit-learn, Pillow and sentence-transformers are loaded by the
functions that need them.
"""

from teeter.encoders.encoder import Encoder, Vectors, run_encoder
from teeter.encoders.pixels import encode_images
from teeter.encoders.sentence_transformers import load_sentence_encoder
from teeter.encoders.tfidf import encode_texts

__all__ = [
    "Encoder",
    "Vectors",
    "encode_images",
    "encode_texts",
    "load_sentence_encoder",
    "run_encoder",
]
