"""The keyboard shortcuts of labelling, the same on the page and in the terminal.

A class gets a chosen key, or one of 1 to 9 and the letters that are free. The other keys have a
fixed meaning, an ``Action``. With more classes than keys, classes are found by typing their names;
letters with a fixed meaning are then typed as capitals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from teeter.errors import InputError


class Action(StrEnum):
    """What a key does, apart from choosing a class."""

    SKIP = "skip"
    UNSURE = "unsure"
    FLAG = "flag"
    KEEP = "keep"
    """Confirm a label that may be wrong."""
    UNDO = "undo"
    HELP = "help"
    STOP = "stop"
    """Leave the prompt of the terminal. A page is closed instead."""


# By the names that browsers give to keys.
_ACTION_KEYS = {
    Action.SKIP: " ",
    Action.UNSURE: "u",
    Action.FLAG: "f",
    Action.KEEP: "=",
    Action.UNDO: "Backspace",
    Action.HELP: "?",
    Action.STOP: "Escape",
}

_CAPTIONS = {" ": "Space", "Escape": "Esc"}

_AUTOMATIC_KEYS = "123456789abcdeghijklmnopqrstvwxyz"
"""Keys that are assigned in this order: digits and letters that mean no action."""

MAX_SHORTCUTS = len(_AUTOMATIC_KEYS)
"""With more classes than this, classes are found by typing their names."""

_KEYS_OF_THEIR_NAME = frozenset("0" + _AUTOMATIC_KEYS)
"""Keys that a class of the same name gets before others: class ``7`` gets the key 7."""


def action_keys(*, by_name: bool = False) -> dict[Action, str]:
    """Return the key of each action, by the name that browsers give it.

    Args:
        by_name: whether letters are typed to find a class, so that actions have capital letters.

    Example:
        >>> action_keys()[Action.UNSURE], action_keys(by_name=True)[Action.UNSURE]
        ('u', 'U')
    """
    if not by_name:
        return dict(_ACTION_KEYS)
    return {action: key.upper() if len(key) == 1 else key for action, key in _ACTION_KEYS.items()}


def key_caption(key: str) -> str:
    """Return what is printed on a key.

    Example:
        >>> key_caption(" "), key_caption("U"), key_caption("u")
        ('Space', 'Shift U', 'u')
    """
    if len(key) == 1 and key.isupper():
        return f"Shift {key}"
    return _CAPTIONS.get(key, key)


def shortcuts_by_class(classes: Sequence[str], chosen: Sequence[str] = ()) -> dict[str, str | None]:
    """Return the key of each class.

    Args:
        classes: The classes, in their order.
        chosen: Keys of the first classes. The rest get a key automatically: a class whose name is
            a single character gets that key if it is free, other classes the next free one.

    Returns:
        Keys by class; None for a class if no key is left.

    Raises:
        InputError: If a key is invalid, reserved, or chosen twice.

    Example:
        >>> shortcuts_by_class(["spam", "ham", "other"], ["s"])
        {'spam': 's', 'ham': '1', 'other': '2'}
    """
    if len(chosen) > len(classes):
        raise InputError(
            f"There are {len(chosen)} shortcuts for {len(classes)} classes: give at most one "
            f"shortcut per class."
        )

    keys: dict[str, str] = {}
    for name, key in zip(classes, chosen, strict=False):
        keys[name] = _parse_key(key, name, keys)

    # Digits and single letters first: no one expects the key 3 for the class 7.
    for name in classes:
        key = name.lower()
        is_free = key in _KEYS_OF_THEIR_NAME and key not in keys.values()
        # With the classes B and b, the first one gets the key.
        if name not in keys and is_free:
            keys[name] = key

    free_keys = iter([key for key in _AUTOMATIC_KEYS if key not in keys.values()])
    shortcuts: dict[str, str | None] = {}
    for name in classes:
        if name in keys:
            shortcuts[name] = keys[name]
        else:
            # With more classes than keys, classes are found by typing their names.
            shortcuts[name] = next(free_keys, None)

    return shortcuts


def _parse_key(text: str, name: str, keys: Mapping[str, str]) -> str:
    """Return the key that was chosen for class ``name``, if no other class in ``keys`` has it."""
    key = text.strip().lower()
    if len(key) != 1 or not key.isprintable():
        raise InputError(f"{text!r} cannot be the shortcut for {name}: give one letter or digit.")

    for action, action_key in _ACTION_KEYS.items():
        if key == action_key:
            raise InputError(f"{key!r} cannot be the shortcut for {name}: it means {action}.")

    for other_name, other_key in keys.items():
        if other_key == key:
            raise InputError(
                f"{key!r} cannot be the shortcut for {name}: it is already the shortcut for "
                f"{other_name}."
            )

    return key
