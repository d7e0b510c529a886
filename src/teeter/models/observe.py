"""observe: one function that fills ``Outputs`` from any kind of model.

``dropout_logits`` and ``stacked_logits`` give samples of a model's posterior: passes with dropout
left on, and ensembles of networks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from teeter.base.arrays import as_tensor
from teeter.base.seeds import seeded_global_rng, stream, validate_seed
from teeter.errors import InputError
from teeter.models.inputs import BatchedInputs, adapt_to, batches, count_rows, is_stream
from teeter.models.outputs import OUTPUTS, Outputs, are_probabilities
from teeter.models.sklearn_model import (
    observe_predictions,
    observe_sklearn,
    require_classifier,
    split_pipeline,
)
from teeter.models.torch_model import (
    LinearHead,
    NotTheHeadError,
    as_logits,
    evaluation_mode,
    find_head,
    forward_logits,
    observe_torch,
    probe_batch,
)

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

_NEEDS = OUTPUTS - {"labelled"}
"""What can be asked of a model. The labelled rows come from the caller."""


def observe(
    model: Any,
    data: Any,
    needs: Collection[str] = ("logits", "features", "head"),
    *,
    batch_size: int = 1024,
    device: torch.device | str | None = None,
    seed: int = 0,
    head: str | None = None,
    passes: int = PASSES,
) -> Outputs:
    """Return what ``model`` says about the rows of ``data``: as much of ``needs`` as it has.

    Args:
        model: a torch module that ends in a linear layer, such as those of Lightning and Hugging
            Face, with or without a constant scale and a softmax after it; a fitted scikit-learn
            classifier or pipeline, which may end in one of skorch; another object with
            ``predict_proba`` or ``decision_function``; a callable from a batch to logits, to
            (logits, features) or to a dictionary of what ``Outputs`` takes; or a list of models,
            whose logits become the posterior (``ensemble_logits``) while the first one gives all
            else.
        data: an array, a tensor, a dictionary of them, a dataset, ``Texts`` or
            ``Images`` of ``teeter.models``; for scikit-learn whatever the model takes.
        needs: a subset of logits, features, head, dropout_logits, ensemble_logits.
        batch_size: rows at a time. It does not change the result.
        device: where to run a torch module, which is moved there and back; its own device if left
            out.
        seed: decides the dropout passes.
        head: the name of a torch module's last linear layer, if it cannot be found.
        passes: the number of dropout passes.

    Example:
        >>> import numpy as np
        >>> from teeter import observe
        >>> from sklearn.linear_model import LogisticRegression
        >>> rows = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
        >>> model = LogisticRegression().fit(rows, ["a", "b", "c"])
        >>> observe(model, rows)
        Outputs(logits=(3, 3), features=(3, 2), weight=(3, 2), bias=(3,))
    """
    unknown = sorted(set(needs) - _NEEDS)
    if unknown:
        raise InputError(f"Unknown outputs requested: {unknown}. Choose from {sorted(_NEEDS)}.")

    seed = validate_seed(seed)

    if isinstance(model, list | tuple):
        if not model:
            raise InputError("An ensemble needs at least one model, but this list is empty.")

        # All that is needed of the first, and logits of the others.
        members = []
        for position, member in enumerate(model):
            outputs = observe(
                member,
                data,
                needs if position == 0 else ("logits",),
                batch_size=batch_size,
                device=device,
                seed=seed,
                head=head,
                passes=passes,
            )
            members.append(outputs)
        return members[0].with_posterior(stacked_logits(members))

    # The network inside an estimator shows its head; the estimator around it shows probabilities
    # only.
    network = _inner_network(model)
    if network is not None:
        steps, classifier = split_pipeline(model)
        require_classifier(classifier)
        for step in steps:
            data = step.transform(data)
        model = network

    outputs = _observe_model(
        model,
        data,
        needs,
        batch_size=batch_size,
        device=device,
        head=head,
    )
    if isinstance(model, nn.Module) and "dropout_logits" in needs:
        posterior = dropout_logits(
            model,
            data,
            passes=passes,
            seed=seed,
            device=device,
            head=head,
        )
        outputs = outputs.with_posterior(posterior)

    # The dataset of a data loader need not have a length.
    if not isinstance(data, DataLoader):
        row_count = count_rows(data)
        if len(outputs) != row_count:
            raise InputError(
                f"The model returned {len(outputs)} rows, but the data has {row_count}: it must "
                f"return one row for each."
            )
    return outputs


def is_estimator(model: object) -> bool:
    """Return whether ``model`` is a scikit-learn estimator, without importing scikit-learn."""
    # If nothing has imported scikit-learn yet, no estimator can exist.
    base = sys.modules.get("sklearn.base")
    if base is None:
        return False
    return isinstance(model, base.BaseEstimator)


def is_estimator_class(model: object) -> bool:
    """Return whether ``model`` is a class of scikit-learn estimators instead of an instance."""
    base = sys.modules.get("sklearn.base")
    if base is None or not isinstance(model, type):
        return False
    return issubclass(model, base.BaseEstimator)


def is_network(model: object) -> bool:
    """Return whether ``model`` has an output for every class, also for those it never saw.

    So has a torch module, alone or inside a fitted estimator. Other estimators have columns for the
    classes of their training labels only.
    """
    return isinstance(model, nn.Module) or _inner_network(model) is not None


def _inner_network(model: object) -> nn.Module | None:
    """Return the torch module that a fitted estimator or the end of a pipeline wraps, or None.

    The estimators of skorch have it as ``module_``. That is all that teeter knows about skorch.
    """
    if not is_estimator(model):
        return None

    _, classifier = split_pipeline(model)
    network = getattr(classifier, "module_", None)
    if not isinstance(network, nn.Module):
        return None
    return network


def _observe_model(
    model: Any,
    data: Any,
    needs: Collection[str],
    *,
    batch_size: int,
    device: torch.device | str | None,
    head: str | None,
) -> Outputs:
    """Observe one model in the way that fits its kind.

    Raises:
        InputError: if the model is of no kind that can be observed, or ``data`` is not for it.
    """
    # The most specific first: torch modules and estimators can be called, too.
    if isinstance(model, nn.Module):
        return observe_torch(
            model,
            data,
            batch_size=batch_size,
            device=device,
            needs=needs,
            head=head,
        )

    if is_estimator(model):
        if isinstance(data, BatchedInputs):
            raise InputError(
                f"{type(data).__name__} are inputs for a network: give the columns themselves to "
                f"a {type(model).__name__}."
            )
        from teeter.models.several_labels_head import SeveralLabelsHead

        if isinstance(model, SeveralLabelsHead):
            return model.outputs(data)
        return observe_sklearn(model, data)

    if is_estimator_class(model):
        raise InputError(
            f"The model is the class {model.__name__}: give a fitted instance of it instead."
        )
    # The methods that classifiers of scikit-learn's kind have.
    if hasattr(model, "predict_proba") or hasattr(model, "decision_function"):
        return observe_predictions(model, data)
    if callable(model):
        return _observe_callable(model, data, batch_size)

    raise InputError(
        f"Cannot observe an object of type {type(model).__name__}: give a torch module that "
        "ends in a linear layer, a fitted scikit-learn classifier, an object with "
        "predict_proba or decision_function, or a callable that returns logits and features."
    )


def _observe_callable(
    model: Callable[[Any], Any],
    data: Any,
    batch_size: int,
) -> Outputs:
    """Observe a function from a batch to outputs, and put its results together."""
    returned = [model(batch) for batch in batches(data, batch_size)]
    results = [_name_parts(result) for result in returned]
    if not results:
        raise InputError("Cannot observe an empty pool: the data has no rows.")

    parts: dict[str, Any] = {}
    for name in results[0]:
        if name in ("weight", "bias"):
            # The head is the same for all rows, so that of the first batch is enough.
            parts[name] = results[0][name]
        else:
            row_axis = 0
            if name == "posterior_logits":  # (S, N, C)
                row_axis = 1

            # Tensors, or whatever NumPy takes for arrays.
            pieces = [result[name] for result in results]
            if isinstance(pieces[0], Tensor):
                parts[name] = torch.cat([piece.detach() for piece in pieces], dim=row_axis)
            else:
                arrays = [np.asarray(piece) for piece in pieces]
                parts[name] = np.concatenate(arrays, axis=row_axis)

    # The message of ``Outputs`` names its arguments, which a callable does not have.
    several = isinstance(returned[0], Outputs) and returned[0].several
    if "logits" in parts and "weight" not in parts and not several:
        logits = as_tensor(parts["logits"], "logits")
        if are_probabilities(logits):
            raise InputError(
                "The model returned rows that are non-negative and sum to 1, as probabilities do: "
                'return {"probabilities": p} instead, or return logits.'
            )
    return Outputs(**parts, several=several)


def _name_parts(result: Any) -> Mapping[str, Any]:
    """Return what a callable returned for a batch, by the names that ``Outputs`` uses."""
    if isinstance(result, Outputs):
        values = vars(result)
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    if isinstance(result, Mapping):
        names = {"logits", "features", "weight", "bias", "posterior_logits", "probabilities"}
        if not result or set(result) - names:
            raise InputError(
                f"The model returned {sorted(result)}: use names from {sorted(names)}."
            )
        return {name: value for name, value in result.items() if value is not None}

    if isinstance(result, tuple | list):
        if len(result) != 2:
            raise InputError(
                f"The model returned {len(result)} values: return logits, or a pair (logits, "
                "features)."
            )
        logits, features = result
        return {"logits": logits, "features": features}

    return {"logits": result}


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
