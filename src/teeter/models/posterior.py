"""What several samples of a model tell: dropout left on, and networks trained from different starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from teeter.errors import InputError
from teeter.models.inputs import BatchedInputs, adapt_to, batches
from teeter.models.outputs import Outputs
from teeter.models.torch_model import evaluation_mode, find_head, forward_with_features, probe_batch
from teeter.seeds import seeded_global_rng, stream

__all__ = ["PASSES", "dropout_logits", "stacked_logits"]

PASSES = 100
"""Dropout passes, as the paper takes."""

_DROPOUT = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
_ROWS_AT_ONCE = 64
_NUMBERS_AT_ONCE = 1 << 26


def dropout_logits(
    model: nn.Module,
    data: Any,
    *,
    passes: int = PASSES,
    seed: int = 0,
    device: torch.device | str | None = None,
    head: str | None = None,
) -> Tensor:
    """Return the logits of ``passes`` runs with dropout left on and everything else as in use: (S, N, C).

    Rows come in blocks of a fixed size, each with a random stream of its own, repeated over the passes.
    """
    if not any(isinstance(module, _DROPOUT) for module in model.modules()):
        raise InputError(
            f"{type(model).__name__} has no dropout layer, so dropout passes would all be the same."
        )
    if passes < 1:
        raise InputError(f"Cannot make {passes} dropout passes: ask for 1 or more.")
    blocks = []
    with evaluation_mode(model, device) as where:
        found: str | None = None
        rows = adapt_to(data, model)
        for k, batch in enumerate(batches(rows, _ROWS_AT_ONCE)):
            if k == 0:
                found = find_head(model, probe_batch(rows, batch), where, named=head)
                for module in model.modules():
                    module.training = isinstance(module, _DROPOUT)
            at_once = (
                1 if isinstance(rows, BatchedInputs) else passes
            )  # their batches are as large as they may be
            blocks.append(
                _passes(
                    model, batch, where, found, passes=passes, seed=seed, block=k, at_once=at_once
                )
            )
    if not blocks:
        raise InputError("Cannot observe an empty pool: the data has no rows.")
    return torch.cat(blocks, dim=1)


def _passes(
    model: nn.Module,
    batch: Any,
    device: torch.device,
    head: str | None,
    *,
    passes: int,
    seed: int,
    block: int,
    at_once: int,
) -> Tensor:
    """Return the logits of one block: (S, B, C)."""
    rows, numbers = _size(batch)
    together = max(1, min(at_once, _NUMBERS_AT_ONCE // max(1, numbers)))
    answers = []
    with seeded_global_rng(stream(seed, "dropout", block).initial_seed(), device):
        for start in range(0, passes, together):
            count = min(together, passes - start)
            logits, _ = forward_with_features(model, _repeated(batch, count), device, head)
            answers.append(logits.reshape(count, rows, -1))
    return torch.cat(answers)


def _size(batch: Any) -> tuple[int, int]:
    """Return the rows and the numbers of a batch."""
    if isinstance(batch, Mapping):
        sizes = [_size(part) for part in batch.values()]
        return sizes[0][0], sum(numbers for _, numbers in sizes)
    return len(batch), int(np.prod(np.shape(batch)))


def _repeated(batch: Any, times: int) -> Any:
    if isinstance(batch, Mapping):
        return {name: _repeated(part, times) for name, part in batch.items()}
    if isinstance(batch, Tensor):
        return batch.repeat(times, *[1] * (batch.ndim - 1))
    return np.concatenate([np.asarray(batch)] * times)


def stacked_logits(members: Sequence[Outputs]) -> Tensor:
    """Return the logits of several models for the same rows: S outputs of (N, C) -> (S, N, C)."""
    logits = [member.with_logits().logits for member in members]
    shapes = {None if one is None else tuple(one.shape) for one in logits}
    if len(shapes) != 1 or None in shapes:
        raise InputError(
            f"The models of an ensemble must give logits of one shape, and these give {shapes}."
        )
    return torch.stack([one for one in logits if one is not None])
