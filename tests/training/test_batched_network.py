"""Stacks: many networks at once answer and draw as each would alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from teeter.models.networks import k_cnn, mlp, resnet_18, s_cnn
from teeter.training.batched_network import BatchedNetworks, DropoutMasks, can_batch

CHAINS: dict[str, Any] = {
    "mlp": (lambda seed: mlp(6, 3, seed=seed, hidden=8), (6,)),
    "s-cnn": (lambda seed: s_cnn(1, 10, 3, seed=seed), (1, 10, 10)),
    "k-cnn": (lambda seed: k_cnn(3, 8, 3, seed=seed), (3, 8, 8)),
    "without biases": (
        lambda seed: nn.Sequential(
            nn.Conv2d(1, 2, 3, bias=False), nn.Tanh(), nn.Flatten(), nn.Linear(32, 3, False)
        ),
        (1, 6, 6),
    ),
    "a head alone": (lambda seed: nn.Sequential(nn.Linear(6, 3)), (6,)),
    "flat images": (
        lambda seed: nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.GELU(), nn.Linear(4, 3)),
        (3, 4),
    ),
}


@pytest.fixture(params=CHAINS)
def chain(request: pytest.FixtureRequest) -> tuple[list[Any], tuple[int, ...]]:
    make, shape = CHAINS[request.param]
    return [make(seed).double().eval() for seed in range(3)], shape


def test_each_member_answers_as_alone(chain: tuple[list[Any], tuple[int, ...]]) -> None:
    networks, shape = chain
    assert can_batch(networks)
    rows = torch.randn(3, 5, *shape, dtype=torch.float64)
    stack = BatchedNetworks(networks)

    expected = torch.stack(
        [network(member_rows) for network, member_rows in zip(networks, rows, strict=True)]
    )
    torch.testing.assert_close(stack.logits(rows), expected)

    shared = torch.stack([network(rows[0]) for network in networks])
    torch.testing.assert_close(stack.shared_logits(rows[0]), shared)

    single = BatchedNetworks(networks[:1])
    torch.testing.assert_close(single.logits(rows[:1]), expected[:1])
    torch.testing.assert_close(single.shared_logits(rows[0]), shared[:1])


def test_weights_go_back_where_they_came_from(chain: tuple[list[Any], tuple[int, ...]]) -> None:
    networks, _ = chain
    stack = BatchedNetworks(networks)
    stack.write_back([values.detach() + 1 for values in stack.parameters])
    for k, network in enumerate(networks):
        for parameter, values in zip(network.parameters(), stack.parameters, strict=True):
            assert torch.equal(parameter, values[k] + 1)


def draw_masks(
    seeds: list[int], batch: int = 64, steps: int = 3, rate: float = 0.3
) -> list[list[torch.Tensor]]:
    networks = [mlp(6, 3, seed=seed, hidden=50, dropout=rate) for seed in seeds]
    masks = DropoutMasks(BatchedNetworks(networks), seeds, 64, torch.randn(4, 6))
    drawn_masks = []
    for _ in range(steps):
        masks.advance(batch)
        drawn_masks.append([mask.clone() for mask in masks.current(batch)])
    return drawn_masks


def test_a_member_s_dropout_depends_on_its_seed_alone() -> None:
    together, alone = draw_masks([5, 6, 7]), draw_masks([6])
    for step, alone_step in zip(together, alone, strict=True):
        for mask, expected in zip(step, alone_step, strict=True):
            assert torch.equal(mask[1], expected[0])
            assert not torch.equal(mask[0], expected[0])
    assert not torch.equal(together[0][0], together[1][0])
    assert not torch.equal(together[0][0], together[0][1])


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.5])
def test_dropout_keeps_the_share_it_should_and_the_mean(rate: float) -> None:
    masks = torch.stack(
        [mask for step in draw_masks(list(range(10)), rate=rate, steps=20) for mask in step]
    )
    is_kept = (masks > 0).double()
    assert set(masks.unique().tolist()) <= {0.0, torch.tensor(1 / (1 - rate)).item()}
    error = (rate * (1 - rate) / masks.numel()) ** 0.5
    assert abs(float(is_kept.mean()) - (1 - rate)) <= 4 * error + 2**-16
    # Each of the four places in a word is kept as often as the others.
    shares = is_kept.flatten(1).unflatten(1, (-1, 4)).mean(dim=(0, 1))
    assert float((shares - (1 - rate)).abs().max()) <= 8 * error + 2**-16


def test_a_smaller_batch_draws_less() -> None:
    (mask, _), _ = draw_masks([1], batch=10, steps=2)
    assert mask.shape == (1, 10, 50)
    (again, _), _ = draw_masks([1], batch=10, steps=2)
    assert torch.equal(mask, again)


class Louder(nn.Linear):
    """Looks like a linear layer and is another."""


def hooked() -> nn.Module:
    network = mlp(4, 3)
    network[1].register_forward_hook(lambda *_: None)
    return network


def frozen() -> nn.Module:
    network = mlp(4, 3)
    network[1].requires_grad_(False)
    return network


def shared() -> nn.Module:
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, layer, nn.Linear(4, 2))


@pytest.mark.parametrize(
    "network",
    [
        pytest.param(resnet_18(3, 4), id="blocks"),
        pytest.param(nn.Linear(3, 2), id="no chain"),
        pytest.param(nn.Sequential(), id="empty"),
        pytest.param(nn.Sequential(nn.Linear(3, 2), nn.ReLU()), id="no head"),
        pytest.param(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)), id="normalised"),
        pytest.param(
            nn.Sequential(nn.Conv2d(2, 2, 3, groups=2), nn.Flatten(), nn.Linear(2, 2)), id="grouped"
        ),
        pytest.param(
            nn.Sequential(nn.Linear(3, 3), nn.Dropout(1.0), nn.Linear(3, 2)), id="all dropped"
        ),
        pytest.param(nn.Sequential(Louder(3, 3), nn.Linear(3, 2)), id="overridden"),
        pytest.param(hooked(), id="hooked"),
        pytest.param(frozen(), id="frozen"),
        pytest.param(shared(), id="shared"),
    ],
)
def test_others_are_left_alone(network: nn.Module) -> None:
    assert not can_batch([network])


def test_members_are_of_one_architecture() -> None:
    assert not can_batch([mlp(4, 3), mlp(5, 3)])
