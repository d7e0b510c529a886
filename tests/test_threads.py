"""Thread limits: they hold inside the block and are lifted after it."""

from __future__ import annotations

import pytest
import torch
from threadpoolctl import threadpool_info

from teeter.threads import limit_threads, map_on_cores


@pytest.mark.parametrize("blas", [False, True])
def test_threads_are_limited_inside_the_block(blas: bool, one_thread: None) -> None:
    torch.set_num_threads(2)
    with limit_threads(1, blas=blas):
        assert torch.get_num_threads() == 1
        if blas:
            assert {library["num_threads"] for library in threadpool_info()} <= {1}
    assert torch.get_num_threads() == 2


def test_a_limit_never_raises_the_number(one_thread: None) -> None:
    torch.set_num_threads(1)
    with limit_threads(8):
        assert torch.get_num_threads() == 1


def test_an_error_lifts_the_limit(one_thread: None) -> None:
    torch.set_num_threads(2)
    with pytest.raises(ZeroDivisionError), limit_threads(1):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2


def test_every_call_on_a_core_has_one_thread_and_the_number_is_restored(one_thread: None) -> None:
    torch.set_num_threads(2)

    def count_threads(number: int) -> tuple[int, int]:
        return number, torch.get_num_threads()

    assert map_on_cores(count_threads, range(5)) == [(number, 1) for number in range(5)]
    assert torch.get_num_threads() == 2
    with pytest.raises(ZeroDivisionError):
        map_on_cores(lambda number: 1 // number, [1, 0])
    assert torch.get_num_threads() == 2
