"""Word pieces, as BERT was trained on them."""

from __future__ import annotations

from pathlib import Path

import pytest

from teeter.encoders.minilm import WordPieceTokenizer, read_vocabulary

TEXTS = [
    "Hello, World! It's 5 o'clock.",
    "naïve café ÅNGSTRÖM Straße",
    "price: $5.00 (about €4.60) 100% _under_score_",
    "中文字符 and 日本語テキスト",
    "emoji 🙂 and \u200b zero width \N{REPLACEMENT CHARACTER}",
    "tab\there\nnew line\r\x00control\x07",
    "supercalifragilisticexpialidocious " + "x" * 150,
    "हिन्दी में पाठ, العربية, עברית",
    "",
    "   ",
    "#hashtag @user http://example.com/a?b=c&d=e",
]


def test_the_longest_pieces_are_taken_from_the_start() -> None:
    vocabulary = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "un": 3, "##aff": 4, "##able": 5, "##a": 6}
    tokenizer = WordPieceTokenizer(vocabulary, max_tokens=10)

    assert tokenizer.tokenize("UNAFFABLE") == [1, 3, 4, 5, 2]
    assert tokenizer.tokenize("unaffz") == [1, 0, 2]
    assert tokenizer.tokenize("") == [1, 2]


def test_long_texts_are_cut() -> None:
    vocabulary = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3}

    ids = WordPieceTokenizer(vocabulary, max_tokens=5).tokenize("a " * 1_000_000)

    assert ids == [1, 3, 3, 3, 2]


def test_the_vocabulary_is_that_of_bert() -> None:
    vocabulary = read_vocabulary()

    assert len(vocabulary) == 30_522
    assert (vocabulary["[PAD]"], vocabulary["[CLS]"], vocabulary["the"]) == (0, 101, 1996)


def test_texts_of_any_script_are_split_as_by_the_library_tokenizers(tmp_path: Path) -> None:
    library = pytest.importorskip("tokenizers")
    reference = library.BertWordPieceTokenizer(
        dict(read_vocabulary()), lowercase=True, strip_accents=True
    )
    tokenizer = WordPieceTokenizer(read_vocabulary(), max_tokens=256)

    for text in TEXTS:
        assert tokenizer.tokenize(text) == reference.encode(text).ids, text
