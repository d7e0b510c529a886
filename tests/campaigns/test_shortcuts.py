"""One key a class, and collisions refused when a campaign is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.commands import refuse_campaign
from teeter.campaigns.shortcuts import shortcuts_by_class
from teeter.errors import InputError


def test_digits_first_then_letters_that_are_free() -> None:
    keys = shortcuts_by_class([f"class {k}" for k in range(12)])
    assert list(keys.values()) == [*"123456789", "a", "b", "c"]


def test_chosen_keys_are_kept_and_the_others_get_what_is_free() -> None:
    assert shortcuts_by_class(["spam", "ham", "other"], ["s", "1"]) == {
        "spam": "s",
        "ham": "1",
        "other": "2",
    }


def test_a_class_called_by_one_sign_has_that_key() -> None:
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


def test_more_classes_than_keys_are_clicked() -> None:
    keys = list(shortcuts_by_class([f"class {k}" for k in range(40)]).values())
    known = [key for key in keys if key is not None]
    assert len(set(known)) == len(known) == 33
    assert not {"u", "f", " "} & set(known)
    assert keys[-1] is None


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (["a", "a"], "stands for spam"),
        (["u"], "unsure"),
        (["F"], "flag"),
        (["ab"], "one letter"),
        (["1"] * 3, "3 keys"),
    ],
)
def test_collisions_are_refused(chosen: list[str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        shortcuts_by_class(["spam", "ham"], chosen)


def test_a_campaign_with_a_collision_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\none\ntwo\n")
    told = refuse_campaign("new", tmp_path / "a.csv", "--classes", "a,b", "--keys", "x,x")
    assert "stands for a" in told
    assert not (tmp_path / "a.teeter").exists()
