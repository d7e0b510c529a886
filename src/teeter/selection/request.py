"""What to select: one request for arrays, tables, model files and shards, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from teeter.base.seeds import validate_seed
from teeter.data.table_files import TABLE_SUFFIXES
from teeter.errors import InputError, MissingOutputError
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
        self._check_exclusive_arguments()
        self._check_numbers()

    def _check_exclusive_arguments(self) -> None:
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

    def _given(self, *names: str) -> list[str]:
        """Return the arguments that are not None, as error messages mention them."""
        return [f"{name}=" for name in names if getattr(self, name) is not None]

    def _check_numbers(self) -> None:
        validate_seed(self.seed)
        # How many candidates there are is known only when the pool is open: see validate_count.
        if isinstance(self.n, bool) or not isinstance(self.n, int | np.integer):
            raise InputError(f"Cannot pick {self.n!r} rows: ask for a whole number.")

        if self.reference < 1 or self.candidates < 1:
            raise InputError(
                f"Cannot draw {self.reference} reference rows and {self.candidates} candidates: "
                "ask for 1 or more of each."
            )

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
