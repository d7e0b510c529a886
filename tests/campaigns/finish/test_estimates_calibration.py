from __future__ import annotations

import numpy as np

from teeter.campaigns.finish.estimates import measure_reliability


def test_calibrated_confidences_lie_within_the_intervals() -> None:
    generator = np.random.default_rng(0)
    confidences = generator.uniform(0.5, 1, 3000)
    is_right = generator.random(3000) < confidences

    bins = measure_reliability(confidences, is_right)

    assert sum(bin.items for bin in bins) == 3000
    assert [bin.confidence for bin in bins] == sorted(bin.confidence for bin in bins)
    # Each interval may miss in one of twenty cases.
    assert sum(bin.low <= bin.confidence <= bin.high for bin in bins) >= len(bins) - 1


def test_a_model_that_is_too_sure_lies_below() -> None:
    bins = measure_reliability(np.full(200, 0.99), np.arange(200) % 2 == 0)

    assert all(bin.high < bin.confidence for bin in bins)


def test_few_items_make_few_bins_or_none() -> None:
    assert measure_reliability(np.zeros(0), np.zeros(0, bool)) == []
    assert measure_reliability(np.full(9, 0.9), np.ones(9, bool)) == []
    assert len(measure_reliability(np.full(25, 0.9), np.ones(25, bool))) == 2
