"""A head fitted to labelled rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from teeter.errors import InputError
from teeter.models.sklearn_model import fit_head


def blobs(classes: int, rows: int = 40, width: int = 5) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(classes)
    labels = np.arange(classes * rows) % classes
    centres = 3 * generator.normal(size=(classes, width))
    return (centres[labels] + generator.normal(size=(len(labels), width))).astype(
        np.float32
    ), labels


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_its_probabilities_are_those_of_scikit_learn(classes: int) -> None:
    features, labels = blobs(classes)
    weight, bias = fit_head(features, labels, classes)
    assert weight.shape == (classes, 5)
    assert bias.shape == (classes,)
    assert weight.dtype == bias.dtype == np.float32
    logits = features @ weight.T + bias
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    expected = LogisticRegression(max_iter=1000).fit(features, labels).predict_proba(features)
    assert np.allclose(shares / shares.sum(axis=1, keepdims=True), expected, atol=1e-4)


def test_a_binary_head_has_a_row_of_zeros_for_the_first_class() -> None:
    weight, bias = fit_head(np.array([[-2], [2]], dtype=np.float32), np.array([0, 1]), 2)
    assert weight[0] == 0
    assert weight[1] > 0.1
    assert bias.tolist() == pytest.approx([0, 0], abs=1e-5)


def test_it_repeats_to_the_bit() -> None:
    features, labels = blobs(4)
    for once, again in zip(
        fit_head(features, labels, 4), fit_head(features, labels, 4), strict=True
    ):
        assert np.array_equal(once, again)


def test_it_does_not_warn_when_it_stops_early() -> None:
    features, labels = blobs(3, rows=100, width=30)
    fit_head(features * np.geomspace(1, 1e5, 30, dtype=np.float32), labels, 3)


@pytest.mark.parametrize(
    ("labels", "classes"), [([0, 0], 1), ([0, 2], 3), ([0, 0], 2), ([1, 2], 2)]
)
def test_a_class_that_never_occurs_is_refused(labels: list[int], classes: int) -> None:
    with pytest.raises(InputError, match="a head needs at least 2"):
        fit_head(np.array([[0], [1]], dtype=np.float32), np.array(labels), classes)
