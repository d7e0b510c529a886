"""Thread limits: they hold inside the block and are lifted after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from threadpoolctl import threadpool_info

from teeter.base.threads import limit_threads, prefetch, run_in_threads


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


@pytest.mark.parametrize("threads", [1, 3])
def test_every_item_is_done_once_with_one_thread_each(threads: int, one_thread: None) -> None:
    torch.set_num_threads(threads)
    done: list[tuple[int, int]] = []
    run_in_threads(lambda item: done.append((item, torch.get_num_threads())), range(50))
    assert sorted(item for item, _ in done) == list(range(50))
    assert {inside for _, inside in done} == {1}
    assert torch.get_num_threads() == threads


def test_an_error_of_an_item_is_raised(one_thread: None) -> None:
    def fail(item: int) -> None:
        if item == 7:
            raise ValueError("seven")

    torch.set_num_threads(2)
    with pytest.raises(ValueError, match="seven"):
        run_in_threads(fail, range(20))
    assert torch.get_num_threads() == 2


def test_prefetched_items_come_in_order_and_errors_in_their_place() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("the third")

    with pytest.raises(ValueError, match="the third"):
        list(prefetch(items()))
    assert list(prefetch([])) == []
    iterator = prefetch(items())
    assert [next(iterator), next(iterator)] == [1, 2]
