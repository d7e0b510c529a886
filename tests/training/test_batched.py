"""Training in stacks: a member learns what it would learn alone, and one that fails leaves the
others be.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from teeter import TrainingConfig
from teeter.base.seeds import stream
from teeter.errors import TrainingError
from teeter.models.networks import mlp, s_cnn
from teeter.training import FitJob, FitResult, fit_jobs
from teeter.training.batched import fit_batched, group_jobs
from teeter.training.batched_network import BatchedNetworks, DropoutMasks
from teeter.training.config import balanced_row_weights
from teeter.training.loop import _fit_network

gpu = pytest.mark.gpu
DEVICES = ["cpu", pytest.param("cuda", marks=gpu)]
KINDS: dict[str, Any] = {
    "mlp": (lambda seed: mlp(6, 3, seed=seed, hidden=16), (6,)),
    "s-cnn": (lambda seed: s_cnn(1, 8, 3, seed=seed), (1, 8, 8)),
}


def make_job(
    kind: str, seed: int, device: str = "cpu", dtype: torch.dtype = torch.float32, rows: int = 70
) -> FitJob:
    make, shape = KINDS[kind]
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, *shape, generator=generator)
    labels = torch.randint(0, 3, (rows,), generator=generator)
    inputs.flatten(1)[:, 0] += 2 * labels
    return FitJob(make(seed).to(device=device, dtype=dtype), inputs.to(dtype), labels, seed)


def weights(trained: FitJob | FitResult) -> Tensor:
    return nn.utils.parameters_to_vector(trained.model.parameters()).detach().cpu()


def train_plainly(job: FitJob, training: TrainingConfig, optimizer: Any) -> None:
    """Train a network as a textbook would, with the masks that its seed draws."""
    network = job.model
    masks = DropoutMasks(
        BatchedNetworks([network]),
        [stream(job.seed, "dropout").initial_seed()],
        training.batch_size,
        job.inputs,
    )

    order = stream(job.seed, "order")
    torch_optimizer = optimizer(network.parameters())

    for _ in range(training.epochs):
        for rows in torch.randperm(len(job.labels), generator=order).split(training.batch_size):
            masks.advance(len(rows))
            keep_masks = masks.current(len(rows))
            x = job.inputs[rows]
            for layer in network:
                x = x * next(keep_masks)[0] if isinstance(layer, nn.Dropout) else layer(x)

            torch_optimizer.zero_grad()
            nn.functional.cross_entropy(x, job.labels[rows]).backward()
            torch_optimizer.step()


OPTIMIZERS: dict[str, Any] = {
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=1e-3),
    "nesterov": lambda parameters: torch.optim.SGD(
        parameters, lr=1e-3, momentum=0.9, nesterov=True
    ),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_stack_of_one_is_plain_training(kind: str, optimizer: Any) -> None:
    training = TrainingConfig(epochs=7, batch_size=32, optimizer=optimizer)
    stacked, plain = (make_job(kind, 3, dtype=torch.float64) for _ in range(2))
    fit_batched([stacked], training)
    train_plainly(plain, training, OPTIMIZERS[optimizer])
    torch.testing.assert_close(weights(stacked), weights(plain), rtol=0, atol=1e-9)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_member_learns_what_it_would_learn_alone(kind: str, device: str) -> None:
    # 21 steps, the last of each epoch a small one.
    training = TrainingConfig(epochs=7, batch_size=32, optimizer="adam")
    # Where gradients are all rounding, Adam makes much of it.
    dtype = torch.float32 if kind == "mlp" else torch.float64

    together = [make_job(kind, seed, device, dtype) for seed in range(5)]
    results = fit_batched(together, training)

    for seed in (0, 3):
        (alone,) = fit_batched([make_job(kind, seed, device, dtype)], training)
        torch.testing.assert_close(weights(results[seed]), weights(alone), rtol=0, atol=1e-5)
        assert results[seed].losses == pytest.approx(alone.losses, abs=1e-5)

    assert not torch.allclose(weights(together[0]), weights(together[1]))


@pytest.mark.parametrize(
    "training",
    [
        TrainingConfig(epochs=6, batch_size=32, optimizer="adamw", weight_decay=0.1),
        TrainingConfig(epochs=6, batch_size=32, schedule="cosine"),
        TrainingConfig(epochs=6, batch_size=32, milestones=(2, 4), decay=0.1),
    ],
    ids=["adamw", "cosine", "steps"],
)
def test_a_batch_of_one_learns_what_the_loop_for_one_network_teaches(
    training: TrainingConfig,
) -> None:
    batched, single = (make_job("mlp", 3, dtype=torch.float64) for _ in range(2))
    # Without dropout, whose masks the two draw from different streams.
    for job in (batched, single):
        for layer in job.model:
            if isinstance(layer, nn.Dropout):
                layer.p = 0.0
    fit_batched([batched], training)
    before = weights(single)
    _fit_network(single, training)
    torch.testing.assert_close(weights(batched), weights(single), rtol=0, atol=1e-9)
    assert not torch.allclose(weights(single), before)


@gpu
@pytest.mark.parametrize("kind", KINDS)
def test_a_captured_stack_learns_what_a_plain_one_learns(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = TrainingConfig(epochs=12, batch_size=32)
    captured, plain = (
        [make_job(kind, seed, "cuda", torch.float64) for seed in range(3)] for _ in range(2)
    )
    fit_batched(captured, training)
    monkeypatch.setattr("teeter.training.batched._MIN_STEPS_TO_CAPTURE", 10**9)
    fit_batched(plain, training)
    for job, plain_job in zip(captured, plain, strict=True):
        torch.testing.assert_close(weights(job), weights(plain_job), rtol=0, atol=1e-6)


@gpu
@pytest.mark.parametrize("kind", KINDS)
def test_a_captured_stack_repeats_itself(kind: str) -> None:
    runs = []
    for _ in range(2):
        jobs = [make_job(kind, seed, "cuda") for seed in range(4)]
        fit_batched(jobs, TrainingConfig(epochs=10, batch_size=32))
        runs.append(torch.stack([weights(job) for job in jobs]))
    assert torch.equal(*runs)


@pytest.mark.parametrize("device", DEVICES)
def test_the_best_epoch_of_each_member_is_kept(device: str) -> None:
    training = TrainingConfig(epochs=12, batch_size=32, learning_rate=0.03)
    held = make_job("mlp", 99, rows=60)
    together = [
        replace(make_job("mlp", seed, device), validation=(held.inputs, held.labels))
        for seed in range(4)
    ]

    results = fit_batched(together, training)

    for job, result in zip(together, results, strict=True):
        right = float(
            (result.model(held.inputs.to(device)).argmax(dim=1).cpu() == held.labels)
            .double()
            .mean()
        )
        assert result.validation_accuracy == pytest.approx(right)
        assert result.best_epoch is not None

        again = make_job("mlp", job.seed, device)
        fit_batched(
            [again], TrainingConfig(epochs=result.best_epoch + 1, batch_size=32, learning_rate=0.03)
        )
        torch.testing.assert_close(weights(result), weights(again), rtol=0, atol=1e-4)

    assert len({result.best_epoch for result in results}) > 1
    assert results[0].seconds["validation"] > 0


@pytest.mark.parametrize("hooked", [False, True], ids=["stack", "plain"])
def test_classes_count_alike_if_weighted(hooked: bool) -> None:
    labels = torch.tensor([0] * 60 + [1] * 6 + [2] * 4)
    assert balanced_row_weights(labels).mean().item() == pytest.approx(1)
    job = replace(make_job("mlp", 0, dtype=torch.float64), labels=labels)
    if hooked:  # such a network is no chain that can be stacked
        job.model[1].register_forward_hook(lambda *_: None)
    network = copy.deepcopy(job.model)
    inputs = job.inputs

    training = TrainingConfig(
        epochs=1, batch_size=70, optimizer="sgd", learning_rate=0.1, class_weighted=True
    )

    for module in (job.model, network):
        module[3].p = module[6].p = 0.0
    (result,) = fit_jobs([job], training)
    assert result.error is None

    by_class = [
        nn.functional.cross_entropy(network(inputs[labels == k]), labels[labels == k])
        for k in range(3)
    ]
    (sum(by_class) / 3).backward()
    for ours, start in zip(job.model.parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(ours, start - 0.1 * start.grad)


def test_lessons_of_one_kind_are_one_stack() -> None:
    mlps = [make_job("mlp", seed) for seed in range(3)]
    longer = make_job("mlp", 9, rows=80)
    other = FitJob(nn.Linear(6, 3), mlps[0].inputs, mlps[0].labels, 0)
    together, alone = group_jobs([mlps[0], other, longer, *mlps[1:]])
    assert [[job.seed for job in stack] for stack in together] == [[0, 1, 2], [9]]
    assert alone == [other]


def test_convolutions_go_one_by_one_on_a_cpu() -> None:
    together, alone = group_jobs([make_job("s-cnn", seed) for seed in range(3)])
    assert [len(stack) for stack in together] == [1, 1, 1]
    assert alone == []


def test_a_stack_is_cut_into_even_parts_where_it_is_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lessons = [make_job("mlp", seed) for seed in range(7)]
    each = (
        4 * sum(parameter.nbytes for parameter in lessons[0].model.parameters())
        + lessons[0].inputs.nbytes
    )
    monkeypatch.setattr("teeter.training.batched._MEMORY_LIMIT", {"cpu": 5 * each})
    assert [len(stack) for stack in group_jobs(lessons)[0]] == [4, 3]


def test_one_that_diverges_leaves_the_others_be() -> None:
    training = TrainingConfig(epochs=3, batch_size=32)
    jobs = [make_job("mlp", seed) for seed in range(3)]
    jobs[1].inputs[4, 2] = torch.nan

    results = fit_jobs(jobs, training)
    assert [result.error is None for result in results] == [True, False, True]
    assert (
        str(results[1].error)
        == "1 of 70 labelled rows contain NaN or infinite numbers: fix or remove them."
    )

    alone = make_job("mlp", 2)
    fit_batched([alone], training)
    torch.testing.assert_close(weights(results[2]), weights(alone), rtol=0, atol=1e-5)


def test_labels_beyond_the_last_layer_are_reported() -> None:
    job = make_job("mlp", 0)
    job.labels[3] = 3
    (result,) = fit_jobs([job], TrainingConfig(epochs=1))
    assert "returns 3 classes, but the labels have 4" in str(result.error)


def test_the_global_stream_is_left_alone() -> None:
    before = torch.get_rng_state()
    fit_batched([make_job("mlp", seed) for seed in range(2)], TrainingConfig(epochs=2))
    assert torch.equal(torch.get_rng_state(), before)


def test_networks_of_different_precision_are_stacks_of_their_own() -> None:
    single = make_job("mlp", 1)
    double = make_job("mlp", 2, dtype=torch.float64)
    together, alone = group_jobs([single, double])
    assert [len(stack) for stack in together] == [1, 1]
    assert alone == []


def test_rows_that_a_chain_does_not_answer_one_by_one_are_reported() -> None:
    inputs = torch.zeros(20, 5, 4)
    labels = torch.arange(20) % 3
    with pytest.raises(
        TrainingError, match=r"Sequential returns \(20, 5, 3\): to be trained, it must return"
    ):
        fit_batched([FitJob(nn.Sequential(nn.Linear(4, 3)), inputs, labels, 0)], TrainingConfig())
