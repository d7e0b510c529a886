"""Which rows are labelled, and which are candidates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from teeter.errors import InputError
from teeter.learner.learner import Pool


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def test_a_new_pool_has_only_candidates() -> None:
    pool = Pool(4)
    assert len(pool) == 4
    assert pool.candidates().tolist() == [0, 1, 2, 3]
    assert pool.labelled.tolist() == pool.labels.tolist() == []


def test_labels_are_kept_in_the_order_of_the_rows() -> None:
    pool = Pool(6)
    pool.label(rows(5, 1), rows(0, 2))
    assert pool.labelled.tolist() == [1, 5]
    assert pool.labels.tolist() == [2, 0]
    assert pool.candidates().tolist() == [0, 2, 3, 4]


def test_a_row_told_again_changes_its_class() -> None:
    pool = Pool(3)
    pool.label(rows(1), rows(0))
    pool.label(rows(1), rows(4))
    assert (pool.labelled.tolist(), pool.labels.tolist()) == ([1], [4])


def test_what_is_handed_out_does_not_reach_into_the_pool() -> None:
    pool = Pool(3)
    pool.label(rows(1), rows(2))
    pool.labels[:] = 0
    pool.labelled[:] = 0
    pool.candidates()[:] = 1
    assert (pool.labelled.tolist(), pool.labels.tolist(), pool.candidates().tolist()) == (
        [1],
        [2],
        [0, 2],
    )


@pytest.mark.parametrize("bad", [-1, 3, 100])
def test_rows_that_are_not_there_are_refused(bad: int) -> None:
    pool = Pool(3)
    with pytest.raises(InputError, match=f"The pool has no row {bad}: its rows are 0 to 2"):
        pool.label(rows(0, bad), rows(0, 0))
    with pytest.raises(InputError, match=f"The pool has no row {bad}"):
        pool.candidates(exclude=[bad])
    assert len(pool.labelled) == 0


@given(st.data())
def test_every_row_is_either_labelled_or_a_candidate(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 30))
    labels = data.draw(st.dictionaries(st.integers(0, size - 1), st.integers(0, 5)))
    excluded = data.draw(st.sets(st.integers(0, size - 1)))
    pool = Pool(size)
    pool.label(rows(*labels), rows(*labels.values()))
    assert dict(zip(pool.labelled.tolist(), pool.labels.tolist(), strict=True)) == labels
    assert pool.candidates().tolist() == sorted(set(range(size)) - set(labels))
    assert pool.candidates(excluded).tolist() == sorted(set(range(size)) - set(labels) - excluded)
