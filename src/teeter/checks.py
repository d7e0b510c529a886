"""The strategy contract as executable checks, for plugin authors and for our own strategies.

``check_strategy(MyStrategy)`` runs all checks and raises StrategyError at the first that fails.
``CHECKS`` holds them one by one, for a parametrised test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from teeter.base.arrays import working_memory
from teeter.base.seeds import portable, stream
from teeter.errors import InputError, MissingOutputError, StrategyError, TeeterError
from teeter.models.outputs import Outputs
from teeter.strategies.base import Context, ScoringStrategy, Strategy, TopKStrategy

Check = Callable[..., None]
"""Takes a strategy, and whether rows may have several labels (default: they have one)."""

_POSTERIOR = ("posterior_logits",)

# The fields of Outputs that meet each need.
_FIELDS = {
    "logits": ("logits",),
    "features": ("features",),
    "head": ("features", "weight", "bias"),
    "dropout_logits": _POSTERIOR,
    "ensemble_logits": _POSTERIOR,
    "labelled": (),
}

# Fields of Outputs that together do not meet the need.
_FIELDS_WITHOUT = {
    "logits": ("features", "posterior_logits"),
    "features": ("logits", "posterior_logits"),
    "head": ("logits", "features", "posterior_logits"),
    "dropout_logits": ("logits", "features", "weight", "bias"),
    "ensemble_logits": ("logits", "features", "weight", "bias"),
}


def check_strategy(strategy: type[Strategy] | Strategy) -> None:
    """Check that a strategy keeps the contract.

    Args:
        strategy: a strategy, or a class, which is checked with its default options.

    Raises:
        StrategyError: at the first check that fails.
    """
    instance = strategy
    if isinstance(instance, type) and issubclass(instance, Strategy):
        instance = instance()
    if not isinstance(instance, Strategy):
        raise StrategyError(
            f"{strategy!r} is not a strategy: give a class that derives from "
            f"teeter.strategies.Strategy, or an instance of it."
        )
    for check in CHECKS:
        for several in kinds_of_rows(instance):
            check(instance, several)


def kinds_of_rows(strategy: Strategy) -> list[bool]:
    """Return whether rows may have several labels, for each kind of rows that a strategy takes."""
    kinds = {"one": [False], "several": [True], "any": [False, True]}
    return kinds[strategy.labels_per_row]


def example_context(
    rows: int = 60,
    *,
    seed: int = 0,
    copies: int = 1,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    several: bool = False,
) -> Context:
    """Return a random context that meets every need, with 4 classes and 12 labelled rows.

    Args:
        rows: the number of different candidates.
        seed: the seed of the features and of the context's generator.
        copies: how often each candidate occurs.
        device: where the outputs are.
        dtype: their type.
        several: whether rows may have several of the classes.
    """
    width = 8
    classes = 4
    labelled = 12
    samples = 5

    # The head is the same for all seeds.
    weight = _random_normal("head", (classes, width), 0, dtype)
    bias = _random_normal("bias", (classes,), 0, dtype)

    def outputs(name: str, count: int) -> Outputs:
        features = _random_normal(name, (count, width), seed, dtype)
        if name == "pool":
            features = features.repeat(copies, 1)
        logits = features @ weight.T + bias

        # The posterior samples are heads near this one: (samples, rows, classes).
        noise = _random_normal("posterior", (samples, classes, width), seed, dtype) * 0.5
        posterior = logits + torch.einsum("nd,scd->snc", features, noise)
        example = Outputs(
            logits=logits,
            features=features,
            weight=weight,
            bias=bias,
            posterior_logits=posterior,
            several=several,
        )
        return example.to(torch.device(device))

    labels = torch.arange(labelled) % classes
    if several:
        draws = torch.rand(labelled, classes, generator=stream(seed, "example", "labels"))
        labels = (draws < 0.4).long()
    return Context(
        candidates=np.arange(rows * copies),
        outputs=outputs("pool", rows),
        generator=stream(seed, "select"),
        labelled=outputs("labelled", labelled),
        labels=labels.to(device),
        n_classes=classes,
    )


def _random_normal(
    name: str,
    shape: tuple[int, ...],
    seed: int,
    dtype: torch.dtype,
) -> Tensor:
    # Drawn in float64 and rounded, so that all types have the same numbers.
    generator = stream(seed, "example", name)
    draws = torch.randn(shape, generator=generator, dtype=torch.float64)
    return draws.to(dtype)


def picks_are_different_candidates(strategy: Strategy, several: bool = False) -> None:
    """Any n from one to the size of the pool gives n different rows of the pool."""
    pool = set(range(60))
    for n in (1, 7, 59, 60):
        rows = strategy.select(example_context(several=several), n)
        _hold(
            rows.shape == (n,) and rows.dtype == np.int64,
            strategy,
            f"asked for {n} rows, it returned shape {rows.shape}",
        )

        different_rows = set(rows.tolist())
        _hold(len(different_rows) == n, strategy, "it returned the same row twice")
        _hold(different_rows <= pool, strategy, "it returned a row outside the pool")


def one_candidate_is_picked(strategy: Strategy, several: bool = False) -> None:
    """A pool of one row gives that row."""
    rows = strategy.select(example_context(1, several=several), 1)
    _hold(rows.tolist() == [0], strategy, "the only candidate was not picked")


def the_same_seed_gives_the_same_picks(strategy: Strategy, several: bool = False) -> None:
    """Only the context decides: no global random state, no memory outside it."""
    first = strategy.select(example_context(several=several), 9)
    torch.rand(3)  # moves torch's global generator
    again = strategy.select(example_context(several=several), 9)
    is_same = np.array_equal(first, again)
    _hold(is_same, strategy, "the same seed gave different picks")


def renumbering_the_pool_renumbers_the_picks(strategy: Strategy, several: bool = False) -> None:
    """Picks depend on the contents of the rows, not on their row numbers."""
    picks = strategy.select(example_context(several=several), 7)
    row_numbers = np.arange(900, 840, -1)  # descending, so that a sort would show
    context = replace(example_context(several=several), candidates=row_numbers)
    renumbered = strategy.select(context, 7)
    is_same = np.array_equal(renumbered, row_numbers[picks])
    _hold(is_same, strategy, "renumbering the pool changed the picks")


def permuting_the_pool_permutes_the_picks(strategy: Strategy, several: bool = False) -> None:
    """Picks depend on the contents of the rows, not on their positions.

    Skipped for a strategy that draws at random: it may give each position a draw of its own. A
    top-k strategy is compared by its scores, because ties go to the lowest row.
    """
    # In double precision, so that rows with different scores do not tie by rounding.
    context = example_context(dtype=torch.float64, several=several)
    order = torch.randperm(len(context), generator=stream(0, "permutation"))
    permuted = replace(
        example_context(dtype=torch.float64, several=several),
        outputs=context.outputs.take(order),
    )

    state = context.generator.get_state()
    picks = strategy.select(context, 7)
    if not torch.equal(context.generator.get_state(), state):
        return

    if isinstance(strategy, TopKStrategy):
        scores = strategy.scores(context).double()
        is_same = torch.allclose(strategy.scores(permuted).double(), scores[order])
    else:
        permuted_picks = torch.from_numpy(strategy.select(permuted, 7))
        is_same = np.array_equal(order[permuted_picks], picks)
    _hold(is_same, strategy, "the same rows in another order gave different picks")


def copies_do_not_confuse(strategy: Strategy, several: bool = False) -> None:
    """A pool with duplicates still gives different rows, and duplicates have equal scores."""
    for n in (5, 60, 90):
        rows = strategy.select(example_context(30, copies=3, several=several), n)
        different_rows = set(rows.tolist())
        _hold(
            len(different_rows) == n,
            strategy,
            "it returned the same row twice from a pool with duplicates",
        )

    if isinstance(strategy, ScoringStrategy):
        # The 30 rows, then the same 30 rows again.
        scores = strategy.scores(example_context(30, copies=3, several=several))
        is_equal = scores[:30] == scores[30:60]
        _hold(bool(is_equal.all()), strategy, "duplicates have different scores")


def best_come_first(strategy: Strategy, several: bool = False) -> None:
    """A top-k strategy returns the best scores, in order."""
    if not isinstance(strategy, TopKStrategy):
        return

    # With the sign that makes the smallest the best.
    scores = strategy.scores(example_context(several=several)).double().cpu()
    if strategy.best == "largest":
        scores = -scores

    rows = strategy.select(example_context(several=several), 12)
    picked = scores[torch.from_numpy(rows)]
    is_ascending = picked.diff() >= 0
    _hold(bool(is_ascending.all()), strategy, "picks are not best first")

    # Fewer than 12 rows are better than the last pick: the other picks.
    is_better = scores < picked[-1]
    _hold(int(is_better.sum()) < 12, strategy, "it left out a better row")


def declared_needs_suffice(strategy: Strategy, several: bool = False) -> None:
    """A strategy can pick with only the outputs it declares."""
    names: set[str] = set()
    for need in strategy.needs:
        names.update(_FIELDS[need])
    if not names:
        names = {"features"}  # outputs must have rows, even if the strategy does not look at them

    context = replace(
        example_context(several=several), outputs=_outputs_with(*names, several=several)
    )
    if "labelled" not in strategy.needs:
        context = replace(context, labelled=None, labels=None)
    strategy.select(context, 3)


def missing_outputs_are_named(strategy: Strategy, several: bool = False) -> None:
    """If a needed output is missing, the error names the strategy."""
    for need in sorted(strategy.needs):
        context = example_context(several=several)
        if need == "labelled":
            context = replace(context, labelled=None, labels=None)
        else:
            names = _FIELDS_WITHOUT[need]
            context = replace(context, outputs=_outputs_with(*names, several=several))

        try:
            strategy.select(context, 3)
        except MissingOutputError as error:
            _hold(
                str(error).startswith(f"{strategy.name} needs"),
                strategy,
                f"its error message does not name what is missing: {error}",
            )
        else:
            raise StrategyError(
                f"{strategy.name} breaks the contract: it picked rows without {need}, although "
                f"it declares {need} as a need."
            )


def what_is_given_stays_as_it_was(strategy: Strategy, several: bool = False) -> None:
    """Tensors and labels of the context are not modified."""
    context = example_context(several=several)
    values = [*vars(context.outputs).values(), context.labels]
    if context.labelled is not None:
        values.extend(vars(context.labelled).values())
    tensors = [value for value in values if isinstance(value, Tensor)]
    copies = [tensor.clone() for tensor in tensors]

    strategy.select(context, 9)

    unchanged = all(map(torch.equal, tensors, copies))
    _hold(unchanged, strategy, "it modified the outputs it was given")


def chunks_change_nothing(strategy: Strategy, several: bool = False) -> None:
    """The size of the working memory does not change the picks."""
    picks = strategy.select(example_context(700, several=several), 40)
    for size in (1, 100_000):
        with working_memory(size):
            chunked = strategy.select(example_context(700, several=several), 40)
        _hold(
            np.array_equal(picks, chunked),
            strategy,
            f"a working memory of {size} bytes changed the picks",
        )


def devices_agree(strategy: Strategy, several: bool = False) -> None:
    """With the same draws in float64, GPU and CPU pick the same rows. Skipped without a GPU."""
    if not torch.cuda.is_available():
        return

    on_cpu = example_context(700, dtype=torch.float64, several=several)
    on_gpu = example_context(700, dtype=torch.float64, device="cuda", several=several)
    with portable():
        cpu_rows = strategy.select(on_cpu, 40)
        gpu_rows = strategy.select(on_gpu, 40)
    is_same = np.array_equal(cpu_rows, gpu_rows)
    _hold(is_same, strategy, "GPU and CPU picked different rows")


def requests_out_of_range_are_refused(strategy: Strategy, several: bool = False) -> None:
    """Asking for no row, too many rows or a fraction raises a TeeterError."""
    for n in (0, -1, 61, 2.5, True):
        try:
            strategy.select(example_context(several=several), n)  # type: ignore[arg-type]
        except TeeterError:
            continue
        raise StrategyError(f"{strategy.name} accepted a request for {n!r} of 60 rows.")


def other_numbers_of_labels_are_refused(strategy: Strategy, several: bool = False) -> None:
    """Outputs of rows that may have several labels are refused unless the strategy takes them."""
    takes_other = strategy.labels_per_row == "any"
    try:
        strategy.select(example_context(several=not several), 3)
    except InputError as error:
        _hold(
            str(error).startswith(f"{strategy.name} picks rows"),
            strategy,
            f"its error message does not say how many labels rows may have: {error}",
        )
        _hold(not takes_other, strategy, "it refused rows that it declares to take")
    else:
        _hold(takes_other, strategy, "it took rows that it declares not to take")


CHECKS: tuple[Check, ...] = (
    picks_are_different_candidates,
    one_candidate_is_picked,
    the_same_seed_gives_the_same_picks,
    renumbering_the_pool_renumbers_the_picks,
    permuting_the_pool_permutes_the_picks,
    copies_do_not_confuse,
    best_come_first,
    declared_needs_suffice,
    missing_outputs_are_named,
    what_is_given_stays_as_it_was,
    chunks_change_nothing,
    devices_agree,
    requests_out_of_range_are_refused,
    other_numbers_of_labels_are_refused,
)


def _hold(
    holds: bool,
    strategy: Strategy,
    violation: str,
) -> None:
    """Raise ``StrategyError`` with the violation unless the condition holds."""
    if not holds:
        raise StrategyError(f"{strategy.name} breaks the contract: {violation}.")


def _outputs_with(*names: str, several: bool) -> Outputs:
    """Return example outputs with these fields only."""
    complete = example_context(several=several).outputs
    fields = {name: getattr(complete, name) for name in names}
    return Outputs(**fields, several=several)
