"""Rows that make their own batches, and training in a way of one's own: what adapters build on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import teeter
from teeter.errors import InputError, TrainingError
from teeter.models.inputs import BatchedInputs, as_one_batch, batches, count_rows, take_rows

RNG = np.random.default_rng(1)
LINES = [RNG.integers(1, 9, size=RNG.integers(1, 6)).tolist() for _ in range(40)]
CLASSES = np.array([sum(line) % 3 for line in LINES])


class BatchesOfLines(BatchedInputs):
    """Numbers in lines of different lengths, filled up with 0; at most 4 at a time."""

    def __init__(self, lines: list[list[int]], shift: int | None = None) -> None:
        self.lines = lines
        self.shift = shift

    def __len__(self) -> int:
        return len(self.lines)

    def take(self, rows: Any) -> Self:
        return type(self)([self.lines[row] for row in rows.tolist()], self.shift)

    def adapt_to(self, model: nn.Module) -> Self:
        return type(self)(self.lines, 0)

    def batches(self, size: int) -> Iterator[dict[str, Tensor]]:
        for start in range(0, len(self), min(size, 4)):
            yield type(self)(self.lines[start : start + min(size, 4)], self.shift).as_one_batch()

    def as_one_batch(self) -> dict[str, Tensor]:
        assert self.shift is not None, "they are asked what the model takes first"
        width = max(map(len, self.lines))
        return {
            "numbers": torch.tensor([[*line, *[0] * (width - len(line))] for line in self.lines])
        }


class Reader(nn.Module):
    """Answers as Hugging Face's models do."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 8, padding_idx=0)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(8, classes)

    def forward(self, numbers: Tensor) -> dict[str, Tensor]:
        return {"logits": self.head(self.drop(self.words(numbers).sum(dim=1)))}


def make_fitted_learner(
    training: Any, make: Any = Reader, data: Any = None, **options: Any
) -> teeter.Learner:
    pool = BatchesOfLines(LINES) if data is None else data
    learner = teeter.Learner(
        lambda seed: make(), pool, classes=3, training=training, device="cpu", **options
    )
    learner.tell(np.arange(20), CLASSES[:20])
    learner.fit()
    return learner


def test_a_model_looks_at_them_in_order() -> None:
    outputs = teeter.observe(Reader(), BatchesOfLines(LINES))
    assert outputs.features.shape == (40, 8)

    model = Reader()
    all_rows = teeter.observe(model, BatchesOfLines(LINES))
    two_rows = teeter.observe(model, BatchesOfLines(LINES[7:9]), batch_size=1)

    torch.testing.assert_close(all_rows.take(np.array([7, 8])).features, two_rows.features)

    assert teeter.observe(
        model, BatchesOfLines(LINES), ("dropout_logits",), passes=3
    ).posterior_logits.shape == (3, 40, 3)
    assert teeter.observe([model, Reader()], BatchesOfLines(LINES)).posterior_logits.shape == (
        2,
        40,
        3,
    )


def test_they_are_counted_taken_and_put_together() -> None:
    rows = BatchesOfLines(LINES, 0)
    assert count_rows(rows) == 40
    assert take_rows(rows, np.array([3, 1])).lines == [LINES[3], LINES[1]]
    assert [len(batch["numbers"]) for batch in batches(rows, 100)] == [4] * 10
    assert len(as_one_batch(rows)["numbers"]) == 40
    assert as_one_batch(np.eye(3)).shape == (3, 3)


def test_a_learner_trains_on_them_and_on_answers_that_are_mappings() -> None:
    training = teeter.TrainingConfig(epochs=150, learning_rate=0.02, batch_size=8)
    learner = make_fitted_learner(training)
    assert learner.evaluate(BatchesOfLines(LINES[:20]), CLASSES[:20]).accuracy > 0.7
    assert len(learner.ask(5)) == 5

    judged = make_fitted_learner(
        teeter.TrainingConfig(epochs=3), validation=(BatchesOfLines(LINES[20:]), CLASSES[20:])
    )
    assert judged.history[-1].validation_accuracy is not None

    with pytest.raises(InputError, match="cold start cannot use them as features"):
        teeter.Learner(
            lambda seed: Reader(), BatchesOfLines(LINES), classes=3, cold_start="coreset"
        ).ask(1)


def test_a_mapping_with_too_few_classes_is_refused() -> None:
    with pytest.raises(TrainingError, match="Reader returns 2 classes, but the labels have 3"):
        make_fitted_learner(teeter.TrainingConfig(epochs=1), lambda: Reader(2))
