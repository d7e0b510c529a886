"""Named random streams.

What is drawn from a stream depends on the seed and the stream's name only, never on what was drawn
elsewhere before. Adding a random choice to one part of a program therefore changes no other part.

torch is loaded by the functions that draw with it: ``stream_seed`` works without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from numbers import Integral
from typing import TYPE_CHECKING

from teeter.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor

__all__ = [
    "derive_seed",
    "is_portable",
    "normal",
    "portable",
    "seeded_global_rng",
    "stream",
    "stream_seed",
    "uniform",
    "validate_seed",
]


_portable: ContextVar[bool] = ContextVar("teeter_portable", default=False)


def validate_seed(seed: object) -> int:
    """Return a seed that a user gave.

    Raises:
        InputError: if it is not a whole number of 0 or more.
    """
    # In Python, True is an integer too.
    if isinstance(seed, Integral) and not isinstance(seed, bool) and int(seed) >= 0:
        return int(seed)
    raise InputError(f"seed is {seed!r}: it must be a whole number of 0 or more.")


def stream(
    seed: int,
    *name: str | int,
    device: torch.device | str = "cpu",
) -> Generator:
    """Return the random stream called ``name``.

    Args:
        seed: the seed of the whole computation.
        *name: the parts of the stream's name, such as ``"pool", 3`` for the pool of round 3.
        device: where to draw. Each type of device draws different numbers, except inside
            ``portable()``, where all streams draw on the CPU.

    Example:
        >>> import torch
        >>> a, b = stream(0, "order"), stream(0, "order")
        >>> bool((torch.rand(3, generator=a) == torch.rand(3, generator=b)).all())
        True
    """
    from torch import Generator

    generator_device = device
    if is_portable():
        generator_device = "cpu"
    return Generator(generator_device).manual_seed(stream_seed(seed, *name))


def stream_seed(seed: int, *name: str | int) -> int:
    """Return the seed of the stream called ``name``, an integer of 64 bits.

    Example:
        >>> stream_seed(0, "order") == stream(0, "order").initial_seed()
        True
    """
    # A hash, so that similar names give unrelated seeds. The text of a tuple is the same in every
    # process and version, unlike Python's own hash.
    full_name = repr((int(seed), *name))
    digest = hashlib.blake2b(full_name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def derive_seed(generator: Generator) -> int:
    """Return a seed drawn from ``generator``, for a kernel that names its own streams."""
    import torch

    draw = torch.randint(2**62, (), generator=generator, device=generator.device)
    return int(draw)


def normal(
    shape: tuple[int, ...],
    generator: Generator,
    device: torch.device,
) -> Tensor:
    """Return float32 draws from N(0, 1) on ``device``, drawn on the generator's own device."""
    import torch

    draws = torch.randn(
        shape,
        generator=generator,
        device=generator.device,
        dtype=torch.float32,
    )
    return draws.to(device)


def uniform(
    shape: tuple[int, ...],
    generator: Generator,
    device: torch.device,
) -> Tensor:
    """Return float64 draws from [0, 1) on ``device``, drawn on the generator's own device."""
    import torch

    draws = torch.rand(
        shape,
        generator=generator,
        device=generator.device,
        dtype=torch.float64,
    )
    return draws.to(device)


@contextmanager
def seeded_global_rng(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global random numbers inside the block and restore their state afterwards.

    Use it around code that takes no generator, such as ``nn.Linear`` or another library.

    Args:
        seed: the seed inside the block.
        device: a GPU whose global generator is seeded too; the CPU's always is.
    """
    import torch

    on_gpu = device.type == "cuda"
    gpus = []
    if on_gpu:
        gpus.append(device)

    # Restores the state of the CPU's generator, and those of the GPUs listed.
    with torch.random.fork_rng(devices=gpus):
        # torch.manual_seed would seed all GPUs, and only this one is restored.
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


@contextmanager
def portable() -> Iterator[None]:
    """Make results the same on every device inside the block.

    Random numbers are drawn on the CPU and products are computed in full precision, which is slower
    on a GPU.
    """
    token = _portable.set(True)
    try:
        yield
    finally:
        _portable.reset(token)


def is_portable() -> bool:
    """Return whether the code runs inside ``portable()``."""
    return _portable.get()
