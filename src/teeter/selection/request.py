"""What to select, and what was selected: one request for every kind of pool, and one result.

A ``SelectionRequest`` is checked once. A ``Selection`` has the picks and all that they depend on.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teeter.base.arrays import describe_device
from teeter.base.files import LfCsvStream
from teeter.base.seeds import validate_seed
from teeter.base.version import __version__, commit
from teeter.data.table_files import TABLE_SUFFIXES
from teeter.errors import InputError, MissingOutputError
from teeter.kernels import uncertainty
from teeter.kernels.directions import DEFAULT_SUBSPACE
from teeter.selection import (
    DEFAULT_CANDIDATES,
    DEFAULT_REFERENCE,
    DEFAULT_STRATEGY,
    DEFAULT_WORK,
)
from teeter.strategies.api import make_strategy, option_names
from teeter.strategies.base import Strategy, registry
from teeter.strategies.ldm import LdmEstimator

__all__ = [
    "Provenance",
    "SelectedRow",
    "Selection",
    "SelectionRequest",
    "build_selection",
    "check_needs",
]

_HEADLESS_STRATEGIES = "random, seeding-l2 and seeding-cosine"


@dataclass(frozen=True, kw_only=True)
class SelectionRequest:
    """A pool, how to select from it, and how to compute.

    A request without ``engine`` reads the pool into memory. With ``engine``, the pool is read in
    shards by worker processes and need not fit in memory.

    Raises:
        InputError: arguments exclude each other, or a number is out of range.

    Example:
        >>> request = SelectionRequest(pool="pool.npz", n=10, rays=64)
        >>> request.strategy_options()
        {'rays': 64}
        >>> SelectionRequest(pool="pool.npz", n=10, head="head.npz", model="model.safetensors")
        Traceback (most recent call last):
        teeter.errors.InputError: Give only one of head= and model=: each of them provides the head.
    """

    pool: str | Path
    """Arrays or a table; with ``engine`` also a folder or a pattern of Parquet or .npy files."""
    n: int
    """Number of rows to pick."""
    head: str | Path | None = None
    """File with the last layer of the model, for a pool of features."""
    model: str | Path | None = None
    """File written by ``teeter.save_model``, for a pool of the model's inputs."""
    labels: str | None = None
    """Label column of a table: its labelled rows train a head, the others are candidates."""
    id_column: str | None = None
    """Column or array of ids. Default: ``id`` or ``ids`` if present, otherwise row numbers."""
    strategy: str = DEFAULT_STRATEGY
    rays: int | None = None
    """Number of rays of the LDM, whether the strategy uses it or it is only reported."""
    subspace: int | None = DEFAULT_SUBSPACE
    """Dimensions of the random subspaces of the rays. None: isotropic rays."""
    seed: int = 0
    device: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the strategy."""

    engine: str | None = None
    """``"local"`` or ``"ray"``: read the pool in shards. None: read it into memory."""
    workers: int | None = None
    work: str | Path = DEFAULT_WORK
    """Folder of scores. The same request resumes from the files in it."""
    reference: int = DEFAULT_REFERENCE
    candidates: int = DEFAULT_CANDIDATES
    labelled: str | Path | None = None
    """File of labelled rows in the format of the pool, for strategies that avoid them."""

    def __post_init__(self) -> None:
        """Refuse a request that cannot be met, before anything is read."""
        # All three provide the head: stored, as part of a model, or trained on labelled rows.
        head_sources = self._given("head", "model", "labels")
        if len(head_sources) > 1:
            names = " and ".join(head_sources)
            raise InputError(f"Give only one of {names}: each of them provides the head.")

        # A column of labels repeats its values, so it cannot tell rows apart.
        if self.labels is not None and self.labels == self.id_column:
            raise InputError(
                f"Column {self.labels!r} cannot hold both the labels and the ids: name two columns."
            )

        if self.engine is not None:
            memory_only = self._given("labels", "device")
            if memory_only:
                names = " and ".join(memory_only)
                raise InputError(f"engine= cannot be combined with {names}: leave one of them out.")
        else:
            shards_only = self._given("labelled", "workers")
            if shards_only:
                names = " and ".join(shards_only)
                raise InputError(
                    f"{names} can be used only with engine=: leave it out, or pass engine='local'."
                )
        validate_seed(self.seed)
        # How many candidates there are is known only when the pool is open: see validate_count.
        if isinstance(self.n, bool) or not isinstance(self.n, int | np.integer):
            raise InputError(f"Cannot pick {self.n!r} rows: ask for a whole number.")

        if self.reference < 1 or self.candidates < 1:
            raise InputError(
                f"Cannot draw {self.reference} reference rows and {self.candidates} candidates: "
                "ask for 1 or more of each."
            )

    def _given(self, *names: str) -> list[str]:
        """Return the arguments that are not None, as error messages mention them."""
        return [f"{name}=" for name in names if getattr(self, name) is not None]

    def strategy_options(self) -> dict[str, Any]:
        """Return the options of the strategy, with those of the rays if it has them."""
        options = dict(self.options)
        ray_options: dict[str, int | None] = {}
        if self.rays is not None:
            ray_options["rays"] = self.rays
        if self.subspace != DEFAULT_SUBSPACE:
            ray_options["subspace"] = self.subspace

        # A strategy without the LDM reports it too: then the rays are for the report alone.
        if ray_options and "rays" in option_names(registry.get(self.strategy)):
            options |= ray_options
        return options

    def make_strategy(self) -> Strategy:
        """Return the strategy with its options.

        Raises:
            UnknownNameError: no strategy has this name.
            InputError: an option is unknown, invalid, or not available over shards.
        """
        strategy = make_strategy(self.strategy, self.strategy_options())

        if self.engine is None or not isinstance(strategy, LdmEstimator):
            return strategy

        # Workers rank rows along rays; a strength limit or Gaussian draws have no ranks.
        if strategy.method != "rays" or strategy.sigma_max is not None:
            raise InputError(
                "With engine=, the LDM is always estimated by rays of any strength: leave out "
                "method= and sigma_max=."
            )
        return strategy


def check_needs(
    strategy: Strategy,
    request: SelectionRequest,
    available: frozenset[str],
    classes: tuple[str, ...] | None,
) -> None:
    """Refuse a strategy that needs what the pool does not provide, and say how to provide it.

    Args:
        strategy: the strategy to check.
        request: the request, for the hints of the message.
        available: the needs that the pool fills.
        classes: the classes that occur among the labels of a table.

    Raises:
        MissingOutputError: a need is not filled.
    """
    missing = strategy.needs - available
    pool = request.pool

    if missing & {"dropout_logits", "ensemble_logits"}:
        raise MissingOutputError(
            f"{strategy.name} needs the logits of several models, which {pool} does not hold."
        )

    # Features first: a pool without them has no use for a head either.
    if "features" in missing:
        raise MissingOutputError(f"{strategy.name} needs features, but {pool} holds none.")

    if missing & {"head", "logits"}:
        if request.labels is not None:
            content = "no label"
            if classes:
                content = f"only the class {classes[0]!r}"
            raise MissingOutputError(
                f"Column {request.labels!r} of {pool} holds {content}, but {strategy.name} needs "
                f"rows of at least 2 classes: label more rows, or start with "
                f"{_HEADLESS_STRATEGIES}, which need no labels."
            )

        # The command line turns arguments such as head= into its options.
        advice = "pass head= or model="
        is_table = Path(pool).suffix.lower() in TABLE_SUFFIXES
        if is_table and request.engine is None:
            advice = "pass head= or model=, or train one on its labelled rows with labels="
        raise MissingOutputError(
            f"{strategy.name} needs a head, but {pool} holds none: {advice}. You can also use "
            f"{_HEADLESS_STRATEGIES}, which need no head."
        )

    if "labelled" in missing:
        advice = "pass a table and its label column as labels="
        if request.engine is not None:
            advice = "pass a file of them as labelled="
        raise MissingOutputError(f"{strategy.name} needs labelled rows: {advice}.")


@dataclass(frozen=True)
class SelectedRow:
    """A row to label, and what the model predicts for it.

    Without a head, ``ldm``, ``predicted`` and ``margin`` are None.
    """

    rank: int
    """1 for the first pick."""
    id: str
    row: int
    """Row number in the pool, from 0; a table's header does not count."""
    ldm: float | None
    predicted: str | None
    """Name of the predicted class."""
    margin: float | None
    """Probability of the predicted class minus that of the runner-up."""
    score: float | None
    """Score by the strategy, unless that is the LDM or it has none."""


@dataclass(frozen=True)
class Provenance:
    """Everything that the picks depend on."""

    version: str
    commit: str | None
    """Commit of teeter's repository, if it runs from one."""
    pool: str
    head: str | None
    model: str | None
    labels: str | None
    """The label column."""
    id_column: str | None
    strategy: str
    options: dict[str, Any]
    rays: int | None
    subspace: int | None
    seed: int
    n: int
    candidates: int
    """Number of rows that the strategy picked from."""
    labelled: int
    """Number of labelled rows of a table."""
    classes: tuple[str, ...] | None
    device: str
    torch: str
    numpy: str
    notes: tuple[str, ...]
    """Remarks for the user, for example about columns that were left out."""


@dataclass(frozen=True)
class Selection:
    """The rows to label, best first, and what they depend on."""

    picks: tuple[SelectedRow, ...]
    provenance: Provenance

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """(n,) the row numbers of the picks."""
        return np.array([pick.row for pick in self.picks], dtype=np.int64)

    @property
    def ids(self) -> list[str]:
        """The ids of the picks."""
        return [pick.id for pick in self.picks]

    def to_csv(self, stream: TextIO) -> None:
        """Write a header and one line per pick; a column for the score only if there is one."""
        columns = ["rank", "id", "row", "ldm", "predicted", "margin"]
        if any(pick.score is not None for pick in self.picks):
            columns.append("score")

        writer = csv.writer(LfCsvStream(stream))
        writer.writerow(columns)
        for pick in self.picks:
            cells = [getattr(pick, column) for column in columns]
            writer.writerow(cells)

    def to_json(self) -> str:
        """Return the picks and, as ``facts``, their provenance as JSON."""
        # The keys are a file format that scripts read: do not rename them.
        content = {
            "picks": [asdict(pick) for pick in self.picks],
            "facts": asdict(self.provenance),
        }
        return json.dumps(
            content,
            ensure_ascii=False,
            indent=2,
            allow_nan=False,  # Python would write NaN, which is not JSON
        )


def build_selection(
    request: SelectionRequest,
    *,
    rows: npt.NDArray[np.int64],
    ids: Sequence[str],
    logits: Tensor | None,
    ldm: npt.NDArray[np.float32] | None,
    score: npt.NDArray[np.float32] | None,
    candidates: int,
    classes: tuple[str, ...] | None,
    device: torch.device,
    labelled: int = 0,
    notes: tuple[str, ...] = (),
) -> Selection:
    """Return the picks of a strategy in words, with the provenance of the request.

    Args:
        request: what was asked for.
        rows: (n,) row numbers, best first.
        ids: (n,) their ids.
        logits: (n, C), or None without a head.
        ldm: (n,)
        score: (n,)
        candidates: number of rows that the strategy picked from.
        classes: the names of the C classes.
        device: where it was computed.
        labelled: number of labelled rows of a table.
        notes: remarks for the user.
    """
    n = len(rows)
    predicted: list[str | None] = [None] * n
    margins: list[float | None] = [None] * n

    # Without a head nothing is predicted.
    if logits is not None:
        numbers = logits.argmax(dim=1).tolist()
        n_classes = logits.shape[1]
        names = classes or [str(number) for number in range(n_classes)]
        predicted = [names[number] for number in numbers]
        margin = uncertainty.margin(logits).float()
        margins = _as_floats(margin.cpu().numpy(), n)

    picks = []
    ldms = _as_floats(ldm, n)
    scores = _as_floats(score, n)
    columns = zip(ids, rows, ldms, predicted, margins, scores, strict=True)
    for rank, (row_id, row, row_ldm, class_name, row_margin, row_score) in enumerate(columns, 1):
        pick = SelectedRow(
            rank=rank,
            id=row_id,
            row=int(row),
            ldm=row_ldm,
            predicted=class_name,
            margin=row_margin,
            score=row_score,
        )
        picks.append(pick)

    provenance = Provenance(
        version=__version__,
        commit=commit(),
        pool=str(request.pool),
        head=_as_text(request.head),
        model=_as_text(request.model),
        labels=request.labels,
        id_column=request.id_column,
        strategy=request.strategy,
        options=request.strategy_options(),  # includes those of the rays if the strategy has them
        rays=request.rays,
        subspace=request.subspace,
        seed=request.seed,
        n=int(request.n),
        candidates=candidates,
        labelled=labelled,
        classes=classes,
        device=describe_device(device),
        torch=str(torch.__version__),
        numpy=np.__version__,
        notes=notes,
    )
    return Selection(tuple(picks), provenance)


def _as_floats(values: npt.NDArray[np.float32] | None, n: int) -> list[float | None]:
    """Return values with the digits of single precision: 0.1, not 0.10000000149011612."""
    if values is None:
        return [None] * n

    # str() of a float32 has the fewest digits that identify it. float() of it would have more.
    return [float(str(value)) for value in values]


def _as_text(path: object) -> str | None:
    if path is None:
        return None
    return str(path)
