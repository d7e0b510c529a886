"""Random streams: what decides their numbers, and what does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from teeter import seeds
from teeter.seeds import normal, stream


def test_streams_depend_on_seed_and_name_alone() -> None:
    def draw(*name: Any) -> list[float]:
        return torch.rand(3, generator=seeds.stream(*name)).tolist()

    assert draw(0, "a", 1) == draw(0, "a", 1) == draw(np.int64(0), "a", 1)
    names = [(0, "a", 1), (0, "a", 2), (0, "b", 1), (1, "a", 1), (0, "a")]
    assert len({tuple(draw(*name)) for name in names}) == 5


def test_a_fork_moves_the_stream_on() -> None:
    generator = seeds.stream(0, "x")
    assert seeds.derive_seed(generator) != seeds.derive_seed(generator)


def test_the_default_dtype_decides_no_draw() -> None:
    plain = normal((4,), stream(0, "x"), torch.device("cpu"))
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.equal(normal((4,), stream(0, "x"), torch.device("cpu")), plain)
    finally:
        torch.set_default_dtype(torch.float32)
