"""Blocks of a page are filled by name, and a block that is missing is an error."""

from __future__ import annotations

import pytest

from research.page_blocks import fill_blocks

PAGE = """# A page

<!-- measured: first -->
old
<!-- end -->

Text.

<!-- measured: second -->
<!-- end -->
"""


def test_named_blocks_get_their_content_and_the_rest_stays() -> None:
    filled = fill_blocks(PAGE, {"first": "| \\1 |\n"})
    assert "<!-- measured: first -->\n\n| \\1 |\n\n<!-- end -->\n\nText." in filled
    assert "old" not in filled
    assert filled.endswith("<!-- measured: second -->\n<!-- end -->\n")
    assert fill_blocks(filled, {"first": "| \\1 |"}) == filled


def test_a_page_without_the_block_is_refused() -> None:
    with pytest.raises(ValueError, match="one block <!-- measured: third -->"):
        fill_blocks(PAGE, {"third": "new"})
