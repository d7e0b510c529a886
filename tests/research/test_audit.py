"""The peer that audits are compared with is the published method."""

from __future__ import annotations

import numpy as np
import pytest

from research.audit.simulate import ppi_intervals


def test_prediction_powered_intervals_are_those_of_their_authors() -> None:
    ppi_py = pytest.importorskip("ppi_py")
    generator = np.random.default_rng(3)
    confidences = generator.beta(4, 2, 400)
    is_right = generator.random(400) < confidences
    drawn = np.stack([generator.permutation(400)[:60] for _ in range(5)])

    estimates, halves = ppi_intervals(confidences, drawn, is_right[drawn])

    for audit, draws in enumerate(drawn):
        for n in (5, 20, 60):
            known = draws[:n]
            left = np.setdiff1d(np.arange(400), known)
            labelled = is_right[known].astype(float)
            low, high = ppi_py.ppi_mean_ci(
                labelled, confidences[known], confidences[left], alpha=0.05
            )
            assert estimates[audit, n - 1] == pytest.approx((low.item() + high.item()) / 2)
            assert halves[audit, n - 1] == pytest.approx((high.item() - low.item()) / 2)


def test_confidences_that_say_nothing_leave_the_plain_mean() -> None:
    generator = np.random.default_rng(4)
    is_right = generator.random(300) < 0.7
    drawn = np.stack([generator.permutation(300)[:50] for _ in range(20)])
    confidences = 1.0 - 0.5 * is_right

    estimates, halves = ppi_intervals(confidences, drawn, is_right[drawn])

    shares = is_right[drawn].mean(axis=1)
    assert estimates[:, -1].tolist() == pytest.approx(shares.tolist())
    deviations = np.sqrt(shares * (1 - shares) / 50)
    assert halves[:, -1].tolist() == pytest.approx((1.959963984540054 * deviations).tolist())
