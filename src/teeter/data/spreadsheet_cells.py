"""Cells of a CSV file that people open in a spreadsheet program, which runs some of them."""

from __future__ import annotations

import re

__all__ = ["escape_formula", "is_number"]

_FORMULA_STARTS = (
    *("=", "+", "-", "@"),
    *("\uff1d", "\uff0b", "\uff0d", "\uff20"),  # the same in full width, for Japanese Excel
    *("\t", "\r", "\n"),  # skipped by spreadsheet programs, which then see what follows
)

# A leading zero or plus means that the digits are a postcode, a phone number or another name. So do
# more than 15 digits, which the numbers of many programs cannot hold.
_NUMBER = re.compile(r"-?((0|[1-9][0-9]{0,14})(\.[0-9]+)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def is_number(text: str) -> bool:
    """Return whether a text is a decimal number, without a plus or zeros before it.

    Example:
        >>> [is_number(text) for text in ("-1.50", "2e-5", ".5", "007", "+1", "-", "-1+1")]
        [True, True, True, False, False, False, False]
    """
    return _NUMBER.fullmatch(text) is not None


def escape_formula(text: str) -> str:
    """Put an apostrophe before a text that a spreadsheet program would run as a formula.

    Example:
        >>> escape_formula("=1+1"), escape_formula("-5"), escape_formula("a = b")
        ("'=1+1", '-5', 'a = b')
    """
    if text.startswith(_FORMULA_STARTS) and not is_number(text):
        return f"'{text}"
    return text
