"""Names of classes are checked, and descriptions are read from files."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from teeter.campaigns.campaign import Campaign
from teeter.campaigns.classes import (
    class_texts,
    is_meaningful,
    read_descriptions,
    readable_name,
    validate_classes,
    validate_description,
)
from teeter.campaigns.learning.prior import explain_names
from teeter.campaigns.records import ClassDescription
from teeter.campaigns.settings import Settings
from teeter.errors import FileError, InputError, TeeterError, UnknownNameError

SPAM = ClassDescription("Unwanted advertising.", ("Win now!", "Cheap, cheap"))


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "classes.toml",
            'ham = "From a friend."\n[spam]\ndescription = "Unwanted advertising."\n'
            'examples = ["Win now!", "Cheap, cheap"]\n',
        ),
        (
            "classes.csv",
            "name,description,example 1,example 2\r\n"
            'spam,Unwanted advertising.,Win now!,"Cheap, cheap"\r\n'
            "ham,From a friend.,,\r\n",
        ),
        (
            "classes.tsv",
            "\ufeffClass\tExample\tDescription\texamples\n"
            "spam\tWin now!\tUnwanted advertising.\tCheap, cheap\nham\t\tFrom a friend.\n",
        ),
    ],
)
def test_all_formats_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    descriptions = read_descriptions(write(tmp_path / name, text))
    assert descriptions == {"spam": SPAM, "ham": ClassDescription("From a friend.")}


def test_line_breaks_in_cells_are_read_and_those_in_examples_become_spaces(
    tmp_path: Path,
) -> None:
    # U+2028 and form feeds end no row of a table.
    text = 'name,description,example\nspam,"One\u2028two\x0cthree\nfour","Win\nnow!"\n'
    descriptions = read_descriptions(write(tmp_path / "a.csv", text))
    expected = ClassDescription("One\u2028two\x0cthree\nfour", ("Win now!",))
    assert descriptions == {"spam": expected}

    text = "name,description\nspam,One\u2028two\nham,a\x85b\n"
    descriptions = read_descriptions(write(tmp_path / "b.csv", text))
    assert descriptions["spam"].description == "One\u2028two"
    assert descriptions["ham"].description == "a\x85b"


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.toml", "spam = ", "is not valid TOML"),
        ("a.toml", "spam = 3", "is not a string"),
        ("a.toml", '[spam]\nmeaning = "x"', "only description and examples"),
        ("a.toml", '[spam]\nexamples = "x"', "must be a string, and its examples a list"),
        ("a.toml", "[spam]\nexamples = [1]", "must be strings"),
        ("a.toml", f'spam = "{"x" * 5000}"', "shorten it to at most 4,000"),
        ("a.toml", "", "describes no class"),
        ("a.csv", "text,label\nhello,spam\n", "describes no class"),
        ("a.csv", "name,description\nspam,a\nspam,b\n", "describes 'spam' twice"),
        ("a.txt", "spam", "Cannot read descriptions"),
    ],
)
def test_a_wrong_file_is_one_clear_sentence(
    tmp_path: Path, name: str, text: str, sentence: str
) -> None:
    with pytest.raises(TeeterError, match=sentence):
        read_descriptions(write(tmp_path / name, text))


def test_a_missing_or_binary_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="There is no file"):
        read_descriptions(tmp_path / "none.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="is not a valid file of class descriptions"):
        read_descriptions(tmp_path / "b.toml")


def test_too_many_examples_are_refused() -> None:
    with pytest.raises(InputError, match="give at most 20"):
        validate_description("spam", "", ["x"] * 21)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("card_arrival", "card arrival"),
        ("Refund-not.showing/up", "Refund not showing up"),
        ("getPINChanged", "get PIN changed"),
        ("reverted_card_payment?", "reverted card payment?"),
        ("très_bien", "très bien"),
    ],
)
def test_names_become_words(name: str, words: str) -> None:
    assert readable_name(name) == words


@pytest.mark.parametrize(
    "name", ["0", "17", "A", "b", "class_a", "Class 12", "label-3", "C1", "yes", "No", "cat_0", "?"]
)
def test_names_that_mean_nothing_are_found(name: str) -> None:
    assert not is_meaningful(name)
    assert class_texts(name, None) == []
    assert class_texts(name, SPAM) == [SPAM.description, *SPAM.examples]


@pytest.mark.parametrize("name", ["spam", "card_arrival", "猫", "UK", "type 2 diabetes", "été"])
def test_names_that_mean_something_are_kept(name: str) -> None:
    assert is_meaningful(name)


def test_a_campaign_keeps_its_descriptions_and_they_can_be_changed(tmp_path: Path) -> None:
    campaign = Campaign.make(
        [], ["spam", "ham"], at=tmp_path / "a.teeter", descriptions={"spam": SPAM}
    )
    assert campaign.classes.descriptions() == {"spam": SPAM}

    campaign.classes.describe({"ham": "From a friend.", "spam": ""})
    assert campaign.classes.descriptions() == {"ham": ClassDescription("From a friend.")}
    changes = [line for line in campaign.history() if line["what"] == "described"]
    assert [line["name"] for line in changes] == ["spam", "ham", "spam"]


def test_an_unknown_class_changes_nothing(tmp_path: Path) -> None:
    campaign = Campaign.make([], ["spam", "ham"], at=tmp_path / "a.teeter")
    with pytest.raises(UnknownNameError, match=r"No class is called 'spamm'.*spam"):
        campaign.classes.describe({"spam": "x", "spamm": "y"})
    assert campaign.classes.descriptions() == {}

    with pytest.raises(UnknownNameError, match="'eggs', which is not a class"):
        Campaign.make([], ["spam", "ham"], at=tmp_path / "b.teeter", descriptions={"eggs": SPAM})
    assert not (tmp_path / "b.teeter").exists()


def test_a_sentence_says_whether_names_are_used(tmp_path: Path) -> None:
    numbers = itertools.count()

    def explain(classes: list[str], **settings: Any) -> str:
        path = tmp_path / f"{next(numbers)}.teeter"
        campaign = Campaign.make([], classes, at=path, name="a", settings=Settings(**settings))
        return explain_names(campaign)

    assert explain(["spam", "ham"]).startswith("Models also learn from the class names")
    one = explain(["spam", "ham", "7"])
    assert one == (
        "Models learn from the class names, but not from 7, because its name says nothing about "
        "the items."
    )
    two = explain(["spam", "ham", "other", "7"])
    assert "but not from other, 7, because their names say nothing about the items." in two
    assert "Describe 0, 1 with" in explain(["0", "1"])
    assert "--no-names" in explain(["spam", "ham"], names=False)
    assert "images and words" in explain(["cat", "dog"], kind="image")
    assert "the head mlp" in explain(["spam", "ham"], head="mlp")


def test_names_are_stripped_and_checked() -> None:
    assert validate_classes([" a ", "b"]) == ["a", "b"]
    assert validate_classes([0, True, 1.5]) == ["0", "True", "1.5"]
    with pytest.raises(InputError, match="give two or more different names"):
        validate_classes(["a", "a "])
    for first, second in [
        ("Spam", "spam"),
        ("not  spam", "Not spam"),
        ("GROSS", "groß"),
        ("spam", "\uff33pam"),  # a full-width S
        ("spam", "sp\u200bam"),  # a zero-width space
        ("spam", "spam\u00ad"),  # a soft hyphen
    ]:
        message = f"{first!r} and {second!r} differ only in case, spaces or characters that look"
        with pytest.raises(InputError, match=re.escape(message)):
            validate_classes([first, "ham", second])
    with pytest.raises(InputError, match="The classes are the string 'a,b': give a list of names"):
        validate_classes("a,b")
    with pytest.raises(InputError, match="The classes are a Table: give a list of names"):
        validate_classes(pyarrow.table({"spam": [1], "ham": [0]}))
