"""The contract over every registered strategy, and proof that each check can fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from teeter import checks, strategies
from teeter.base.seeds import stream
from teeter.errors import MissingOutputError, StrategyError
from teeter.strategies import Context, Strategy, TopKStrategy

CHECKS = {check.__name__: check for check in checks.CHECKS}
CHEAP_OPTIONS: dict[str, dict[str, int]] = {"batchbald": {"configurations": 1000}}
"""Options of strategies whose defaults make the contract take seconds; the slow tier checks the
defaults.
"""


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", strategies.names())
def test_contract(name: str, check: str) -> None:
    strategy = strategies.get(name)(**CHEAP_OPTIONS.get(name, {}))
    for several in checks.kinds_of_rows(strategy):
        CHECKS[check](strategy, several)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", CHEAP_OPTIONS)
def test_contract_with_default_options(name: str, check: str) -> None:
    CHECKS[check](strategies.get(name)(), False)


NO_DRAWS = [
    "bait",
    "cluster-margin",
    "coreset",
    "cvirs",
    "dbal",
    "ensemble",
    "entropy",
    "fass",
    "galaxy",
    "herding-ldm-s",
    "least-confidence",
    "margin",
    "maxherding",
    "mmc",
    "rare-labels",
    "uherding",
]


@pytest.mark.checks(
    against="the mistake of ignoring the seed: if a strategy draws, other seeds give other picks"
)
@pytest.mark.parametrize("name", strategies.names())
def test_the_seed_decides_what_is_drawn(name: str) -> None:
    several = name in strategies.SEVERAL_LABELS
    contexts = [
        replace(checks.example_context(several=several), generator=stream(seed, "select"))
        for seed in range(8)
    ]
    options = {}
    if name == "batchbald":
        options = {"configurations": 100}
    if name.startswith("ldm"):
        options = {"rays": 64}

    picks = {
        tuple(strategies.get(name)(**options).select(context, 9).tolist()) for context in contexts
    }
    assert len(picks) == 1 if name in NO_DRAWS else len(picks) > 2


@pytest.mark.gpu
@pytest.mark.parametrize("name", strategies.names())
def test_devices_agree(name: str) -> None:
    strategy = strategies.get(name)()
    for several in checks.kinds_of_rows(strategy):
        checks.devices_agree(strategy, several)


@pytest.mark.parametrize("name", strategies.names())
def test_says_what_it_does_and_what_it_needs(name: str) -> None:
    cls = strategies.get(name)
    assert (cls.__doc__ or "").strip().endswith((".", "]."))
    assert isinstance(cls.needs, frozenset)
    assert cls().name == name


class SmallestNorm(Strategy):
    """The rows of the smallest norm: as plain as a strategy can be."""

    needs = frozenset({"features"})

    def choose(self, context: Context, n: int) -> Tensor:
        return context.features.norm(dim=1).argsort()[:n]


class First(Strategy):
    """The first rows, whatever they hold."""

    needs = frozenset({"features"})

    def choose(self, context: Context, n: int) -> Tensor:
        return torch.arange(n)


class AsList(SmallestNorm):
    def choose(self, context: Context, n: int) -> Tensor:
        return super().choose(context, n).tolist()


class Twice(First):
    def choose(self, context: Context, n: int) -> Tensor:
        return torch.zeros(n, dtype=torch.int64)


class Beyond(First):
    def choose(self, context: Context, n: int) -> Tensor:
        return torch.arange(n) + len(context) - n + 1


class Unseeded(First):
    def choose(self, context: Context, n: int) -> Tensor:
        return torch.randperm(len(context))[:n]


class ReadsRowNumbers(First):
    def choose(self, context: Context, n: int) -> Tensor:
        return torch.from_numpy(context.candidates.copy()).argsort()[:n]


class Meddler(First):
    def choose(self, context: Context, n: int) -> Tensor:
        context.features.mul_(2)
        return torch.arange(n)


class Undeclared(First):
    needs = frozenset({"logits"})

    def choose(self, context: Context, n: int) -> Tensor:
        return context.features[:, 0].argsort()[:n]


class Understated(First):
    needs = frozenset()

    def choose(self, context: Context, n: int) -> Tensor:
        return context.logits[:, 0].argsort()[:n]


@dataclass
class Forgetful(First):
    calls: list[int] = field(default_factory=list)

    def choose(self, context: Context, n: int) -> Tensor:
        self.calls.append(n)
        return (torch.arange(n) + len(self.calls)) % len(context)


class ByPosition(TopKStrategy):
    """Scores that tell copies apart."""

    needs = frozenset({"features"})
    best: ClassVar = "smallest"

    def score(self, context: Context) -> Tensor:
        return torch.arange(len(context))


@pytest.fixture(autouse=True)
def untouched_random_state() -> Iterator[None]:
    before = torch.random.get_rng_state()
    yield
    torch.random.set_rng_state(before)


def test_a_plain_strategy_passes() -> None:
    checks.check_strategy(SmallestNorm())
    checks.check_strategy(SmallestNorm)


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (First(), "permuting_the_pool_permutes_the_picks"),
        (AsList(), "picks_are_different_candidates"),
        (Twice(), "picks_are_different_candidates"),
        (Beyond(), "picks_are_different_candidates"),
        (Unseeded(), "the_same_seed_gives_the_same_picks"),
        (Forgetful(), "the_same_seed_gives_the_same_picks"),
        (ReadsRowNumbers(), "renumbering_the_pool_renumbers_the_picks"),
        (Meddler(), "what_is_given_stays_as_it_was"),
        (ByPosition(), "copies_do_not_confuse"),
    ],
)
def test_a_broken_strategy_is_found(broken: Strategy, check: str) -> None:
    with pytest.raises(StrategyError, match=type(broken).__name__):
        CHECKS[check](broken)
    with pytest.raises(StrategyError, match=type(broken).__name__):
        checks.check_strategy(broken)


@pytest.mark.parametrize("broken", [Undeclared(), Understated()])
def test_needs_that_are_not_declared_are_found(broken: Strategy) -> None:
    with pytest.raises(MissingOutputError, match="without declaring"):
        checks.declared_needs_suffice(broken)


def test_a_need_that_is_not_refused_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Strategy, "_prepare", lambda self, context: context)
    with pytest.raises(StrategyError, match="without features"):
        checks.missing_outputs_are_named(First())


def test_needs_that_no_model_can_fill_are_refused() -> None:
    with pytest.raises(StrategyError, match="telepathy"):

        class Psychic(First):
            needs = frozenset({"telepathy"})
