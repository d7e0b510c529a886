"""An experiment is a learner with an oracle."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from teeter import Learner
from teeter.errors import InputError
from teeter.experiments.play import Round, initial_rows, play


def run(strategy: str, seed: int = 0, rounds: int = 3) -> list[Round]:
    digits, labels = load_digits(return_X_y=True)
    digits = digits / 16
    learner = Learner(LogisticRegression(max_iter=300), digits[:400], strategy, classes=10, seed=seed)
    test = (digits[400:800], labels[400:800])
    return list(play(learner, labels[:400], initial=initial_rows(400, 20, seed), n=15, rounds=rounds, test=test))


def test_rounds_grow_by_the_batch_and_never_ask_twice() -> None:
    rounds = run("ldm-s")
    assert [one.labelled for one in rounds] == [20, 35, 50, 65]
    assert len(rounds[-1].picks) == 0
    asked = np.concatenate([initial_rows(400, 20, 0), *[one.picks for one in rounds]])
    assert len(set(asked.tolist())) == 65
    assert rounds[-1].accuracy > rounds[0].accuracy
    assert set(rounds[0].seconds) == {"training", "validation", "outputs", "selection"}


@pytest.mark.checks(against="the mistake of comparing strategies on different initial sets")
def test_strategies_share_the_first_round_and_runs_repeat() -> None:
    first, second, again = run("ldm-s"), run("margin"), run("ldm-s")
    assert first[0].accuracy == second[0].accuracy
    for one, two in zip(first, again, strict=True):
        assert (one.accuracy, one.picks.tolist()) == (two.accuracy, two.picks.tolist())


def test_initial_rows_depend_on_the_seed_alone() -> None:
    assert initial_rows(50, 9, 1).tolist() == initial_rows(50, 9, 1).tolist()
    assert initial_rows(50, 9, 1).tolist() != initial_rows(50, 9, 2).tolist()
    assert sorted(initial_rows(5, 5, 0).tolist()) == [0, 1, 2, 3, 4]
    with pytest.raises(InputError, match="Cannot begin with 6 of 5"):
        initial_rows(5, 6, 0)
