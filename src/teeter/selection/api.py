"""Select rows to label from files: a request becomes candidates, picks, and one result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from teeter.kernels.directions import DEFAULT_SUBSPACE
from teeter.selection import (
    DEFAULT_CANDIDATES,
    DEFAULT_REFERENCE,
    DEFAULT_STRATEGY,
    DEFAULT_WORK,
)
from teeter.selection.executors import Executor, make_executor
from teeter.selection.from_file import load_candidates
from teeter.selection.from_shards import open_candidates
from teeter.selection.request import (
    Selection,
    SelectionRequest,
    check_needs,
)
from teeter.strategies.base import Strategy, validate_count

__all__ = [
    "Candidates",
    "Progress",
    "run_selection",
    "select_from_file",
    "select_from_shards",
]

Progress = Callable[[str, int, int], None]


class Candidates(Protocol):
    """Rows that a strategy may pick from, in memory or in shards."""

    @property
    def available(self) -> frozenset[str]:
        """The needs of strategies that can be filled."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes, if they are known."""

    def __len__(self) -> int:
        """Return the number of rows to pick from."""

    def pick(self, strategy: Strategy) -> Selection:
        """Pick the rows that the request asks for, best first."""


def select_from_file(
    pool: str | Path,
    n: int,
    *,
    head: str | Path | None = None,
    model: str | Path | None = None,
    labels: str | None = None,
    id_column: str | None = None,
    strategy: str = DEFAULT_STRATEGY,
    rays: int | None = None,
    subspace: int | None = DEFAULT_SUBSPACE,
    seed: int = 0,
    device: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Selection:
    """Select the rows of a file to label next.

    Args:
        pool: arrays (.npz, .npy, .safetensors) or a table (.csv, .parquet).
        n: number of rows to pick.
        head: file with the last layer of the model, for a pool of features.
        model: file written by ``teeter.save_model``, for a pool of the model's inputs.
        labels: label column of a table, filled in part. The labelled rows train a head, the
            others are candidates.
        id_column: column or array of ids. Default: ``id`` or ``ids`` if present, otherwise the
            row numbers.
        strategy: a name of ``teeter.strategies.names()``.
        rays: number of rays that estimate the least disagree metric (LDM).
        subspace: dimensions of the random subspaces of the rays. None: isotropic rays.
        seed: the same seed gives the same picks.
        device: ``"cpu"`` or ``"cuda"``. Default: a GPU if there is one.
        options: options of the strategy.

    Returns:
        The picks, best first, and their provenance.

    Raises:
        InputError: a file, an argument or a combination of arguments cannot be used.

    Example:
        >>> import pathlib, tempfile
        >>> pool = pathlib.Path(tempfile.mkdtemp()) / "pool.csv"
        >>> _ = pool.write_text("id,size,kind\\na,-2,no\\nb,2,yes\\nc,1.5,\\nd,0.1,\\ne,-1,\\n")
        >>> selection = select_from_file(pool, 2, labels="kind", strategy="margin")
        >>> [(pick.id, pick.predicted) for pick in selection.picks]
        [('d', 'yes'), ('e', 'no')]
    """
    request = SelectionRequest(
        pool=pool,
        n=n,
        head=head,
        model=model,
        labels=labels,
        id_column=id_column,
        strategy=strategy,
        rays=rays,
        subspace=subspace,
        seed=seed,
        device=device,
        options=options or {},
    )
    return run_selection(request)


def select_from_shards(
    pool: str | Path,
    n: int,
    *,
    head: str | Path | None = None,
    model: str | Path | None = None,
    engine: str = "local",
    workers: int | None = None,
    executor: Executor | None = None,
    work: str | Path = DEFAULT_WORK,
    strategy: str = DEFAULT_STRATEGY,
    rays: int | None = None,
    subspace: int | None = DEFAULT_SUBSPACE,
    reference: int = DEFAULT_REFERENCE,
    candidates: int = DEFAULT_CANDIDATES,
    labelled: str | Path | None = None,
    seed: int = 0,
    id_column: str | None = None,
    options: Mapping[str, Any] | None = None,
    on_progress: Progress = lambda step, done, total: None,
) -> Selection:
    """Select rows to label next from a pool that need not fit in memory.

    Args:
        pool: a .npy or Parquet file, a folder of them, or a pattern such as ``pool/*.parquet``.
        n: number of rows to pick.
        head: file with the last layer of the model. Strategies that use features alone need none.
        model: file written by ``teeter.save_model``. The pool then holds the model's inputs, and
            workers compute the features.
        engine: ``"local"`` for processes of this machine, ``"ray"`` for a cluster.
        workers: number of workers. Default: all cores.
        executor: runs the tasks, instead of ``engine`` and ``workers``.
        work: folder of scores. The same selection computes only what is missing in it.
        strategy: a name of ``teeter.strategies.names()``.
        rays: number of rays that estimate the least disagree metric (LDM).
        subspace: dimensions of the random subspaces of the rays. None: isotropic rays.
        reference: number of rows, drawn from the pool, on which flips are counted.
        candidates: number of rows, drawn from the pool, that a strategy picks from if it needs all
            its candidates at once.
        labelled: file of labelled rows in the format of the pool, for strategies that avoid them.
        seed: the same seed gives the same picks for any number of workers and size of shards.
        id_column: column of ids. Default: ``id`` or ``ids`` if present, otherwise the row numbers.
        options: options of the strategy.
        on_progress: called with the name of a step, how much of it is done, and its total.

    Returns:
        The picks, best first, and their provenance.

    Raises:
        InputError: a file, an argument or a combination of arguments cannot be used.
        TeeterError: workers were lost too often.
    """
    request = SelectionRequest(
        pool=pool,
        n=n,
        head=head,
        model=model,
        id_column=id_column,
        strategy=strategy,
        rays=rays,
        subspace=subspace,
        seed=seed,
        options=options or {},
        engine=engine,
        workers=workers,
        work=work,
        reference=reference,
        candidates=candidates,
        labelled=labelled,
    )
    return run_selection(request, executor=executor, on_progress=on_progress)


def run_selection(
    request: SelectionRequest,
    *,
    executor: Executor | None = None,
    on_progress: Progress = lambda step, done, total: None,
) -> Selection:
    """Run a selection request: load the candidates, pick, and report.

    Args:
        request: what to select.
        executor: runs the tasks of a sharded selection. Default: made from the request.
        on_progress: called with the name of a step, how much of it is done, and its total. Only a
            sharded selection has steps.

    Returns:
        The picks, best first, and their provenance.
    """
    # Cheap checks come first: an unknown strategy or option fails before any file is read.
    strategy = request.make_strategy()

    # Both kinds of candidates offer the same: see the protocol above.
    candidates: Candidates
    if request.engine is None:
        candidates = load_candidates(request, strategy)
    else:
        if executor is None:
            executor = make_executor(request.engine, request.workers)
        candidates = open_candidates(request, executor, on_progress)

    # Nothing has been computed for shards yet, so these fail before hours of scoring.
    check_needs(strategy, request, candidates.available, candidates.classes)
    validate_count(request.n, len(candidates))

    return candidates.pick(strategy)
