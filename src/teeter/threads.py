"""How many CPU threads numerical libraries use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

__all__ = ["limit_threads"]


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
