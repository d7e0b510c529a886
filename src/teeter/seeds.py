"""Named random streams: what is drawn depends on the seed and the stream's name, never on what was drawn before."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Generator, Tensor

__all__ = [
    "derive_seed",
    "is_portable",
    "normal",
    "portable",
    "seeded_global_rng",
    "stream",
    "uniform",
]

_portable: ContextVar[bool] = ContextVar("teeter_portable", default=False)


def stream(seed: int, *name: str | int, device: torch.device | str = "cpu") -> Generator:
    """Return the random stream called ``name``: same seed and name, same draws, whatever else was drawn.

    Each kind of device has numbers of its own, except inside ``portable()``.
    """
    digest = hashlib.blake2b(repr((int(seed), *name)).encode(), digest_size=8).digest()
    home = "cpu" if is_portable() else device
    return Generator(home).manual_seed(int.from_bytes(digest, "big"))


def derive_seed(generator: Generator) -> int:
    """Return a seed drawn from ``generator``, for a kernel that names streams of its own."""
    return int(torch.randint(2**62, (), generator=generator, device=generator.device))


def normal(shape: tuple[int, ...], generator: Generator, device: torch.device) -> Tensor:
    """Return float32 draws from N(0, 1), made where the generator lives and moved to ``device``."""
    return torch.randn(shape, generator=generator, device=generator.device, dtype=torch.float32).to(
        device
    )


def uniform(shape: tuple[int, ...], generator: Generator, device: torch.device) -> Tensor:
    """Return float64 draws from [0, 1), made where the generator lives and moved to ``device``."""
    return torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64).to(
        device
    )


@contextmanager
def seeded_global_rng(seed: int, device: torch.device) -> Iterator[None]:
    """Within it, torch's global draws on the CPU and ``device`` follow ``seed``; their state is put back after."""
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        torch.default_generator.manual_seed(
            seed
        )  # torch.manual_seed would seed every GPU, and they are not put back
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


@contextmanager
def portable() -> Iterator[None]:
    """Within it, draw on the CPU and multiply in full precision: slower, and alike on every device."""
    token = _portable.set(True)
    try:
        yield
    finally:
        _portable.reset(token)


def is_portable() -> bool:
    """Tell whether the code runs inside ``portable()``."""
    return _portable.get()
