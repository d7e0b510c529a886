"""Training: it learns, it is the textbook's, it repeats itself, and it says what went wrong."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from reference.training import adam
from teeter import Learner, TrainingConfig
from teeter.base.seeds import seeded_global_rng
from teeter.errors import TrainingError
from teeter.models.networks import mlp
from teeter.training import FitJob, FitResult, evaluate_logits, fit_jobs
from teeter.training import config as rules

ROWS = torch.randn(90, 4, generator=torch.Generator().manual_seed(0)) + 4 * torch.eye(3, 4).repeat(
    30, 1
)
LABELS = torch.arange(3).repeat(30)
QUICK = TrainingConfig(epochs=4, batch_size=16)


def train(
    setting: TrainingConfig = QUICK,
    network: Any = None,
    inputs: Any = ROWS,
    labels: Tensor = LABELS,
    **options: Any,
) -> FitResult:
    network = mlp(4, 3, seed=0, hidden=16) if network is None else network
    (result,) = fit_jobs([FitJob(network, inputs, labels, **{"seed": 0, **options})], setting)
    if result.error is not None:
        raise result.error
    return result


def weights(result: FitResult) -> Tensor:
    return nn.utils.parameters_to_vector(result.model.parameters()).detach()


def accuracy(result: FitResult) -> float:
    return evaluate_logits(result.model(ROWS).detach(), LABELS).accuracy


@pytest.mark.parametrize(
    ("optimizer", "rate"), [("adam", 1e-2), ("rmsprop", 1e-2), ("nesterov", 1e-2), ("sgd", 1e-1)]
)
def test_every_optimizer_learns(optimizer: Any, rate: float) -> None:
    result = train(
        TrainingConfig(optimizer=optimizer, learning_rate=rate, epochs=30, batch_size=16)
    )
    assert accuracy(result) > 0.95
    assert result.losses[-1] < result.losses[0] / 2
    assert len(result.losses) == 30
    assert not result.model.training


def test_optimizers_are_different() -> None:
    weights_by_optimizer = {
        name: weights(train(TrainingConfig(optimizer=name, epochs=1)))
        for name in ("adam", "rmsprop", "nesterov", "sgd")
    }
    assert len({tuple(vector.tolist()) for vector in weights_by_optimizer.values()}) == 4


@pytest.mark.parametrize("rows", [90, 81, 80, 13, 1])
@pytest.mark.parametrize("milestones", [(), (2, 5)])
def test_training_is_the_textbooks(rows: int, milestones: tuple[int, ...]) -> None:
    with seeded_global_rng(0, torch.device("cpu")):
        network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    start = [parameter.detach().numpy().copy() for parameter in network.parameters()]

    setting = TrainingConfig(
        epochs=8, batch_size=16, learning_rate=0.01, decay=0.1, milestones=milestones
    )
    result = train(setting, network, ROWS[:rows], LABELS[:rows], seed=11)

    rates = [
        0.01 * 0.1 ** sum(epoch >= milestone for milestone in milestones) for epoch in range(8)
    ]
    expected, losses = adam(
        start,
        ROWS[:rows].double().numpy(),
        LABELS[:rows].numpy(),
        seed=11,
        epochs=8,
        batch_size=16,
        rates=rates,
    )

    for parameter, value in zip(network.parameters(), expected, strict=True):
        np.testing.assert_allclose(parameter.detach(), value, atol=1e-6)
    np.testing.assert_allclose(result.losses, losses, atol=1e-6)


def test_milestones_change_what_follows_them_and_nothing_before() -> None:
    plain = train()
    falling = train(TrainingConfig(epochs=4, batch_size=16, decay=0.01, milestones=(2,)))
    assert plain.losses[:2] == falling.losses[:2]
    assert plain.losses[2] != falling.losses[2]


def test_weight_decay_makes_weights_smaller() -> None:
    assert (
        weights(train(TrainingConfig(epochs=9, weight_decay=0.5))).norm()
        < weights(train(TrainingConfig(epochs=9))).norm()
    )


def test_the_same_seed_trains_the_same_network_bit_for_bit() -> None:
    first = train(seed=1)
    torch.rand(1)
    again = train(seed=1)
    assert torch.equal(weights(first), weights(again))
    assert first.losses == again.losses
    assert not torch.equal(weights(first), weights(train(seed=2)))


def test_the_seed_decides_dropout_and_order_apart() -> None:
    full_batches = TrainingConfig(epochs=2, batch_size=1000)
    drops = [weights(train(full_batches, seed=seed)) for seed in (1, 2)]
    assert not torch.allclose(*drops)
    steady = [
        weights(train(full_batches, mlp(4, 3, hidden=16, dropout=0.0), seed=seed))
        for seed in (1, 2)
    ]
    torch.testing.assert_close(*steady)


def test_the_global_stream_goes_on_undisturbed() -> None:
    before = torch.get_rng_state()
    train()
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("large", [1, 10**12])
def test_small_networks_train_on_one_thread_and_the_number_is_put_back(
    large: int, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.setattr(rules, "_MIN_WORK_FOR_THREADS", large)
    torch.set_num_threads(2)
    seen: set[int] = set()
    network = mlp(4, 3)
    network.register_forward_hook(lambda *_: seen.add(torch.get_num_threads()))
    one_step = TrainingConfig(epochs=1, batch_size=len(ROWS))
    train(one_step, network)
    assert seen == {1 if large > 1 else 2}
    with pytest.raises(TrainingError):
        train(one_step, network, ROWS * float("nan"))
    assert torch.get_num_threads() == 2


def test_the_best_epoch_on_the_validation_rows_is_kept() -> None:
    network = mlp(4, 3, seed=0, hidden=16)
    seen: list[tuple[float, Tensor]] = []

    def look(module: nn.Module, inputs: tuple[Tensor], answer: Tensor) -> None:
        if not module.training and len(answer) == len(LABELS):
            right = float((answer.argmax(dim=1) == LABELS).double().mean())
            seen.append((right, nn.utils.parameters_to_vector(module.parameters()).detach()))

    network.register_forward_hook(look)
    wild = TrainingConfig(epochs=12, batch_size=16, learning_rate=0.5, optimizer="sgd")
    result = train(wild, network, validation=(ROWS, LABELS))
    scores = [right for right, _ in seen]
    assert len(scores) == 12
    assert result.best_epoch == scores.index(max(scores)) != 11
    assert torch.equal(weights(result), seen[result.best_epoch][1])
    assert not result.model.training


def test_looking_at_validation_rows_changes_no_step() -> None:
    with_rows = train(validation=(ROWS.numpy(), LABELS))
    without = train()
    assert with_rows.losses == without.losses
    assert without.best_epoch is None


class LeftAndRight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        with seeded_global_rng(0, torch.device("cpu")):
            self.head = nn.Linear(4, 3)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.head(left + right)


@pytest.mark.parametrize(
    "inputs",
    [
        ROWS.numpy(),
        ROWS.numpy().astype(np.float64),
        ROWS.numpy().tolist(),
        TensorDataset(ROWS, LABELS + 7),
    ],
    ids=["array", "float64", "list", "dataset"],
)
def test_data_of_every_kind_train_the_same_network(inputs: Any) -> None:
    result = train(inputs=inputs, validation=(inputs, LABELS))
    assert torch.equal(weights(result), weights(train(validation=(ROWS, LABELS))))


def test_data_of_several_parts_are_learned_together() -> None:
    inputs = {"left": ROWS.numpy(), "right": torch.zeros_like(ROWS)}
    setting = TrainingConfig(epochs=20, batch_size=16, learning_rate=0.05)
    result = train(setting, LeftAndRight(), inputs, validation=(inputs, LABELS))
    assert (
        evaluate_logits(result.model(ROWS, torch.zeros_like(ROWS)).detach(), LABELS).accuracy > 0.9
    )


def normalised() -> nn.Sequential:
    with seeded_global_rng(0, torch.device("cpu")):
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


@pytest.mark.parametrize("rows", [17, 33, 2])
def test_a_single_row_left_over_does_not_trouble_batch_norm(rows: int) -> None:
    result = train(QUICK, normalised(), ROWS[:rows], LABELS[:rows])
    assert torch.isfinite(weights(result)).all()


class Pair(nn.Linear):
    def forward(self, input: Tensor) -> Any:
        return super().forward(input), input


@pytest.mark.parametrize(
    ("network", "rows", "labels", "message"),
    [
        (
            None,
            ROWS * float("nan"),
            LABELS,
            "90 of 90 labelled rows contain NaN or infinite numbers",
        ),
        (
            normalised(),
            ROWS[:1],
            LABELS[:1],
            "Batch normalization cannot train on a batch of one row: label more rows",
        ),
        (
            mlp(4, 2),
            ROWS,
            LABELS,
            "Sequential returns 2 classes, but the labels have 3: make its last layer wider",
        ),
        (
            nn.Linear(4, 1),
            ROWS,
            LABELS,
            r"Linear returns \(16, 1\): to be trained, it must return \(rows, classes\)",
        ),
        (nn.Linear(4, 3), ROWS[:, None], LABELS, r"Linear returns \(16, 1, 3\): to be trained"),
        (Pair(4, 3), ROWS, LABELS, "Pair returns tuple: to be trained"),
        (nn.Flatten(), ROWS, LABELS, "Flatten has no parameters, so there is nothing to train"),
        (
            nn.Linear(4, 3).requires_grad_(False),
            ROWS,
            LABELS,
            "All parameters of Linear are frozen, so there is nothing to train",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_with_the_reason(
    network: Any, rows: Any, labels: Tensor, message: str
) -> None:
    with pytest.raises(TrainingError, match=message):
        train(QUICK, network, rows, labels)


def test_a_loss_that_explodes_is_reported_with_its_rate() -> None:
    with pytest.raises(
        TrainingError,
        match=r"The loss became (nan|inf) in epoch \d+: lower the learning rate from 1e\+18",
    ):
        train(TrainingConfig(optimizer="sgd", learning_rate=1e18, epochs=50))


def test_an_error_of_the_network_itself_is_passed_on() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        train(QUICK, mlp(5, 3))


def test_results_are_in_the_order_of_the_jobs() -> None:
    batched = [FitJob(mlp(4, 3, seed=k, hidden=16), ROWS, LABELS, seed=k) for k in range(2)]
    single = FitJob(LeftAndRight(), {"left": ROWS, "right": ROWS}, LABELS, seed=2)
    jobs = [batched[0], single, batched[1]]
    results = fit_jobs(jobs, QUICK)
    assert [result.model for result in results] == [job.model for job in jobs]
    assert [len(result.losses) for result in results] == [4, 4, 4]
    assert all(result.seconds["training"] > 0 for result in results)
    alone = train(QUICK, mlp(4, 3, seed=1, hidden=16), seed=1)
    torch.testing.assert_close(weights(results[2]), weights(alone), rtol=0, atol=1e-6)


def test_a_job_is_not_changed_by_training_it() -> None:
    job = FitJob(mlp(4, 3, seed=0, hidden=16), ROWS, LABELS, seed=0)
    with pytest.raises(FrozenInstanceError):
        job.seed = 1  # type: ignore[misc]
    assert fit_jobs([], QUICK) == []


def test_estimators_are_fitted() -> None:
    result = train(QUICK, LogisticRegression(), ROWS.numpy())
    assert result.model.score(ROWS.numpy(), LABELS.numpy()) > 0.9
    assert result.losses == []


def test_the_error_for_a_final_softmax_says_to_leave_it_out() -> None:
    network = nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=1))
    learner = Learner(lambda seed: network, np.zeros((6, 4), dtype=np.float32), classes=3)
    learner.tell([0, 1, 2], [0, 1, 2])
    with pytest.raises(
        TrainingError, match="Sequential returns probabilities, but training needs logits"
    ):
        learner.fit()


@pytest.mark.parametrize(
    "wrap",
    [nn.Sequential, lambda layer: nn.Sequential(nn.Sequential(layer))],
    ids=["stack", "alone"],
)
def test_rows_that_are_not_numbers_are_reported_and_counted(wrap: Any) -> None:
    rows = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    rows[[3, 7], 1] = torch.tensor([float("nan"), float("inf")])
    learner = Learner(lambda seed: wrap(nn.Linear(4, 3)), rows, "random", classes=3, device="cpu")
    learner.tell(range(10), [k % 3 for k in range(10)])
    with pytest.raises(
        TrainingError,
        match="2 of 10 labelled rows contain NaN or infinite numbers: fix or remove them",
    ):
        learner.fit()
