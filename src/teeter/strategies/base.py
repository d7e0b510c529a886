"""The strategy contract: what a strategy is given, what it answers, and who turns positions into rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor

from teeter.errors import InputError, MissingOutputError, StrategyError
from teeter.models.outputs import OUTPUTS, Outputs
from teeter.registry import Registry

__all__ = ["Context", "ScoringStrategy", "Strategy", "TopKStrategy", "registry"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Context:
    """What a strategy may look at when it chooses. Labels of candidates are not in it."""

    candidates: npt.NDArray[np.int64]
    """(N,) the candidates' row numbers in the pool; strategies answer in positions, 0 to N - 1."""
    outputs: Outputs
    """What the model tells of the candidates."""
    generator: Generator
    """The only source of randomness."""
    labelled: Outputs | None = None
    """What the model tells of the L labelled rows."""
    labels: Tensor | None = None
    """(L,) the labelled rows' classes, or None if the caller has not passed them; no built-in strategy reads them."""
    n_classes: int | None = None
    memory: dict[str, Any] = field(default_factory=dict)
    """A small dictionary that lasts from round to round and is saved with the learner."""
    notes: dict[str, Tensor] = field(default_factory=dict)
    """What the strategy found out about each candidate, (N,) a note, for those who show why a row was picked."""

    def __len__(self) -> int:
        """Return N."""
        return len(self.candidates)

    @property
    def logits(self) -> Tensor:
        """(N, C)."""
        return self._present(self.outputs.logits, "logits")

    @property
    def features(self) -> Tensor:
        """(N, D)."""
        return self._present(self.outputs.features, "features")

    @property
    def weight(self) -> Tensor:
        """(C, D) of the last layer."""
        return self._present(self.outputs.weight, "weight")

    @property
    def bias(self) -> Tensor | None:
        """(C,) of the last layer, if it has one."""
        return self.outputs.bias

    @property
    def posterior_logits(self) -> Tensor:
        """(S, N, C)."""
        return self._present(self.outputs.posterior_logits, "posterior_logits")

    @staticmethod
    def _present(value: Tensor | None, name: str) -> Tensor:
        if value is None:
            raise MissingOutputError(
                f"The strategy reads {name} without declaring it in its needs."
            )
        return value


class Strategy(ABC):
    """A rule that picks rows. Subclasses declare ``needs`` and write ``choose``; options are their keyword arguments.

    The contract, which ``teeter.checks.check_strategy`` tests: ``choose`` returns n different positions, best first;
    the same context gives the same answer; it depends on the rows' contents, not on their numbers; it changes nothing
    it was given but ``memory`` and ``notes``.
    """

    needs: ClassVar[frozenset[str]]
    """What must be there to choose: a subset of logits, features, head, dropout_logits, ensemble_logits, labelled."""
    uses: ClassVar[frozenset[str]] = frozenset()
    """What it looks at besides, where it is there: ``labelled`` or nothing."""

    def __init_subclass__(cls) -> None:
        """Refuse needs that nobody can fill."""
        needs: frozenset[str] = getattr(cls, "needs", frozenset())
        if isinstance(needs, str) or not set(needs) <= OUTPUTS:
            raise StrategyError(
                f"{cls.__name__} needs {needs!r}: needs are a set among {sorted(OUTPUTS)}."
            )
        best = getattr(cls, "best", "smallest")
        if best not in ("smallest", "largest"):
            raise StrategyError(f"{cls.__name__}.best is {best!r}: it is 'smallest' or 'largest'.")

    @abstractmethod
    def choose(self, context: Context, n: int) -> Tensor:
        """Return n different positions among the candidates, best first: (n,)."""

    @property
    @final
    def name(self) -> str:
        """The registered name, or the class's."""
        return registry.name_of(type(self)) or type(self).__name__

    @final
    def select(self, context: Context, n: int) -> npt.NDArray[np.int64]:
        """Return n different rows of the pool, best first: (n,)."""
        _check_request(n, len(context))
        positions = self.choose(self._ready(context), n)
        return context.candidates[self._checked(positions, n, len(context))]

    @final
    def _ready(self, context: Context) -> Context:
        """Return the context with everything this strategy needs, or say what is missing."""
        for need in sorted(self.needs - {"labelled"}):
            if not context.outputs.has(need):
                raise MissingOutputError(
                    f"{self.name} needs {_in_words(need)}, and this model gives none. "
                    f"With what it gives you can use {', '.join(_usable(context))}."
                )
        if "labelled" in self.needs and context.labelled is None:
            raise MissingOutputError(
                f"{self.name} needs the outputs of the labelled rows: pass labelled=."
            )
        return (
            replace(context, outputs=context.outputs.with_logits())
            if "logits" in self.needs
            else context
        )

    @final
    def _checked(self, positions: Tensor, n: int, rows: int) -> npt.NDArray[np.int64]:
        answer = np.asarray(torch.as_tensor(positions).cpu())
        if answer.shape != (n,) or answer.dtype.kind not in "iu":
            raise StrategyError(
                f"{self.name} was asked for {n} positions and answered {answer.dtype} of shape {answer.shape}."
            )
        if answer.min() < 0 or answer.max() >= rows:
            raise StrategyError(f"{self.name} answered a position outside 0 to {rows - 1}.")
        unique, counts = np.unique(answer, return_counts=True)
        if len(unique) < n:
            raise StrategyError(
                f"{self.name} answered position {unique[counts > 1][0]} more than once."
            )
        return answer.astype(np.int64)


class ScoringStrategy(Strategy):
    """A strategy that gives each candidate a number of its own; ``best`` says which end is picked first."""

    best: ClassVar[Literal["smallest", "largest"]]

    @abstractmethod
    def score(self, context: Context) -> Tensor:
        """Return each candidate's score: (N,)."""

    @final
    def scores(self, context: Context) -> Tensor:
        """Return each candidate's score, after checking that what it needs is there: (N,)."""
        return self._numbers(self.score(self._ready(context)), len(context))

    @final
    def _numbers(self, scores: Tensor, rows: int) -> Tensor:
        if scores.shape != (rows,):
            raise StrategyError(f"{self.name} scored {rows} rows with shape {tuple(scores.shape)}.")
        if bool(scores.isnan().any()):
            raise StrategyError(
                f"{self.name} scored {int(scores.isnan().sum())} of {rows} rows with NaN."
            )
        return scores


class TopKStrategy(ScoringStrategy):
    """A strategy that picks the best scores; equal scores go to the lowest row."""

    alone: ClassVar[bool] = False
    """Whether a row's score depends on nothing but that row, so that rows may be scored a part at a time."""

    @final
    def choose(self, context: Context, n: int) -> Tensor:
        """Return the n best positions, best first."""
        scores = self._numbers(self.score(context), len(context))
        context.notes["score"] = scores
        return scores.argsort(stable=True, descending=self.best == "largest")[:n]


registry: Registry[Strategy] = Registry("strategy", group="teeter.strategies", base=Strategy)
"""Every strategy by its name; other packages add theirs through the entry-point group ``teeter.strategies``."""


def _usable(context: Context) -> list[str]:
    """Return the strategies that find all they need in a context; plugins are not loaded for it."""
    have = {need for need in OUTPUTS - {"labelled"} if context.outputs.has(need)}
    if context.labelled is not None:
        have.add("labelled")
    return sorted(name for name, cls in registry.loaded().items() if cls.needs <= have)


def _check_request(n: int, rows: int) -> None:
    if rows == 0:
        raise InputError("Cannot pick from an empty pool: it has no rows.")
    if isinstance(n, bool) or not isinstance(n, int | np.integer):
        raise InputError(f"Cannot pick {n!r} rows: ask for a whole number.")
    if not 1 <= n <= rows:
        raise InputError(f"Cannot pick {n} of {rows} candidates: ask for 1 to {rows}.")


def _in_words(need: str) -> str:
    words = {
        "head": "a linear head (features and weight)",
        "dropout_logits": "logits of several dropout passes (posterior_logits)",
        "ensemble_logits": "logits of several networks (posterior_logits)",
    }
    return words.get(need, need)
