"""Flip rates by fused kernels are those of plain torch; Triton's interpreter runs them where there
is no GPU.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from teeter.base.seeds import stream
from teeter.kernels import directions as directions_module
from teeter.kernels import flip_rates as plain_rates
from teeter.kernels import ldm

pytest.importorskip("triton", reason="needs Triton")
flips: Any = pytest.importorskip("teeter.kernels.fused.flip_rates")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def head(
    rows: int, classes: int, width: int, *, bias: bool, seed: int
) -> tuple[Tensor, Tensor, Tensor | None]:
    generator = stream(seed, "a head")
    features, weight = (
        torch.randn(rows, width, generator=generator),
        torch.randn(classes, width, generator=generator),
    )
    shift = torch.randn(classes, generator=generator) if bias else None
    return features.to(DEVICE), weight.to(DEVICE), None if shift is None else shift.to(DEVICE)


def fused_rates(
    features: Tensor, weight: Tensor, bias: Tensor | None, moves: Tensor, shifts: Tensor | None
) -> Tensor:
    rates = features.new_empty((len(moves), 2, len(features)))
    rows = plain_rates.FlipRates(features, weight, bias)

    for number in range(len(rows._row_slices)):
        tile = rows._tile(number)
        flips.fill_flip_rates(
            rates[:, :, tile.rows],
            tile.features.T,
            tile.predicted,
            tile.inverse_gaps.T,
            moves.to(rows.noise_dtype),
            shifts,
            tied=tile.tied,
        )

    return rates.flatten(0, 1)


@pytest.mark.parametrize(
    ("rows", "classes", "width", "bias"),
    [
        (1, 2, 1, True),
        (50, 3, 20, True),
        (140, 259, 128, False),
        pytest.param(130, 10, 64, False, marks=pytest.mark.slow),
        pytest.param(300, 150, 70, True, marks=pytest.mark.slow),
    ],
)
def test_flip_rates_are_those_of_plain_torch(
    rows: int, classes: int, width: int, bias: bool
) -> None:
    features, weight, shift = head(rows, classes, width, bias=bias, seed=rows)
    ((moves, shifts),) = directions_module.ray_directions(0, 7, weight, shift)
    plain = plain_rates.flip_rates(features, weight, shift, [(moves, shifts)])
    torch.testing.assert_close(
        fused_rates(features, weight, shift, moves, shifts),
        plain,
        rtol=1e-2 if features.is_cuda else 1e-4,
        atol=1e-4,
    )


def test_tied_classes_flip_at_once_or_never() -> None:
    features, weight, _ = head(120, 6, 16, bias=False, seed=3)
    weight[4] = weight[2]
    ((moves, _none),) = directions_module.ray_directions(1, 16, weight, None)
    moves[:, 4] = moves[:, 2]  # on these rays the two never part
    moves[3, 4] += 1.0
    plain = plain_rates.flip_rates(features, weight, None, [(moves, None)])
    fused = fused_rates(features, weight, None, moves, None)
    assert plain.isinf().any()
    assert not plain[:6].isinf().any()
    torch.testing.assert_close(fused, plain, rtol=1e-2 if features.is_cuda else 1e-4, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("classes", [10, 200, 300])
def test_on_a_gpu_the_metric_is_that_of_plain_torch(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, weight, shift = head(3000, classes, 96, bias=True, seed=classes)
    values = []
    for setting in ("0", "1"):
        monkeypatch.setenv("TEETER_FUSED", setting)
        directions = directions_module.ray_directions(0, 64, weight, shift)
        values.append(ldm.ldm_by_rays(features, weight, shift, directions=directions))

    assert (values[0] == values[1]).float().mean() > 0.95
    torch.testing.assert_close(values[0], values[1], rtol=0, atol=3 / 3000)
