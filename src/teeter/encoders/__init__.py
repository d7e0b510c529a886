"""Encoders turn texts and images into features.

==========================  ======================================================================
``encoder``                 what an encoder is, and how its fitted state is saved
``registry``                encoders by name, and the best one that is installed
``text_encoders``           texts by words and letters, without a model; English texts by vectors of
                            word pieces, very fast; texts in sixteen languages
``minilm``                  English texts by a small sentence encoder
``pixels``                  images by their pixels, colours and edges; without a model
``efficientnet``            images by a small network trained on ImageNet
``side_by_side``            the features of several encoders, each scaled
``pretrained``              any sentence-transformers or transformers model
``table_rows``              rows of a table by their numbers, dates and categories
``own_encoders``            a function of the user, or a server with OpenAI's embeddings interface
``networks``                the networks of ``minilm`` and ``efficientnet``
==========================  ======================================================================

Importing this package is cheap: torch, scikit-learn, Pillow and the weights are loaded by the
encoders that need them.
"""

from teeter.encoders.encoder import (
    ContentKind,
    Encoder,
    EncoderFunction,
    EncoderState,
    Encoding,
    Vectors,
    run_encoder,
)
from teeter.encoders.image_encoders import EfficientNetEncoder, PixelEncoder, encode_images
from teeter.encoders.minilm import MiniLMEncoder
from teeter.encoders.registry import (
    AUTO,
    EncoderChoice,
    choose_encoder,
    encoders,
    is_installed,
    is_own_encoder,
    make_encoder,
    names,
    require_own_encoder,
    require_trusted_encoder,
    resolve_encoder,
    trust_encoder,
)
from teeter.encoders.table_rows import TableRowEncoder, format_card, parse_card
from teeter.encoders.text_encoders import (
    MultilingualEncoder,
    StaticEncoder,
    TfidfEncoder,
    encode_texts,
)

__all__ = [
    "AUTO",
    "ContentKind",
    "EfficientNetEncoder",
    "Encoder",
    "EncoderChoice",
    "EncoderFunction",
    "EncoderState",
    "Encoding",
    "MiniLMEncoder",
    "MultilingualEncoder",
    "PixelEncoder",
    "StaticEncoder",
    "TableRowEncoder",
    "TfidfEncoder",
    "Vectors",
    "choose_encoder",
    "encode_images",
    "encode_texts",
    "encoders",
    "format_card",
    "is_installed",
    "is_own_encoder",
    "make_encoder",
    "names",
    "parse_card",
    "require_own_encoder",
    "require_trusted_encoder",
    "resolve_encoder",
    "run_encoder",
    "trust_encoder",
]
