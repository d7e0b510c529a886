"""What teeter bench demo says about its results."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fake_runs import fake_run
from teeter.bench.analysis.run_comparison import compare_strategies
from teeter.cli.bench import _describe_demo


def describe(repetitions: int) -> list[str]:
    """Describe runs in which LDM-S reaches 90% and Random 88%, both with 600 labels."""
    lead = np.linspace(0.019, 0.021, repetitions)[:, None] if repetitions > 1 else 0.02
    random = np.tile([0.5, 0.78, 0.88], (repetitions, 1))
    ldm_s = random + np.array([0, 1, 1]) * lead
    run = fake_run({"ldm-s": ldm_s, "random": random})
    return _describe_demo(compare_strategies(run), Path("index.html"))


def test_several_repetitions_are_tested() -> None:
    sentence, saving, page = describe(5)
    assert sentence.startswith("Averaged over the rounds, LDM-S classified 85.0% of new digits")
    assert sentence.endswith("and Random 83.0% (+2.0 points for LDM-S, p = 5.8e-07).")
    assert saving.endswith("with 560 labels instead of 600.")
    assert page.endswith("picked: index.html")


def test_one_repetition_allows_no_test() -> None:
    sentence, *_ = describe(1)
    assert "p =" not in sentence
    assert "not tested, because a test needs two or more repetitions" in sentence
