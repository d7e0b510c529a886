"""What every test of the whole may ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, for tests with the marks of ``web.browsers``."""
    from server.browsers import chromium

    with chromium() as launched:
        yield launched
