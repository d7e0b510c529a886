"""BADGE without its embedding, against k-means++ on the embedding."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from peak_memory import measure_peak_memory
from reference import badge as literal
from reference.seeding import sequence_law
from teeter.base.seeds import stream
from teeter.kernels.badge import GradientDistance, gradient_errors, seed_gradients


def make_outputs(
    rows: int, classes: int = 3, width: int = 4, seed: int = 0
) -> tuple[Tensor, Tensor]:
    generator = stream(seed, "badge")

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return draw(rows, classes), draw(rows, width)


@pytest.mark.checks(
    "badge", against="the mistake of giving the predicted class -p instead of 1 - p"
)
def test_the_predicted_class_gets_p_minus_one() -> None:
    logits, _ = make_outputs(20)
    p = logits.softmax(dim=1)
    errors = gradient_errors(logits)
    predicted = p.argmax(dim=1)
    for i in range(20):
        for c in range(3):
            assert float(errors[i, c]) == pytest.approx(float(p[i, c]) - (c == int(predicted[i])))
    assert float(errors.sum(dim=1).abs().max()) < 1e-12


def test_it_is_the_gradient_of_the_loss() -> None:
    _, features = make_outputs(1)
    weight = torch.randn(
        3, 4, generator=stream(0, "weight"), dtype=torch.float64, requires_grad=True
    )
    scores = features @ weight.T
    torch.nn.functional.cross_entropy(scores, scores.argmax(dim=1)).backward()
    expected = literal.embeddings(scores.detach().numpy(), features.numpy()).reshape(3, 4)
    np.testing.assert_allclose(weight.grad, expected, atol=1e-12)


@pytest.mark.checks("badge", against="distances between explicit embeddings")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_distances_are_those_of_the_embedding(dtype: torch.dtype) -> None:
    logits, features = make_outputs(230, 5, 7)
    distance = GradientDistance(gradient_errors(logits).to(dtype), features.to(dtype))
    embedded = literal.embeddings(logits.numpy(), features.numpy())
    rows = torch.arange(0, 230, 9)
    picks = torch.tensor([3, 100, 229])
    expected = literal.distances(embedded[[*rows, *picks]])[: len(rows), len(rows) :]
    tolerance = 2e-3 if dtype == torch.float32 else 1e-7
    np.testing.assert_allclose(distance.between(rows, picks), expected, atol=tolerance)
    np.testing.assert_allclose(distance.nearest(picks)[rows], expected.min(axis=1), atol=tolerance)


def test_rows_that_hardly_differ_keep_their_distances() -> None:
    """In single precision products cancel: what is left comes from the differences."""
    logits, features = (
        torch.cat([part, part + 3e-4 * other])
        for part, other in zip(make_outputs(30), make_outputs(30, seed=1), strict=True)
    )
    errors = gradient_errors(logits)
    features = features.float()
    embedded = torch.from_numpy(literal.embeddings(logits.numpy(), features.double().numpy()))
    expected = (embedded[:30] - embedded[30:]).norm(dim=1)
    distance = GradientDistance(errors.float(), features)
    between = distance.between(torch.arange(30), torch.arange(30, 60)).diagonal()
    np.testing.assert_allclose(between, expected, rtol=0.01)


@pytest.mark.checks(
    "badge",
    against="the exact distribution of k-means++ on explicit embeddings (chi-squared test)",
)
@pytest.mark.parametrize("draws", [250, pytest.param(4000, marks=pytest.mark.slow)])
def test_follows_the_law_of_k_means_plus_plus_on_the_embedding(draws: int) -> None:
    logits, features = make_outputs(5, seed=4)
    embedded = literal.embeddings(logits.numpy(), features.numpy())
    first = int(np.argmax((embedded**2).sum(axis=1)))
    law = sequence_law(first, 3, np.ones(5), literal.distances(embedded))

    counts = Counter(
        tuple(seed_gradients(logits, features, 3, generator=stream(k, "x")).tolist())
        for k in range(draws)
    )

    assert set(counts) <= set(law)
    common = [sequence for sequence in law if law[sequence] * draws >= 5]
    expected = [law[sequence] * draws for sequence in common]
    observed = [counts[sequence] for sequence in common]
    assert (
        stats.chisquare(
            [*observed, draws - sum(observed)], [*expected, draws - sum(expected)]
        ).pvalue
        > 0.001
    )


@pytest.mark.checks("badge", against="the mistake of keeping the origin as a centre")
@pytest.mark.parametrize(
    ("draws", "tolerance"), [(250, 0.085), pytest.param(3000, 0.025, marks=pytest.mark.slow)]
)
def test_the_origin_is_no_centre(draws: int, tolerance: float) -> None:
    """A row far from every pick weighs by that distance, not by its smaller distance
    to the origin.
    """
    features = torch.tensor([[3.0, 0], [-2.9, 0], [0.1, 0]], dtype=torch.float64)
    logits = torch.zeros(3, 2, dtype=torch.float64)
    seconds = Counter(
        seed_gradients(logits, features, 2, generator=stream(k, "x")).tolist()[1]
        for k in range(draws)
    )
    weights = np.array([5.9**2, 2.9**2])
    assert seconds[1] / draws == pytest.approx(weights[0] / weights.sum(), abs=tolerance)


@pytest.mark.checks("badge", against="the mistake of returning a row twice")
def test_of_the_rows_the_model_is_sure_of_one_stands_for_all() -> None:
    logits, features = make_outputs(30)
    logits[10:] = torch.tensor([200.0, 0, -200.0], dtype=torch.float64)
    picks = seed_gradients(logits, features, 30, generator=stream(0, "x")).tolist()
    assert sorted(picks) == list(range(30))
    assert sum(pick >= 10 for pick in picks[:11]) <= 1, (
        "they share the origin, so one stands for all"
    )


@pytest.mark.checks("badge", against="memory use: a fraction of that of explicit embeddings")
def test_the_embedding_is_never_built() -> None:
    logits, features = (part.float() for part in make_outputs(2000, classes=200, width=300))
    assert (
        measure_peak_memory(lambda: seed_gradients(logits, features, 50, generator=stream(0, "x")))
        < 2000 * 200 * 300 * 4 / 5
    )


@pytest.mark.gpu
def test_gpu_equals_cpu_on_the_same_draws() -> None:
    logits, features = make_outputs(3000, 10, 64)
    cpu = seed_gradients(logits, features, 200, generator=stream(0, "x"))
    gpu = seed_gradients(logits.cuda(), features.cuda(), 200, generator=stream(0, "x"))
    assert torch.equal(cpu, gpu.cpu())
