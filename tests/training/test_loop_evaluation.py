"""Evaluation: accuracy, loss and the accuracy of an ensemble."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from teeter.training import evaluate_logits


def test_evaluation_compares_logits_with_classes() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
    labels = torch.tensor([0, 1, 1])
    evaluation = evaluate_logits(logits, labels)
    assert evaluation.accuracy == pytest.approx(2 / 3)
    assert evaluation.loss == pytest.approx(
        np.mean([np.log1p(np.exp(-2)), np.log1p(np.exp(-1)), np.log1p(np.exp(3))])
    )
    assert (evaluation.rows, evaluation.ensemble_accuracy) == (3, None)


def test_the_accuracy_of_an_ensemble_is_that_of_its_mean_probabilities() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    sure = torch.tensor([[0.0, 9.0], [0.0, 9.0]])
    unsure = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    evaluation = evaluate_logits(logits, torch.tensor([0, 1]), torch.stack([sure, unsure, unsure]))
    assert evaluation.accuracy == 1
    assert evaluation.ensemble_accuracy == 0.5
