"""Compare the strategies of runs, with each other and with the paper, and say what they show.

``compare_strategies`` reads the curves of a run and leaves out what cannot be compared. Its notes
say what, for the readers of a report. ``run_findings`` and ``cross_run_findings`` put into plain
sentences what is left: the best strategy, what LDM-S gains and saves, the paper.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from teeter.bench.analysis import paper_results
from teeter.bench.analysis.plots import HIGHLIGHTED
from teeter.bench.analysis.statistics import (
    NEGLIGIBLE,
    SIGNIFICANCE_LEVEL,
    FloatArray,
    Gain,
    LabelSaving,
    PenaltyMatrix,
    gain_over,
    penalty_matrix,
    performance_profile,
    rank_correlation,
    saving_over,
)
from teeter.bench.analysis.table_formats import (
    format_mean_and_std,
    format_number,
    format_p_value,
    to_markdown,
)
from teeter.bench.experiments.run_folder import Curves, Run
from teeter.data.table_files import make_frame
from teeter.errors import InputError
from teeter.training.metrics import LOWER_IS_BETTER

__all__ = [
    "BASELINE",
    "BoolArray",
    "Comparison",
    "RunComparison",
    "compare_strategies",
    "cross_run_findings",
    "display_name",
    "run_findings",
]


BoolArray = npt.NDArray[np.bool_]

BASELINE = "random"
"""The strategy that gains and savings are measured against."""

_FAILURES_NAMED = 4
"""Failed repetitions that a note names; it counts the rest."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What runs say about strategies, the best over the rounds first.

    ``print`` shows it as a Markdown table.
    """

    labelled: FloatArray
    """Labels at each round, shape (T,)."""
    accuracy: dict[str, FloatArray]
    """Accuracies by strategy, or another metric, shape (R, T); negative if lower is better."""
    notes: tuple[str, ...]
    """What readers must know: what is missing, unfinished or left out. One sentence each."""
    metric: str = "accuracy"
    lower_is_better: bool = False
    baseline: str = BASELINE
    """The strategy that gains and savings are measured against."""

    def __str__(self) -> str:
        """Return a row for each strategy as a Markdown table, with the notes below it."""
        rows = []
        for row in self._rows():
            gain = format_number(row["gain"], "+.2f")
            if row["gain"] is not None:
                gain = format_mean_and_std(row["gain"], row["deviation"], self.repetitions, "+.2f")
            p = None
            if self.repetitions > 1:
                p = row["p"]
            cells = {
                "strategy": row["strategy"],
                self.metric: format_number(row[self.metric], ".4f"),
                f"gain over {self.baseline}": gain,
                "p": format_p_value(p),
                "labels saved": format_number(row["labels_saved"], ",.0f"),
                "penalty": format_number(row["penalty"]),
            }
            rows.append(cells)
        return "\n".join([to_markdown(rows).rstrip(), *self.notes])

    def to_frame(self, kind: str | None = None) -> Any:
        """Return a row for each strategy as a data frame.

        The columns are the mean of the metric over rounds and seeds, the gain over the baseline
        with its standard deviation and p-value, the labels for the final value of the baseline and
        those saved, and how often another strategy is significantly better (the penalty). Gains are
        in percentage points, or hundredths of the unit of the metric; positive is better.

        Args:
            kind: pandas or polars. By default the first one that is installed.
        """
        rows = self._rows()
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        return make_frame(columns, kind)

    def _rows(self) -> list[dict[str, Any]]:
        """Return what each strategy came to."""
        if not self.comparable:
            raise InputError(" ".join(["There is nothing to compare.", *self.notes]))

        rows = []
        for name, values in self.accuracy.items():
            mean = float(values[:, 1:].mean())
            if self.lower_is_better:
                mean = -mean
            row: dict[str, Any] = {
                "strategy": name,
                self.metric: mean,
                "gain": None,
                "deviation": None,
                "p": None,
                "labels": None,
                "labels_saved": None,
                "penalty": self.penalties.beaten[name],
            }
            gain = self.gains.get(name)
            if gain is not None:
                row["gain"] = gain.mean
                row["deviation"] = gain.deviation
                row["p"] = gain.p
            saving = self.savings.get(name)
            if saving is not None:
                row["labels"] = saving.labels
                row["labels_saved"] = saving.saved
            rows.append(row)
        return rows

    @property
    def repetitions(self) -> int:
        """Number of repetitions compared."""
        if not self.accuracy:
            return 0

        return len(next(iter(self.accuracy.values())))

    @property
    def comparable(self) -> bool:
        """Whether there is a round after the first; before it, no strategy has picked anything."""
        return self.repetitions > 0 and len(self.labelled) > 1

    @cached_property
    def penalties(self) -> PenaltyMatrix:
        """How often one strategy beats another, over the rounds after the first."""
        return penalty_matrix([self.accuracy])

    def mean_accuracy(self, strategy: str) -> float:
        """Return the mean accuracy in percent over repetitions and all rounds but the first."""
        later_rounds = self.accuracy[strategy][:, 1:]
        return 100 * float(later_rounds.mean())

    @cached_property
    def gains(self) -> dict[str, Gain]:
        """Gain over the baseline of every other strategy; empty without it."""
        return self._gains_over(self.baseline)

    @cached_property
    def gains_over_ldm_s(self) -> dict[str, Gain]:
        """Gain over LDM-S of every other strategy; empty without LDM-S."""
        return self._gains_over(HIGHLIGHTED)

    def _gains_over(self, baseline: str) -> dict[str, Gain]:
        """Return the gain of every other strategy over ``baseline``; none if it was not run."""
        if not self.comparable or baseline not in self.accuracy:
            return {}

        gains = {}
        for name, runs in self.accuracy.items():
            if name != baseline:
                gains[name] = gain_over(runs, self.accuracy[baseline])

        return gains

    @cached_property
    def savings(self) -> dict[str, LabelSaving]:
        """Labels that every other strategy needs to reach the baseline's final accuracy."""
        if not self.comparable or self.baseline not in self.accuracy:
            return {}

        savings = {}
        baseline = self.accuracy[self.baseline]
        for name, runs in self.accuracy.items():
            if name != self.baseline:
                savings[name] = saving_over(self.labelled, runs, baseline)

        return savings


@dataclass(frozen=True, kw_only=True)
class RunComparison(Comparison):
    """What a run of the benchmark says about its strategies."""

    run: Run
    name: str
    """Name of the run in a report."""
    minutes: dict[str, dict[str, FloatArray]]
    """Minutes of each repetition by strategy and phase, summed over rounds, shape (R,)."""
    memory: dict[str, float]
    """Peak memory by strategy, in bytes."""

    @cached_property
    def time_unit(self) -> tuple[str, float]:
        """Unit of times in a report, and how many of it make a minute.

        Runs of less than two minutes are shown in seconds, unless the paper's minutes stand beside
        them.
        """
        longest = 0.0
        for phases in self.minutes.values():
            means = [float(minutes.mean()) for minutes in phases.values()]
            longest = max(longest, sum(means))

        if self.paper_minutes or longest >= 2:
            return "minutes", 1.0

        return "seconds", 60.0

    @cached_property
    def paper_deltas(self) -> dict[str, paper_results.PaperDelta]:
        """The paper's gains over Random; empty if it does not have this setting."""
        if not self.run.setting.paper:
            return {}

        return paper_results.deltas(self.run.setting.paper)

    @cached_property
    def paper_accuracy(self) -> dict[str, dict[int, float]]:
        """The paper's accuracies in percent, by strategy and number of labels."""
        if not self.run.setting.paper:
            return {}

        return paper_results.accuracy(self.run.setting.paper)

    @cached_property
    def paper_minutes(self) -> dict[str, float]:
        """The paper's minutes per run; empty if this run has fewer rounds than the paper's."""
        dataset = self.run.setting.paper
        if not dataset or len(self.labelled) == 0:
            return {}
        # A run that is stopped early has less to train, so its time cannot stand beside theirs.
        if self.labelled[-1] < _final_labels(self.run):
            return {}

        return paper_results.minutes(dataset)

    @cached_property
    def paper_rank_correlation(self) -> float | None:
        """How similarly this run and the paper order the strategies by their gains."""
        ours = {name: gain.mean for name, gain in self.gains.items()}
        theirs = {name: delta.mean for name, delta in self.paper_deltas.items()}
        return rank_correlation(ours, theirs)


@overload
def compare_strategies(source: Run, name: str | None = None) -> RunComparison: ...


@overload
def compare_strategies(
    source: Any,
    name: str | None = None,
    *,
    metric: str = "accuracy",
    baseline: str = BASELINE,
    lower_is_better: bool | None = None,
) -> Comparison: ...


def compare_strategies(
    source: Any,
    name: str | None = None,
    *,
    metric: str = "accuracy",
    baseline: str = BASELINE,
    lower_is_better: bool | None = None,
) -> Comparison:
    """Compare the strategies of a run, finished or not, or of a data frame from anywhere.

    Seeds are paired: what not all strategies have, rounds or seeds, and values that are not
    numbers, are left out. The notes of the result say which.

    Args:
        source: a run, as ``read_run`` returns it; or a data frame, or columns by name, with the
            columns strategy, seed, labels and the metric, a row for each round.
        name: name of a run in a report; that of its setting by default.
        metric: the column to compare.
        baseline: the strategy that the others are compared with.
        lower_is_better: whether small values of the metric are good. Default: for ``loss`` and
            ``calibration_error``.

    Raises:
        InputError: if a column is missing, or has values of several datasets or batch sizes, or of
            a round twice.

    Example:
        >>> comparison = compare_strategies({
        ...     "strategy": ["random"] * 4 + ["mine"] * 4,
        ...     "seed": [0, 0, 1, 1] * 2,
        ...     "labels": [20, 40] * 4,
        ...     "accuracy": [0.5, 0.6, 0.5, 0.7, 0.5, 0.7, 0.5, 0.9],
        ... })
        >>> round(comparison.gains["mine"].mean, 6), round(comparison.savings["mine"].saved, 6)
        (15.0, 10.0)
    """
    if isinstance(source, Run) and metric == "accuracy" and baseline == BASELINE:
        return _compare_run(source, name)

    columns = source
    if isinstance(source, Run):
        columns = source.columns()
    if lower_is_better is None:
        lower_is_better = metric in LOWER_IS_BETTER
    labelled, values, notes = _read_columns(columns, metric)
    if lower_is_better:
        values = {name: -runs for name, runs in values.items()}
    curves = Curves(
        labelled=labelled,
        accuracy=values,
        loss={},
        seconds={},
        peak_memory={},
    )
    strategies, repetitions, notes_on_values = _select_finite(curves)
    notes += [*notes_on_values, *_notes_on_tests(curves, strategies, repetitions, baseline)]
    return Comparison(
        labelled=labelled,
        accuracy=_ranked(curves, strategies, repetitions),
        notes=tuple(notes),
        metric=metric,
        lower_is_better=lower_is_better,
        baseline=baseline,
    )


def _compare_run(run: Run, name: str | None) -> RunComparison:
    curves = run.curves()
    strategies, repetitions, notes_on_values = _select_finite(curves)

    # From the run as a whole to single values. Readers see the notes in this order.
    notes = list(_notes_on_run(run))
    notes += _notes_on_gaps(run, curves)
    notes += notes_on_values
    notes += _notes_on_tests(curves, strategies, repetitions, BASELINE)

    accuracy = _ranked(curves, strategies, repetitions)
    minutes: dict[str, dict[str, FloatArray]] = {}
    memory = {}
    for strategy in accuracy:
        minutes[strategy] = {}
        for phase, seconds in curves.seconds[strategy].items():
            seconds_by_repetition = seconds[repetitions].sum(axis=1)
            minutes[strategy][phase] = seconds_by_repetition / 60

        # The peak counts even in repetitions that are left out: the memory was needed.
        peaks = curves.peak_memory[strategy]
        memory[strategy] = float(np.max(peaks, initial=0))

    return RunComparison(
        run=run,
        name=name or run.setting.name,
        labelled=curves.labelled,
        accuracy=accuracy,
        minutes=minutes,
        memory=memory,
        notes=tuple(notes),
    )


def _ranked(curves: Curves, strategies: list[str], repetitions: list[int]) -> dict[str, FloatArray]:
    """Return the curves that are compared, the best strategy first."""
    accuracy = {}
    totals = {}
    for strategy in strategies:
        runs = curves.accuracy[strategy][repetitions]
        accuracy[strategy] = runs
        # All have the same number of repetitions and rounds, so sums order as means do.
        later_rounds = runs[:, 1:]
        totals[strategy] = float(later_rounds.sum())
    ranked = sorted(strategies, key=totals.__getitem__, reverse=True)
    return {strategy: accuracy[strategy] for strategy in ranked}


def _notes_on_tests(
    curves: Curves, strategies: list[str], repetitions: list[int], baseline: str
) -> Iterator[str]:
    """Say what cannot be tested or compared, and why."""

    if len(repetitions) == 1:
        yield (
            "With a single repetition there is no spread and no test, so any difference "
            "may be due to chance."
        )
    if strategies and len(curves.labelled) < 2:
        yield (
            "Only the initial round is finished. Nothing has been picked yet, so there is "
            "nothing to compare."
        )
    if strategies and baseline not in strategies:
        yield (
            f"{display_name(baseline)} was not run, so gains over {display_name(baseline)} and "
            "saved labels cannot be computed."
        )
    if not strategies:
        yield "There is no round to compare."


_GROUPS = ("setting", "dataset", "batch")
"""Columns whose values are compared apart."""


def _read_columns(columns: Any, metric: str) -> tuple[FloatArray, dict[str, FloatArray], list[str]]:
    """Return labels (T,), values (R, T) by strategy, and notes on what was left out.

    Args:
        columns: a data frame, or columns by name: see ``compare_strategies``.
        metric: the column of values.
    """
    for group in _GROUPS:
        distinct = dict.fromkeys(_read_column(columns, group, required=False))
        if len(distinct) > 1:
            listed = ", ".join(str(value) for value in distinct)
            raise InputError(
                f"There are several values of {group} ({listed}): compare one at a time."
            )

    strategy_of_row = [str(value) for value in _read_column(columns, "strategy")]
    seed_of_row = _read_column(columns, "seed")
    labels_of_row = _read_column(columns, "labels")
    value_of_row = _read_column(columns, metric)
    cells: dict[str, dict[Any, dict[float, float]]] = {}
    rows = zip(strategy_of_row, seed_of_row, labels_of_row, value_of_row, strict=True)
    for strategy, seed, labels, value in rows:
        curves_by_seed = cells.setdefault(strategy, {})
        curve = curves_by_seed.setdefault(seed, {})
        if labels in curve:
            raise InputError(
                f"There are two rows of {strategy}, seed {seed}, with {labels} labels: give one."
            )
        curve[labels] = math.nan
        if value is not None:
            curve[labels] = _require_number(value, metric)

    if not cells:
        raise InputError("There is nothing to compare: the data frame has no rows.")

    # Seeds are paired, and rounds are compared at equal numbers of labels.
    by_seed = list(cells.values())
    seeds = [seed for seed in by_seed[0] if all(seed in curves for curves in by_seed)]
    seeds.sort(key=str)  # sums do not depend on the order of the rows
    labelled: list[float] = []
    if seeds:
        shared = [set(curves[seed]) for curves in by_seed for seed in seeds]
        labelled = sorted(set.intersection(*shared))

    notes = []
    all_seeds = dict.fromkeys(seed_of_row)
    if len(seeds) < len(all_seeds):
        notes.append(
            f"Only {len(seeds)} of {len(all_seeds)} seeds are compared: those of every strategy."
        )
    all_labels = set(labels_of_row)
    if len(labelled) < len(all_labels):
        notes.append(
            f"Only {len(labelled)} of {len(all_labels)} numbers of labels are compared: those that "
            "every strategy and seed has."
        )
    values: dict[str, FloatArray] = {}
    for strategy, curves in cells.items():
        table = np.empty((len(seeds), len(labelled)))
        for row, seed in enumerate(seeds):
            table[row] = [curves[seed][labels] for labels in labelled]
        values[strategy] = table
    return np.array(labelled, dtype=np.float64), values, notes


def _read_column(columns: Any, name: str, *, required: bool = True) -> list[Any]:
    """Return the values of a column, or none if it is missing and may be."""
    try:
        values = columns[name]
    except (KeyError, TypeError, IndexError, ValueError):
        values = None
    # polars has an error of its own for a column that it does not have.
    except Exception as error:
        if type(error).__name__ != "ColumnNotFoundError":
            raise
        values = None

    if values is not None:
        listed: list[Any] = np.asarray(values).tolist()
        return listed
    if required:
        raise InputError(
            f"There is no column {name!r} in this {type(columns).__name__}: give a run, or a data "
            "frame with strategy, seed, labels and the metric."
        )
    return []


def _require_number(value: Any, metric: str) -> float:
    if isinstance(value, int | float):
        return float(value)
    raise InputError(f"The column {metric} has {value!r}: give numbers.")


def _select_finite(curves: Curves) -> tuple[list[str], list[int], list[str]]:
    """Choose the strategies and repetitions whose accuracies are all finite.

    Strategies without a complete repetition are dropped. Of the rest, the repetitions that are
    complete for every strategy remain. If no repetition is, the strategies with the most complete
    repetitions are kept. If those do not share one either, only the first of them is.

    Returns:
        The strategies, the repetitions, and notes on what was left out.
    """
    # (R,) for each strategy: whether all rounds of a repetition have an accuracy.
    complete: dict[str, BoolArray] = {}
    for name, runs in curves.accuracy.items():
        if runs.size > 0:
            is_finite = np.isfinite(runs)
            complete[name] = np.asarray(is_finite.all(axis=1))

    strategies = [name for name in complete if complete[name].any()]
    shared = _complete_in_all(complete, strategies)

    # No repetition is complete for all: prefer the strategies that lose the least.
    if strategies and not shared.any():
        counts = {name: int(complete[name].sum()) for name in strategies}
        most = max(counts.values())
        strategies = [name for name in strategies if counts[name] == most]
        shared = _complete_in_all(complete, strategies)

        if not shared.any():
            strategies = strategies[:1]
            shared = complete[strategies[0]]

    notes = []
    for name in complete:
        if name not in strategies:
            sentence = f"{name} is left out, because some of its accuracies are not numbers."
            notes.append(sentence)

    if not shared.all():
        dropped_repetitions = np.flatnonzero(~shared)
        dropped = ", ".join(f"repetition {index}" for index in dropped_repetitions)
        notes.append(f"Left out because some accuracies are not numbers: {dropped}.")

    return strategies, np.flatnonzero(shared).tolist(), notes


def _complete_in_all(complete: dict[str, BoolArray], strategies: list[str]) -> BoolArray:
    """Return, for each repetition, whether it is complete for all these strategies."""
    if not strategies:
        return np.zeros(0, dtype=bool)

    by_strategy = [complete[name] for name in strategies]
    return np.asarray(np.logical_and.reduce(by_strategy))


def _notes_on_run(run: Run) -> Iterator[str]:
    """Say what limits all results of a run: its setting, its end and its failures."""
    if run.setting.quick:
        yield (
            "This is a quick setting for trying things out. Its numbers cannot be compared with "
            "the paper's."
        )
    elif run.setting.paper is None:
        yield "The paper has no numbers for this setting."

    if not run.finished:
        yield "The run is not finished, so the results may change."
    if run.is_shortened:
        yield f"The run ends at round {run.last_round} of {run.setting.rounds}, as requested."

    if run.failures:
        failed = [f"{strategy}, repetition {repetition}" for strategy, repetition in run.failures]
        listed = "; ".join(failed[:_FAILURES_NAMED])
        unnamed = len(failed) - _FAILURES_NAMED
        if unnamed > 0:
            listed += f" and {unnamed} more"
        yield f"Failed before the end: {listed}."


def _notes_on_gaps(run: Run, curves: Curves) -> Iterator[str]:
    """Say which strategies, rounds and repetitions are missing from the curves."""
    missing = [name for name in run.strategies if name not in curves.accuracy]
    if missing:
        yield f"Strategies without a finished round: {', '.join(missing)}."

    if len(curves.labelled) > 0:
        last_compared = float(curves.labelled[-1])

        finished = [entry.labelled for entry in run.rounds]
        last_finished = max(finished, default=0)
        if last_finished > last_compared:
            yield (
                f"Some strategies have reached {last_finished:,} labels. Only the rounds that "
                f"all strategies have finished are compared, up to {last_compared:,.0f} labels."
            )

        final = _final_labels(run)
        if run.setting.paper and last_compared < final:
            yield (
                f"The paper's runs go to {final:,} labels and its gains are means over all rounds. "
                f"Our runs end at {last_compared:,.0f} labels, so our gains and the paper's are "
                f"not quite comparable."
            )

    # Curves have the same repetitions for every strategy: those that all have started.
    any_curves = next(iter(curves.accuracy.values()), ())
    compared = len(any_curves)
    if compared < run.repetitions:
        yield (
            f"Only {compared} of {run.repetitions} repetitions are compared: those that every "
            f"strategy has started."
        )


def _final_labels(run: Run) -> int:
    """Return the number of labels in the last round of a run's setting."""
    setting = run.setting
    return setting.initial + setting.query * setting.rounds


def display_name(strategy: str) -> str:
    """Return the name of a strategy as it stands in a sentence."""
    return {HIGHLIGHTED: "LDM-S", BASELINE: "Random"}.get(strategy, strategy)


def run_findings(comparison: RunComparison) -> tuple[str, ...]:
    """Return the findings of a run, a sentence each; none if nothing can be compared."""
    if not comparison.comparable:
        return ()

    return (
        *_best_strategy(comparison),
        *_ldm_s_beside_the_best(comparison),
        *_labels_saved(comparison),
        *_comparison_with_paper(comparison),
    )


def _best_strategy(comparison: RunComparison) -> Iterator[str]:
    """Name the most accurate strategy, or all that tie for it, and its gain over Random."""
    # Strategies are sorted: the first is the most accurate.
    best = next(iter(comparison.accuracy))
    best_accuracy = comparison.mean_accuracy(best)
    count = len(comparison.accuracy)

    if count == 1:
        yield (
            f"On {comparison.name}, only {display_name(best)} was run. Its mean accuracy over "
            f"the rounds is {best_accuracy:.1f} %."
        )
        return

    tied = []
    for name in comparison.accuracy:
        difference = comparison.mean_accuracy(name) - best_accuracy
        if abs(difference) < NEGLIGIBLE:
            tied.append(display_name(name))

    if len(tied) > 1:
        *first_names, last_name = tied
        names = f"{', '.join(first_names)} and {last_name}"
        yield (
            f"On {comparison.name}, {names} tied as the most accurate of {count} strategies, with "
            f"a mean accuracy of {best_accuracy:.1f} % over the rounds."
        )
        return

    sentence = (
        f"On {comparison.name}, {display_name(best)} was the most accurate of {count} "
        f"strategies, with a mean accuracy of {best_accuracy:.1f} % over the rounds"
    )

    # Random itself has no gain over Random, and neither has anything if Random was not run.
    gain = comparison.gains.get(best)
    if gain is not None:
        test = _spread_and_test(gain, comparison)
        sentence += f", {_signed_points(gain)} relative to Random{test}"
    yield sentence + "."


def _ldm_s_beside_the_best(comparison: RunComparison) -> Iterator[str]:
    """Compare LDM-S with the best other strategy."""
    if HIGHLIGHTED not in comparison.accuracy or len(comparison.accuracy) == 1:
        return

    # The runner-up if LDM-S is the best, else the best itself.
    best, second, *_ = comparison.accuracy
    rival = best
    if best == HIGHLIGHTED:
        rival = second

    difference = comparison.gains_over_ldm_s[rival]
    distance = abs(difference.mean)
    if distance < NEGLIGIBLE:
        return

    verdict = _verdict(difference, comparison)
    points = f"{distance:.2f} points behind{verdict}"

    if best == HIGHLIGHTED:
        # If Random is the only other strategy, the first sentence has said it all.
        if rival != BASELINE or len(comparison.accuracy) > 2:
            yield f"Next comes {display_name(rival)}, {points}."
        return

    sentence = f"LDM-S is {points}"
    gain = comparison.gains.get(HIGHLIGHTED)
    if gain is not None and best != BASELINE:
        test = _spread_and_test(gain, comparison)
        sentence += f"; its gain over Random is {_signed_points(gain)}{test}"
    yield sentence + "."


def _labels_saved(comparison: RunComparison) -> Iterator[str]:
    """Say how many labels LDM-S needs for Random's final accuracy."""
    saving = comparison.savings.get(HIGHLIGHTED)
    if saving is None:
        return

    target_percent = 100 * saving.target
    target = f"Random's final accuracy of {target_percent:.1f} %"
    if saving.labels is None or saving.saved is None:
        yield f"LDM-S did not reach {target}."
        return

    if saving.saved <= 0:
        yield (
            f"LDM-S saved no labels: it reached {target} with {saving.labels:,.0f} labels, Random "
            f"with {saving.baseline:,.0f}."
        )
        return

    saved_percent = 100 * saving.saved / saving.baseline
    saved_labels = f"{saving.saved:,.0f} labels saved"
    details = f"{saved_labels}, {saved_percent:.0f} %"

    # Missing for a single repetition, and if LDM-S misses the target in one of several.
    if saving.spread is not None and saving.p is not None:
        mean, deviation = saving.spread
        mean_text = format_number(mean, ",.0f")
        deviation_text = format_number(deviation, ",.0f")
        verdict = "significant" if saving.p < SIGNIFICANCE_LEVEL else "not significant"
        p = format_p_value(saving.p, in_sentence=True)
        details += f"; per repetition {mean_text} ± {deviation_text}, {verdict}, {p}"

    yield (
        f"LDM-S reached {target} with {saving.labels:,.0f} labels instead of "
        f"{saving.baseline:,.0f} ({details})."
    )


def _comparison_with_paper(comparison: RunComparison) -> Iterator[str]:
    """Set the gain of LDM-S, and the order of the strategies, beside the paper's."""
    printed = comparison.paper_deltas.get(HIGHLIGHTED)
    gain = comparison.gains.get(HIGHLIGHTED)
    if printed is None or gain is None:
        return

    printed_mean = format_number(printed.mean, "+.2f")
    our_mean = format_number(gain.mean, "+.2f")
    difference = format_number(gain.mean - printed.mean, "+.2f")
    sentence = (
        f"The paper reports {printed_mean} ± {printed.deviation:.2f} points over Random for "
        f"LDM-S; this run measured {our_mean}, a difference of {difference}."
    )

    correlation = comparison.paper_rank_correlation
    if correlation is not None:
        in_both = comparison.gains.keys() & comparison.paper_deltas.keys()
        sentence += (
            f" The gains of {len(in_both)} strategies have a rank correlation of "
            f"{format_number(correlation)} with those in the paper."
        )
    yield sentence


def cross_run_findings(
    comparisons: Sequence[RunComparison], datasets: Sequence[Mapping[str, FloatArray]]
) -> tuple[str, ...]:
    """Return the findings over several runs, a sentence each.

    Args:
        comparisons: the comparable runs.
        datasets: their accuracies (R, T), of the strategies that all of them have.
    """
    # A single run has findings of its own, and a single strategy nothing to be compared with.
    if len(datasets) < 2 or len(datasets[0]) < 2:
        return ()

    findings = [_closest_to_best(datasets)]
    if all(comparison.repetitions > 1 for comparison in comparisons):
        findings.append(_least_beaten(datasets))

    return (
        *findings,
        *_ldm_s_over_runs(comparisons),
        *_paper_over_runs(comparisons),
    )


def _closest_to_best(datasets: Sequence[Mapping[str, FloatArray]]) -> str:
    """Name the strategies with the two largest areas under their performance profiles."""
    profiles = performance_profile(datasets)
    areas = {name: profile.area() for name, profile in profiles.items()}
    ranked = sorted(areas, key=lambda name: -areas[name])
    best = ranked[0]
    second = ranked[1]

    return (
        f"Over {len(datasets)} runs, {display_name(best)} stays closest to the best accuracy: the "
        f"area under its performance profile is {areas[best]:.2f} of 10; next comes "
        f"{display_name(second)} with {areas[second]:.2f}."
    )


def _least_beaten(datasets: Sequence[Mapping[str, FloatArray]]) -> str:
    """Name the strategies with the smallest mean in the penalty matrix."""
    means = penalty_matrix(datasets).beaten

    # Strategies often tie, mostly at 0: name all of them.
    smallest = min(means.values())
    least_beaten = [name for name in means if means[name] == smallest]
    listed = ", ".join(display_name(name) for name in least_beaten)
    sentence = f"Beaten least often: {listed} (mean penalty {smallest:.2f})"

    rest = [name for name in means if name not in least_beaten]
    if rest:
        second = min(rest, key=lambda name: means[name])
        second_mean = means[second]
        sentence += f"; next comes {display_name(second)} ({second_mean:.2f})"

    return sentence + "."


def _ldm_s_over_runs(comparisons: Sequence[RunComparison]) -> Iterator[str]:
    """Count the runs in which LDM-S beats Random and saves labels."""
    with_ldm_s = [comparison for comparison in comparisons if HIGHLIGHTED in comparison.gains]
    if not with_ldm_s:
        return

    ahead = 0
    significantly_ahead = 0
    saved_percents = []

    for comparison in with_ldm_s:
        gain = comparison.gains[HIGHLIGHTED]
        if gain.mean > 0:
            ahead += 1
            # A single repetition has p = 1 and is never significant.
            if gain.significant:
                significantly_ahead += 1

        saving = comparison.savings[HIGHLIGHTED]
        if saving.saved is not None and saving.saved > 0:
            saved_percents.append(100 * saving.saved / saving.baseline)

    yield (
        f"LDM-S is more accurate than Random in {ahead} of {len(with_ldm_s)} runs, significantly "
        f"so in {significantly_ahead}."
    )

    if saved_percents:
        span = f"{min(saved_percents):.0f} %"
        if len(saved_percents) > 1:
            span += f" to {max(saved_percents):.0f} %"
        yield (
            f"In {len(saved_percents)} of {len(with_ldm_s)} runs, LDM-S reached Random's final "
            f"accuracy with fewer labels ({span} saved)."
        )


def _paper_over_runs(comparisons: Sequence[RunComparison]) -> Iterator[str]:
    """Give the range of the differences between our gains of LDM-S and the paper's."""
    differences = []
    for comparison in comparisons:
        gain = comparison.gains.get(HIGHLIGHTED)
        printed = comparison.paper_deltas.get(HIGHLIGHTED)
        if gain is not None and printed is not None:
            differences.append(gain.mean - printed.mean)

    if len(differences) > 1:
        smallest = format_number(min(differences), "+.2f")
        largest = format_number(max(differences), "+.2f")
        yield (
            f"In {len(differences)} runs of the paper's settings, the gain of LDM-S over Random "
            f"differs from the paper's by {smallest} to {largest} points."
        )


def _signed_points(gain: Gain) -> str:
    return f"{format_number(gain.mean, '+.2f')} points"


def _verdict(difference: Gain, comparison: RunComparison) -> str:
    """Return whether a difference is significant, to follow it; nothing without a test."""
    if comparison.repetitions < 2:
        return ""

    p = format_p_value(difference.p, in_sentence=True)
    if difference.significant:
        return f", a significant difference ({p})"

    return f", which is not significant ({p})"


def _spread_and_test(gain: Gain, comparison: RunComparison) -> str:
    """Return the spread and the test of a gain in brackets; nothing without a test."""
    if comparison.repetitions < 2:
        return ""

    verdict = "significant" if gain.significant else "not significant"
    p = format_p_value(gain.p, in_sentence=True)
    spread = f"± {gain.deviation:.2f} over {comparison.repetitions} repetitions"
    return f" ({spread}; {verdict}, {p})"
