"""The paper's networks: their sizes, and where they start."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import teeter
from teeter.base.seeds import stream
from teeter.models.networks import he_normal, k_cnn, mlp, resnet_18, s_cnn, wrn_16_8


@pytest.mark.parametrize(
    ("inputs", "classes", "parameters", "head"),
    [(16, 26, 22_042, 3_354), (10, 5, 18_565, 645), (613, 26, 98_458, 3_354)],
)
def test_the_papers_parameters_are_counted(
    inputs: int, classes: int, parameters: int, head: int
) -> None:
    network = mlp(inputs, classes)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    assert sum(parameter.numel() for parameter in network[-1].parameters()) == head
    outputs = teeter.observe(network, torch.zeros(2, inputs))
    assert outputs.weight.numel() + outputs.bias.numel() == head


def test_weights_are_he_normal_and_biases_zero() -> None:
    for layer in mlp(613, 26, hidden=500, seed=4):
        if isinstance(layer, nn.Linear):
            spread = (2 / layer.in_features) ** 0.5
            few = 4 / (2 * layer.weight.numel()) ** 0.5
            weight = layer.weight.detach()
            assert float(weight.std()) == pytest.approx(spread, rel=few)
            assert abs(float(weight.mean())) < 4 * spread / weight.numel() ** 0.5
            assert float(weight.abs().max()) > 3 * spread
            assert not layer.bias.any()


def test_the_start_of_a_convolution_counts_its_whole_window() -> None:
    network = he_normal(nn.Sequential(nn.Conv2d(8, 64, 3), nn.Conv2d(64, 8, 1, bias=False)), 0)
    assert float(network[0].weight.detach().std()) == pytest.approx((2 / 72) ** 0.5, rel=0.05)
    assert not network[0].bias.any()


def test_the_seed_decides_the_start() -> None:
    first, same, other = (mlp(5, 3, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["1.weight"], other["1.weight"])


@pytest.mark.parametrize(
    "make",
    [
        lambda: mlp(5, 3),
        lambda: s_cnn(1, 8, 3),
        lambda: k_cnn(1, 8, 3),
        lambda: resnet_18(1, 3),
        lambda: wrn_16_8(1, 32, 3),
    ],
    ids=["mlp", "s_cnn", "k_cnn", "resnet_18", "wrn_16_8"],
)
def test_the_global_stream_goes_on_undisturbed(make: Callable[[], nn.Module]) -> None:
    before = torch.get_rng_state()
    make()
    assert torch.equal(torch.get_rng_state(), before)


def test_images_are_flattened() -> None:
    assert mlp(12, 3)(torch.zeros(2, 3, 2, 2)).shape == (2, 3)


def test_dropout_follows_both_hidden_layers() -> None:
    network = mlp(5, 3, dropout=0.4)
    assert [layer.p for layer in network if isinstance(layer, nn.Dropout)] == [0.4, 0.4]
    network.train()
    assert not torch.equal(network(torch.ones(1, 5)), network(torch.ones(1, 5)))


@pytest.mark.parametrize(
    ("make", "shape", "parameters", "features"),
    [
        (lambda: s_cnn(1, 28, 10), (1, 28, 28), 1_199_882, 128),
        (lambda: k_cnn(3, 32, 10), (3, 32, 32), 2_168_362, 512),
        (lambda: wrn_16_8(3, 32, 100), (3, 32, 32), 11_007_540, 512),
        pytest.param(
            lambda: wrn_16_8(3, 64, 200), (3, 64, 64), 11_366_040, 2_048, marks=pytest.mark.slow
        ),
        pytest.param(
            lambda: wrn_16_8(3, 75, 101), (3, 75, 75), 11_163_189, 2_048, marks=pytest.mark.slow
        ),
        (lambda: resnet_18(3, 1000), (3, 64, 64), 11_689_512, 512),
    ],
    ids=["s-cnn", "k-cnn", "wrn-32", "wrn-64", "wrn-75", "resnet-18"],
)
def test_image_networks_have_the_papers_parameters_and_features(
    make: Callable[[], nn.Module], shape: tuple[int, ...], parameters: int, features: int
) -> None:
    network = make()
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    outputs = teeter.observe(network, torch.rand(2, *shape, generator=stream(0, "images")))
    assert outputs.features is not None
    assert outputs.features.shape == (2, features)
