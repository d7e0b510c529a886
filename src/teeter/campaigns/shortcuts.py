"""One key a class on the page: those that were chosen, then 1 to 9, then letters that are free."""

from __future__ import annotations

from collections.abc import Sequence

from teeter.errors import InputError

__all__ = ["TAKEN", "shortcuts_by_class"]

TAKEN = {" ": "skip", "u": "unsure", "f": "flag", "?": "help", "=": "keep"}
"""What keys do that no class can have; backspace takes back."""

_FREE = "123456789abcdeghijklmnopqrstvwxyz"
_SIGNS = frozenset("0" + _FREE)


def shortcuts_by_class(classes: Sequence[str], chosen: Sequence[str] = ()) -> dict[str, str | None]:
    """Return the key of each class, None where no key is left; ``chosen`` are keys of the first classes, in order.

    Of the others, a class that is called by one sign, such as a digit, has that key if it is free.
    A key that two classes would share, or that does something else on the page, is refused.
    """
    keys: dict[str, str | None] = {}
    if len(chosen) > len(classes):
        raise InputError(
            f"There are {len(chosen)} keys and {len(classes)} classes: give one key a class."
        )
    for name, key in zip(classes, chosen, strict=False):
        keys[name] = _checked(key, name, keys)
    for name in classes:
        if name not in keys and name.lower() in _SIGNS and name.lower() not in keys.values():
            keys[name] = name.lower()
    free = iter([key for key in _FREE if key not in keys.values()])
    return {name: keys[name] if name in keys else next(free, None) for name in classes}


def _checked(key: str, name: str, others: dict[str, str | None]) -> str:
    one = key.strip().lower()
    if len(one) != 1 or not one.isprintable():
        raise InputError(f"{key!r} is no key for {name}: give one letter or digit.")
    if one in TAKEN:
        raise InputError(f"Key {one!r} cannot stand for {name}: it means {TAKEN[one]} on the page.")
    other = next((known for known, taken in others.items() if taken == one), None)
    if other is not None:
        raise InputError(f"Key {one!r} cannot stand for {name}: it stands for {other}.")
    return one
