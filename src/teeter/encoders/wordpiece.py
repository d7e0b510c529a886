"""Split texts into the word pieces that BERT was trained on.

A text is converted to lower case, its accents are removed, and it is split at white space and
around punctuation and ideographs. Each word is then cut, from its start, into the longest pieces
that are in the vocabulary. The vocabulary of BERT (uncased) is next to this file.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import cache
from pathlib import Path

__all__ = ["WordPieceTokenizer", "read_vocabulary"]

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
        elif _is_punctuation(code, category) or _is_ideograph(code):
            replacement = f" {character} "
        else:
            replacement = character

        self[code] = replacement
        return replacement


def _is_punctuation(code: int, category: str) -> bool:
    # BERT counts all ASCII symbols, including those that are not punctuation in Unicode, like $.
    is_ascii_symbol = 33 <= code <= 126 and not chr(code).isalnum()
    return is_ascii_symbol or category.startswith("P")


def _is_ideograph(code: int) -> bool:
    return any(first <= code <= last for first, last in _IDEOGRAPHS)


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
            ids += self._split_word(word)
            if len(ids) >= limit:
                break

        return [*ids[:limit], self._end]

    def _split_word(self, word: str) -> list[int]:
        pieces = self._pieces_by_word.get(word)
        if pieces is None:
            pieces = self._find_pieces(word)
            if len(self._pieces_by_word) < _MAX_CACHED_WORDS:
                self._pieces_by_word[word] = pieces
        return pieces

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
