"""The labelling interface: created from a campaign, extended later, and read from annotations."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaigns.label_studio_backends import result_with
from teeter.campaigns.integrations.label_studio.payloads import (
    add_missing_classes,
    build_label_config,
    chosen_class,
    format_instructions,
    format_title,
)
from teeter.campaigns.items.item import require_printable
from teeter.campaigns.settings import Settings
from teeter.errors import InputError, ServerError


def is_class_name(name: str) -> bool:
    """Return whether a campaign accepts a class name and XML can represent it."""
    try:
        require_printable(name, "class")
    except InputError:
        return False
    return bool(name.strip()) and not any(character in name for character in "\ufffe\uffff")


CLASS_NAMES = st.lists(
    st.text(max_size=20).map(str.strip).filter(is_class_name), min_size=2, max_size=40, unique=True
)


def choices_in(label_config: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(label_config).iter("Choice"))


def classes_in(label_config: str) -> list[str]:
    """Return the classes as annotations will name them."""
    return [choice.get("alias") or choice.attrib["value"] for choice in choices_in(label_config)]


@given(classes=CLASS_NAMES)
def test_any_class_name_survives(classes: list[str]) -> None:
    label_config = build_label_config(Settings(), classes)
    assert classes_in(label_config) == classes
    assert all(chosen_class(result_with(name)) == name for name in classes)

    values = [choice.attrib["value"] for choice in choices_in(label_config)]
    assert not any(re.search(r"\$[\w\[\].{}]", value) for value in values), (
        "Label Studio would replace $word by a field of the task"
    )


@given(classes=CLASS_NAMES)
def test_missing_classes_are_added(classes: list[str]) -> None:
    complete = build_label_config(Settings(), classes)
    assert add_missing_classes(complete, classes) is None

    extended = add_missing_classes(build_label_config(Settings(), classes[:2]), classes)
    if extended is None:
        assert classes == classes[:2]
    else:
        assert classes_in(extended) == classes


@pytest.mark.parametrize(
    ("kind", "class_count", "expected"),
    [
        ("text", 12, 'value="$text" valueType="text"'),
        ("image", 3, 'value="$image"'),
        ("features", 31, 'layout="select"'),
    ],
)
def test_the_interface_suits_the_campaign(kind: str, class_count: int, expected: str) -> None:
    label_config = build_label_config(Settings(kind=kind), [str(k) for k in range(class_count)])
    assert expected in label_config
    assert len(choices_in(label_config)) == class_count


def test_shortcuts_of_the_campaign_become_hotkeys() -> None:
    label_config = build_label_config(Settings(keys=["s", "h"]), ["spam", "ham", "other"])
    hotkeys = [choice.get("hotkey") for choice in choices_in(label_config)]
    assert hotkeys == ["s", "h", None]


@pytest.mark.parametrize("label_config", ["<View>", "", "nonsense"])
def test_an_interface_that_is_no_xml_is_an_error(label_config: str) -> None:
    with pytest.raises(ServerError, match="is not valid XML"):
        add_missing_classes(label_config, ["a", "b"])


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
        [{"from_name": "label", "value": {"choices": []}}],
        [{"from_name": "label", "value": {"choices": ["a", "b"]}}],
        [*result_with("a"), *result_with("b")],
    ],
)
def test_a_result_that_is_not_one_choice_has_no_class(result: list[Any]) -> None:
    assert chosen_class(result) is None


def test_titles_have_a_length_that_label_studio_accepts() -> None:
    assert format_title("ab") == "teeter ab"
    assert format_title("abc") == "abc"
    assert len(format_title("x" * 60)) == 50


def test_instructions_are_escaped() -> None:
    assert format_instructions("a < b\n& c") == "a &lt; b<br>&amp; c"
