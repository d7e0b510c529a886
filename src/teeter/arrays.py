"""Where arrays cross into tensors and back, on which device and in which precision, and chunks that fit in memory.

The rule: float64 stays float64, every other number becomes float32. A tensor stays on its device; a NumPy array
goes to the GPU where there is one; ``device=`` decides for both.
"""

from __future__ import annotations

import math
import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teeter.errors import InputError

__all__ = [
    "Array",
    "as_input_type",
    "as_integers",
    "as_tensor",
    "available_memory",
    "choose_device",
    "describe_device",
    "full_precision_matmul",
    "memory_budget",
    "pad_to_tile",
    "require_finite",
    "tiles",
    "working_memory",
]

Array: TypeAlias = Tensor | npt.NDArray[np.generic]

TILE = 192
"""Rows come to a matrix product in multiples of this many, so that a row's product never depends on its neighbours:
BLAS libraries treat the ragged edge of a matrix with other kernels, which round differently. 192 is a multiple of the
block heights in use (8 to 64, 24, 48, 96)."""

_last_answers: dict[torch.device, tuple[float, int]] = {}
_working_memory: ContextVar[int | None] = ContextVar("teeter_working_memory", default=None)


@contextmanager
def working_memory(size: int) -> Iterator[None]:
    """Within it, kernels keep their temporary arrays near ``size`` bytes; on a CPU results do not depend on it.

    It holds for this thread and what it awaits, not for threads started inside.
    """
    if size < 1:
        raise InputError(f"Cannot work in {size} bytes: give a positive number of bytes.")
    token = _working_memory.set(size)
    try:
        yield
    finally:
        _working_memory.reset(token)


def memory_budget(device: torch.device) -> int:
    """Return the bytes that a kernel may use for temporary arrays on ``device``."""
    told = _working_memory.get()
    if told is not None:
        return told
    if device.type == "cuda":
        return min(8 << 30, _free_on_gpu(device) // 4)
    return 512 << 20


def _free_on_gpu(device: torch.device) -> int:
    """Return the bytes free on a GPU, asked for ten times a second at most: an answer takes as long as a kernel."""
    asked, free = _last_answers.get(device, (-math.inf, 0))
    now = time.monotonic()
    if now - asked > 0.1:
        free = int(torch.cuda.mem_get_info(device)[0])
        _last_answers[device] = now, free
    return free


def available_memory(device: torch.device) -> int:
    """Return the bytes that are free on ``device``; where nobody tells, so many that nothing is refused."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 1 << 62
    free = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    return free[0] if free else 1 << 62


def tiles(
    rows: int, bytes_per_row: int, device: torch.device, *, at_most: int | None = None
) -> Iterator[slice]:
    """Yield slices that cover ``rows`` in multiples of ``TILE`` (the last one ragged) within the working memory."""
    step = max(1, memory_budget(device) // max(1, bytes_per_row) // TILE) * TILE
    if at_most is not None:
        step = min(step, max(TILE, at_most // TILE * TILE))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def pad_to_tile(block: Tensor) -> Tensor:
    """Return ``block`` with rows of zeros appended up to a multiple of ``TILE``."""
    missing = -block.shape[0] % TILE
    return torch.nn.functional.pad(block, (0, 0, 0, missing)) if missing else block


class _ExactProducts:
    """Holds the settings of float32 products at full precision while anyone is inside; threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before: list[tuple[Any, str]] = []

    def enter(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                backends: Any = torch.backends  # its types lack a part
                kinds = (backends.cuda.matmul, backends.mkldnn.matmul)
                self._before = [
                    (kind, kind.fp32_precision) for kind in kinds if kind.fp32_precision in _COARSE
                ]
                for kind, _ in self._before:
                    kind.fp32_precision = "ieee"

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                for kind, before in self._before:
                    kind.fp32_precision = before


_COARSE = ("tf32", "bf16")
_exact = _ExactProducts()


@contextmanager
def full_precision_matmul() -> Iterator[None]:
    """Within it, products keep all the bits of their precision, whatever the caller's TF32 or autocast."""
    _exact.enter()
    try:
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
            with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
                yield
        else:
            yield
    finally:
        _exact.leave()


def choose_device(device: torch.device | str | None, *values: object) -> torch.device:
    """Return the device to work on: the one named, else that of the first tensor, else a GPU if there is one."""
    if device is not None:
        return _named_device(device)
    for value in values:
        if isinstance(value, Tensor):
            return value.device
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _named_device(device: torch.device | str) -> torch.device:
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise InputError(
            f"No device is called {device!r}: try 'cpu', 'cuda' or 'cuda:1'."
        ) from None
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise InputError(
            f"Cannot use {str(device)!r}: torch {torch.__version__} sees no GPU here. Try device='cpu'."
        )
    try:
        torch.zeros(1, device=chosen).cpu()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise InputError(
            f"Cannot use {str(device)!r}: torch {torch.__version__} has no such device here."
        ) from None
    return chosen


def describe_device(device: torch.device) -> str:
    """Return a device in words, for result files."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def as_tensor(value: object, name: str, device: torch.device | None = None) -> Tensor:
    """Return ``value`` as a float32 or float64 tensor, without a copy where none is needed."""
    tensor = _raw_tensor(value, name)
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise InputError(
            f"{name} holds {str(tensor.dtype).removeprefix('torch.')} values: real numbers are needed."
        )
    dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
    return tensor.detach().to(device=device, dtype=dtype)


def as_integers(value: object, name: str, device: torch.device | None = None) -> Tensor:
    """Return whole numbers as an int64 tensor, refusing anything that would be rounded."""
    tensor = _raw_tensor(value, name)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise InputError(
            f"{name} holds {str(tensor.dtype).removeprefix('torch.')} values: whole numbers are needed."
        )
    return tensor.to(device=device, dtype=torch.int64)


def _raw_tensor(value: object, name: str) -> Tensor:
    if isinstance(value, Tensor):
        return value
    try:
        array = np.asarray(value)
    except ValueError:
        raise InputError(f"{name} is not a rectangular array: its rows differ in length.") from None
    if array.dtype.kind not in "biufc":
        raise InputError(f"{name} holds {array.dtype} values: numbers are needed.")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    if (
        not array.flags.writeable
        or not array.dtype.isnative
        or any(stride < 0 for stride in array.strides)
    ):
        array = array.astype(
            array.dtype.newbyteorder("=")
        )  # torch shares memory, so it wants plain writable arrays
    return (
        torch.from_numpy(array)
        if array.dtype.kind != "f" or array.dtype.itemsize <= 8
        else _narrowed(array)
    )


def _narrowed(array: npt.NDArray[np.generic]) -> Tensor:
    return torch.from_numpy(array.astype(np.float64))


def as_input_type(answer: Tensor, model: object) -> Array:
    """Return ``answer`` as what ``model`` is: NumPy for NumPy, a tensor on its device for a tensor."""
    if isinstance(model, Tensor):
        return answer.to(model.device)
    return answer.cpu().numpy()


def require_finite(tensor: Tensor, name: str) -> None:
    """Refuse NaN and infinity, naming the first row that has one."""
    if tensor.numel() == 0:
        return
    low, high = torch.aminmax(tensor.detach())
    if torch.isfinite(low) and torch.isfinite(high):
        return
    flat = tensor.reshape(tensor.shape[0], -1) if tensor.ndim else tensor.reshape(1, 1)
    bad = (~torch.isfinite(flat)).any(dim=1)
    raise InputError(
        f"{name} has NaN or infinity in {int(bad.sum())} of {len(flat)} rows, first in row {int(bad.nonzero()[0])}: "
        "fill in or drop those rows."
    )
