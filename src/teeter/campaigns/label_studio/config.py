"""The labelling interface of a campaign: made from its classes, added to when they grow, and read from annotations."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from teeter.campaigns.settings import Settings
from teeter.errors import ServerError

__all__ = ["CHOICES", "choice_of", "instructions_of", "made_config", "title_of", "with_classes"]

CHOICES = "label"
"""What the classes' tag is called."""

_SHOWN = "item"
_TITLE = (3, 50)
"""Signs of a project's title, at least and at most."""

_LISTED = 30
"""Classes from which on they are a list that can be searched, and not side by side."""


def made_config(settings: Settings, classes: Sequence[str]) -> str:
    """Return the labelling interface of a campaign: its item, and its classes to choose one of."""
    view = ElementTree.Element("View")
    if settings.kind == "image":
        ElementTree.SubElement(view, "Image", name=_SHOWN, value="$image")
    else:
        ElementTree.SubElement(view, "Text", name=_SHOWN, value="$text", valueType="text")
    choices = ElementTree.SubElement(
        view, "Choices", name=CHOICES, toName=_SHOWN, choice="single", required="true"
    )
    choices.set("layout", "select") if len(classes) > _LISTED else choices.set("showInline", "true")
    for k, name in enumerate(classes):
        _add(choices, name, settings.keys[k] if k < len(settings.keys) else None)
    return ElementTree.tostring(view, encoding="unicode")


def with_classes(config: str, classes: Sequence[str]) -> str | None:
    """Return a project's interface with the classes that it lacks, whatever else people changed; None: it has all."""
    try:
        view = ElementTree.fromstring(config)
    except ElementTree.ParseError:
        raise ServerError(
            "The project's labelling interface cannot be read: put it right in Label Studio."
        ) from None
    choices = next((one for one in view.iter("Choices") if one.get("name") == CHOICES), None)
    if choices is None:
        raise ServerError(
            f'The project\'s labelling interface has no <Choices name="{CHOICES}"> any more: '
            "put it back in Label Studio, or begin anew with --new-project."
        )
    known = {one.get("alias") or one.get("value") for one in choices.iter("Choice")}
    missing = [name for name in classes if name not in known]
    for name in missing:
        _add(choices, name, None)
    return ElementTree.tostring(view, encoding="unicode") if missing else None


def _add(choices: ElementTree.Element, name: str, key: str | None) -> None:
    # Label Studio puts a task's data in the place of $word: such a name is shown with a sign between that nobody sees,
    # and comes back as its alias.
    one = ElementTree.SubElement(choices, "Choice", value=name.replace("$", "$\N{WORD JOINER}"))
    if "$" in name:
        one.set("alias", name)
    if key is not None:
        one.set("hotkey", key)


def choice_of(result: Any) -> str | None:
    """Return what an annotation chose; None where it is not one class of ours."""
    found = [one for one in result if isinstance(one, Mapping) and one.get("from_name") == CHOICES]
    value = found[0].get("value") if len(found) == 1 else None
    chosen = value.get("choices") if isinstance(value, Mapping) else None
    return (
        chosen[0]
        if isinstance(chosen, list) and len(chosen) == 1 and isinstance(chosen[0], str)
        else None
    )


def title_of(name: str) -> str:
    """Return a campaign's name as Label Studio takes it for a title."""
    shortest, longest = _TITLE
    name = name.strip()
    if len(name) < shortest:
        name = f"teeter {name}"
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def instructions_of(settings: Settings) -> str:
    """Return the instructions as Label Studio shows them, which is as a page."""
    return html.escape(settings.instructions, quote=False).replace("\n", "<br>")
