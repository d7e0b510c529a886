"""Networks of fused kernels learn what torch's layers learn; the interpreter runs them here."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("triton", reason="needs Triton")

from teeter.bench.experiments import experiment
from teeter.bench.fused_networks.program import FusedNetworks, can_fuse, make_program
from teeter.models.networks import he_normal, k_cnn, mlp, s_cnn
from teeter.training import FitJob, TrainingConfig, batched_network
from teeter.training.batched import fit_batched
from teeter.training.config import make_optimizer

ROWS = 5


def small_chain(seed: int, dropout: float = 0.0) -> nn.Sequential:
    """Return a K-CNN with fewer channels: two stages, one of them with two convolutions."""
    chain = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(dropout),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 2 * 2, 24),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(24, 4),
    )

    return he_normal(chain, seed)


def make_rows() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(2, ROWS, 3, 8, 8, generator=generator)
    return inputs, torch.randint(4, (2, ROWS), generator=generator)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["rmsprop", "adam", "nesterov"])
def test_a_step_is_that_of_torch(optimizer: str) -> None:
    inputs, labels = make_rows()
    config = TrainingConfig(optimizer=optimizer, learning_rate=0.01, alpha=0.9, epsilon=1e-3)
    networks = [small_chain(seed) for seed in range(2)]
    references = copy.deepcopy(networks)
    fused = FusedNetworks(networks, (3, 8, 8), [1, 2], config, dtype=torch.float32)
    rows = torch.tensor([[4, 1, 0], [2, 3, 2]])
    shares = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])

    fused_losses = []
    for _ in range(2):
        batch_labels = labels.gather(1, rows)
        fused_losses.append(fused.step(inputs, rows, batch_labels, shares))
    fused.write_back(fused.parameters)

    for member, reference in enumerate(references):
        torch_optimizer = make_optimizer(reference.parameters(), config)
        for number in range(2):
            logits = reference(inputs[member, rows[member]])
            row_losses = nn.functional.cross_entropy(
                logits, labels[member, rows[member]], reduction="none"
            )
            loss = (row_losses * shares[member]).sum()
            torch_optimizer.zero_grad()
            loss.backward()
            torch_optimizer.step()
            torch.testing.assert_close(
                fused_losses[number][member], loss.detach(), rtol=1e-4, atol=1e-4
            )
        for expected, learned in zip(
            reference.parameters(), networks[member].parameters(), strict=True
        ):
            torch.testing.assert_close(learned, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_shared_rows_give_the_logits_of_each_network() -> None:
    inputs, _ = make_rows()
    networks = [small_chain(seed, dropout=0.5).eval() for seed in range(2)]
    fused = FusedNetworks(networks, (3, 8, 8), [1, 2], TrainingConfig(), dtype=torch.float32)
    logits = fused.shared_logits(inputs[0])
    for network, member_logits in zip(networks, logits, strict=True):
        torch.testing.assert_close(member_logits, network(inputs[0]), rtol=1e-4, atol=1e-5)


def test_writing_back_untrained_weights_changes_nothing() -> None:
    networks = [k_cnn(3, 8, 4, seed=seed) for seed in range(2)]
    before = copy.deepcopy(networks)
    fused = FusedNetworks(networks, (3, 8, 8), [1, 2], TrainingConfig())
    fused.write_back(fused.parameters)
    for network, original in zip(networks, before, strict=True):
        for values, expected in zip(network.parameters(), original.parameters(), strict=True):
            assert torch.equal(values, expected)


@pytest.mark.slow
def test_a_member_learns_the_same_with_dropout_whatever_the_others_are() -> None:
    inputs, labels = make_rows()
    rows = torch.arange(ROWS).repeat(2, 1)
    shares = torch.full((2, ROWS), 1 / ROWS)
    config = TrainingConfig(optimizer="rmsprop")

    def learn(members: list[int]) -> Tensor:
        networks = [small_chain(seed, dropout=0.3) for seed in members]
        seeds = [10 + seed for seed in members]
        fused = FusedNetworks(networks, (3, 8, 8), seeds, config, dtype=torch.float32)
        for _ in range(2):
            fused.step(inputs[members], rows[members], labels[members], shares[members])
        fused.write_back(fused.parameters)
        return nn.utils.parameters_to_vector(networks[-1].parameters()).detach()

    torch.testing.assert_close(learn([0, 1]), learn([1]), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_batched_training_by_fused_kernels_keeps_the_best_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inputs, labels = make_rows()

    def make_precise(networks: Any, config: Any, dropout_seeds: Any, rows: Tensor) -> FusedNetworks:
        # The interpreter has no bfloat16.
        return FusedNetworks(networks, rows.shape[1:], dropout_seeds, config, dtype=torch.float32)

    monkeypatch.setattr(batched_network, "_program_makers", [make_precise])
    jobs = [
        FitJob(small_chain(seed), inputs[seed], labels[seed], seed, (inputs[0], labels[0]))
        for seed in range(2)
    ]

    results = fit_batched(jobs, TrainingConfig(epochs=2, batch_size=3, milestones=(1,), decay=0.5))

    for result in results:
        assert result.error is None
        is_correct = result.model(inputs[0]).argmax(dim=1) == labels[0]
        assert result.validation_accuracy == pytest.approx(float(is_correct.double().mean()))


def test_experiments_register_them_once() -> None:
    assert experiment.make_program is make_program
    batched_network.register_program(make_program)
    assert batched_network._program_makers.count(make_program) == 1
    cpu_rows = torch.zeros(2, 3, 8, 8)
    assert make_program([small_chain(0)], TrainingConfig(), [0], cpu_rows) is None


def test_only_chains_that_the_kernels_know_are_fused() -> None:
    assert can_fuse(s_cnn(1, 28, 10), (1, 28, 28))
    assert can_fuse(k_cnn(3, 32, 10), (3, 32, 32))
    assert not can_fuse(mlp(16, 3), (16,))

    wide = nn.Sequential(nn.Conv2d(1, 24, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24 * 36, 2))
    assert not can_fuse(wide, (1, 8, 8))  # 24 channels do not fill a tile
    odd = s_cnn(1, 9, 2)
    assert not can_fuse(odd, (1, 9, 9))  # the pool leaves a column out
    strided = nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 9, 2)
    )
    assert not can_fuse(strided, (1, 8, 8))
