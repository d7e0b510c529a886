"""Random streams: what decides their numbers, and what does not."""

from __future__ import annotations

import numpy as np
import torch

from teeter import seeds
from teeter.seeds import normal, stream


def test_streams_depend_on_seed_and_name_alone() -> None:
    draw = lambda *name: torch.rand(3, generator=seeds.stream(*name)).tolist()  # noqa: E731
    assert draw(0, "a", 1) == draw(0, "a", 1) == draw(np.int64(0), "a", 1)
    assert (
        len(
            {
                tuple(draw(*name))
                for name in [(0, "a", 1), (0, "a", 2), (0, "b", 1), (1, "a", 1), (0, "a")]
            }
        )
        == 5
    )


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
