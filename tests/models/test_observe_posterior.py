"""Dropout passes have the statistics of dropout, and ensembles are stacked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import teeter
from teeter import Outputs
from teeter.base.seeds import seeded_global_rng
from teeter.errors import InputError
from teeter.models.networks import mlp
from teeter.models.observe import dropout_logits, stacked_logits

ROWS = torch.randn(150, 6, generator=torch.Generator().manual_seed(0))


class Normalised(nn.Module):
    """Batch norm and both kinds of dropout layer, under a softmax."""

    def __init__(self) -> None:
        super().__init__()
        with seeded_global_rng(1, torch.device("cpu")):
            self.filter = nn.Conv1d(1, 4, 3)
            self.norm = nn.BatchNorm1d(4)
            self.head = nn.Linear(16, 3)
        self.channels = nn.Dropout1d(0.2)
        self.units = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.channels(self.norm(self.filter(x[:, None])).relu())
        return self.head(self.units(hidden.flatten(1))).softmax(dim=1)


def linear_after_dropout(p: float) -> nn.Sequential:
    with seeded_global_rng(2, torch.device("cpu")):
        return nn.Sequential(nn.Dropout(p), nn.Linear(6, 3))


def test_every_pass_tells_of_every_row() -> None:
    passes = dropout_logits(Normalised(), ROWS, passes=7)
    assert passes.shape == (7, 150, 3)
    assert not passes.requires_grad


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_the_variance_over_passes_is_that_of_dropout(p: float) -> None:
    model = linear_after_dropout(p)
    rows = ROWS[:70]
    passes = dropout_logits(model, rows, passes=4000).double()
    weight = model[1].weight.detach()
    expected = p / (1 - p) * ((weight[None] * rows[:, None]) ** 2).sum(dim=2).double()
    ratio = passes.var(dim=0) / expected
    assert abs(float(ratio.mean()) - 1) < 0.02
    assert ratio.min() > 0.75
    assert ratio.max() < 1.25
    off = (passes.mean(dim=0) - model[1](rows).detach()).abs() / (expected / 4000).sqrt()
    assert off.max() < 5


def test_rows_lose_units_of_their_own() -> None:
    same = ROWS[:1].repeat(130, 1)
    passes = dropout_logits(linear_after_dropout(0.5), same, passes=400)[:, :, 0]
    together = torch.corrcoef(passes[:, [0, 1, 63, 64, 128]].T) - torch.eye(5)
    assert together.abs().max() < 0.25


def test_passes_differ_and_are_near_the_models_own_prediction() -> None:
    model = mlp(6, 3, dropout=0.1)
    passes = dropout_logits(model, ROWS, passes=200)
    assert not torch.equal(passes[0], passes[1])
    sure = model.eval()(ROWS).softmax(dim=1).detach()
    assert (passes.softmax(dim=2).mean(dim=0) - sure).abs().max() < 0.1


def test_the_seed_decides() -> None:
    model = Normalised()
    first = dropout_logits(model, ROWS, passes=3, seed=1)
    assert torch.equal(first, dropout_logits(model, ROWS, passes=3, seed=1))
    assert not torch.equal(first, dropout_logits(model, ROWS, passes=3, seed=2))


@pytest.mark.parametrize("batch_size", [1, 30, 1000])
def test_the_batch_size_does_not_change_the_passes(batch_size: int) -> None:
    model = Normalised()
    outputs = teeter.observe(
        model, ROWS, ("dropout_logits",), batch_size=batch_size, passes=3, seed=5
    )
    assert torch.equal(outputs.posterior_logits, dropout_logits(model, ROWS, passes=3, seed=5))


@pytest.mark.parametrize(
    "data", [ROWS.numpy(), ROWS.numpy().tolist(), TensorDataset(ROWS, torch.zeros(150))]
)
def test_the_kind_of_data_does_not_change_the_passes(data: Any) -> None:
    model = Normalised()
    assert torch.equal(dropout_logits(model, data, passes=3), dropout_logits(model, ROWS, passes=3))


class TwoInputsWithDropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout()
        self.head = nn.Linear(6, 3)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.head(self.dropout(left + right))


def test_data_of_several_parts_are_repeated_together() -> None:
    passes = dropout_logits(TwoInputsWithDropout(), {"left": ROWS, "right": ROWS.numpy()}, passes=3)
    assert passes.shape == (3, 150, 3)


def test_a_small_memory_makes_fewer_passes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("teeter.models.observe._MAX_INPUT_NUMBERS", 64 * 6 * 2)
    passes = dropout_logits(linear_after_dropout(0.5), ROWS, passes=5)
    assert passes.shape == (5, 150, 3)
    assert len({tuple(logits.flatten().tolist()) for logits in passes}) == 5


def test_a_model_without_a_linear_layer_has_passes_too() -> None:
    with seeded_global_rng(0, torch.device("cpu")):
        model = nn.Sequential(
            nn.Unflatten(1, (1, 6)), nn.Dropout(), nn.Conv1d(1, 3, 6), nn.Flatten()
        )
    assert dropout_logits(model, ROWS, passes=4).shape == (4, 150, 3)


def test_nothing_but_dropout_is_in_training_mode() -> None:
    model = Normalised()
    model.train()
    model.norm.eval()
    state = {name: value.clone() for name, value in model.state_dict().items()}

    seen: list[tuple[bool, ...]] = []
    model.head.register_forward_pre_hook(
        lambda *_: seen.append(
            (model.training, model.norm.training, model.channels.training, model.units.training)
        )
    )

    dropout_logits(model, ROWS, passes=2)

    assert seen[1:] == [(False, False, True, True)] * 3
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert (model.training, model.norm.training, model.units.training) == (True, False, True)


def test_the_global_stream_goes_on_undisturbed() -> None:
    before = torch.get_rng_state()
    dropout_logits(Normalised(), ROWS, passes=2)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_without_dropout_is_refused() -> None:
    with pytest.raises(
        InputError, match="Linear has no dropout layer, so dropout passes would all be the same"
    ):
        teeter.observe(nn.Linear(6, 3), ROWS, ("dropout_logits",))


@pytest.mark.parametrize(
    ("data", "passes", "message"),
    [(ROWS[:0], 3, "Cannot observe an empty pool"), (ROWS, 0, "Cannot make 0 dropout")],
)
def test_nothing_to_do_is_refused(data: Tensor, passes: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        dropout_logits(Normalised(), data, passes=passes)


def test_dropout_passes_are_made_only_when_needed() -> None:
    assert teeter.observe(Normalised(), ROWS).posterior_logits is None


def test_an_ensemble_is_stacked_and_its_first_model_tells_the_rest() -> None:
    models = [mlp(6, 3, seed=seed) for seed in range(4)]
    outputs = teeter.observe(models, ROWS, ("head", "ensemble_logits"))
    each = [teeter.observe(model, ROWS) for model in models]
    assert torch.equal(
        outputs.posterior_logits, torch.stack([outputs_of_one.logits for outputs_of_one in each])
    )
    assert torch.equal(outputs.features, each[0].features)
    assert torch.equal(outputs.weight, each[0].weight)
    assert torch.equal(outputs.logits, each[0].logits)


def test_estimators_make_an_ensemble_too() -> None:
    rows = ROWS.numpy()
    labels = (ROWS[:, 0] > 0).numpy()
    models = [LogisticRegression(C=c).fit(rows, labels) for c in (0.1, 1.0)]
    logits = teeter.observe(models, rows).posterior_logits
    assert logits is not None
    np.testing.assert_allclose(logits[1].softmax(dim=1), models[1].predict_proba(rows), atol=1e-5)


def test_models_of_different_shapes_are_no_ensemble() -> None:
    with pytest.raises(
        InputError, match=r"logits of the same shape, but these return .*\(150, 3\).*"
    ) as error:
        teeter.observe([mlp(6, 3), mlp(6, 4)], ROWS)
    assert "(150, 4)" in str(error.value)


def test_models_without_logits_are_no_ensemble() -> None:
    with pytest.raises(InputError, match="logits of the same shape"):
        stacked_logits([Outputs(features=ROWS), Outputs(features=ROWS)])


def test_no_model_is_no_ensemble() -> None:
    with pytest.raises(InputError, match="An ensemble needs at least one model"):
        teeter.observe([], ROWS)


@pytest.mark.gpu
def test_passes_on_the_gpu_are_seeded_and_leave_its_stream_alone() -> None:
    model = Normalised()
    before = torch.cuda.get_rng_state()
    first = dropout_logits(model, ROWS, passes=3, device="cuda")
    assert first.device.type == "cuda"
    assert torch.equal(first, dropout_logits(model, ROWS, passes=3, device="cuda"))
    assert not torch.equal(first[0], first[1])
    assert torch.equal(torch.cuda.get_rng_state(), before)
