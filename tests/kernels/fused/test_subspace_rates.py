"""Fused flip rates in subspaces are those of plain torch; Triton's interpreter runs them here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from teeter.base.seeds import stream
from teeter.kernels import flip_rates, ldm
from teeter.kernels.directions import SubspaceDirections, subspace_directions

pytest.importorskip("triton", reason="needs Triton")
fused: Any = pytest.importorskip("teeter.kernels.fused.subspace_rates")

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def make_pool(
    rows: int, classes: int, width: int, *, bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    generator = stream(rows, "pool")
    features = torch.randn(rows, width, generator=generator).to(DEVICE)
    weight = torch.randn(classes, width, generator=generator).to(DEVICE)
    if not bias:
        return features, weight, None
    return features, weight, torch.randn(classes, generator=generator).to(DEVICE)


def compute_fused(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    directions: SubspaceDirections,
) -> Tensor:
    """Do what ``FusedSubspaceRates`` does, without bfloat16 products, which a CPU does not have."""
    rates = fused.FusedSubspaceRates(features, weight, bias)
    tile = rates._make_tile(slice(0, len(features)))
    points = features @ directions.bases  # (K, n, r)
    if directions.bias_bases is not None:
        points += directions.bias_bases[:, None]
    points = fused._pad_rank(points).transpose(0, 1).flatten(1, 2)  # (n, K r)

    # The interpreter has no bfloat16.
    noise = fused._arrange_noise(directions.coefficients, len(rates.weight))
    if not features.is_cuda:
        noise = noise.float()
    output = features.new_empty((16 * directions.blocks, 2, len(features)))
    fused.fill_subspace_rates(
        output,
        points.to(noise.dtype),
        tile.predicted,
        tile.inverse_gaps,
        noise,
        tied=tile.tied,
    )
    return output[: len(directions)].flatten(0, 1)


@pytest.mark.parametrize(
    ("rows", "classes", "width", "bias", "subspace"),
    [
        (1, 2, 30, True, 16),
        (70, 35, 40, False, 8),
        pytest.param(130, 20, 90, True, 32, marks=pytest.mark.slow),
    ],
)
def test_rates_are_those_of_plain_torch(
    rows: int, classes: int, width: int, bias: bool, subspace: int
) -> None:
    features, weight, shift = make_pool(rows, classes, width, bias=bias)
    (directions,) = subspace_directions(0, 19, weight, shift, subspace=subspace)
    plain = flip_rates.FlipRates(features, weight, shift)._compute_in_subspaces(directions)
    rates = compute_fused(features, weight, shift, directions)

    # bfloat16 has 8 bits. A ratio is small where two changes nearly cancel.
    assert (rates - plain).norm() < 0.02 * plain.norm()


def test_tied_classes_flip_at_once_or_never() -> None:
    features, weight, _ = make_pool(60, 6, 40, bias=False)
    weight[4] = weight[2]
    (directions,) = subspace_directions(1, 16, weight, None, subspace=16)
    (coefficients,) = directions.coefficients
    coefficients[:, 4] = coefficients[:, 2]  # on these rays the two never part
    coefficients[3, 4] += 1.0

    plain = flip_rates.FlipRates(features, weight, None)._compute_in_subspaces(directions)
    rates = compute_fused(features, weight, None, directions)
    assert plain.isinf().any()
    assert not plain[:6].isinf().any()
    assert torch.equal(rates.isinf(), plain.isinf())


def test_inverse_gaps_are_those_of_plain_torch() -> None:
    features, weight, bias = make_pool(45, 21, 30, bias=True)
    assert bias is not None
    weight[7], bias[7] = weight[3], bias[3]
    tile = flip_rates.FlipRates(features, weight, bias)._tile(0)
    logits = torch.nn.functional.pad(features @ weight.T + bias, (0, 11), value=99.0)

    predicted, tied = fused.invert_gaps(logits, 21)
    assert tied
    assert torch.equal(predicted.long(), tile.predicted[:45])
    torch.testing.assert_close(logits[:, :21], tile.inverse_gaps.T[:45], rtol=1e-3, atol=1e-3)
    assert not logits[:, 21:].any()


@pytest.mark.gpu
@pytest.mark.parametrize("classes", [10, 200, 1000])
def test_on_a_gpu_the_metric_is_that_of_plain_torch(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    features, weight, bias = make_pool(3000, classes, 96, bias=True)
    values = []
    for setting in ("0", "1"):
        monkeypatch.setenv("TEETER_FUSED", setting)
        directions = subspace_directions(0, 64, weight, bias, subspace=16)
        values.append(ldm.ldm_by_rays(features, weight, bias, directions=directions))
    assert (values[0] == values[1]).float().mean() > 0.9
    torch.testing.assert_close(values[0], values[1], rtol=0, atol=5 / 3000)
