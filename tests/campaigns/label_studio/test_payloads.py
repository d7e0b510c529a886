"""What Label Studio shows of an item, and how tasks are sent in parts."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from teeter.campaigns.label_studio.payloads import in_parts, numbers_of


def test_numbers_are_readable() -> None:
    assert (
        numbers_of("n1", np.array([1.0, 2.5e-7, 3.14159], dtype=np.float32))
        == "n1\n1, 2.5e-07, 3.142"
    )
    assert numbers_of("n1", np.zeros(500, dtype=np.float32)).endswith("0, … (500 numbers)")


@given(sizes=st.lists(st.integers(0, 9_000_000), max_size=250))
def test_parts_hold_everything_in_order(sizes: list[int]) -> None:
    parts = list(in_parts(list(range(len(sizes))), sizes))
    assert [one for part in parts for one in part] == list(range(len(sizes)))
    assert all(len(part) <= 100 for part in parts)
    assert all(len(part) == 1 or sum(sizes[k] for k in part) <= 8_000_000 for part in parts)
