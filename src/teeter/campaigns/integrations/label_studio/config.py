"""The labelling interface of a Label Studio project: its XML, title and instructions.

The interface is created from a campaign's classes. Later syncs only add classes to it, so whatever
people change in Label Studio stays.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from teeter.campaigns.integrations.label_studio.payloads import CHOICES_TAG, OBJECT_TAG
from teeter.campaigns.settings import Settings
from teeter.errors import ServerError

__all__ = [
    "CHOICES_TAG",
    "OBJECT_TAG",
    "add_missing_classes",
    "build_label_config",
    "chosen_class",
    "format_instructions",
    "format_title",
]

MAX_INLINE_CLASSES = 30
"""With more classes than this, a searchable list replaces the buttons."""

# Label Studio rejects titles that are shorter or longer.
MIN_TITLE_LENGTH = 3
MAX_TITLE_LENGTH = 50


def build_label_config(settings: Settings, classes: Sequence[str]) -> str:
    """Return the labelling interface of a new project: the item, and its classes to choose from.

    Args:
        settings: Settings of the campaign, for the kind of items and the shortcuts.
        classes: The class names, in the order of the campaign.

    Returns:
        XML in the syntax of Label Studio.
    """
    view = ElementTree.Element("View")

    if settings.kind == "image":
        ElementTree.SubElement(view, "Image", name=OBJECT_TAG, value="$image")
    else:
        ElementTree.SubElement(view, "Text", name=OBJECT_TAG, value="$text", valueType="text")

    choices = ElementTree.SubElement(
        view, "Choices", name=CHOICES_TAG, toName=OBJECT_TAG, choice="single", required="true"
    )
    if len(classes) > MAX_INLINE_CLASSES:
        choices.set("layout", "select")
    else:
        choices.set("showInline", "true")

    for number, name in enumerate(classes):
        choice = _add_choice(choices, name)
        if number < len(settings.keys):
            choice.set("hotkey", settings.keys[number])

    return ElementTree.tostring(view, encoding="unicode")


def add_missing_classes(label_config: str, classes: Sequence[str]) -> str | None:
    """Add classes to the labelling interface of a project.

    Args:
        label_config: The XML of the project.
        classes: All classes of the campaign.

    Returns:
        The new XML, or None if no class is missing.

    Raises:
        ServerError: the XML is invalid or lacks the tag for the classes.
    """
    try:
        view = ElementTree.fromstring(label_config)
    except ElementTree.ParseError:
        raise ServerError(
            "The project's labelling interface is not valid XML. Fix it in Label Studio."
        ) from None

    choices = _find_choices(view)
    if choices is None:
        raise ServerError(
            f'The project\'s labelling interface has no <Choices name="{CHOICES_TAG}">. '
            "Restore it in Label Studio, or create another project with new_project=."
        )

    # Annotations contain the alias of a choice if it has one, otherwise its value.
    present = {choice.get("alias") or choice.get("value") for choice in choices.iter("Choice")}
    missing = [name for name in classes if name not in present]
    if not missing:
        return None

    for name in missing:
        _add_choice(choices, name)
    return ElementTree.tostring(view, encoding="unicode")


def _find_choices(view: ElementTree.Element) -> ElementTree.Element | None:
    # By name: people may have added other <Choices> tags to the interface.
    for choices in view.iter("Choices"):
        if choices.get("name") == CHOICES_TAG:
            return choices
    return None


def _add_choice(choices: ElementTree.Element, name: str) -> ElementTree.Element:
    # Label Studio replaces $word by a field of the task. An invisible character after the dollar
    # sign prevents that, and the alias makes annotations contain the name as it is.
    choice = ElementTree.SubElement(
        choices,
        "Choice",
        value=name.replace("$", "$\N{WORD JOINER}"),
    )
    if "$" in name:
        choice.set("alias", name)
    return choice


def chosen_class(result: Sequence[Any]) -> str | None:
    """Return the class that an annotation chose, or None if it is not exactly one.

    Args:
        result: The ``result`` of an annotation. People may have added tags of their own to the
            interface, so it can contain anything.

    Example:
        >>> chosen_class([{"from_name": "label", "value": {"choices": ["spam"]}}])
        'spam'
    """
    values = [
        entry.get("value")
        for entry in result
        if isinstance(entry, Mapping) and entry.get("from_name") == CHOICES_TAG
    ]

    match values:
        case [{"choices": [str(name)]}]:
            return name
        case _:
            return None


def format_title(name: str) -> str:
    """Return a campaign's name as a project title of a length that Label Studio accepts.

    Example:
        >>> format_title("ab")
        'teeter ab'
    """
    title = name.strip()
    if len(title) < MIN_TITLE_LENGTH:
        return f"teeter {title}"
    if len(title) > MAX_TITLE_LENGTH:
        return f"{title[: MAX_TITLE_LENGTH - 1]}…"
    return title


def format_instructions(instructions: str) -> str:
    """Return instructions as HTML, which is how Label Studio shows them.

    Example:
        >>> format_instructions("Choose a < b.\\nOr skip.")
        'Choose a &lt; b.<br>Or skip.'
    """
    return html.escape(instructions, quote=False).replace("\n", "<br>")
