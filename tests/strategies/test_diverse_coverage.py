"""Coreset, ProbCover and TypiClust: what they use and refuse, and the mistakes of others that they
do not make.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import teeter
from teeter import Outputs
from teeter.base.seeds import stream
from teeter.checks import example_context
from teeter.errors import InputError, MissingOutputError
from teeter.strategies import get


def draw(rows: int, width: int, seed: int) -> Tensor:
    return torch.randn(rows, width, generator=stream(seed, "features"), dtype=torch.float64)


def circle(degrees: list[float]) -> Tensor:
    angles = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def select(
    name: str, features: Tensor, n: int, labelled_features: Tensor, **options: object
) -> list[int]:
    """Pick rows beside labelled ones."""
    labelled = Outputs(features=labelled_features)
    labels = [0] * len(labelled_features)
    picks: list[int] = teeter.select(
        name, Outputs(features=features), n, labelled=labelled, labels=labels, options=options
    ).tolist()
    return picks


@pytest.mark.checks("coreset", against="the mistake of mixing row numbers with positions")
def test_coreset_does_not_mix_row_numbers_with_positions() -> None:
    """Row numbers far beyond the positions, in no order, and labelled rows that were numbered among
    them.
    """
    context = example_context(40)
    numbers = np.array([(37 * k) % 40 + 500 for k in range(40)])
    labelled = context.labelled.features
    apart = torch.cdist(context.features, labelled).amin(dim=1)
    first = int(apart.argmax())
    second = int(
        torch.minimum(apart, (context.features - context.features[first]).norm(dim=1)).argmax()
    )
    rows = get("coreset")().select(replace(context, candidates=numbers), 2)
    assert rows.tolist() == numbers[[first, second]].tolist()


def test_coreset_starts_from_the_labelled_rows() -> None:
    pool = torch.tensor([[0.0], [4.0], [10.0]])
    assert select("coreset", pool, 1, torch.tensor([[0.0]])) == [2]
    assert select("coreset", pool, 1, torch.tensor([[9.0]])) == [0]


def test_coreset_takes_labelled_rows_of_another_precision() -> None:
    pool = draw(50, 3, 0)
    labelled = draw(5, 3, 1)
    assert select("coreset", pool, 9, labelled.float()) == select("coreset", pool, 9, labelled)


@pytest.mark.parametrize("name", ["coreset", "probcover", "typiclust"])
def test_labelled_rows_without_features_are_refused(name: str) -> None:
    context = replace(example_context(9), labelled=Outputs(logits=torch.zeros(4, 4)))
    with pytest.raises(
        MissingOutputError, match="candidates have features, but the labelled rows have none"
    ):
        get(name)().select(context, 2)


@pytest.mark.parametrize("name", ["probcover", "typiclust"])
def test_an_empty_list_of_labelled_rows_is_the_same_as_none(name: str) -> None:
    untold = replace(example_context(), labelled=None, labels=None)
    empty = replace(example_context(), labelled=example_context().outputs.take(np.arange(0)))
    assert get(name)().select(empty, 9).tolist() == get(name)().select(untold, 9).tolist()
    assert len(get("coreset")().select(empty, 9)) == 9


@pytest.mark.checks(
    "probcover", against="the mistake of returning one row n times if no ball contains a neighbour"
)
def test_probcover_does_not_return_one_row_over_and_over() -> None:
    """No ball holds a neighbour: every row covers itself, and each is picked once."""
    rows = teeter.select(
        "probcover", Outputs(features=draw(30, 8, 0)), 30, options={"radius": 1e-3}
    )
    assert sorted(rows.tolist()) == list(range(30))


@pytest.mark.checks(
    "probcover", against="the mistake of forgetting the rows after the last full block"
)
@pytest.mark.parametrize(
    "rows", [192 + 5, 1920 + 7, pytest.param(2 * 1920 + 1, marks=pytest.mark.slow)]
)
def test_probcover_does_not_forget_the_rows_after_the_last_full_block(rows: int) -> None:
    """The rows of the largest ball are the very last ones; every row is picked in the end."""
    bundle = torch.tensor([-50.0, 1, 0]) + 0.01 * draw(5, 3, 1)
    features = torch.cat([draw(rows - 5, 3, 0), bundle])
    picks = teeter.select(
        "probcover", Outputs(features=features), rows, options={"radius": 1e-2}
    ).tolist()
    assert picks[0] >= rows - 5
    assert sorted(picks) == list(range(rows))


def test_probcover_leaves_out_what_labelled_rows_cover() -> None:
    pool = circle([0, 1, 2, 3, 90, 91, 180])
    assert teeter.select(
        "probcover", Outputs(features=pool), 3, options={"radius": 0.1}
    ).tolist() == [0, 4, 6]
    assert select("probcover", pool, 2, 7 * circle([1.5]), radius=0.1) == [4, 6]


def test_probcover_goes_on_with_the_farthest_row() -> None:
    assert select(
        "probcover", circle([0, 1, 2, 4, 90, 91, 180]), 3, circle([0, 90]), radius=0.1
    ) == [6, 3, 2]


def test_probcover_finds_its_radius_from_the_classes() -> None:
    """Two bundles of directions: balls may grow up to the gap between them."""
    degrees = [*np.linspace(0, 20, 30), *np.linspace(100, 120, 30)]
    head = torch.zeros(2, 2, dtype=torch.float64)
    rows = teeter.select("probcover", Outputs(features=circle(degrees), weight=head), 2)
    assert (rows < 30).sum() == 1, "one ball covers a bundle"


def test_probcover_needs_the_number_of_classes_or_a_radius() -> None:
    pool = Outputs(features=draw(9, 3, 0))
    with pytest.raises(InputError, match="number of classes, which is unknown: pass radius="):
        teeter.select("probcover", pool, 2)
    assert len(teeter.select("probcover", pool, 2, options={"radius": 0.5})) == 2


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("probcover", {"radius": 0}, "radius is 0: it must be a positive number"),
        ("probcover", {"radius": float("inf")}, "radius is inf"),
        ("probcover", {"radius": "wide"}, "radius is 'wide'"),
        ("probcover", {"purity": 0}, "purity is 0: it must be greater than 0 and at most 1"),
        ("probcover", {"purity": 1.5}, "purity is 1.5"),
        ("probcover", {"purity": float("nan")}, "purity is nan"),
        ("typiclust", {"neighbours": 0}, "neighbours is 0: it must be a whole number of 1 or more"),
        ("typiclust", {"max_clusters": 2.5}, "max_clusters is 2.5"),
        ("typiclust", {"max_clusters": True}, "max_clusters is True"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        get(name)(**options)


def bundles(sizes: list[int], seed: int = 0) -> Tensor:
    """Tight groups of rows, far from each other, in a shuffled order that is the same
    for a seed.
    """
    centres = 50 * torch.eye(len(sizes), dtype=torch.float64)
    of = torch.cat([torch.full((size,), k) for k, size in enumerate(sizes)])
    return centres[of] + draw(len(of), len(sizes), seed)


def test_typiclust_takes_the_densest_row_of_each_cluster_the_largest_first() -> None:
    sizes = [20, 30, 10]
    features = bundles(sizes)
    rows = teeter.select("typiclust", Outputs(features=features), 3)
    assert [int(np.searchsorted(np.cumsum(sizes), row, side="right")) for row in rows] == [1, 0, 2]

    for row, (start, stop) in zip(rows, [(20, 50), (0, 20), (50, 60)], strict=True):
        members = features[start:stop]
        near = (
            torch.cdist(members, members)
            .sort(dim=1)
            .values[:, 1 : 1 + min(20, len(members) // 2)]
            .mean(dim=1)
        )
        assert row == start + int(near.argmin())


def test_typiclust_goes_where_no_row_is_labelled() -> None:
    features = bundles([20, 30, 10])
    assert select("typiclust", features, 1, features[[0, 25]])[0] >= 50


def test_typiclust_comes_to_small_clusters_last() -> None:
    features = bundles([12, 4, 12])
    rows = teeter.select("typiclust", Outputs(features=features), 3, options={"max_clusters": 3})
    assert not any(12 <= row < 16 for row in rows)
    assert len(set(teeter.select("typiclust", Outputs(features=features), 28).tolist())) == 28


def test_typiclust_makes_no_more_clusters_than_it_may() -> None:
    features = bundles([20, 20])
    rows = teeter.select("typiclust", Outputs(features=features), 6, options={"max_clusters": 2})
    assert ((rows < 20) == np.array([rows[0] < 20, rows[0] >= 20] * 3)).all(), "in turns"
