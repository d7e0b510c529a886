"""What teeter bench demo says about its results."""

from __future__ import annotations

from pathlib import Path

from teeter.bench.analysis.statistics import Gain
from teeter.bench.demo import DemoResult, DemoRow
from teeter.cli.bench import _describe_demo


def make_result(repetitions: int, gain: Gain) -> DemoResult:
    """Return a result in which LDM-S reaches 90% and Random 88%."""
    ldm_s = DemoRow("ldm-s", accuracy=0.85, last=0.90, gain=gain, labels=140.0)
    random = DemoRow("random", accuracy=0.83, last=0.88, gain=None, labels=220.0)
    page = Path("index.html")
    return DemoResult(page, page, (ldm_s, random), labels=220, repetitions=repetitions)


def test_several_repetitions_are_tested() -> None:
    sentence, saving, _ = _describe_demo(make_result(5, Gain(2.0, 0.5, 9.0, 0.0008)))
    assert sentence.endswith("(+2.0 points for LDM-S, p = 0.0008).")
    assert saving.endswith("with 140 labels instead of 220.")


def test_one_repetition_allows_no_test() -> None:
    sentence, *_ = _describe_demo(make_result(1, Gain(2.0, 0.0, 0.0, 1.0)))
    assert "p =" not in sentence
    assert "not tested, because a test needs two or more repetitions" in sentence
