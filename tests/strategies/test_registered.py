"""What each strategy picks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import teeter
from teeter.checks import example_context
from teeter.errors import InputError
from teeter.strategies import get, names
from teeter.strategies.api import strategy_options

PROBABILITIES = np.array([[0.5, 0.3, 0.2], [0.45, 0.44, 0.11], [0.34, 0.32, 0.34 - 0.001], [0.9, 0.05, 0.05]])


@pytest.mark.parametrize(
    ("name", "picks"), [("entropy", [2, 0, 1, 3]), ("margin", [2, 1, 0, 3]), ("least-confidence", [2, 1, 0, 3])]
)
def test_uncertain_rows_first(name: str, picks: list[int]) -> None:
    assert teeter.select(name, teeter.Outputs(logits=np.log(PROBABILITIES)), 4).tolist() == picks


def test_equal_scores_go_to_the_lowest_row() -> None:
    outputs = teeter.Outputs(logits=np.zeros((9, 3)))
    for name in ("entropy", "margin", "least-confidence"):
        assert teeter.select(name, outputs, 4).tolist() == [0, 1, 2, 3]


@pytest.mark.checks("random", against="uniform frequencies")
def test_random_is_uniform() -> None:
    counts = np.zeros(10)
    for seed in range(3000):
        counts[teeter.select("random", teeter.Outputs(features=np.ones((10, 1))), 3, seed=seed)] += 1
    assert abs(counts / 900 - 1).max() < 0.15


ESTIMATOR = {"method": "rays", "rays": None, "sigmas": None, "patience": 10, "sigma_max": None, "reference_rows": None}
CLUSTERING = {"cluster_size": 10, "sample": 5000, "candidates_per_pick": 10}
DEFAULTS: dict[str, dict[str, object]] = {
    "bait": {"form": "exact", "top": 2, "regularisation": 1.0},
    "batchbald": {"configurations": 100_000},
    "cluster-margin": CLUSTERING,
    "fass": {"candidates_per_pick": 5},
    "ldm": ESTIMATOR,
    "ldm-cluster-margin": {**ESTIMATOR, **CLUSTERING},
    "ldm-fass": {**ESTIMATOR, "candidates_per_pick": 5},
    "ldm-s": ESTIMATOR,
    "probcover": {"radius": None, "purity": 0.95},
    "typiclust": {"neighbours": 20, "max_clusters": 500},
}


@pytest.mark.parametrize("name", names())
def test_defaults_are_those_of_the_papers(name: str) -> None:
    assert strategy_options(get(name)()) == DEFAULTS.get(name, {})


def test_ldm_picks_the_smallest_values() -> None:
    outputs = example_context().outputs
    values = teeter.scores("ldm", outputs)
    picks = teeter.select("ldm", outputs, 10)
    assert picks.tolist() == np.argsort(values, kind="stable")[:10].tolist()


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


def test_seeding_picks_far_rows() -> None:
    angles = np.deg2rad([0, 1, 2, 90, 91, 180, 181])
    features = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    groups = np.array([0, 0, 0, 1, 1, 2, 2])
    for name in ("seeding-cosine", "seeding-l2"):
        spread = [
            len(set(groups[teeter.select(name, teeter.Outputs(features=features), 3, seed=s)])) for s in range(50)
        ]
        assert np.mean([groups == 3 for groups in spread]) > 0.9


def test_estimator_options_reach_the_kernel() -> None:
    outputs = example_context().outputs
    few = teeter.scores("ldm", outputs, rays=2)
    many = teeter.scores("ldm", outputs, rays=256)
    assert few.mean() > many.mean()
    gaussian = teeter.scores("ldm", outputs, method="gaussian", sigmas=[0.1, 1.0], patience=5)
    assert gaussian.mean() > many.mean()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rays": 0}, "Cannot follow 0 rays"),
        ({"rays": 2.5}, "Cannot follow 2.5 rays"),
        ({"method": "magic"}, "No estimator is called 'magic'"),
        ({"sigmas": [0.1]}, "belongs to method='gaussian'"),
        ({"method": "gaussian", "sigmas": []}, "positive numbers"),
        ({"method": "gaussian", "sigmas": [0.1, -1]}, "positive numbers"),
        ({"method": "gaussian", "rays": 8}, "belong to method='rays'"),
        ({"method": "gaussian", "patience": 0}, "patience is 0"),
        ({"sigma_max": 0}, "sigma_max is 0"),
        ({"reference_rows": 0}, "reference_rows is 0"),
        ({"ray": 3}, "ldm has no option 'ray'. Did you mean 'rays'?"),
    ],
)
def test_options_are_checked_at_the_door(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message.replace("?", r"\?")):
        teeter.select("ldm", example_context().outputs, 3, **options)


@pytest.mark.parametrize("name", ["ldm", "ldm-s", "ldm-fass", "ldm-cluster-margin"])
def test_flips_are_counted_on_as_many_rows_as_asked_for(name: str) -> None:
    outputs = example_context(60, dtype=torch.float64).outputs
    counted = 7 * teeter.scores(name, outputs, reference_rows=7)
    assert np.allclose(counted, counted.round())
    assert len(np.unique(counted)) > 1
    assert np.array_equal(counted, 7 * teeter.scores(name, outputs, reference_rows=7))
    assert np.allclose(teeter.scores(name, outputs, reference_rows=1000), teeter.scores(name, outputs))
