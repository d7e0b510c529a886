"""BAIT by small matrices, pick by pick against the usual formulation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from peak_memory import measure_peak_memory
from reference import bait as literal
from teeter.base.seeds import stream
from teeter.errors import InputError
from teeter.kernels import bait as bait_module
from teeter.kernels.bait import Form, bait, fisher_factors, peak_memory


def make_outputs(rows: int, classes: int, width: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = stream(seed, "bait")

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return 2 * draw(rows, classes), draw(rows, width)


def pick_both_ways(
    rows: int,
    classes: int,
    width: int,
    n: int,
    n_labelled: int,
    *,
    seed: int = 0,
    form: str = "exact",
    top: int = 2,
) -> tuple[list[int], list[int]]:
    logits, features = make_outputs(rows, classes, width, seed)
    labelled = make_outputs(n_labelled, classes, width, seed + 1000)

    expected = literal.bait(
        logits.numpy(),
        features.numpy(),
        n,
        labelled_logits=labelled[0].numpy(),
        labelled_features=labelled[1].numpy(),
        form=form,
        top=top,
    )

    picks = bait(logits, features, n, labelled=labelled if n_labelled else None, form=form, top=top)
    return picks.tolist(), expected


@pytest.mark.checks("bait", against="the usual formulation, pick by pick, in all three forms")
@pytest.mark.parametrize("form", ["exact", "top", "binary"])
@pytest.mark.parametrize("seed", range(4))
def test_picks_are_those_of_the_usual_formulation(seed: int, form: str) -> None:
    picks, expected = pick_both_ways(20, 3, 3, 4, 5, seed=seed, form=form)
    assert picks == expected


@pytest.mark.parametrize(
    ("rows", "classes", "width", "n", "n_labelled"),
    [(6, 2, 1, 3, 0), (7, 4, 2, 5, 2), (5, 3, 2, 5, 1), (1, 2, 3, 1, 0)],
)
def test_picks_agree_at_the_edges(
    rows: int, classes: int, width: int, n: int, n_labelled: int
) -> None:
    picks, expected = pick_both_ways(rows, classes, width, n, n_labelled)
    assert picks == expected


def test_the_top_of_all_classes_is_exact() -> None:
    logits, features = make_outputs(15, 4, 3)
    labelled = make_outputs(5, 4, 3, 9)
    exact = bait(logits, features, 4, labelled=labelled)
    assert torch.equal(exact, bait(logits, features, 4, labelled=labelled, form="top", top=4))
    assert torch.equal(exact, bait(logits, features, 4, labelled=labelled, form="top", top=99))


def test_factors_are_the_fisher_information() -> None:
    logits, _ = make_outputs(10, 5, 1)
    factors = fisher_factors(logits, "exact", 2)
    p = logits.softmax(dim=1)
    expected = torch.diag_embed(p) - p[:, :, None] * p[:, None]
    np.testing.assert_allclose(factors.transpose(1, 2) @ factors, expected, atol=1e-12)


@pytest.mark.checks("bait", against="the state computed from scratch after 300 updates")
def test_hundreds_of_updates_do_not_drift() -> None:
    logits, features = make_outputs(400, 4, 6)
    rows = bait_module._FisherRows(fisher_factors(logits, "exact", 2), features)
    pool = rows.total_fisher() / 400
    state = bait_module._BaitState(torch.eye(24, dtype=torch.float64), pool.clone(), scale=0.5)
    picks = bait_module._pick_forward(rows, state, 300)
    chosen = rows.take(picks).total_fisher()
    inverse = torch.linalg.inv(torch.eye(24, dtype=torch.float64) + 0.5 * chosen)
    np.testing.assert_allclose(state.inverse, inverse, atol=1e-10)
    np.testing.assert_allclose(state.product, inverse @ pool @ inverse, atol=1e-10)
    np.testing.assert_allclose(rows.inverse_forms, rows.quadratic_forms(inverse), atol=1e-9)


def test_what_does_not_fit_is_refused_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, features = make_outputs(50, 10, 8)
    monkeypatch.setattr(bait_module, "available_memory", lambda device: 100_000)
    with pytest.raises(
        InputError, match=r"80 x 80 matrices\), but only 0.0 GB are free: use form='binary'"
    ):
        bait(logits, features, 5, labelled=None)
    assert len(bait(logits, features, 5, labelled=None, form="binary")) == 5


@pytest.mark.slow
@pytest.mark.checks("bait", against="memory use: at most the amount checked beforehand")
@pytest.mark.parametrize(
    ("rows", "classes", "width", "n_labelled", "form"),
    [
        pytest.param(100, 10, 200, 50, "exact", marks=pytest.mark.slow),
        pytest.param(20_000, 10, 20, 50, "exact", marks=pytest.mark.slow),
        (1000, 10, 20, 20_000, "exact"),
        pytest.param(10_000, 40, 20, 0, "top", marks=pytest.mark.slow),
        (20_000, 20, 256, 50, "binary"),
    ],
)
def test_no_more_memory_is_taken_than_was_stated(
    rows: int, classes: int, width: int, n_labelled: int, form: Form
) -> None:
    logits, features = make_outputs(rows, classes, width)
    labelled = make_outputs(n_labelled, classes, width, 1) if n_labelled else None
    factors = {"exact": classes, "top": 2, "binary": 1}[form]
    stated = peak_memory(rows, width, factors, 1 if form == "binary" else classes, n_labelled)
    peak = measure_peak_memory(lambda: bait(logits, features, 1, labelled=labelled, form=form))
    assert stated / 4 < peak < 1.05 * stated


def test_the_top_classes_factors_are_made_alone() -> None:
    logits, _ = make_outputs(2000, 100, 1)
    assert measure_peak_memory(lambda: fisher_factors(logits, "top", 2)) < 2000 * 100 * 100 * 8 / 4


@pytest.mark.gpu
def test_the_stated_memory_bounds_the_memory_taken() -> None:
    logits, features = (tensor.cuda() for tensor in make_outputs(2000, 10, 64))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    bait(logits, features, 10, labelled=None)
    taken = torch.cuda.max_memory_allocated() - before
    assert 0.4 * taken < peak_memory(2000, 64, 10, 10) < 4 * taken


@pytest.mark.gpu
def test_gpu_equals_cpu() -> None:
    logits, features = make_outputs(300, 5, 16)
    labelled = make_outputs(20, 5, 16, 9)
    cpu = bait(logits, features, 20, labelled=labelled)
    gpu = bait(
        logits.cuda(), features.cuda(), 20, labelled=(labelled[0].cuda(), labelled[1].cuda())
    )
    assert torch.equal(cpu, gpu.cpu())
