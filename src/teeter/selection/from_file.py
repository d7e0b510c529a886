"""Picks from a file: a pool of arrays under a head, or a table whose labels are filled in part."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teeter.arrays import as_tensor, choose_device, describe_device, require_finite
from teeter.datasets.array_files import PoolFile, has_vectors, pool_from_table, read_head, read_pool
from teeter.datasets.label_column import Labels, read_labels
from teeter.datasets.table_features import encode_table
from teeter.datasets.table_files import TABLE_SUFFIXES, Table, read_table
from teeter.distributed.executors import make_executor
from teeter.errors import InputError, MissingOutputError
from teeter.kernels import uncertainty
from teeter.model_files import read_model
from teeter.models.linear_head import fit_head
from teeter.models.observe import observe
from teeter.models.outputs import Outputs
from teeter.seeds import derive_seed, stream
from teeter.selection.from_shards import select_from_shards
from teeter.strategies.api import build_context, ldm, make_strategy, option_names
from teeter.strategies.base import Context, Strategy, registry
from teeter.version import __version__, commit

__all__ = ["Pick", "Provenance", "Selection", "pick_from_file", "pick_from_shards"]

_NEED_NO_LABELS = "random, seeding-l2 and seeding-cosine"


@dataclass(frozen=True)
class Pick:
    """One row to label: where it is, and what the model makes of it (None where there is no head)."""

    rank: int
    id: str
    row: int
    """Its number in the file, from 0, the header not counted."""
    ldm: float | None
    predicted: str | None
    margin: float | None
    score: float | None
    """The strategy's own, where it gives one that is not the LDM."""


@dataclass(frozen=True)
class Provenance:
    """What the picks depend on."""

    version: str
    commit: str | None
    """Of teeter's own repository, when it runs from one."""
    pool: str
    head: str | None
    model: str | None
    labels: str | None
    """The label column."""
    id_column: str | None
    strategy: str
    options: dict[str, Any]
    rays: int | None
    """Of the LDM beside the picks, where the strategy has no such option."""
    seed: int
    n: int
    candidates: int
    labelled: int
    classes: tuple[str, ...] | None
    device: str
    torch: str
    numpy: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Selection:
    """The rows to label, best first, and what they depend on."""

    picks: tuple[Pick, ...]
    facts: Provenance

    def to_csv(self, stream: TextIO) -> None:
        """Write a header and one line a pick; the score's column only where the strategy gives one."""
        names = ["rank", "id", "row", "ldm", "predicted", "margin"]
        if any(pick.score is not None for pick in self.picks):
            names.append("score")
        writer = csv.writer(_Lines(stream))
        writer.writerow(names)
        writer.writerows([getattr(pick, name) for name in names] for pick in self.picks)

    def to_json(self) -> str:
        """Return the picks and the facts as JSON."""
        return json.dumps(asdict(self), ensure_ascii=False, indent=2, allow_nan=False)


@dataclass(frozen=True)
class _Lines:
    """Ends lines by a newline alone; told to do that itself, the csv writer leaves a carriage return unquoted."""

    stream: TextIO

    def write(self, line: str) -> int:
        return self.stream.write(line.removesuffix("\r\n") + "\n")


@dataclass(frozen=True, eq=False)
class _Task:
    """The candidates of a file, and the labelled rows beside them."""

    outputs: Outputs
    rows: npt.NDArray[np.int64]
    ids: list[str] | None
    classes: tuple[str, ...] | None = None
    labelled: Outputs | None = None
    labels: npt.NDArray[np.int64] | None = None
    notes: tuple[str, ...] = ()


def pick_from_file(
    pool: str | Path,
    *,
    n: int,
    head: str | Path | None = None,
    model: str | Path | None = None,
    labels: str | None = None,
    id_column: str | None = None,
    strategy: str = "ldm-s",
    rays: int | None = None,
    seed: int = 0,
    device: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Selection:
    """Return the n rows of a file to label next.

    Args:
        pool: arrays (.npz, .npy, .safetensors) or a table (.csv, .parquet).
        n: how many rows.
        head: the model's last layer, for a pool of features.
        model: a file of ``teeter.save_model``, for a pool of raw rows: it makes the features.
        labels: a table's label column, filled in part: the labelled rows train a head, the others are candidates.
        id_column: the column or array of ids; ``id`` or ``ids`` if left out, and row numbers if there is none.
        strategy: a name of ``teeter.strategies.names()``.
        rays: how many rays the least disagree metric is estimated with.
        seed: same seed, same picks.
        device: where to compute; a GPU if there is one.
        options: the strategy's own.
    """
    chosen, settings = _made(strategy, rays, dict(options or {}))
    where = choose_device(device)
    if model is not None:
        _refuse_both(head, labels)
        task = _under_model(Path(pool), model, id_column, where)
    else:
        task = _task(Path(pool), head, labels, id_column, strategy=chosen)
    _require_outputs(chosen, task, pool)
    context = build_context(
        task.outputs, labelled=task.labelled, labels=task.labels, seed=seed, device=where
    )
    positions = chosen.select(context, n)
    picks = _described(positions, task, context, rays=rays, seed=seed)
    facts = _facts(
        pool=str(pool),
        head=None if head is None else str(head),
        model=None if model is None else str(model),
        labels=labels,
        id_column=id_column,
        strategy=strategy,
        options=settings,
        rays=rays,
        seed=seed,
        n=n,
        candidates=len(task.outputs),
        labelled=0 if task.labels is None else len(task.labels),
        classes=task.classes,
        device=describe_device(where),
        notes=task.notes,
    )
    return Selection(picks, facts)


def pick_from_shards(
    pool: str | Path,
    *,
    n: int,
    head: str | Path | None = None,
    model: str | Path | None = None,
    engine: str = "local",
    workers: int | None = None,
    work: str | Path = "teeter-work",
    strategy: str = "ldm-s",
    rays: int | None = None,
    seed: int = 0,
    id_column: str | None = None,
    **others: Any,
) -> Selection:
    """Return the n rows to label next of a pool that need not fit in memory; see ``select_from_shards``."""
    found = select_from_shards(
        pool,
        n,
        head=head,
        model=model,
        executor=make_executor(engine, workers),
        work=work,
        strategy=strategy,
        rays=rays,
        seed=seed,
        id_column=id_column,
        **others,
    )
    names = found.classes
    picks = tuple(
        Pick(
            rank=k + 1,
            id=found.ids[k],
            row=int(found.rows[k]),
            ldm=_single(found.ldm, k),
            predicted=None if found.predicted is None else _named(names, int(found.predicted[k])),
            margin=_single(found.margin, k),
            score=_single(found.score, k),
        )
        for k in range(len(found.rows))
    )
    facts = _facts(
        pool=str(pool),
        head=None if head is None else str(head),
        model=None if model is None else str(model),
        labels=None,
        id_column=id_column,
        strategy=strategy,
        options=found.options,
        rays=rays,
        seed=seed,
        n=n,
        candidates=found.candidates,
        labelled=0,
        classes=names,
        device=describe_device(torch.device("cpu")),
        notes=found.notes,
    )
    return Selection(picks, facts)


def _facts(**told: Any) -> Provenance:
    """Return facts with the versions that picks depend on."""
    return Provenance(
        version=__version__,
        commit=commit(),
        torch=str(torch.__version__),
        numpy=np.__version__,
        **told,
    )


def _single(values: npt.NDArray[np.float32] | None, place: int) -> float | None:
    return None if values is None else float(str(values[place]))


def _named(names: tuple[str, ...] | None, number: int) -> str:
    return str(number) if names is None else names[number]


def _made(name: str, rays: int | None, options: dict[str, Any]) -> tuple[Strategy, dict[str, Any]]:
    """Return the strategy and its options; rays are one of them where the strategy knows them."""
    if rays is not None and "rays" in option_names(registry.get(name)):
        options["rays"] = rays
    return make_strategy(name, options), options


def _task(
    path: Path,
    head: str | Path | None,
    labels: str | None,
    id_column: str | None,
    *,
    strategy: Strategy,
) -> _Task:
    if head is not None and labels is not None:
        raise InputError(
            "Give --head or --labels, not both: with --labels, the labelled rows train the head."
        )
    if path.suffix.lower() in TABLE_SUFFIXES:
        table = read_table(path)
        if labels is None and (head is not None or has_vectors(table)):
            return _under_head(pool_from_table(table, id_column=id_column), head)
        return _of_table(table, labels, id_column, strategy)
    pool = read_pool(path, id_column=id_column)
    if labels is not None:
        raise InputError(
            f"--labels names a column of a table, and {path} holds arrays: give the head with --head."
        )
    return _under_head(pool, head)


def _under_head(pool: PoolFile, path: str | Path | None) -> _Task:
    """Return the task of a pool, all of whose rows are candidates, under its own head or one in a file."""
    head = pool.head if path is None else read_head(path)
    outputs = Outputs(
        logits=pool.logits,
        features=pool.features,
        weight=None if head is None else head.weight,
        bias=None if head is None else head.bias,
    )
    names = _class_names(outputs, (head and head.classes) or pool.classes)
    return _Task(outputs, np.arange(len(outputs)), pool.ids, names, notes=pool.notes)


def _refuse_both(head: str | Path | None, labels: str | None) -> None:
    if head is not None:
        raise InputError("Give --head or --model, not both: a model brings its last layer along.")
    if labels is not None:
        raise InputError(
            "Give --labels or --model, not both: with --labels, the labelled rows train a head."
        )


def _under_model(
    path: Path, model: str | Path, id_column: str | None, device: torch.device
) -> _Task:
    """Return the task of a pool of raw rows, whose features a model makes."""
    pool, saved = read_pool(path, id_column=id_column, raw=True), read_model(model)
    if pool.features is None or tuple(pool.features.shape[1:]) not in (saved.shape, (saved.width,)):
        found = (
            "none" if pool.features is None else f"rows of shape {tuple(pool.features.shape[1:])}"
        )
        raise InputError(
            f"{saved.told} takes rows of shape {saved.shape}, flat or not, and {path} holds {found}."
        )
    rows = as_tensor(pool.features, "features").float()
    require_finite(rows, f"What {path} holds")
    try:
        outputs = observe(
            saved.network, rows.reshape(-1, *saved.shape), device=device, head=saved.layer
        )
    except InputError as error:
        raise InputError(f"{saved.told} makes what cannot be used: {error}") from None
    return _Task(outputs, np.arange(len(outputs)), pool.ids, saved.classes, notes=pool.notes)


def _class_names(outputs: Outputs, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if outputs.n_classes is None:
        return None
    if names is not None and len(names) != outputs.n_classes:
        raise InputError(
            f"There are names for {len(names)} classes, and the head or logits have {outputs.n_classes}."
        )
    return names or tuple(map(str, range(outputs.n_classes)))


def _of_table(table: Table, column: str | None, id_column: str | None, strategy: Strategy) -> _Task:
    """Return the task of a table: the rows without a label, under a head fitted to those with one."""
    if column is None and strategy.needs - {"features"}:
        raise InputError(
            f"{strategy.name} needs a head, and {table.path} is a table: name its label column with --labels to train "
            f"one, or give one for its columns of numbers with --head; {_NEED_NO_LABELS} need neither."
        )
    if column is not None and column == id_column:
        raise InputError(
            f"Column {column!r} cannot hold both the labels and the ids: name two columns."
        )
    id_name = id_column or next(
        (name for name in ("id", "ids") if name in table.columns and name != column), None
    )
    ids = None if id_name is None else table.ids(id_name)
    labels = _no_labels(table) if column is None else _usable_labels(table, column, strategy)
    encoded = encode_table(table, leave_out={name for name in (column, id_name) if name is not None})
    features = encoded.features
    if not features.shape[1]:
        if strategy.needs:
            told = " ".join(("", *encoded.notes))
            raise InputError(
                f"No column of {table.path} is left to serve as a feature: give it numbers, categories or dates that "
                f"vary, or turn its texts into arrays of features first.{told}"
            )
        features = np.zeros((len(table), 1), dtype=np.float32)
    return _fitted(features, labels, ids, (*labels.notes, *encoded.notes))


def _no_labels(table: Table) -> Labels:
    return Labels((), np.full(len(table), -1, dtype=np.int64))


def _usable_labels(table: Table, column: str, strategy: Strategy) -> Labels:
    labels = read_labels(table, column)
    if not len(labels.candidates):
        raise InputError(
            f"All {len(table)} rows of {table.path} have a label in {column!r}: none is left to pick."
        )
    if len(labels.classes) < 2 and strategy.needs & {"head", "logits"}:
        found = f"only the class {labels.classes[0]!r}" if labels.classes else "no label"
        raise InputError(
            f"Column {column!r} of {table.path} holds {found}, and {strategy.name} needs rows of 2 classes or more: "
            f"label some more, or start with {_NEED_NO_LABELS}, which need no labels."
        )
    return labels


def _fitted(
    features: npt.NDArray[np.float32], labels: Labels, ids: list[str] | None, notes: tuple[str, ...]
) -> _Task:
    rows, known = labels.candidates, labels.labelled
    weight = bias = None
    if len(labels.classes) > 1:
        weight, bias = fit_head(features[known], labels.codes[known], len(labels.classes))
    head: dict[str, Any] = {"weight": weight, "bias": bias}
    return _Task(
        outputs=Outputs(features=features[rows], **head),
        rows=rows,
        ids=ids,
        classes=labels.classes or None,
        labelled=Outputs(features=features[known], **head) if len(known) else None,
        labels=labels.codes[known] if len(known) else None,
        notes=notes,
    )


def _require_outputs(strategy: Strategy, task: _Task, pool: str | Path) -> None:
    """Refuse a strategy that needs what the file does not hold, in words of the command line."""
    way = "give it with --head" + (
        " or train it with --labels" if Path(pool).suffix.lower() in TABLE_SUFFIXES else ""
    )
    hints = {
        "features": f"features, and {pool} holds none",
        "head": f"a head, and {pool} holds none: {way}",
        "logits": f"a head or logits, and {pool} holds neither: {way}",
    }
    for need, hint in hints.items():
        if need in strategy.needs and not task.outputs.has(need):
            raise MissingOutputError(f"{strategy.name} needs {hint}.")
    if "labelled" in strategy.needs and task.labelled is None:
        raise MissingOutputError(
            f"{strategy.name} needs labelled rows: give a table, and its label column by --labels."
        )


def _described(
    positions: npt.NDArray[np.int64], task: _Task, context: Context, *, rays: int | None, seed: int
) -> tuple[Pick, ...]:
    """Return what there is to know of each picked position."""
    rows = task.rows[positions].tolist()
    ids = [str(row) if task.ids is None else task.ids[row] for row in rows]
    some = context.outputs.take(positions).with_logits()
    ldms = _numbers(_ldm_of(context, rays, seed), positions)
    predicted = _predicted(some.logits, task.classes, len(rows))
    margins = _numbers(
        None if some.logits is None else uncertainty.margin(some.logits), np.arange(len(rows))
    )
    scores = _numbers(None if "ldm" in context.notes else context.notes.get("score"), positions)
    columns = zip(ids, rows, ldms, predicted, margins, scores, strict=True)
    return tuple(Pick(rank, *fields) for rank, fields in enumerate(columns, start=1))


def _ldm_of(context: Context, rays: int | None, seed: int) -> Tensor | None:
    """Return the candidates' LDM: what the strategy noted, or else computed now, if there is a head."""
    outputs = context.outputs
    if "ldm" in context.notes or outputs.features is None or outputs.weight is None:
        return context.notes.get("ldm")
    same = derive_seed(stream(seed, "select"))  # the rays that a strategy by LDM would follow
    return ldm(outputs.features, outputs.weight, outputs.bias, rays=rays, seed=same)


def _numbers(values: Tensor | None, positions: npt.NDArray[np.int64]) -> list[float | None]:
    """Return values at some positions, with the digits of single precision."""
    if values is None:
        return [None] * len(positions)
    return [float(str(value)) for value in values.float().cpu().numpy()[positions]]


def _predicted(
    logits: Tensor | None, classes: tuple[str, ...] | None, rows: int
) -> list[str | None]:
    if logits is None or classes is None:
        return [None] * rows
    return [classes[number] for number in logits.argmax(dim=1).tolist()]
