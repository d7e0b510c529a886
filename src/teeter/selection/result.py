"""The result of a selection: the picks, and everything that they depend on."""

from __future__ import annotations

import csv
import json
from dataclasses import asdict, dataclass
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from teeter.base.arrays import describe_device
from teeter.base.files import LfCsvStream
from teeter.base.version import __version__, commit
from teeter.kernels import uncertainty
from teeter.selection.request import SelectionRequest


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


@dataclass(frozen=True, eq=False, kw_only=True)
class PickedRows:
    """What a strategy picked, before it is put into words."""

    rows: npt.NDArray[np.int64]
    """(n,) row numbers, best first."""
    ids: list[str]
    logits: Tensor | None
    """(n, C), or None without a head."""
    ldm: npt.NDArray[np.float32] | None
    """(n,)"""
    score: npt.NDArray[np.float32] | None
    """(n,)"""
    candidates: int
    classes: tuple[str, ...] | None
    device: torch.device
    labelled: int = 0
    notes: tuple[str, ...] = ()


def build_selection(request: SelectionRequest, picked: PickedRows) -> Selection:
    """Return the picks in words, with the provenance of the request."""
    n = len(picked.rows)
    predicted: list[str | None] = [None] * n
    margins: list[float | None] = [None] * n

    # Without a head nothing is predicted.
    if picked.logits is not None:
        numbers = picked.logits.argmax(dim=1).tolist()
        names = picked.classes or [str(number) for number in range(picked.logits.shape[1])]
        predicted = [names[number] for number in numbers]
        margin = uncertainty.margin(picked.logits).float()
        margins = _as_floats(margin.cpu().numpy(), n)

    ldm = _as_floats(picked.ldm, n)
    scores = _as_floats(picked.score, n)

    picks = []
    columns = zip(picked.ids, picked.rows, ldm, predicted, margins, scores, strict=True)
    for rank, (row_id, row, row_ldm, class_name, row_margin, score) in enumerate(columns, start=1):
        pick = SelectedRow(
            rank=rank,
            id=row_id,
            row=int(row),
            ldm=row_ldm,
            predicted=class_name,
            margin=row_margin,
            score=score,
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
        candidates=picked.candidates,
        labelled=picked.labelled,
        classes=picked.classes,
        device=describe_device(picked.device),
        torch=str(torch.__version__),
        numpy=np.__version__,
        notes=picked.notes,
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
