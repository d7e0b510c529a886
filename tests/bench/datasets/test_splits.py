"""Rows held out, shuffled and thinned: none lost, none twice, and the seed decides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

from teeter.bench.datasets import LabelledRows, make_long_tailed
from teeter.bench.datasets.splits import hold_out, shuffle, split_at, take
from teeter.errors import InputError


def make_numbered_rows(rows: int, classes: int = 3) -> LabelledRows:
    """Rows whose input is their own number."""
    return LabelledRows(torch.arange(rows, dtype=torch.float32)[:, None], np.arange(rows) % classes)


def row_numbers(part: LabelledRows | None) -> list[int]:
    assert part is not None
    assert (part.labels == part.inputs[:, 0].numpy().astype(int) % 3).all(), (
        "labels go with their rows"
    )
    return [int(number) for number in part.inputs[:, 0]]


@given(rows=st.integers(2, 60), seed=st.integers(0, 1 << 40), data=st.data())
def test_validation_rows_and_the_others_are_all_rows_in_order(
    rows: int, seed: int, data: Any
) -> None:
    count = data.draw(st.integers(1, rows - 1))
    train, validation = hold_out(make_numbered_rows(rows), count, "x", seed)
    assert len(row_numbers(validation)) == count
    assert row_numbers(train) == sorted(row_numbers(train))
    assert row_numbers(validation) == sorted(row_numbers(validation))
    assert sorted(row_numbers(train) + row_numbers(validation)) == list(range(rows))


def test_the_seed_and_the_name_decide_which_rows_are_held_out() -> None:
    draws = {
        tuple(row_numbers(hold_out(make_numbered_rows(40), 9, name, seed)[1]))
        for name in ("a", "b")
        for seed in (0, 1)
    }
    assert len(draws) == 4
    assert row_numbers(hold_out(make_numbered_rows(40), 9, "a", 0)[1]) in [
        list(draw) for draw in draws
    ]


def test_no_validation_rows_leave_the_part_as_it_is() -> None:
    part = make_numbered_rows(4)
    assert hold_out(part, 0, "x", 0) == (part, None)


@pytest.mark.parametrize("count", [-1, 4, 5])
def test_too_many_validation_rows_are_refused(count: int) -> None:
    with pytest.raises(
        InputError,
        match=f"Cannot draw {count} validation rows out of 4 training rows of x: ask for 0",
    ):
        hold_out(make_numbered_rows(4), count, "x", 0)


def test_a_shuffle_is_the_same_every_time_and_cuts_lose_nothing() -> None:
    shuffled = shuffle(make_numbered_rows(30), "x")
    first, rest = split_at(shuffled, 24)
    assert sorted(row_numbers(first) + row_numbers(rest)) == list(range(30))
    assert row_numbers(shuffled) == row_numbers(first) + row_numbers(rest) != list(range(30))
    assert (
        row_numbers(shuffled)
        == row_numbers(shuffle(make_numbered_rows(30), "x"))
        != row_numbers(shuffle(make_numbered_rows(30), "y"))
    )


def test_rows_of_a_dataset_stay_a_dataset() -> None:
    part = LabelledRows(TensorDataset(torch.arange(6)), np.arange(6))
    taken = take(part, np.array([4, 1]))
    assert [int(row[0]) for row in taken.inputs] == [4, 1]
    assert taken.labels.tolist() == [4, 1]


def test_a_long_tail_falls_exponentially() -> None:
    tail = make_long_tailed(make_numbered_rows(3000), imbalance=100)
    assert np.bincount(tail.labels).tolist() == [1000, 100, 10]
    assert row_numbers(tail) == sorted(row_numbers(tail))


@given(imbalance=st.floats(1, 1e6), rows=st.integers(3, 80), seed=st.integers(0, 99))
def test_a_long_tail_never_rises_and_keeps_every_class(
    imbalance: float, rows: int, seed: int
) -> None:
    tail = make_long_tailed(
        make_numbered_rows(rows - rows % 3 or 3), imbalance=imbalance, seed=seed
    )
    counts = np.bincount(tail.labels, minlength=3)
    assert (np.diff(counts) <= 0).all()
    assert counts.min() >= 1
    assert row_numbers(tail) == row_numbers(
        make_long_tailed(make_numbered_rows(rows - rows % 3 or 3), imbalance=imbalance, seed=seed)
    )


def test_another_seed_keeps_other_rows() -> None:
    assert (
        len(
            {
                tuple(
                    row_numbers(make_long_tailed(make_numbered_rows(300), imbalance=10, seed=seed))
                )
                for seed in range(4)
            }
        )
        == 4
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"imbalance": 0.5},
            "Cannot make an imbalance of 0.5: give a number of 1 or more",
        ),
        ({"imbalance": float("nan")}, "an imbalance of nan"),
    ],
)
def test_a_tail_that_cannot_be_made_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_long_tailed(make_numbered_rows(30), **options)
