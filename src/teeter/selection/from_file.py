"""Candidates in memory, from arrays or a table: under a head, through a model, or with labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teeter.base.arrays import as_tensor, choose_device, require_finite
from teeter.data.array_files import PoolFile, has_vectors, pool_from_table, read_head, read_pool
from teeter.data.table_columns import Labels, encode_table, read_labels
from teeter.data.table_files import TABLE_SUFFIXES, Table, read_table
from teeter.errors import InputError
from teeter.models.model_files import read_model
from teeter.models.observe import observe
from teeter.models.outputs import OUTPUTS, Outputs
from teeter.models.sklearn_model import fit_head
from teeter.selection.request import Selection, SelectionRequest, build_selection
from teeter.strategies.api import build_context, ldm
from teeter.strategies.base import Context, Strategy

__all__ = [
    "FileCandidates",
    "load_candidates",
]


@dataclass(frozen=True, eq=False)
class FileCandidates:
    """The unlabelled rows of a pool in memory, and the labelled rows beside them."""

    request: SelectionRequest
    outputs: Outputs
    """What the model says about the candidates."""
    rows: npt.NDArray[np.int64]
    """(N,) the candidates' row numbers in the pool."""
    ids: list[str] | None
    """Ids of all rows of the pool, labelled ones included."""
    device: torch.device
    classes: tuple[str, ...] | None = None
    labelled: Outputs | None = None
    labels: npt.NDArray[np.int64] | None = None
    """(L,) the classes of the labelled rows."""
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of candidates."""
        return len(self.outputs)

    @property
    def available(self) -> frozenset[str]:
        """The needs of strategies that can be filled."""
        needs = {need for need in OUTPUTS - {"labelled"} if self.outputs.has(need)}
        if self.labelled is not None:
            needs.add("labelled")
        return frozenset(needs)

    def pick(self, strategy: Strategy) -> Selection:
        """Pick rows, with the LDM and score of each."""
        context = build_context(
            self.outputs,
            labelled=self.labelled,
            labels=self.labels,
            seed=self.request.seed,
            device=self.device,
        )
        positions = strategy.select(context, self.request.n)

        # Positions are among the candidates, rows in the pool.
        rows = self.rows[positions]
        if self.ids is None:
            ids = [str(row) for row in rows.tolist()]
        else:
            ids = [self.ids[row] for row in rows.tolist()]

        # The score of a strategy that picks by the LDM is the LDM: report it once.
        score = None
        if "ldm" not in context.notes:
            score = context.notes.get("score")

        picked_outputs = context.outputs.take(positions).with_logits()
        ldm_of_candidates = _candidates_ldm(context, self.request)
        n_labelled = 0
        if self.labels is not None:
            n_labelled = len(self.labels)

        return build_selection(
            self.request,
            rows=rows,
            ids=ids,
            logits=picked_outputs.logits,
            ldm=_take(ldm_of_candidates, positions),
            score=_take(score, positions),
            candidates=len(self),
            classes=self.classes,
            device=self.device,
            labelled=n_labelled,
            notes=self.notes,
        )


def _candidates_ldm(context: Context, request: SelectionRequest) -> Tensor | None:
    """Return the LDM that the strategy noted, or compute it if there is a head: (N,)."""
    outputs = context.outputs
    if "ldm" in context.notes:
        return context.notes["ldm"]
    if outputs.features is None or outputs.weight is None:
        return None

    return ldm(
        outputs.features,
        outputs.weight,
        outputs.bias,
        rays=request.rays,
        subspace=request.subspace,
        seed=request.seed,
    )


def _take(
    values: Tensor | None, positions: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32] | None:
    """Return some values in single precision on the CPU: (N,), (n,) -> (n,)."""
    if values is None:
        return None

    on_cpu = values.float().cpu()
    all_values: npt.NDArray[np.float32] = on_cpu.numpy()
    return all_values[positions]


def load_candidates(request: SelectionRequest, strategy: Strategy) -> FileCandidates:
    """Read the pool of a request into memory.

    Args:
        request: what to select.
        strategy: decides whether a table without usable columns is an error.

    Raises:
        FileError: the pool, head or model file cannot be read.
        InputError: they do not fit each other.
    """
    path = Path(request.pool)
    device = choose_device(request.device)  # first: a wrong device fails before files are read

    if request.model is not None:
        return _run_model(request, request.model, device)

    if path.suffix.lower() not in TABLE_SUFFIXES:
        pool = read_pool(path, id_column=request.id_column)
        if request.labels is not None:
            raise InputError(
                f"labels= names a column of a table, but {path} holds arrays: pass head= instead."
            )
        return _apply_head(request, pool, device)

    # Without labels, a head or columns of vectors mean that the table holds features as they are.
    # Otherwise its columns are encoded: scaled numbers, one-hot categories, dates.
    table = read_table(path)
    holds_features = request.head is not None or has_vectors(table)
    if request.labels is None and holds_features:
        pool = pool_from_table(table, id_column=request.id_column)
        return _apply_head(request, pool, device)

    return _candidates_from_table(request, table, strategy, device)


def _apply_head(request: SelectionRequest, pool: PoolFile, device: torch.device) -> FileCandidates:
    """Return all rows of a pool under the head in a file, or under the head in the pool itself."""
    head = pool.head
    if request.head is not None:
        head = read_head(request.head)

    if head is None:
        outputs = Outputs(logits=pool.logits, features=pool.features)
        classes = pool.classes
    else:
        outputs = Outputs(
            logits=pool.logits,
            features=pool.features,
            weight=head.weight,
            bias=head.bias,
        )
        classes = head.classes or pool.classes

    # A pool of features alone has no classes, whatever names it stores.
    n_classes = outputs.n_classes
    if n_classes is None:
        classes = None
    elif classes is None:
        classes = tuple(str(number) for number in range(n_classes))
    elif len(classes) != n_classes:
        raise InputError(
            f"There are names for {len(classes)} classes, but the head or the logits have "
            f"{n_classes}."
        )

    return FileCandidates(
        request=request,
        outputs=outputs,
        rows=np.arange(len(outputs)),
        ids=pool.ids,
        device=device,
        classes=classes,
        notes=pool.notes,
    )


def _run_model(
    request: SelectionRequest, model_path: str | Path, device: torch.device
) -> FileCandidates:
    """Return all rows of a pool of inputs, with the features that a model computes."""
    path = request.pool
    pool = read_pool(path, id_column=request.id_column, raw=True)
    model = read_model(model_path)

    if pool.features is None:
        raise InputError(f"{path} holds no inputs for a model, only logits: leave model= out.")

    row_shape = tuple(pool.features.shape[1:])
    if row_shape not in (model.shape, (model.width,)):
        raise InputError(
            f"{model.description} takes rows of shape {model.shape}, flat or not, but {path} "
            f"holds rows of shape {row_shape}."
        )

    inputs = as_tensor(pool.features, "features").float()
    require_finite(inputs, f"The pool in {path}")

    # Rows may be stored flat: a network of images needs their shape back.
    shaped = inputs.reshape(-1, *model.shape)
    try:
        outputs = observe(model.network, shaped, device=device, head=model.layer)
    except InputError as error:
        raise InputError(
            f"{model.description} returned outputs that cannot be used: {error}"
        ) from None

    return FileCandidates(
        request=request,
        outputs=outputs,
        rows=np.arange(len(outputs)),
        ids=pool.ids,
        device=device,
        classes=model.classes,
        notes=pool.notes,
    )


def _candidates_from_table(
    request: SelectionRequest, table: Table, strategy: Strategy, device: torch.device
) -> FileCandidates:
    """Return the unlabelled rows of a table, under a head that is fitted to the labelled ones."""
    id_column = _find_id_column(request, table)
    ids = None
    if id_column is not None:
        ids = table.ids(id_column)

    labels = _read_known_labels(request, table)
    not_features = {name for name in (request.labels, id_column) if name is not None}
    features, notes = encode_table(table, leave_out=not_features)

    if features.shape[1] == 0:
        if strategy.needs:
            reasons = "".join(f" {note}" for note in notes)
            raise InputError(
                f"No column of {table.path} can be used as a feature: add numbers, categories or "
                f"dates that vary, or turn texts into arrays of features first.{reasons}"
            )
        # Outputs needs some array to count rows; the strategy does not look at it.
        features = np.zeros((len(table), 1), dtype=np.float32)

    labelled_features = features[labels.labelled]
    labelled_codes = labels.codes[labels.labelled]

    # Below two classes there is no head: check_needs refuses the strategies that need one.
    weight = None
    bias = None
    n_classes = len(labels.classes)
    if n_classes > 1:
        weight, bias = fit_head(labelled_features, labelled_codes, n_classes)

    labelled = None
    codes = None
    if len(labelled_features):
        labelled = Outputs(features=labelled_features, weight=weight, bias=bias)
        codes = labelled_codes

    candidate_features = features[labels.candidates]
    return FileCandidates(
        request=request,
        outputs=Outputs(features=candidate_features, weight=weight, bias=bias),
        rows=labels.candidates,
        ids=ids,
        device=device,
        classes=labels.classes or None,
        labelled=labelled,
        labels=codes,
        notes=(*labels.notes, *notes),
    )


def _find_id_column(request: SelectionRequest, table: Table) -> str | None:
    """Return the column of ids: the one that was asked for, or one whose name says so."""
    if request.id_column is not None:
        return request.id_column

    for name in ("id", "ids"):
        if name in table.columns and name != request.labels:
            return name
    return None


def _read_known_labels(request: SelectionRequest, table: Table) -> Labels:
    """Return the labels of a table, which may be none.

    Raises:
        InputError: if all rows have a label.
    """
    if request.labels is None:
        unlabelled = np.full(len(table), -1, dtype=np.int64)  # -1 is the code of no label
        return Labels(classes=(), codes=unlabelled)

    labels = read_labels(table, request.labels)
    if not len(labels.candidates):
        raise InputError(
            f"All {len(table)} rows of {table.path} have a label in {request.labels!r}: "
            "none is left to pick."
        )
    return labels
