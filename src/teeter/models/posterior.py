"""Samples of a model's posterior: passes with dropout left on, and ensembles of networks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from teeter.base.seeds import seeded_global_rng, stream
from teeter.errors import InputError
from teeter.models.inputs import BatchedInputs, adapt_to, batches, is_stream
from teeter.models.outputs import Outputs
from teeter.models.torch_model import (
    LinearHead,
    NotTheHeadError,
    as_logits,
    evaluation_mode,
    find_head,
    forward_logits,
    probe_batch,
)

__all__ = ["PASSES", "dropout_logits", "stacked_logits"]

PASSES = 100
"""Dropout passes, as in the paper."""

_DROPOUT_LAYERS = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
_BLOCK_ROWS = 64
"""Rows that share a random stream. It is fixed, so that results do not depend on a batch size."""
_MAX_INPUT_NUMBERS = 1 << 26
"""Input numbers that go through the network at once: 256 MiB of float32."""


def dropout_logits(
    model: nn.Module,
    data: Any,
    *,
    passes: int = PASSES,
    seed: int = 0,
    device: torch.device | str | None = None,
    head: str | None = None,
) -> Tensor:
    """Return the logits of several passes with dropout on and all else in evaluation mode.

    Rows come in blocks of 64, each with its own random stream, and are repeated over the passes.

    Args:
        model: a torch module with a dropout layer.
        data: N rows in any form that ``observe`` takes.
        passes: S, the number of passes.
        seed: decides what is dropped.
        device: where to run. The module's own device if None.
        head: the name of the last linear layer, if it cannot be found.

    Returns:
        (S, N, C) logits.

    Raises:
        InputError: if the module has no dropout layer, or the data have no rows.
    """
    if not any(isinstance(module, _DROPOUT_LAYERS) for module in model.modules()):
        raise InputError(
            f"{type(model).__name__} has no dropout layer, so dropout passes would all be the same."
        )
    if passes < 1:
        raise InputError(f"Cannot make {passes} dropout passes: ask for 1 or more.")

    # evaluation_mode restores the modes that are changed below.
    with evaluation_mode(model, device) as run_device:
        rows = adapt_to(data, model)
        all_batches = iter(batches(rows, _BLOCK_ROWS))
        first_batch = next(all_batches, None)
        if first_batch is None:
            raise InputError("Cannot observe an empty pool: the data has no rows.")

        # The head must be found before dropout is switched on: it compares outputs.
        linear_head = find_head(model, probe_batch(rows, first_batch), run_device, named=head)
        for module in model.modules():
            module.training = isinstance(module, _DROPOUT_LAYERS)

        options = {
            "passes": passes,
            "seed": seed,
            # BatchedInputs come in batches that are as large as memory allows already.
            "max_repeats": 1 if isinstance(rows, BatchedInputs) else passes,
        }
        all_batches = chain([first_batch], all_batches)
        if linear_head is not None:
            try:
                return _all_blocks(model, all_batches, run_device, linear_head, **options)
            except NotTheHeadError:
                if head is not None or is_stream(rows):
                    raise
                all_batches = batches(rows, _BLOCK_ROWS)
        return as_logits(_all_blocks(model, all_batches, run_device, None, **options))


def _all_blocks(
    model: nn.Module,
    all_batches: Iterable[Any],
    device: torch.device,
    head: LinearHead | None,
    *,
    passes: int,
    seed: int,
    max_repeats: int,
) -> Tensor:
    """Return the logits of all rows in S passes, or what the module returns: (S, N, C)."""
    blocks = []
    for block, batch in enumerate(all_batches):
        logits = _block_logits(
            model,
            batch,
            device,
            head,
            passes=passes,
            seed=stream(seed, "dropout", block).initial_seed(),
            max_repeats=max_repeats,
        )
        blocks.append(logits)
    return torch.cat(blocks, dim=1)


def stacked_logits(members: Sequence[Outputs]) -> Tensor:
    """Return the logits of several models for the same rows: S outputs of (N, C) -> (S, N, C).

    Raises:
        InputError: if a model has no logits, or if their shapes differ.
    """
    all_logits = [member.with_logits().logits for member in members]
    present = [logits for logits in all_logits if logits is not None]
    shapes = {tuple(logits.shape) for logits in present}

    has_missing = len(present) < len(all_logits)
    if has_missing or len(shapes) != 1:
        logit_shapes = [None if logits is None else tuple(logits.shape) for logits in all_logits]
        raise InputError(
            "The models of an ensemble must return logits of the same shape, but these return "
            f"{logit_shapes}."
        )
    return torch.stack(present)


def _block_logits(
    model: nn.Module,
    batch: Any,
    device: torch.device,
    head: LinearHead | None,
    *,
    passes: int,
    seed: int,
    max_repeats: int,
) -> Tensor:
    """Return the logits of B rows in S passes, of which several run at once: (S, B, C)."""
    rows, numbers = _count_rows_and_numbers(batch)
    fitting_repeats = _MAX_INPUT_NUMBERS // max(1, numbers)
    repeats = max(1, min(max_repeats, fitting_repeats))

    pieces = []
    # Dropout layers draw from torch's global generator.
    with seeded_global_rng(seed, device):
        for start in range(0, passes, repeats):
            count = min(repeats, passes - start)
            logits = forward_logits(model, _repeat_rows(batch, count), device, head)
            by_pass = logits.reshape(count, rows, -1)  # from (count * B, C)
            pieces.append(by_pass)
    return torch.cat(pieces)


def _count_rows_and_numbers(batch: Any) -> tuple[int, int]:
    """Return the rows of a batch, and the numbers in all of them together."""
    if isinstance(batch, Mapping):
        sizes = [_count_rows_and_numbers(part) for part in batch.values()]
        rows, _ = sizes[0]
        return rows, sum(numbers for _, numbers in sizes)

    shape = np.shape(batch)
    return len(batch), int(np.prod(shape))


def _repeat_rows(batch: Any, times: int) -> Any:
    """Return all rows of a batch, then all of them again, and so on."""
    if isinstance(batch, Mapping):
        return {name: _repeat_rows(part, times) for name, part in batch.items()}
    if isinstance(batch, Tensor):
        other_axes = [1] * (batch.ndim - 1)
        return batch.repeat(times, *other_axes)

    copies = [np.asarray(batch)] * times
    return np.concatenate(copies)
