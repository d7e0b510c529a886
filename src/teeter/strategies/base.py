"""What a strategy is: ``Strategy``, the ``Context`` that it sees, and checks of its options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, final

import numpy as np
import numpy.typing as npt
from torch import Generator, Tensor

from teeter.base.registry import Registry
from teeter.base.wording import list_some
from teeter.errors import InputError, MissingOutputError, StrategyError
from teeter.models.outputs import OUTPUTS, Outputs

__all__ = [
    "Context",
    "ScoringStrategy",
    "Strategy",
    "TopKStrategy",
    "is_count",
    "is_number",
    "is_positive",
    "registry",
    "require_counts",
    "validate_count",
]

_MOST_LISTED = 12
"""Strategies that an error names."""


def is_count(value: object) -> bool:
    """Return whether ``value`` is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        return False
    return bool(value >= 1)


def require_counts(strategy: object, *names: str) -> None:
    """Refuse options that are not whole numbers of at least 1, or None if that is the default."""
    for name in names:
        value = getattr(strategy, name)
        is_left_out = value is None and getattr(type(strategy), name) is None
        if not is_left_out and not is_count(value):
            raise InputError(f"{name} is {value!r}: it must be a whole number of 1 or more.")


def is_number(value: object) -> bool:
    """Return whether ``value`` is a real number."""
    if isinstance(value, bool | np.complexfloating):
        return False
    return isinstance(value, int | float | np.number)


def is_positive(value: object) -> bool:
    """Return whether ``value`` is a positive, finite number."""
    return is_number(value) and bool(0 < value < np.inf)  # type: ignore[operator]


@dataclass(frozen=True, kw_only=True, eq=False)
class Context:
    """What a strategy may look at when it chooses. It never holds the labels of candidates."""

    candidates: npt.NDArray[np.int64]
    """(N,) row numbers of the candidates in the pool."""
    outputs: Outputs
    """Model outputs of the N candidates."""
    generator: Generator
    """The only source of randomness a strategy may use."""
    labelled: Outputs | None = None
    """Model outputs of the L labelled rows."""
    labels: Tensor | None = None
    """(L,) classes of the labelled rows, if passed; (L, C) of 0 and 1 if rows may have several."""
    waiting: Tensor | None = None
    """(W, D) features of rows that were picked before, and whose labels are not known yet."""
    n_classes: int | None = None
    memory: dict[str, Any] = field(default_factory=dict)
    """What the strategy keeps from round to round. It is saved with the learner."""
    notes: dict[str, Tensor] = field(default_factory=dict)
    """Values of shape (N,) that explain the picks, such as "ldm" or "score"."""

    def __len__(self) -> int:
        return len(self.candidates)

    @property
    def logits(self) -> Tensor:
        """(N, C) logits of the candidates."""
        return self._require(self.outputs.logits, "logits")

    @property
    def features(self) -> Tensor:
        """(N, D) features of the candidates."""
        return self._require(self.outputs.features, "features")

    @property
    def labelled_features(self) -> Tensor:
        """(L, D) features of the labelled rows, with L = 0 if there are none."""
        if self.labelled is None:
            return self.features[:0]
        features = self.labelled.features
        if features is None:
            raise MissingOutputError(
                "The candidates have features, but the labelled rows have none."
            )
        return features.to(self.features)

    @property
    def weight(self) -> Tensor:
        """(C, D) weight of the head."""
        return self._require(self.outputs.weight, "weight")

    @property
    def bias(self) -> Tensor | None:
        """(C,) bias of the head, if it has one."""
        return self.outputs.bias

    @property
    def posterior_logits(self) -> Tensor:
        """(S, N, C) logits of the candidates under S draws of the model."""
        return self._require(self.outputs.posterior_logits, "posterior_logits")

    @staticmethod
    def _require(value: Tensor | None, name: str) -> Tensor:
        if value is None:
            raise MissingOutputError(
                f"The strategy reads {name} without declaring it in its needs."
            )
        return value


class Strategy(ABC):
    """A rule that picks rows.

    Subclasses declare ``needs`` and implement ``choose``. Keyword arguments are their options.

    ``teeter.checks.check_strategy`` tests the contract:

    - ``choose`` returns n different positions, best first.
    - The same context gives the same answer.
    - The answer depends on the contents of the rows, not on their row numbers or positions.
    - Nothing in the context changes except ``memory`` and ``notes``.
    """

    needs: ClassVar[frozenset[str]]
    """Required outputs.

    A subset of logits, features, head, dropout_logits, ensemble_logits and labelled.
    """
    optional_needs: ClassVar[frozenset[str]] = frozenset()
    """What is used if present: ``labelled`` rows, and rows that are ``waiting`` for a label."""
    labels_per_row: ClassVar[Literal["one", "several", "any"]] = "one"
    """Whether it takes outputs of rows with one label, with several (``Outputs(several=True)``), or
    both."""

    def __init_subclass__(cls) -> None:
        """Refuse needs that no model output can meet, and an unknown ``best``."""
        # Abstract classes between this one and a strategy have no needs yet. A string is a
        # collection of letters, so ``needs = "logits"`` must be refused by its type.
        needs: frozenset[str] = getattr(cls, "needs", frozenset())
        if isinstance(needs, str) or not set(needs) <= OUTPUTS:
            raise StrategyError(
                f"{cls.__name__} needs {needs!r}: use a set of names from {sorted(OUTPUTS)}."
            )
        if cls.labels_per_row not in ("one", "several", "any"):
            raise StrategyError(
                f"{cls.__name__}.labels_per_row is {cls.labels_per_row!r}: it must be 'one', "
                "'several' or 'any'."
            )
        best = getattr(cls, "best", "smallest")
        if best not in ("smallest", "largest"):
            raise StrategyError(
                f"{cls.__name__}.best is {best!r}: it must be 'smallest' or 'largest'."
            )

    @abstractmethod
    def choose(self, context: Context, n: int) -> Tensor:
        """Return n different positions among the candidates, best first: (n,)."""

    @property
    @final
    def name(self) -> str:
        """The registered name, or the name of the class."""
        return registry.name_of(type(self)) or type(self).__name__

    @final
    def select(self, context: Context, n: int) -> npt.NDArray[np.int64]:
        """Pick n different rows of the pool.

        Returns:
            (n,) row numbers, best first.

        Raises:
            InputError: if n is not a whole number from 1 to the number of candidates.
            MissingOutputError: if the context lacks an output that the strategy needs.
            StrategyError: if ``choose`` breaks the contract.
        """
        validate_count(n, len(context))

        answer = self.choose(self._prepare(context), n)
        positions = self._validate_positions(answer, n, len(context))
        return context.candidates[positions]

    @final
    def _prepare(self, context: Context) -> Context:
        """Check that all needs are met, and compute logits from features and head if necessary."""
        self._require_labels_per_row(context.outputs)
        for need in sorted(self.needs - {"labelled"}):
            if not context.outputs.has(need):
                usable = list_some(_usable_strategies(context), _MOST_LISTED)
                raise MissingOutputError(
                    f"{self.name} needs {_describe_need(need)}. With the available outputs you can "
                    f"use {usable}."
                )
        if "labelled" in self.needs and context.labelled is None:
            raise MissingOutputError(
                f"{self.name} needs the outputs of the labelled rows: pass labelled=."
            )

        if "logits" not in self.needs:
            return context
        return replace(context, outputs=context.outputs.with_logits())

    @final
    def _require_labels_per_row(self, outputs: Outputs) -> None:
        """Refuse outputs of rows with several labels, or with one, if it cannot take them."""
        kind: Literal["one", "several"] = "several" if outputs.several else "one"
        if self.labels_per_row in (kind, "any"):
            return

        usable = ", ".join(_names_for(kind))
        if outputs.several:
            raise InputError(
                f"{self.name} picks rows that have one label each, but these may have several: use "
                f"{usable}."
            )
        raise InputError(
            f"{self.name} picks rows that may have several labels: pass Outputs(..., "
            f"several=True), or use {usable}."
        )

    @final
    def _require_tensor(self, values: object, meaning: str) -> None:
        """Refuse lists and NumPy arrays from strategies of others."""
        if not isinstance(values, Tensor):
            raise StrategyError(
                f"{self.name} returned its {meaning} as a {type(values).__name__}: return a torch "
                f"tensor."
            )

    @final
    def _validate_positions(self, positions: Tensor, n: int, rows: int) -> npt.NDArray[np.int64]:
        self._require_tensor(positions, "positions")
        answer = positions.cpu().numpy()

        if answer.shape != (n,) or answer.dtype.kind not in "iu":
            raise StrategyError(
                f"{self.name} was asked for {n} positions and returned {answer.dtype} values "
                f"of shape {answer.shape}."
            )
        if answer.min() < 0 or answer.max() >= rows:
            raise StrategyError(f"{self.name} returned a position outside 0 to {rows - 1}.")

        unique, counts = np.unique(answer, return_counts=True)
        if len(unique) < n:
            repeated = unique[counts > 1]
            raise StrategyError(f"{self.name} returned position {repeated[0]} more than once.")
        return answer.astype(np.int64)


class ScoringStrategy(Strategy):
    """A strategy that scores each candidate. ``best`` says which end is picked first."""

    best: ClassVar[Literal["smallest", "largest"]]

    @abstractmethod
    def score(self, context: Context) -> Tensor:
        """Return the score of each candidate: (N,)."""

    @final
    def scores(self, context: Context) -> Tensor:
        """Return the score of each candidate, (N,), after checking what the strategy needs."""
        scores = self.score(self._prepare(context))
        return self._validate_scores(scores, len(context))

    @final
    def _validate_scores(self, scores: Tensor, rows: int) -> Tensor:
        self._require_tensor(scores, "scores")
        if scores.shape != (rows,):
            raise StrategyError(
                f"{self.name} returned scores of shape {tuple(scores.shape)} for {rows} rows."
            )

        # Infinite scores rank well. NaN compares with nothing, so the picks would be arbitrary.
        n_nan = int(scores.isnan().sum())
        if n_nan:
            raise StrategyError(f"{self.name} returned NaN for {n_nan} of {rows} rows.")
        return scores


class TopKStrategy(ScoringStrategy):
    """A strategy that picks the best scores. Ties go to the lowest row."""

    row_independent: ClassVar[bool] = False
    """Whether a score depends on its own row only, so that a pool may be scored shard by shard."""

    @final
    def choose(self, context: Context, n: int) -> Tensor:
        """Return the n best positions, best first."""
        scores = self._validate_scores(self.score(context), len(context))
        context.notes["score"] = scores

        # A stable sort, not topk, which leaves open which of several equal scores it returns.
        order = scores.argsort(stable=True, descending=self.best == "largest")
        return order[:n]


registry: Registry[Strategy] = Registry("strategy", group="teeter.strategies", base=Strategy)
"""All strategies by name. Other packages add theirs by entry points of ``teeter.strategies``."""


def _usable_strategies(context: Context) -> list[str]:
    """Return the strategies whose needs the context meets. Plugins are not loaded for this."""
    available = {need for need in OUTPUTS - {"labelled"} if context.outputs.has(need)}
    if context.labelled is not None:
        available.add("labelled")

    classes = registry.loaded_classes()
    kind: Literal["one", "several"] = "several" if context.outputs.several else "one"
    return [name for name in _names_for(kind) if classes[name].needs <= available]


def _names_for(kind: Literal["one", "several"]) -> list[str]:
    """Return the names of the strategies for rows with one label, or with several.

    Plugins are not loaded for this.
    """
    names = []
    for name, cls in registry.loaded_classes().items():
        if cls.labels_per_row in (kind, "any"):
            names.append(name)
    return sorted(names)


def validate_count(n: int, rows: int) -> None:
    """Refuse to pick fewer than one or more than all candidates.

    Raises:
        InputError: ``n`` is not a whole number in 1 to ``rows``.
    """
    if rows == 0:
        raise InputError("Cannot pick from an empty pool: it has no rows.")
    # True is an int in Python, and never a number of rows.
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise InputError(f"Cannot pick {n!r} rows: ask for a whole number.")
    if not 1 <= n <= rows:
        raise InputError(f"Cannot pick {n} of {rows} candidates: ask for 1 to {rows}.")


def _describe_need(need: str) -> str:
    """Return what an output is, and how to get it if the model can give it."""
    descriptions = {
        "features": "features, the input of the last layer, but there are none",
        "head": "a linear head (features and weight), but this model has none",
        "dropout_logits": (
            "the logits of several dropout passes, which a network with dropout has: "
            'compute them with observe(model, data, needs=("dropout_logits",))'
        ),
        "ensemble_logits": (
            "the logits of several networks: compute them with observe([model, other_model], data)"
        ),
    }
    return descriptions.get(need, f"{need}, but there are none")
