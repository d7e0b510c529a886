"""Fill what was measured into pages of the docs.

A page is written by hand, except for the blocks between ``<!-- measured: NAME -->`` and
``<!-- end -->``, which a script computes from committed results.
"""

from __future__ import annotations

import re
from collections.abc import Mapping


def fill_blocks(text: str, blocks: Mapping[str, str]) -> str:
    """Return a page with new content in the named blocks; other blocks stay as they are."""
    for name, content in blocks.items():
        text = _fill_block(text, name, content)
    return text


def _fill_block(text: str, name: str, content: str) -> str:
    pattern = re.compile(rf"<!-- measured: {re.escape(name)} -->\n.*?<!-- end -->", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise ValueError(f"The page must have one block <!-- measured: {name} -->.")
    block = f"<!-- measured: {name} -->\n\n{content.strip()}\n\n<!-- end -->"
    return pattern.sub(lambda _: block, text)
