"""Convert arrays to tensors and back, choose devices, and cut work into chunks that fit in memory.

float64 stays float64 and every other number type becomes float32. A tensor stays on its device. A
NumPy array goes to a GPU if there is one. An explicit ``device=`` overrides both.
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
    "TILE",
    "Array",
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
"""Matrix products get rows in multiples of this number, so that the product of a row never depends
on its neighbours. BLAS libraries compute the ragged edge of a matrix with other kernels, which
round differently. 192 is a multiple of the block heights in use (8 to 64, 24, 48 and 96)."""

# Bytes.
_DEFAULT_CPU_BUDGET = 512 << 20
_LARGEST_GPU_BUDGET = 8 << 30
_UNKNOWN_MEMORY = 1 << 62

_GPU_MEMORY_CACHE_SECONDS = 0.1
"""Asking a GPU for its free memory takes as long as a small kernel, so the answer is cached."""

# For each GPU, when it was asked (``time.monotonic``) and its free bytes then. Shared by all
# threads
# on purpose: it is a fact about the machine, and an entry is replaced as a whole.
_gpu_memory_cache: dict[torch.device, tuple[float, int]] = {}

_working_memory: ContextVar[int | None] = ContextVar("teeter_working_memory", default=None)


@contextmanager
def working_memory(size: int) -> Iterator[None]:
    """Limit the temporary arrays of kernels to about ``size`` bytes inside this context.

    On a CPU, results do not depend on the limit. It applies to the current thread and to what it
    awaits, not to threads started inside.

    Example:
        >>> with working_memory(100 << 20):
        ...     memory_budget(torch.device("cpu"))
        104857600
    """
    if size < 1:
        raise InputError(f"size is {size} bytes: it must be positive.")
    token = _working_memory.set(size)
    try:
        yield
    finally:
        _working_memory.reset(token)


def memory_budget(device: torch.device) -> int:
    """Return the bytes that a kernel may use for temporary arrays on ``device``."""
    limit = _working_memory.get()
    if limit is not None:
        return limit
    if device.type == "cuda":
        # At most 0.1 s old.
        never_asked = (-math.inf, 0)
        asked_at, free = _gpu_memory_cache.get(device, never_asked)
        now = time.monotonic()
        if now - asked_at > _GPU_MEMORY_CACHE_SECONDS:
            free, _ = torch.cuda.mem_get_info(device)
            _gpu_memory_cache[device] = (now, free)
        return min(_LARGEST_GPU_BUDGET, free // 4)
    return _DEFAULT_CPU_BUDGET


def available_memory(device: torch.device) -> int:
    """Return the free memory of ``device`` in bytes, or a very large number if it is unknown."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)

    # Linux only. Elsewhere the file does not exist.
    for line in _read_lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            kilobytes = int(line.split()[1])
            return kilobytes << 10
    return _UNKNOWN_MEMORY


def _read_lines(path: str) -> list[str]:
    """Return the lines of a file of the system, none if it cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError:
        return []
    return text.splitlines()


def tiles(
    rows: int,
    bytes_per_row: int,
    device: torch.device,
    *,
    at_most: int | None = None,
) -> Iterator[slice]:
    """Yield slices of rows that fit in the working memory.

    Args:
        rows: the number of rows to cover.
        bytes_per_row: what one row takes in temporary arrays.
        device: where the arrays are.
        at_most: the most rows of a slice, if there is such a limit.

    Yields:
        Slices whose lengths are multiples of ``TILE``, except for the last.
    """
    # At least one tile, even if that is more than the budget: less would change how rows round.
    fitting_rows = memory_budget(device) // max(1, bytes_per_row)
    tiles_per_step = max(1, fitting_rows // TILE)
    if at_most is not None:
        allowed_tiles = max(1, at_most // TILE)
        tiles_per_step = min(tiles_per_step, allowed_tiles)
    step = tiles_per_step * TILE

    for start in range(0, rows, step):
        stop = min(start + step, rows)
        yield slice(start, stop)


def pad_to_tile(block: Tensor) -> Tensor:
    """Append rows of zeros to ``block`` up to a multiple of ``TILE`` rows."""
    # Full tiles, which most blocks are, are not copied.
    missing = -block.shape[0] % TILE
    if not missing:
        return block
    return torch.nn.functional.pad(block, (0, 0, 0, missing))


class _FullPrecisionMatmul:
    """Switches TF32 and bf16 products off while at least one context is open.

    torch's precision settings are global, so contexts of several threads are counted: the first one
    changes the settings and the last one restores them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open_contexts = 0
        self._settings_before: list[tuple[Any, str]] = []

    def enter(self) -> None:
        with self._lock:
            self._open_contexts += 1
            if self._open_contexts > 1:
                return

            backends: Any = torch.backends  # incomplete type stubs
            self._settings_before = []
            for setting in (backends.cuda.matmul, backends.mkldnn.matmul):
                precision = setting.fp32_precision
                if precision in _REDUCED_PRECISIONS:
                    self._settings_before.append((setting, precision))
                    setting.fp32_precision = "ieee"

    def leave(self) -> None:
        with self._lock:
            self._open_contexts -= 1
            if self._open_contexts > 0:
                return

            for setting, precision in self._settings_before:
                setting.fp32_precision = precision


_REDUCED_PRECISIONS = ("tf32", "bf16")
_full_precision = _FullPrecisionMatmul()


@contextmanager
def full_precision_matmul() -> Iterator[None]:
    """Multiply matrices in full precision, whatever the TF32 and autocast settings."""
    _full_precision.enter()
    try:
        # Switched off only where it is on: this context is entered thousands of times.
        is_autocast = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
        if is_autocast:
            with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
                yield
        else:
            yield
    finally:
        _full_precision.leave()


def choose_device(device: torch.device | str | None, *values: object) -> torch.device:
    """Return the device to compute on.

    Args:
        device: an explicit choice, which takes precedence.
        *values: the inputs. Without an explicit choice, the device of the first tensor is taken,
            or a GPU if there is no tensor.

    Raises:
        InputError: if torch cannot use ``device`` on this machine.
    """
    if device is not None:
        try:
            chosen = torch.device(device)
        except RuntimeError:
            raise InputError(
                f"No device is called {device!r}: try 'cpu', 'cuda' or 'cuda:1'."
            ) from None

        if chosen.type == "cuda" and not torch.cuda.is_available():
            raise InputError(
                f"Cannot use {str(device)!r}: torch {torch.__version__} finds no GPU here. Try "
                f"device='cpu'."
            )

        # Only a try shows whether there is a GPU of that number, or a backend of that name.
        try:
            torch.zeros(1, device=chosen).cpu()
        except (RuntimeError, AssertionError, NotImplementedError):
            raise InputError(
                f"Cannot use {str(device)!r}: torch {torch.__version__} has no such device here."
            ) from None
        return chosen
    for value in values:
        if isinstance(value, Tensor):
            return value.device
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("cpu")


def describe_device(device: torch.device) -> str:
    """Return a description of a device for result files."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    name = _processor_name()
    cores = os.cpu_count()
    threads = torch.get_num_threads()
    return f"{name}, {cores} cores, {threads} threads"


def _processor_name() -> str:
    # On Linux platform.processor() has no more than the architecture.
    for line in _read_lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            _, _, name = line.partition(":")
            return name.strip()
    return platform.processor() or platform.machine()


def as_tensor(
    value: object,
    name: str,
    device: torch.device | None = None,
) -> Tensor:
    """Convert an array to a float32 or float64 tensor, without a copy if possible.

    Args:
        value: an array, a tensor or nested lists of real numbers.
        name: what to call it in error messages.
        device: where the tensor should be. By default it stays where it is.

    Raises:
        InputError: if it is not a rectangular array of real numbers.
    """
    tensor = _raw_tensor(value, name)
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise InputError(f"{name} holds {_type_name(tensor)} values: pass real numbers.")

    dtype = torch.float32
    if tensor.dtype == torch.float64:
        dtype = torch.float64
    return tensor.detach().to(device=device, dtype=dtype)


def as_integers(
    value: object,
    name: str,
    device: torch.device | None = None,
) -> Tensor:
    """Convert whole numbers to an int64 tensor. Refuse values that would be rounded."""
    tensor = _raw_tensor(value, name)
    is_inexact = tensor.is_floating_point() or tensor.is_complex()
    if is_inexact or tensor.dtype == torch.bool:
        raise InputError(f"{name} holds {_type_name(tensor)} values: pass whole numbers.")
    return tensor.to(device=device, dtype=torch.int64)


def _type_name(tensor: Tensor) -> str:
    """Return the name of a tensor's type of numbers as NumPy says it: ``"float32"``."""
    return str(tensor.dtype).removeprefix("torch.")


def _raw_tensor(value: object, name: str) -> Tensor:
    """Return a value as a tensor of its own type, without a copy if torch can share its memory."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        masked = int(np.ma.getmaskarray(value).sum())
        raise InputError(f"{name} has {masked} masked values: fill in or drop them.")

    try:
        array = np.asarray(value)
    except ValueError:
        raise InputError(f"{name} is not a rectangular array: its rows differ in length.") from None
    if array.dtype.kind in "SU":
        raise InputError(f"{name} holds strings: pass numbers.")
    if array.dtype.kind not in "biufc":
        raise InputError(f"{name} holds {array.dtype} values: pass numbers.")

    kind = array.dtype.kind
    bytes_per_number = array.dtype.itemsize
    if kind == "u" and bytes_per_number > 1:
        array = array.astype(np.int64)  # torch has few operations on wider unsigned types
    if kind == "f" and bytes_per_number > 8:
        array = array.astype(np.float64)  # torch has no long double

    # torch shares the memory of an array: it must be writable, native and not reversed.
    is_reversed = any(stride < 0 for stride in array.strides)
    can_share = array.flags.writeable and array.dtype.isnative and not is_reversed
    if not can_share:
        native_dtype = array.dtype.newbyteorder("=")
        array = array.astype(native_dtype)
    return torch.from_numpy(array)


def require_finite(tensor: Tensor, name: str) -> None:
    """Raise InputError if a value is NaN or infinite, with the first row that has one."""
    if tensor.numel() == 0:
        return
    # One pass without a copy: a NaN anywhere makes both of them NaN.
    low, high = torch.aminmax(tensor.detach())
    if torch.isfinite(low) and torch.isfinite(high):
        return

    # Only now, to say where: (N, everything else).
    if tensor.ndim:
        rows = tensor.reshape(len(tensor), -1)
    else:
        rows = tensor.reshape(1, 1)
    is_invalid = (~torch.isfinite(rows)).any(dim=1)
    invalid_rows = is_invalid.nonzero().flatten()
    raise InputError(
        f"{name} has NaN or infinity in {len(invalid_rows)} of {len(rows)} rows, "
        f"first in row {int(invalid_rows[0])}: fill in or drop those rows."
    )
