"""Pools and heads that the tests share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teeter.base.seeds import derive_seed, stream
from teeter.kernels.directions import ray_directions

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """A pool under a head, in float64."""

    features: Tensor
    weight: Tensor
    bias: Tensor | None

    def head(self) -> tuple[Tensor, Tensor | None]:
        return self.weight, self.bias

    def arrays(self) -> tuple[Array, Array, Array]:
        """The same for the reference transcriptions, which always have a bias."""
        bias = np.zeros(len(self.weight)) if self.bias is None else self.bias.numpy()
        return self.features.numpy(), self.weight.numpy(), bias


def make_case(
    rows: int = 24, width: int = 3, classes: int = 3, *, seed: int = 0, bias: bool = True
) -> Case:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return Case(draw(rows, width), draw(classes, width), draw(classes) if bias else None)


def seed_of_directions(seed: int) -> int:
    """Return the seed of the directions that ``teeter.ldm`` follows with a seed."""
    return derive_seed(stream(seed, "select"))


def draw_directions(seed: int, count: int, case: Case) -> list[tuple[Tensor, Tensor | None]]:
    return list(ray_directions(seed, count, *case.head()))


def with_mirrors(
    blocks: list[tuple[Tensor, Tensor | None]], rays: int | None = None
) -> list[tuple[Array, Array]]:
    """Directions one by one, each followed by its mirror, as the transcriptions take them."""
    answer: list[tuple[Array, Array]] = []
    for moves, shifts in blocks:
        for k, move in enumerate(moves):
            shift = np.zeros(len(move)) if shifts is None else shifts[k].numpy()
            answer += [(move.numpy(), shift), (-move.numpy(), -shift)]
    return answer[:rays]
