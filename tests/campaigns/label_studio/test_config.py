"""The labelling interface of a Label Studio project, made from a campaign and read back."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaigns.label_studio_backends import chosen
from teeter.campaigns.items import require_printable
from teeter.campaigns.label_studio.config import (
    choice_of,
    instructions_of,
    made_config,
    title_of,
    with_classes,
)
from teeter.campaigns.settings import Settings
from teeter.errors import InputError, ServerError


def plain(name: str) -> bool:
    try:
        require_printable(name, "class")
    except InputError:
        return False
    return bool(name.strip()) and not any(sign in name for sign in "\ufffe\uffff")


NAMES = st.lists(
    st.text(max_size=20).map(str.strip).filter(plain), min_size=2, max_size=40, unique=True
)


def names_in(config: str) -> list[str]:
    """The classes as Label Studio's results would name them."""
    return [
        one.get("alias") or one.attrib["value"]
        for one in ElementTree.fromstring(config).iter("Choice")
    ]


@given(names=NAMES)
def test_classes_come_through_whatever_they_are_called(names: list[str]) -> None:
    config = made_config(Settings(), names)
    assert names_in(config) == names
    values = [one.attrib["value"] for one in ElementTree.fromstring(config).iter("Choice")]
    assert not any(re.search(r"\$[\w\[\].{}]", value) for value in values), (
        "which stands for a task's data"
    )
    assert with_classes(config, names) is None
    more = with_classes(made_config(Settings(), names[:2]), names)
    assert names == (names_in(more) if more is not None else names[:2])
    assert all(choice_of(chosen(name)) == name for name in names)


@pytest.mark.parametrize(
    ("kind", "count", "holds"),
    [
        ("text", 12, 'value="$text" valueType="text"'),
        ("image", 3, 'value="$image"'),
        ("features", 31, 'layout="select"'),
    ],
)
def test_the_interface_shows_what_there_is(kind: str, count: int, holds: str) -> None:
    config = made_config(Settings(kind=kind), [str(k) for k in range(count)])
    assert holds in config
    assert config.count("<Choice ") == count


def test_keys_of_the_campaign_are_hotkeys() -> None:
    config = made_config(Settings(keys=["s", "h"]), ["spam", "ham", "other"])
    assert [one.get("hotkey") for one in ElementTree.fromstring(config).iter("Choice")] == [
        "s",
        "h",
        None,
    ]


@pytest.mark.parametrize("config", ["<View>", "", "nonsense"])
def test_an_interface_that_cannot_be_read_is_told(config: str) -> None:
    with pytest.raises(ServerError, match="cannot be read"):
        with_classes(config, ["a", "b"])


@pytest.mark.parametrize(
    "result",
    [
        [],
        [None],
        ["label"],
        [{"from_name": "other", "value": {"choices": ["a"]}}],
        [{"from_name": "label"}],
        [{"from_name": "label", "value": ["a"]}],
        [{"from_name": "label", "value": {"choices": "a"}}],
        [{"from_name": "label", "value": {"choices": [1]}}],
        [{"from_name": "label", "value": {"choices": ["a", "b"]}}],
    ],
)
def test_what_is_not_one_choice_is_none(result: list[Any]) -> None:
    assert choice_of(result) is None


def test_titles_and_instructions_fit() -> None:
    assert title_of("ab") == "teeter ab"
    assert title_of("abc") == "abc"
    assert len(title_of("x" * 60)) == 50
    assert instructions_of(Settings(instructions="a < b\n& c")) == "a &lt; b<br>&amp; c"
