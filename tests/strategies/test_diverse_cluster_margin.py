"""Cluster-Margin and its LDM twin: turns, memory, and the mistake of others that
they do not make.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import teeter
from teeter import Outputs
from teeter.base.seeds import stream
from teeter.checks import example_context
from teeter.errors import InputError
from teeter.kernels.clustering import average_linkage
from teeter.strategies import Context, get


def groups_of_rows(groups: list[int]) -> Tensor:
    """Features that put rows in groups far from each other."""
    jitter = torch.randn(
        len(groups), max(groups) + 1, generator=stream(0, "jitter"), dtype=torch.float64
    )
    return 50 * torch.eye(max(groups) + 1, dtype=torch.float64)[groups] + jitter


def logits_of(margins: list[float]) -> Tensor:
    p = 0.5 + torch.tensor(margins, dtype=torch.float64) / 2
    return torch.stack([p.log(), (1 - p).log()], dim=1)


# Groups of 11, 6, 2 and 1 rows, which lie between each other.
GROUPS = [0, 1, 0, 2, 0, 1, 3, 0, 1, 0, 0, 1, 0, 2, 0, 1, 0, 0, 1, 0]
SIZES = {group: GROUPS.count(group) for group in set(GROUPS)}


@pytest.mark.checks("cluster-margin", against="picks computed by hand")
@pytest.mark.checks(
    "cluster-margin", against="the mistake of giving one row's features to its whole mini-batch"
)
def test_cluster_margin_goes_by_each_row_s_own_features() -> None:
    """An embedding shared by neighbouring rows would mix the groups, whose rows lie between one
    another.
    """
    outputs = Outputs(
        logits=logits_of([k / 100 for k in range(20)]), features=groups_of_rows(GROUPS)
    )
    rows = teeter.select("cluster-margin", outputs, 6, options={"cluster_size": 5})

    by_size = sorted(SIZES, key=lambda group: SIZES[group])
    first_round = [GROUPS.index(group) for group in by_size]
    second = [
        [row for row in range(20) if GROUPS[row] == group][1]
        for group in by_size
        if SIZES[group] > 1
    ]

    assert rows.tolist() == [*first_round, *second[:2]]


def test_sizes_are_counted_among_the_uncertain_rows() -> None:
    """Group 0 is the largest of all, and the smallest among the rows of small margin."""
    groups = [1, 0, 1, 1, *[0] * 16]
    outputs = Outputs(
        logits=logits_of([k / 100 for k in range(20)]), features=groups_of_rows(groups)
    )
    rows = teeter.select(
        "cluster-margin", outputs, 2, options={"cluster_size": 10, "candidates_per_pick": 2}
    )
    assert rows.tolist() == [1, 0]


def test_only_the_most_uncertain_rows_are_looked_at() -> None:
    context = example_context(200)
    margins = get("margin")().scores(context)
    rows = get("cluster-margin")(candidates_per_pick=3).select(example_context(200), 8)
    assert set(rows.tolist()) <= set(margins.argsort()[:24].tolist())
    assert (
        get("cluster-margin")(candidates_per_pick=1).select(example_context(200), 8).tolist()
        != rows.tolist()
    )


def test_ldm_takes_the_place_of_the_margin() -> None:
    context = example_context(200)
    rows = get("ldm-cluster-margin")(candidates_per_pick=3, rays=64).select(context, 8)
    ldm = get("ldm")(rays=64).scores(example_context(200))
    assert torch.equal(context.notes["ldm"], ldm)
    assert set(rows.tolist()) <= set(ldm.argsort(stable=True)[:24].tolist())


def select_with_memory(
    context: Context, memory: dict[str, Any], candidates: np.ndarray, **options: Any
) -> np.ndarray:
    part = replace(
        context, candidates=candidates, outputs=context.outputs.take(candidates), memory=memory
    )
    return get("cluster-margin")(**options).select(part, 5)


def test_clusters_are_made_once_and_remembered_by_row_number() -> None:
    context = example_context(100)
    memory: dict[str, Any] = {}
    shuffled_memory: dict[str, Any] = {}
    all_rows = np.arange(100)
    select_with_memory(context, memory, all_rows)
    select_with_memory(context, shuffled_memory, np.random.default_rng(0).permutation(100))

    assert set(memory) == {"clustered_rows", "clusters"}
    assert all(
        isinstance(value, Tensor) and value.device.type == "cpu" for value in memory.values()
    )

    copied = {name: value.clone() for name, value in memory.items()}
    later = all_rows[::-1][10:70].copy()
    moved = replace(
        context, outputs=Outputs(logits=context.logits, features=context.features.flip(0))
    )

    rows = select_with_memory(moved, memory, later)
    assert all(torch.equal(memory[name], copied[name]) for name in copied), (
        "new features, the same clusters"
    )
    assert rows.tolist() == select_with_memory(context, copied, later).tolist(), (
        "only margins and clusters decide"
    )
    assert rows.tolist() == select_with_memory(context, shuffled_memory, later).tolist(), (
        "in whatever order the rows came"
    )


def test_a_row_without_a_cluster_makes_all_anew() -> None:
    context = example_context(100)
    memory = dict[str, Any]()
    select_with_memory(context, memory, np.arange(60))
    select_with_memory(context, memory, np.arange(40, 100))
    assert memory["clustered_rows"].tolist() == list(range(40, 100))
    assert int(memory["clusters"].max()) == 5


def test_the_number_of_clusters_follows_their_size() -> None:
    for size, clusters in [(1, 100), (7, 14), (10, 10), (1000, 1)]:
        memory: dict[str, Any] = {}
        select_with_memory(example_context(100), memory, np.arange(100), cluster_size=size)
        assert len(memory["clusters"].unique()) == clusters


def test_a_sample_is_drawn_by_the_seed() -> None:
    features = example_context(300).features
    clusterings = [
        average_linkage(features, 30, sample=60, generator=stream(seed, "select"))
        for seed in (0, 0, 1)
    ]
    assert torch.equal(clusterings[0], clusterings[1])
    assert not torch.equal(clusterings[0], clusterings[2])
    assert len(get("cluster-margin")(sample=60).select(example_context(300), 50)) == 50


@pytest.mark.parametrize("name", ["cluster-margin", "ldm-cluster-margin"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cluster_size": 0}, "cluster_size is 0: it must be a whole number of 1 or more"),
        ({"candidates_per_pick": 0.5}, "candidates_per_pick is 0.5"),
        ({"sample": 1}, "sample is 1: it must be a whole number of 2 or more"),
        ({"sample": None}, "sample is None"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        get(name)(**options)


def test_the_estimator_s_options_are_checked_too() -> None:
    with pytest.raises(InputError, match="rays is -1"):
        get("ldm-cluster-margin")(rays=-1)
