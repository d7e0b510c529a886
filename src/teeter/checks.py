"""The strategy contract as checks: for the authors of strategies, and for ours.

``check_strategy(MyStrategy)`` runs them all and raises a sentence at the first that fails. ``CHECKS`` has them one by
one, for a test that is parametrised.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from teeter.arrays import working_memory
from teeter.errors import MissingOutputError, StrategyError, TeeterError
from teeter.models.outputs import Outputs
from teeter.seeds import portable, stream
from teeter.strategies.base import Context, ScoringStrategy, Strategy, TopKStrategy

__all__ = ["CHECKS", "check_strategy", "example_context"]

Check = Callable[[Strategy], None]

_POSTERIOR = ("posterior_logits",)
_FIELDS = {
    "logits": ("logits",),
    "features": ("features",),
    "head": ("features", "weight", "bias"),
    "dropout_logits": _POSTERIOR,
    "ensemble_logits": _POSTERIOR,
    "labelled": (),
}
_WITHOUT = {
    "logits": ("features", "posterior_logits"),
    "features": ("logits", "posterior_logits"),
    "head": ("logits", "features", "posterior_logits"),
    "dropout_logits": ("logits", "features", "weight", "bias"),
    "ensemble_logits": ("logits", "features", "weight", "bias"),
}


def check_strategy(strategy: type[Strategy] | Strategy) -> None:
    """Run the whole contract over a strategy, or a class with its defaults; raise StrategyError where it is broken."""
    made = strategy() if isinstance(strategy, type) else strategy
    for check in CHECKS:
        check(made)


def example_context(
    rows: int = 60,
    *,
    seed: int = 0,
    copies: int = 1,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Context:
    """Return a context that fills every need: ``rows`` candidates in ``copies``, 4 classes, 12 labelled rows."""
    width, classes, labelled, samples = 8, 4, 12, 5
    weight, bias = _drawn("head", (classes, width), 0, dtype), _drawn("bias", (classes,), 0, dtype)

    def outputs(name: str, count: int) -> Outputs:
        features = _drawn(name, (count, width), seed, dtype).repeat(
            copies if name == "pool" else 1, 1
        )
        logits = features @ weight.T + bias
        wobble = _drawn("posterior", (samples, classes, width), seed, dtype) * 0.5
        posterior = logits + torch.einsum("nd,scd->snc", features, wobble)
        return Outputs(logits, features, weight, bias, posterior).to(torch.device(device))

    return Context(
        candidates=np.arange(rows * copies),
        outputs=outputs("pool", rows),
        generator=stream(seed, "select"),
        labelled=outputs("labelled", labelled),
        labels=(torch.arange(labelled) % classes).to(device),
        n_classes=classes,
    )


def _drawn(name: str, shape: tuple[int, ...], seed: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=stream(seed, "example", name), dtype=torch.float64).to(
        dtype
    )


def picks_are_different_candidates(strategy: Strategy) -> None:
    """Any number from one to the whole pool gives that many different rows of the pool."""
    for n in (1, 7, 59, 60):
        rows = strategy.select(example_context(), n)
        _hold(
            rows.shape == (n,) and rows.dtype == np.int64,
            strategy,
            f"{n} rows asked for, {rows.shape} came back",
        )
        _hold(len(set(rows.tolist())) == n, strategy, "a row came twice")
        _hold(set(rows.tolist()) <= set(range(60)), strategy, "a row is not of the pool")


def one_candidate_is_picked(strategy: Strategy) -> None:
    """A pool of one row gives that row."""
    _hold(
        strategy.select(example_context(1), 1).tolist() == [0],
        strategy,
        "the only candidate was not picked",
    )


def the_same_seed_gives_the_same_picks(strategy: Strategy) -> None:
    """Nothing but the context decides: no global random state, no memory outside it."""
    first = strategy.select(example_context(), 9)
    torch.rand(3)
    again = strategy.select(example_context(), 9)
    _hold(np.array_equal(first, again), strategy, "the same seed gave other picks")


def renumbering_the_pool_renumbers_the_picks(strategy: Strategy) -> None:
    """Rows are named by the pool, not by the strategy."""
    plain = strategy.select(example_context(), 7)
    numbers = np.arange(900, 840, -1)
    moved = strategy.select(replace(example_context(), candidates=numbers), 7)
    _hold(np.array_equal(moved, numbers[plain]), strategy, "renumbering the pool changed the picks")


def copies_do_not_confuse(strategy: Strategy) -> None:
    """A pool of copies still gives different rows, and copies have equal scores."""
    for n in (5, 60, 90):
        rows = strategy.select(example_context(30, copies=3), n)
        _hold(len(set(rows.tolist())) == n, strategy, "a pool with copies gave a row twice")
    if isinstance(strategy, ScoringStrategy):
        scores = strategy.scores(example_context(30, copies=3))
        _hold(bool((scores[:30] == scores[30:60]).all()), strategy, "copies have different scores")


def best_come_first(strategy: Strategy) -> None:
    """Where picks are the best scores, they come in that order and no better row is left."""
    if not isinstance(strategy, TopKStrategy):
        return
    scores = strategy.scores(example_context()).double().cpu()
    signed = -scores if strategy.best == "largest" else scores
    picked = signed[torch.from_numpy(strategy.select(example_context(), 12))]
    _hold(bool((picked.diff() >= 0).all()), strategy, "picks are not best first")
    _hold(int((signed < picked[-1]).sum()) < 12, strategy, "a better row was left")


def declared_needs_suffice(strategy: Strategy) -> None:
    """With what it declares and nothing more, a strategy picks."""
    names = {name for need in strategy.needs for name in _FIELDS[need]} or {"features"}
    context = replace(example_context(), outputs=_only(*names))
    if "labelled" not in strategy.needs:
        context = replace(context, labelled=None, labels=None)
    strategy.select(context, 3)


def missing_outputs_are_named(strategy: Strategy) -> None:
    """Without something it needs, a strategy says so and names itself."""
    for need in sorted(strategy.needs):
        context = example_context()
        if need == "labelled":
            context = replace(context, labelled=None, labels=None)
        else:
            context = replace(context, outputs=_only(*_WITHOUT[need]))
        try:
            strategy.select(context, 3)
        except MissingOutputError as error:
            _hold(
                str(error).startswith(f"{strategy.name} needs"),
                strategy,
                f"its refusal does not name it: {error}",
            )
        else:
            raise StrategyError(
                f"{strategy.name} breaks the contract: it picked without the {need} it says it needs."
            )


def what_is_given_stays_as_it_was(strategy: Strategy) -> None:
    """Tensors and labels handed in are not changed."""
    context = example_context()
    before = _tensors(context)
    kept = [tensor.clone() for tensor in before]
    strategy.select(context, 9)
    same = all(torch.equal(tensor, copy) for tensor, copy in zip(before, kept, strict=True))
    _hold(same, strategy, "it changed the outputs it was given")


def chunks_change_nothing(strategy: Strategy) -> None:
    """The working memory decides the speed, not the picks."""
    plain = strategy.select(example_context(700), 40)
    for size in (1, 100_000):
        with working_memory(size):
            chunked = strategy.select(example_context(700), 40)
        _hold(
            np.array_equal(plain, chunked),
            strategy,
            f"a working memory of {size} bytes changed the picks",
        )


def devices_agree(strategy: Strategy) -> None:
    """Fed the same draws in float64, the GPU picks what the CPU picks; without a GPU there is nothing to check."""
    if not torch.cuda.is_available():
        return
    with portable():
        cpu = strategy.select(example_context(700, dtype=torch.float64), 40)
        gpu = strategy.select(example_context(700, dtype=torch.float64, device="cuda"), 40)
    _hold(np.array_equal(cpu, gpu), strategy, "the GPU picked other rows than the CPU")


def requests_out_of_range_are_refused(strategy: Strategy) -> None:
    """Asking for none, too many or a fraction is answered with a sentence."""
    for n in (0, -1, 61, 2.5, True):
        try:
            strategy.select(example_context(), n)  # type: ignore[arg-type]
        except TeeterError:
            continue
        raise StrategyError(f"{strategy.name} answered a request for {n!r} of 60 rows.")


CHECKS: tuple[Check, ...] = (
    picks_are_different_candidates,
    one_candidate_is_picked,
    the_same_seed_gives_the_same_picks,
    renumbering_the_pool_renumbers_the_picks,
    copies_do_not_confuse,
    best_come_first,
    declared_needs_suffice,
    missing_outputs_are_named,
    what_is_given_stays_as_it_was,
    chunks_change_nothing,
    devices_agree,
    requests_out_of_range_are_refused,
)


def _hold(holds: bool, strategy: Strategy, broken: str) -> None:
    if not holds:
        raise StrategyError(f"{strategy.name} breaks the contract: {broken}.")


def _only(*names: str) -> Outputs:
    everything = example_context().outputs
    return Outputs(**{name: getattr(everything, name) for name in names})


def _tensors(context: Context) -> list[Tensor]:
    both = [context.outputs, *([context.labelled] if context.labelled else [])]
    found = [value for outputs in both for value in vars(outputs).values()]
    return [value for value in [*found, context.labels] if isinstance(value, Tensor)]
