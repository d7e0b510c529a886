"""An experiment: the same initial labels for every strategy, and labels on request only."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench.experiments.tiny_runs import TINY
from teeter.bench.experiments.experiment import Experiment, initial_rows
from teeter.bench.experiments.run_folder import Cell
from teeter.errors import InputError


@pytest.mark.checks(against="the mistake of comparing strategies with different initial labels")
def test_strategies_share_the_initial_labels_and_know_no_others(one_thread: None) -> None:
    experiment = Experiment(TINY, None, torch.device("cpu"))
    first, second = (experiment.make_learner(Cell(name, 0)) for name in ("ldm-s", "margin"))
    other = experiment.make_learner(Cell("margin", 1))
    assert first.pool.labelled.tolist() == second.pool.labelled.tolist()
    assert first.pool.labelled.tolist() != other.pool.labelled.tolist()
    assert len(first.pool.labelled) == TINY.initial


def test_a_round_asks_for_rows_and_gets_their_labels(one_thread: None) -> None:
    experiment = Experiment(TINY, None, torch.device("cpu"))
    cell = Cell("ldm-s", 0)
    learner = experiment.make_learner(cell)
    learner.fit()
    result = experiment.evaluate_and_ask(learner, cell, 0)
    experiment.tell_labels(learner, result)
    assert result.labelled == 20
    assert len(learner.pool.labelled) == 40
    assert set(result.picks) <= set(learner.pool.labelled.tolist())
    learner.fit()
    assert experiment.evaluate_and_ask(learner, cell, TINY.rounds).picks == ()


def test_initial_rows_depend_on_the_seed_alone() -> None:
    assert initial_rows(50, 9, 1).tolist() == initial_rows(50, 9, 1).tolist()
    assert initial_rows(50, 9, 1).tolist() != initial_rows(50, 9, 2).tolist()
    assert sorted(initial_rows(5, 5, 0).tolist()) == [0, 1, 2, 3, 4]
    with pytest.raises(InputError, match="Cannot begin with 6 of 5 rows: ask for 1 to 5"):
        initial_rows(5, 6, 0)


def test_balanced_initial_rows_are_equally_many_of_every_class() -> None:
    classes = np.array([0] * 90 + [1] * 8 + [2] * 2)
    rows = initial_rows(100, 12, 0, balanced=classes)
    assert np.bincount(classes[rows]).tolist() == [5, 5, 2]
