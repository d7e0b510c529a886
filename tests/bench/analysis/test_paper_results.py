"""The paper's tables: ours are its own, and where it agrees with itself our functions give its
numbers back.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from teeter import strategies
from teeter.bench.analysis import paper_results
from teeter.errors import UnknownNameError

SHARED = Path(__file__).parents[4] / "shared" / "paper"

COMPLETE = ["cifar100", "tiny-imagenet", "food101", "imagenet"]
"""Datasets whose accuracy table has every step; of the others it shows every second, third or
fifth.
"""

AGREE = {
    ("cifar100", "probcover"),
    ("tiny-imagenet", "coreset"),
    ("tiny-imagenet", "probcover"),
    ("imagenet", "margin"),
    ("imagenet", "coreset"),
}


def recomputed_deltas(*datasets: str) -> list[paper_results.RecomputedDelta]:
    return [delta for dataset in datasets for delta in paper_results.recomputed_deltas(dataset)]


def test_every_name_is_a_strategy_of_ours() -> None:
    assert set(paper_results.NAMES.values()) <= set(strategies.names())
    assert len(set(paper_results.NAMES.values())) == len(paper_results.NAMES)


def test_the_tables_are_whole() -> None:
    assert len(paper_results.datasets()) == 10
    assert sum(len(paper_results.deltas(dataset)) for dataset in paper_results.datasets()) == 85
    assert (
        sum(
            len(curve)
            for name in paper_results.datasets()
            for curve in paper_results.accuracy(name).values()
        )
        == 826
    )

    assert sum(len(paper_results.minutes(dataset)) for dataset in paper_results.datasets()) == 78
    assert paper_results.minutes("imagenet") == {}

    assert paper_results.deltas("openml-6")["ensemble"] == paper_results.PaperDelta(
        4.43, 0.31, beaten=False
    )
    assert paper_results.accuracy("openml-6")["random"][400] == 60.64


@pytest.mark.parametrize("table", ["accuracy", "deltas", "runtime", "settings"])
def test_the_tables_are_those_read_from_the_paper(table: str) -> None:
    if not SHARED.is_dir():
        pytest.skip("the paper is not at hand")
    ours = Path(paper_results.__file__).with_name("paper_tables") / f"{table}.csv"
    assert ours.read_bytes() == (SHARED / f"{table}.csv").read_bytes()


def test_an_unknown_dataset_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="no dataset called 'digits'"):
        paper_results.deltas("digits")


def test_complete_tables_give_the_deltas_back_where_the_paper_agrees_with_itself() -> None:
    deltas = recomputed_deltas(*COMPLETE)
    assert all(delta.complete for delta in deltas)
    agreeing = {(delta.dataset, delta.strategy) for delta in deltas if delta.agrees}
    for delta in deltas:
        verdict = "agrees" if delta.agrees else "DISAGREES"
        print(
            f"{delta.dataset} {delta.strategy}: {delta.printed:+.2f} printed, "
            f"{delta.recomputed:+.3f} recomputed, {verdict}"
        )
    assert agreeing == AGREE


def test_the_widest_disagreements() -> None:
    wide = {
        (delta.dataset, delta.strategy): delta.difference
        for delta in recomputed_deltas(*COMPLETE)
        if abs(delta.difference) > 0.14
    }

    assert wide == {
        ("cifar100", "entropy"): pytest.approx(-0.227),
        ("cifar100", "margin"): pytest.approx(-0.160),
        ("cifar100", "dbal"): pytest.approx(-0.217),
        ("cifar100", "badge"): pytest.approx(-0.224),
        ("food101", "badge"): pytest.approx(-0.14625),
    }


def test_thinned_tables_come_near_the_deltas() -> None:
    deltas = recomputed_deltas(
        *(dataset for dataset in paper_results.datasets() if dataset not in COMPLETE)
    )
    assert not any(delta.complete for delta in deltas)
    assert max(abs(delta.difference) for delta in deltas) == pytest.approx(0.505)

    wide = {(delta.dataset, delta.strategy) for delta in deltas if abs(delta.difference) > 0.305}
    assert wide == {
        ("openml-6", "ensemble"),
        ("openml-156", "coreset"),
        ("openml-156", "dbal"),
        ("cifar10", "coreset"),
    }
