"""Keyboard shortcuts of the classes: chosen ones first, then 1 to 9, then free letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from teeter.errors import InputError

__all__ = ["RESERVED_KEYS", "shortcuts_by_class"]

RESERVED_KEYS = {
    " ": "skip",
    "u": "unsure",
    "f": "flag",
    "?": "help",
    "=": "keep",
}
"""Keys with another meaning on the page, which no class can have. Backspace is undo."""

_AUTOMATIC_KEYS = "123456789abcdeghijklmnopqrstvwxyz"
"""Keys that are assigned in this order: digits and letters without the reserved ones."""

_KEYS_OF_THEIR_NAME = frozenset("0" + _AUTOMATIC_KEYS)
"""Keys that a class of the same name gets before others: class ``7`` gets the key 7."""


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
            # With more classes than keys, the page's field to find a class takes over.
            shortcuts[name] = next(free_keys, None)

    return shortcuts


def _parse_key(text: str, name: str, keys: Mapping[str, str]) -> str:
    """Return the key that was chosen for class ``name``, if no other class in ``keys`` has it."""
    key = text.strip().lower()
    if len(key) != 1 or not key.isprintable():
        raise InputError(f"{text!r} cannot be the shortcut of {name}: give one letter or digit.")

    if key in RESERVED_KEYS:
        raise InputError(
            f"{key!r} cannot be the shortcut of {name}: on the page it means {RESERVED_KEYS[key]}."
        )

    for other_name, other_key in keys.items():
        if other_key == key:
            raise InputError(
                f"{key!r} cannot be the shortcut of {name}: it is already the shortcut of "
                f"{other_name}."
            )

    return key
