"""LDM and LDM-S: what they pick, what they note, and the options of the estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import teeter
from teeter import Outputs
from teeter.checks import example_context
from teeter.errors import InputError
from teeter.strategies import get


def test_ldm_picks_the_smallest_values() -> None:
    outputs = example_context().outputs
    values = teeter.scores("ldm", outputs)
    picks = teeter.select("ldm", outputs, 10)
    assert picks.tolist() == np.argsort(values, kind="stable")[:10].tolist()


@pytest.mark.parametrize("options", [{}, {"rays": 64, "subspace": None}, {"method": "gaussian"}])
def test_one_seed_gives_one_answer(options: dict[str, Any]) -> None:
    outputs = example_context().outputs
    for seed in (0, 3):
        values = teeter.ldm(outputs.features, outputs.weight, outputs.bias, seed=seed, **options)
        np.testing.assert_array_equal(
            values, teeter.scores("ldm", outputs, seed=seed, options=options), strict=True
        )


def test_ldm_s_begins_with_the_smallest_and_spreads() -> None:
    outputs = example_context(100, copies=4).outputs
    values = teeter.scores("ldm-s", outputs)
    picks = teeter.select("ldm-s", outputs, 40)
    assert picks[0] == values.argmin()
    assert values[picks].mean() < np.median(values) / 2
    assert len(set(picks % 100)) == 40, "no copy of a pick"
    assert len(set(teeter.select("ldm", outputs, 40) % 100)) < 20, "LDM alone takes the copies"


def test_ldm_s_leaves_the_values_it_used_in_the_notes() -> None:
    context = example_context()
    get("ldm-s")().select(context, 5)
    np.testing.assert_array_equal(context.notes["ldm"], teeter.scores("ldm-s", context.outputs))


def test_ldm_s_fills_up_by_the_smallest_ldm() -> None:
    rng = np.random.default_rng(0)
    rows = np.repeat(rng.normal(size=(10, 4)), 3, axis=0)
    outputs = Outputs(features=rows, weight=rng.normal(size=(3, 4)))
    picks = teeter.select("ldm-s", outputs, 30)
    values = teeter.scores("ldm-s", outputs)
    assert len(set(picks[:10] // 3)) == 10
    assert (np.diff(values[picks[10:]]) >= 0).all()


def test_estimator_options_reach_the_kernel() -> None:
    outputs = example_context().outputs
    few = teeter.scores("ldm", outputs, options={"rays": 2})
    many = teeter.scores("ldm", outputs, options={"rays": 256})
    assert few.mean() > many.mean()
    gaussian = teeter.scores(
        "ldm", outputs, options={"method": "gaussian", "sigmas": [0.1, 1.0], "patience": 5}
    )
    assert gaussian.mean() > many.mean()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rays": 0}, "rays is 0"),
        ({"rays": 2.5}, "rays is 2.5"),
        ({"method": "magic"}, "method is 'magic'"),
        ({"sigmas": [0.1]}, "works only with method='gaussian'"),
        ({"patience": 3}, "patience= works only with method='gaussian'"),
        ({"method": "rays", "patience": 3}, "patience= works only with method='gaussian'"),
        ({"method": "gaussian", "rays": 3}, "work only with method='rays'"),
        ({"method": "gaussian", "subspace": 2}, "subspace= and sigma_max= work only with method"),
        ({"method": "gaussian", "sigma_max": 1.0}, "work only with method='rays'"),
        ({"method": "gaussian", "sigmas": []}, "positive numbers"),
        ({"method": "gaussian", "sigmas": [0.1, -1]}, "positive numbers"),
        ({"method": "gaussian", "rays": 8}, "work only with method='rays'"),
        ({"method": "gaussian", "patience": 0}, "patience is 0"),
        ({"sigma_max": 0}, "sigma_max is 0"),
        ({"reference_rows": 0}, "reference_rows is 0"),
        ({"ray": 3}, "ldm has no option 'ray'. Did you mean 'rays'?"),
    ],
)
def test_options_are_checked_at_the_door(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        teeter.select("ldm", example_context().outputs, 3, options=options)


@pytest.mark.parametrize("name", ["ldm", "ldm-s", "ldm-fass", "ldm-cluster-margin"])
def test_flips_are_counted_on_as_many_rows_as_asked_for(name: str) -> None:
    outputs = example_context(60, dtype=torch.float64).outputs
    counted = 7 * teeter.scores(name, outputs, options={"reference_rows": 7})
    assert np.allclose(counted, counted.round())
    assert len(np.unique(counted)) > 1
    assert np.array_equal(counted, 7 * teeter.scores(name, outputs, options={"reference_rows": 7}))
    assert np.allclose(
        teeter.scores(name, outputs, options={"reference_rows": 1000}), teeter.scores(name, outputs)
    )
