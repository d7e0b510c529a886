"""Tiles, working memory and the precision of products."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

import teeter
from teeter.base import arrays
from teeter.base.arrays import as_tensor, full_precision_matmul
from teeter.errors import InputError

SECONDS_TO_WAIT = 120
"""No test needs as long; it only keeps a broken one from hanging."""


def test_tiles_cover_every_row_once() -> None:
    for rows in (0, 1, 191, 192, 193, 1000):
        for memory in (1, 192 * 8, 192 * 8 * 3, 1 << 30):
            with teeter.config.working_memory(memory):
                cut = list(arrays.tiles(rows, 8, torch.device("cpu")))
            assert [i for piece in cut for i in range(rows)[piece]] == list(range(rows))
            assert all((piece.stop - piece.start) % arrays.TILE == 0 for piece in cut[:-1])


def test_a_working_memory_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="it must be positive"), teeter.config.working_memory(0):
        pass


def test_exact_products_hold_for_all_threads_and_are_put_back() -> None:
    matmul = torch.backends.mkldnn.matmul
    before = matmul.fp32_precision
    matmul.fp32_precision = "bf16"
    try:
        entered, leave = threading.Event(), threading.Event()

        def hold_full_precision() -> None:
            with full_precision_matmul():
                entered.set()
                leave.wait(SECONDS_TO_WAIT)

        other = threading.Thread(target=hold_full_precision)
        other.start()
        assert entered.wait(SECONDS_TO_WAIT)
        with full_precision_matmul():
            assert matmul.fp32_precision == "ieee"
        assert matmul.fp32_precision == "ieee", "the other thread is still inside"
        leave.set()
        other.join()
        assert matmul.fp32_precision == "bf16"
        with pytest.raises(RuntimeError), full_precision_matmul():
            raise RuntimeError
        assert matmul.fp32_precision == "bf16"
    finally:
        matmul.fp32_precision = before


def test_masked_values_are_refused() -> None:
    masked = np.ma.masked_invalid([[1.0, np.nan], [2.0, 3.0]])
    with pytest.raises(InputError, match="features has 1 masked values: fill in or drop them"):
        as_tensor(masked, "features")
    unmasked = np.ma.masked_invalid([[1.0], [2.0]])
    assert as_tensor(unmasked, "features").tolist() == [[1.0], [2.0]]
