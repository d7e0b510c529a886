"""Shortcuts of classes, and collisions refused when a campaign is created."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands import refuse_campaign
from teeter.campaigns.classes import shortcuts_by_class
from teeter.errors import InputError


def test_digits_come_first_then_free_letters() -> None:
    shortcuts = shortcuts_by_class([f"class {k}" for k in range(12)])

    assert list(shortcuts.values()) == [*"123456789", "a", "b", "c"]


def test_chosen_keys_are_kept_and_other_classes_get_free_ones() -> None:
    assert shortcuts_by_class(["spam", "ham", "other"], ["s", "1"]) == {
        "spam": "s",
        "ham": "1",
        "other": "2",
    }


def test_a_class_whose_name_is_one_character_gets_that_key() -> None:
    assert shortcuts_by_class([str(k) for k in range(4)]) == {
        "0": "0",
        "1": "1",
        "2": "2",
        "3": "3",
    }

    assert shortcuts_by_class(["B", "other", "b", "f"]) == {
        "B": "b",
        "other": "1",
        "b": "2",
        "f": "3",
    }


def test_classes_beyond_the_last_key_have_none() -> None:
    shortcuts = list(shortcuts_by_class([f"class {k}" for k in range(40)]).values())

    keys = [key for key in shortcuts if key is not None]
    assert len(set(keys)) == len(keys) == 33
    assert not {"u", "f", " "} & set(keys)
    assert shortcuts[-1] is None


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (["a", "a"], "already the shortcut for spam"),
        (["u"], "unsure"),
        (["F"], "flag"),
        (["ab"], "one letter"),
        (["1"] * 3, "3 shortcuts"),
    ],
)
def test_collisions_are_refused(chosen: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        shortcuts_by_class(["spam", "ham"], chosen)


def test_a_campaign_with_a_collision_is_not_created(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\none\ntwo\n")

    message = refuse_campaign("new", tmp_path / "a.csv", "--classes", "a,b", "--keys", "x,x")

    assert "already the shortcut for a" in message
    assert not (tmp_path / "a.teeter").exists()
