"""Results of a selection: every pick has all of its values."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from teeter.selection import Selection, SelectionRequest
from teeter.selection.request import build_selection


def select_rows(ids: list[str]) -> Selection:
    """Return two picks of five candidates, with any number of ids."""
    request = SelectionRequest(pool="pool.npz", n=2)
    return build_selection(
        request,
        rows=np.array([4, 1]),
        ids=ids,
        logits=None,
        ldm=np.array([0.1, 0.2], dtype=np.float32),
        score=None,
        candidates=5,
        classes=None,
        device=torch.device("cpu"),
    )


def test_picks_are_ranked_in_the_order_of_picking() -> None:
    selection = select_rows(["e", "b"])

    picks = [(pick.rank, pick.id, pick.row, pick.ldm) for pick in selection.picks]
    assert picks == [(1, "e", 4, 0.1), (2, "b", 1, 0.2)]


@pytest.mark.parametrize("ids", [["e"], ["e", "b", "c"]])
def test_another_number_of_ids_than_picks_is_an_error(ids: list[str]) -> None:
    with pytest.raises(ValueError, match="zip"):
        select_rows(ids)
