"""How many CPU threads numerical libraries use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import TypeVar, cast

import torch

__all__ = [
    "limit_threads",
    "prefetch",
    "run_in_threads",
]

Item = TypeVar("Item")


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


def run_in_threads(function: Callable[[Item], None], items: Sequence[Item]) -> None:
    """Call a function for every item, in as many threads as torch may use.

    Each call computes with one thread. Threads take the next item when they are done with one, so a
    core that another program uses costs what it would have computed, and no more. (The threads
    inside an operation of torch wait for each other, busily, at the end of every operation.)

    Args:
        function: what to do with an item. Calls must not write to the same memory.
        items: taken one at a time.

    Raises:
        Exception: the first error of a call, after the calls that have begun.
    """
    threads = min(torch.get_num_threads(), len(items))
    if threads <= 1:
        with limit_threads(1):
            for item in items:
                function(item)
        return

    remaining = iter(items)
    lock = Lock()

    def work() -> None:
        while True:
            with lock:
                try:
                    item = next(remaining)
                except StopIteration:
                    return
            function(item)

    # torch counts threads per thread of the program: new ones start with the number that is set
    # here, once they have asked for it.
    with (
        limit_threads(1),
        ThreadPoolExecutor(threads, initializer=torch.get_num_threads) as pool,
    ):
        futures = [pool.submit(work) for _ in range(threads)]
        for future in futures:
            future.result()


def prefetch(items: Iterable[Item]) -> Iterator[Item]:
    """Yield items, with the next one being made in another thread meanwhile.

    Args:
        items: made one ahead, so two of them are in memory. An error is raised in its place.

    Example:
        >>> list(prefetch(range(3)))
        [0, 1, 2]
    """
    remaining = iter(items)
    nothing = object()

    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, remaining, nothing)
        while True:
            item = following.result()
            if item is nothing:
                return
            following = pool.submit(next, remaining, nothing)
            yield cast(Item, item)
