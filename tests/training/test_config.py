"""Settings of training, batches in random order, and a way of training of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from example_learners import CLASSES, ROWS, make_fitted_learner, network
from teeter import Learner, TrainingConfig
from teeter.errors import InputError, TrainingError
from teeter.training import FitJob, FitResult, Trainer
from teeter.training import config as rules


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"optimizer": "lion"},
            "No optimizer is called 'lion': choose adam, adamw, rmsprop, nesterov or sgd",
        ),
        ({"schedule": "linear"}, "No schedule is called 'linear': choose steps or cosine"),
        ({"schedule": "cosine", "milestones": [3]}, "A cosine schedule has no milestones"),
        ({"learning_rate": 0}, "learning_rate is 0: it must be positive"),
        ({"learning_rate": float("nan")}, "learning_rate is nan: it must be positive"),
        ({"epochs": 0}, "epochs is 0: it must be positive"),
        ({"epochs": 2.5}, "epochs is 2.5: it must be a whole number"),
        ({"batch_size": -1}, "batch_size is -1: it must be positive"),
        ({"decay": 0}, "decay is 0: it must be positive"),
        ({"alpha": 1}, "alpha is 1: it must be 0 or more, and less than 1"),
        ({"momentum": -0.1}, "momentum is -0.1: it must be 0 or more, and less than 1"),
        ({"epsilon": 0}, "epsilon is 0: it must be positive"),
        ({"weight_decay": -0.1}, "weight_decay is -0.1: it must be 0 or more"),
    ],
)
def test_settings_that_train_nothing_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        TrainingConfig(**settings)


def test_milestones_are_the_same_from_a_list() -> None:
    assert TrainingConfig(milestones=[3, 5]) == TrainingConfig(milestones=(3, 5))


@pytest.mark.parametrize(
    ("config", "make_schedule"),
    [
        (
            TrainingConfig(schedule="cosine", epochs=9),
            lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 9),
        ),
        (
            TrainingConfig(milestones=(2, 5), decay=0.3, epochs=9),
            lambda optimizer: torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 5], 0.3),
        ),
    ],
    ids=["cosine", "steps"],
)
def test_the_learning_rate_falls_as_torch_s_schedules_do(
    config: TrainingConfig, make_schedule: Any
) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    schedule = make_schedule(optimizer)
    rate = 0.1
    for epoch in range(1, 10):
        optimizer.step()
        schedule.step()
        rate *= config.rate_factor(epoch)
        assert rate == pytest.approx(optimizer.param_groups[0]["lr"], abs=1e-12)


def test_every_row_is_seen_once_an_epoch() -> None:
    for rows in (1, 2, 15, 16, 17, 33):
        seen = list(rules.shuffled_batches(rows, 16, torch.Generator().manual_seed(0)))
        assert sorted(torch.cat(seen).tolist()) == list(range(rows))
        assert all(2 <= len(batch) <= 17 for batch in seen) or rows == 1


class Nudged(Trainer):
    """Moves every weight at random and notes what it was given."""

    def __init__(self) -> None:
        self.jobs: list[FitJob] = []

    def train(self, job: FitJob) -> FitResult:
        self.jobs.append(job)
        job.model.train()
        with torch.no_grad():
            for parameter in job.model.parameters():
                parameter.add_(torch.randn_like(parameter))
        return FitResult(job.model)


def weights(learner: Learner) -> Tensor:
    return nn.utils.parameters_to_vector(learner.models[0].parameters()).detach()


def test_a_training_of_one_s_own_gets_the_labelled_rows_and_draws_by_the_seed(
    tmp_path: Path,
) -> None:
    training = Nudged()
    learner = make_fitted_learner(training=training)
    assert len(training.jobs[0].inputs) == 12
    assert training.jobs[0].labels.tolist() == CLASSES[:12].tolist()
    assert not learner.models[0].training
    assert learner.history[-1].seconds["training"] > 0

    before = torch.get_rng_state()
    assert torch.equal(weights(make_fitted_learner(training=Nudged())), weights(learner))
    assert torch.equal(torch.get_rng_state(), before)

    learner.save(tmp_path / "learner")
    loaded = Learner.load(tmp_path / "learner", network, ROWS, training=training, device="cpu")
    assert (loaded.ask(4) == learner.ask(4)).all()


def test_the_refusal_of_a_training_of_one_s_own_is_passed_on() -> None:
    class RefusingTrainer(Trainer):
        def train(self, job: FitJob) -> FitResult:
            raise TrainingError("Not today.")

    with pytest.raises(TrainingError, match="Not today"):
        make_fitted_learner(training=RefusingTrainer())


def test_constants_reach_the_optimizer() -> None:
    weight = torch.zeros(2, requires_grad=True)
    rmsprop = TrainingConfig(optimizer="rmsprop", alpha=0.9, epsilon=1e-7)
    group = rules.make_optimizer([weight], rmsprop).param_groups[0]
    assert (group["alpha"], group["eps"]) == (0.9, 1e-7)

    adam = rules.make_optimizer([weight], TrainingConfig(epsilon=1e-7)).param_groups[0]
    assert adam["eps"] == 1e-7

    nesterov = TrainingConfig(optimizer="nesterov", momentum=0.8)
    assert rules.make_optimizer([weight], nesterov).param_groups[0]["momentum"] == 0.8
