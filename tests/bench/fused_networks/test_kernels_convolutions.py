"""Convolutions of many networks at once, beside torch's layers, in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("triton", reason="needs Triton")

from teeter.bench.fused_networks import kernels as fused

MEMBERS, IMAGES, C_IN, C_OUT = 2, 3, 16, 32


def random_numbers(*shape: int, seed: int = 0) -> Tensor:
    """Return float32 numbers: the interpreter has no bfloat16."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator)


def torch_layer(x: Tensor, weight: Tensor, bias: Tensor, padding: int) -> Tensor:
    """Return the convolution of each member in float32, (M, B, height, width, channels)."""
    outputs = []
    for images, taps, offsets in zip(x, weight, bias, strict=True):
        output = nn.functional.conv2d(
            images.permute(0, 3, 1, 2), taps.permute(3, 2, 0, 1), offsets, padding=padding
        )
        outputs.append(output.permute(0, 2, 3, 1))
    return torch.stack(outputs)


@pytest.mark.parametrize(
    ("kernel", "padding", "side"),
    [(3, 1, 6), pytest.param(3, 0, 8, marks=pytest.mark.slow), (1, 0, 5)],
)
def test_a_convolution_and_its_gradients_are_those_of_torch(
    kernel: int, padding: int, side: int
) -> None:
    x = random_numbers(MEMBERS, IMAGES, side, side, C_IN).relu()
    weight = random_numbers(MEMBERS, kernel, kernel, C_IN, C_OUT, seed=1) / 8
    bias = random_numbers(MEMBERS, C_OUT, seed=2)

    output = fused.convolve(x, weight, bias, padding=padding)

    x_float = x.requires_grad_()
    weight_float = weight.requires_grad_()
    bias_float = bias.clone().requires_grad_()
    before_relu = torch_layer(x_float, weight_float, bias_float, padding)
    torch.testing.assert_close(output, before_relu.relu().detach(), rtol=1e-4, atol=1e-4)

    gradient = random_numbers(*before_relu.shape, seed=3)
    before_relu.backward(gradient)
    by_input = fused.input_gradient(gradient, weight, padding=padding, source=x)
    expected = torch.where(x > 0, x_float.grad, 0)
    torch.testing.assert_close(by_input, expected, rtol=1e-4, atol=1e-4)

    by_weight, by_bias = fused.weight_gradient(x, gradient, kernel=kernel, padding=padding)
    torch.testing.assert_close(by_weight, weight_float.grad, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(by_bias, bias_float.grad, rtol=1e-4, atol=1e-3)


def test_pooling_takes_the_largest_output_and_sends_its_gradient_back() -> None:
    x = random_numbers(MEMBERS, IMAGES, 6, 6, C_IN)
    weight = random_numbers(MEMBERS, 3, 3, C_IN, C_OUT, seed=1) / 8
    bias = random_numbers(MEMBERS, C_OUT, seed=2)

    pooled, codes = fused.convolve_and_pool(x, weight, bias, padding=1, dropout=None)

    outputs = torch_layer(x, weight, bias, 1).requires_grad_()
    channels_first = outputs.flatten(0, 1).permute(0, 3, 1, 2)
    maxima = nn.functional.max_pool2d(channels_first.relu(), 2)
    expected = maxima.permute(0, 2, 3, 1).unflatten(0, (MEMBERS, IMAGES))
    torch.testing.assert_close(pooled, expected.detach(), rtol=1e-4, atol=1e-4)

    gradient = random_numbers(*pooled.shape, seed=3)
    expected.backward(gradient)
    assert codes is not None
    torch.testing.assert_close(fused.unpool(gradient, codes, 0.0), outputs.grad)


def test_images_that_members_share_give_what_copies_of_them_give() -> None:
    x = random_numbers(1, IMAGES, 6, 6, C_IN)
    weight = random_numbers(MEMBERS, 3, 3, C_IN, C_OUT, seed=1)
    bias = torch.zeros(MEMBERS, C_OUT)
    shared = fused.convolve(x, weight, bias, padding=1)
    copied = fused.convolve(x.expand(MEMBERS, -1, -1, -1, -1).contiguous(), weight, bias, padding=1)
    assert torch.equal(shared, copied)


def test_dropout_depends_on_the_member_alone_and_keeps_the_mean() -> None:
    rate = 0.25
    x = torch.ones(3, 4, 512, dtype=torch.float32)
    bias = torch.zeros(3, 512)

    def drop(seeds: list[int], step: int) -> Tensor:
        dropout = fused.Dropout(rate, 1, torch.tensor(seeds), torch.tensor([step]))
        return fused.drop_rectified(x[: len(seeds)], bias[: len(seeds)], dropout)

    together = drop([5, 6, 7], 0)
    assert torch.equal(together[1], drop([6], 0)[0])
    assert not torch.equal(together[0], together[1])
    assert not torch.equal(together, drop([5, 6, 7], 1))

    kept_share = (together > 0).double().mean()
    assert float(kept_share) == pytest.approx(1 - rate, abs=0.03)
    torch.testing.assert_close(
        together[together > 0].unique(), torch.tensor([4 / 3]), rtol=1e-5, atol=0
    )


def test_a_dropped_window_passes_no_gradient() -> None:
    x = random_numbers(MEMBERS, IMAGES, 4, 4, C_IN)
    weight = random_numbers(MEMBERS, 3, 3, C_IN, C_OUT, seed=1)
    bias = torch.ones(MEMBERS, C_OUT)
    dropout = fused.Dropout(0.5, 0, torch.tensor([1, 2]), torch.tensor([7]))
    pooled, codes = fused.convolve_and_pool(x, weight, bias, padding=1, dropout=dropout)
    undropped, _ = fused.convolve_and_pool(x, weight, bias, padding=1, dropout=None)

    assert codes is not None
    assert torch.equal(codes == 4, pooled == 0)
    is_kept = pooled > 0
    torch.testing.assert_close(pooled[is_kept], 2 * undropped[is_kept])
    gradient = fused.unpool(torch.ones_like(pooled), codes, 0.5)
    assert float(gradient.sum()) == 2 * int(is_kept.sum())


@pytest.mark.parametrize(("kernel", "padding"), [(3, 1), (3, 0)])
def test_patches_are_those_of_unfold(kernel: int, padding: int) -> None:
    inputs = torch.randn(MEMBERS, 5, 3, 6, 6)
    rows = torch.tensor([[4, 0, 2], [1, 1, 3]])
    patches = fused.extract_patches(
        inputs, rows, kernel=kernel, padding=padding, dtype=torch.float32
    )

    chosen = inputs[torch.arange(MEMBERS)[:, None], rows].flatten(0, 1)
    columns = nn.functional.unfold(chosen, kernel, padding=padding)  # (MB, C K K, pixels)
    side = patches.shape[2]
    expected = columns.unflatten(1, (3, kernel * kernel)).permute(0, 3, 2, 1).flatten(2)
    expected = expected.unflatten(1, (side, side)).unflatten(0, (MEMBERS, 3))
    torch.testing.assert_close(patches[..., :27], expected)
    assert not patches[..., 27:].any()
