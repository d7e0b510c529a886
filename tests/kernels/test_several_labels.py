"""Scores of rows with several labels, against the formulas written row by row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ldm_cases import draw_directions, make_case, with_mirrors
from reference import several_labels as literal
from teeter.base.arrays import working_memory
from teeter.kernels import uncertainty
from teeter.kernels.badge import GradientDistance, gradient_errors
from teeter.kernels.directions import subspace_directions
from teeter.kernels.flip_rates import flip_rates
from teeter.kernels.ldm import ldm_by_rays
from teeter.kernels.several_labels import (
    loss_reduction,
    rank_by_margins,
    rarity_weighted_uncertainty,
    vector_inconsistency,
)

logit_arrays = arrays.arrays(
    np.float64,
    st.tuples(st.integers(2, 8), st.integers(1, 6)),
    elements=st.floats(-60, 60, width=32),
)


def make_logits(rows: int = 30, labels: int = 5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, labels)) * 2


@pytest.mark.checks("entropy", "margin", against="with several labels: the formula, label by label")
@given(logit_arrays)
@pytest.mark.parametrize("name", ["entropy", "margin"])
def test_uncertainty_is_the_formula(name: str, logits: np.ndarray) -> None:
    scores = getattr(uncertainty, name)(torch.from_numpy(logits), several=True)
    np.testing.assert_allclose(scores, getattr(literal, name)(logits), atol=1e-12)


@pytest.mark.checks("rare-labels", against="the formula, label by label")
@given(logit_arrays, st.integers(0, 100))
def test_rarity_weighted_uncertainty_is_the_formula(logits: np.ndarray, seed: int) -> None:
    times_seen = np.random.default_rng(seed).integers(0, 20, logits.shape[1]).astype(float)
    scores = rarity_weighted_uncertainty(torch.from_numpy(logits), torch.from_numpy(times_seen))
    expected = literal.rarity_weighted_uncertainty(logits, times_seen)
    np.testing.assert_allclose(scores, expected, atol=1e-12)


@pytest.mark.checks("mmc", against="the formula, label by label")
def test_loss_reduction_is_the_formula() -> None:
    logits = make_logits()
    counts = np.random.default_rng(1).integers(0, 6, len(logits))
    scores = loss_reduction(torch.from_numpy(logits), torch.from_numpy(counts))
    np.testing.assert_allclose(scores, literal.loss_reduction(logits, counts.tolist()), atol=1e-12)


@pytest.mark.checks("cvirs", against="ranks counted and tables of agreement made pair by pair")
@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(2, 7), st.integers(1, 6), st.integers(1, 5))
def test_the_parts_of_cvirs_are_those_of_the_paper(
    seed: int, rows: int, labels: int, labelled: int
) -> None:
    generator = np.random.default_rng(seed)
    # Rounded, so that margins tie.
    logits = generator.normal(size=(rows, labels)).round(1)
    predicted = logits > 0
    known = generator.random((labelled, labels)) < 0.4

    ranks = rank_by_margins(torch.from_numpy(logits))
    np.testing.assert_allclose(ranks, literal.margin_ranks(logits), atol=1e-12)
    inconsistency = vector_inconsistency(torch.from_numpy(predicted), torch.from_numpy(known))
    expected = literal.vector_inconsistency(predicted, known)
    np.testing.assert_allclose(inconsistency, expected, atol=1e-12)


def test_inconsistency_does_not_depend_on_the_tiles() -> None:
    predicted = torch.from_numpy(make_logits(500) > 0)
    known = torch.from_numpy(make_logits(40, seed=1) > 1)
    at_once = vector_inconsistency(predicted, known)
    with working_memory(1):
        in_tiles = vector_inconsistency(predicted, known)
    assert torch.equal(at_once, in_tiles)


@pytest.mark.checks("badge", against="with several labels: distances between explicit embeddings")
def test_badge_measures_the_gradient_of_the_binary_losses() -> None:
    logits = make_logits(60, 4)
    features = np.random.default_rng(2).normal(size=(60, 3))
    embedded = literal.gradient_embeddings(logits, features)

    errors = gradient_errors(torch.from_numpy(logits), several=True)
    distance = GradientDistance(errors, torch.from_numpy(features))
    rows = torch.arange(60)
    expected = np.linalg.norm(embedded[:, None] - embedded[None], axis=2)
    np.testing.assert_allclose(distance.between(rows, rows), expected, atol=1e-7)


def test_the_gradient_is_that_of_torch() -> None:
    features = torch.randn(1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weight = torch.randn(
        3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True
    )
    logits = features @ weight.T
    predicted = (logits > 0).double()
    torch.nn.functional.binary_cross_entropy_with_logits(
        logits, predicted, reduction="sum"
    ).backward()
    expected = literal.gradient_embeddings(logits.detach().numpy(), features.numpy())
    np.testing.assert_allclose(weight.grad, expected.reshape(3, 4), atol=1e-12)


@pytest.mark.checks(
    "ldm",
    "ldm-s",
    against="with several labels: the sets of labels at a strength between every two flips",
)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("labels", [1, 2, 4])
def test_ldm_is_what_enumeration_finds(labels: int, bias: bool) -> None:
    case = make_case(20, 3, labels, seed=labels, bias=bias)
    blocks = draw_directions(labels, 6, case)
    values = ldm_by_rays(*vars(case).values(), directions=blocks, several=True)
    features, weight, shift = case.arrays()
    expected = literal.ldm_along_directions(
        features, weight, shift, with_mirrors(blocks), reference=features
    )
    np.testing.assert_allclose(values, expected, atol=1e-12)


def test_ldm_among_other_rows_and_in_subspaces_is_what_enumeration_finds() -> None:
    case = make_case(15, 6, 3)
    other_case = make_case(25, 6, 3, seed=5)
    blocks = list(subspace_directions(0, 4, *case.head(), subspace=3))
    values = ldm_by_rays(
        *vars(case).values(), directions=blocks, several=True, reference=other_case.features
    )
    features, weight, shift = case.arrays()
    expanded = with_mirrors([block.expand() for block in blocks])
    expected = literal.ldm_along_directions(
        features, weight, shift, expanded, reference=other_case.features.numpy()
    )
    np.testing.assert_allclose(values, expected, atol=1e-12)


@settings(max_examples=25)
@given(
    rows=st.integers(1, 10),
    width=st.integers(2, 4),
    labels=st.integers(1, 4),
    seed=st.integers(0, 10**6),
)
def test_ldm_is_what_enumeration_finds_for_any_shape(
    rows: int, width: int, labels: int, seed: int
) -> None:
    case = make_case(rows, width, labels, seed=seed)
    blocks = draw_directions(seed, 2, case)
    values = ldm_by_rays(*vars(case).values(), directions=blocks, several=True)
    features, weight, shift = case.arrays()
    expected = literal.ldm_along_directions(
        features, weight, shift, with_mirrors(blocks), reference=features
    )
    np.testing.assert_allclose(values, expected, atol=1e-12)


def test_a_label_on_its_boundary_flips_at_once_on_rays_where_it_grows() -> None:
    features = torch.tensor([[0.0, 1.0], [3.0, 0.5]], dtype=torch.float64)
    weight = torch.tensor([[1.0, 0.0]], dtype=torch.float64)  # the first row has the logit 0
    move = torch.tensor([[[0.0, 1.0]]], dtype=torch.float64)
    rates = flip_rates(features, weight, None, [(move, None)], several=True)
    assert rates[:, 0].tolist() == [float("inf"), 0.0]
    # 3 - 0.5 sigma is 0 at sigma = 6 on the opposite ray.
    np.testing.assert_allclose(rates[:, 1], [0, 1 / 6])
