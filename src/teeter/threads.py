"""How many CPU threads numerical libraries use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import torch

__all__ = ["limit_threads", "map_on_cores"]

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


@contextmanager
def limit_threads(threads: int = 1, *, blas: bool = False) -> Iterator[None]:
    """Let torch use at most ``threads`` CPU threads inside the block.

    Small tensors are computed faster by one thread than by several that wait for each other, and
    workers that share a machine should not fight over its cores. How a sum is split among threads
    also changes how it is rounded, so code that must repeat results bit by bit fixes the number.

    Args:
        threads: the largest number of threads. The number before is restored afterwards.
        blas: whether to limit the libraries behind NumPy and scikit-learn (OpenBLAS, MKL, OpenMP)
            as well. That takes about a millisecond, too long for the training of a tiny network.

    Example:
        >>> import torch
        >>> with limit_threads(1):
        ...     torch.get_num_threads()
        1
    """
    threads_before = torch.get_num_threads()
    torch.set_num_threads(min(threads, threads_before))

    try:
        with ExitStack() as stack:
            if blas:
                from threadpoolctl import threadpool_limits

                stack.enter_context(threadpool_limits(limits=threads))
            yield
    finally:
        torch.set_num_threads(threads_before)


def map_on_cores(function: Callable[[ItemT], ResultT], items: Iterable[ItemT]) -> list[ResultT]:
    """Call a function of torch on each item, on all cores at once.

    Each call has one core to itself. For small networks that is faster than splitting every matrix
    product among all cores.

    Args:
        function: called in threads, so it must not write to anything that another call reads.
        items: any number of items. All are started, in their order.

    Returns:
        The results, in the order of the items.

    Example:
        >>> map_on_cores(abs, [-2, 3])
        [2, 3]
    """
    cores = torch.get_num_threads()

    # The limit is set by the caller's thread, which also restores it. If each call did, the last
    # one to end would restore what another call had set. New threads start without any limit.
    with (
        limit_threads(1),
        ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        return list(pool.map(function, items))
