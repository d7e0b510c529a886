"""Cells that a spreadsheet program would run are escaped, numbers are not."""

from __future__ import annotations

import pytest

from teeter.data.table_files import escape_formula


@pytest.mark.parametrize("text", ["-5", "-1.5e-3", "7", "", "a-b", "'quoted"])
def test_numbers_and_other_texts_stay_as_they_are(text: str) -> None:
    assert escape_formula(text) == text


@pytest.mark.parametrize("text", ["-5+1", "+1", "=1", "@a", "-", "--5", "-Infinity", "\t=1"])
def test_formulas_are_escaped(text: str) -> None:
    assert escape_formula(text) == f"'{text}"
