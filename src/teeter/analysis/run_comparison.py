"""One run, compared: its curves without what cannot be compared, the paper's numbers, and what a reader must know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from teeter.analysis import paper_results
from teeter.analysis.plot_style import HIGHLIGHTED
from teeter.analysis.statistics import (
    Gain,
    LabelSaving,
    RankCorrelation,
    gain_over,
    rank_correlation,
    saving_over,
)

if TYPE_CHECKING:
    from teeter.experiments.results import Curves, Run

__all__ = ["BASELINE", "RunComparison", "compare_runs"]

Array = npt.NDArray[np.floating[Any]]

BASELINE = "random"


@dataclass(frozen=True)
class RunComparison:
    """What a run says about its strategies; the most accurate over the rounds comes first."""

    run: Run
    name: str
    """What the run is called in a report."""
    labelled: Array
    """(T,)"""
    accuracy: dict[str, Array]
    """By strategy, (R, T)."""
    minutes: dict[str, dict[str, Array]]
    """By strategy and kind of work, (R,): of a whole repetition."""
    memory: dict[str, float]
    """By strategy: the largest peak, in bytes."""
    notes: tuple[str, ...]
    """Sentences on what is missing, or not as it should be."""

    @property
    def repetitions(self) -> int:
        """How many repetitions are compared."""
        return len(next(iter(self.accuracy.values()))) if self.accuracy else 0

    @property
    def comparable(self) -> bool:
        """Whether there is a round after the first, without which nothing was picked."""
        return self.repetitions > 0 and len(self.labelled) > 1

    @cached_property
    def unit(self) -> tuple[str, float]:
        """What times are shown in, and how many of it make a minute: seconds for runs of less than two minutes."""
        whole = [
            sum(float(part.mean()) for part in kinds.values()) for kinds in self.minutes.values()
        ]
        return (
            ("minutes", 1.0)
            if self.paper_minutes or max(whole, default=0) >= 2
            else ("seconds", 60.0)
        )

    def mean(self, strategy: str) -> float:
        """Return the mean accuracy in percent over repetitions and rounds but the first."""
        return 100 * float(self.accuracy[strategy][:, 1:].mean())

    @cached_property
    def gains(self) -> dict[str, Gain]:
        """Over Random, by every other strategy; empty where there is no Random."""
        return self._gains_over(BASELINE)

    @cached_property
    def losses(self) -> dict[str, Gain]:
        """What every other strategy gains over LDM-S."""
        return self._gains_over(HIGHLIGHTED)

    def _gains_over(self, other: str) -> dict[str, Gain]:
        if not self.comparable or other not in self.accuracy:
            return {}
        base = self.accuracy[other]
        return {
            name: gain_over(runs, base) for name, runs in self.accuracy.items() if name != other
        }

    @cached_property
    def savings(self) -> dict[str, LabelSaving]:
        """Labels needed to be as accurate as Random at its end, by every other strategy."""
        if not self.comparable or BASELINE not in self.accuracy:
            return {}
        base = self.accuracy[BASELINE]
        return {
            name: saving_over(self.labelled, runs, base)
            for name, runs in self.accuracy.items()
            if name != BASELINE
        }

    @cached_property
    def paper(self) -> dict[str, paper_results.PaperDelta]:
        """The paper's gains, where the run is comparable to it."""
        return paper_results.deltas(self.run.setting.paper) if self.run.setting.paper else {}

    @cached_property
    def paper_accuracy(self) -> dict[str, dict[int, float]]:
        """The paper's accuracies in percent, by number of labels."""
        return paper_results.accuracy(self.run.setting.paper) if self.run.setting.paper else {}

    @cached_property
    def paper_minutes(self) -> dict[str, float]:
        """The paper's minutes a run, where ours has as many rounds."""
        if (
            not self.run.setting.paper
            or not len(self.labelled)
            or self.labelled[-1] < _last_labels(self.run)
        ):
            return {}
        return paper_results.minutes(self.run.setting.paper)

    @cached_property
    def agreement(self) -> RankCorrelation | None:
        """How alike the paper and we order the strategies by their gains."""
        ours = {name: gain.mean for name, gain in self.gains.items()}
        return rank_correlation(ours, {name: delta.mean for name, delta in self.paper.items()})


def compare_runs(run: Run, name: str | None = None) -> RunComparison:
    """Return what a run says, however much of it there is."""
    curves = run.curves()
    keep, repetitions, left_out = _finite(curves)
    accuracy = {name: curves.accuracy[name][repetitions] for name in keep}
    order = sorted(keep, key=lambda name: -float(accuracy[name][:, 1:].sum()))
    notes = [*_notes_on_run(run), *_notes_on_gaps(run, curves), *left_out]
    if len(repetitions) == 1:
        notes.append(
            "With one repetition there is no spread and no test: any difference may be chance."
        )
    if keep and len(curves.labelled) < 2:
        notes.append(
            "Only the initial round is there: nothing was picked yet, and nothing can be compared."
        )
    if keep and BASELINE not in keep:
        notes.append(
            "Random is not among the strategies: there are no gains over it, and no labels saved."
        )
    if not keep:
        notes.append("There is no round that can be compared.")
    minutes = {
        name: {
            kind: seconds[repetitions].sum(axis=1) / 60
            for kind, seconds in curves.seconds[name].items()
        }
        for name in order
    }
    memory = {name: float(np.max(curves.peak_memory[name], initial=0)) for name in order}
    return RunComparison(
        run,
        name or run.setting.name,
        curves.labelled,
        {name: accuracy[name] for name in order},
        minutes,
        memory,
        tuple(notes),
    )


def _finite(curves: Curves) -> tuple[list[str], list[int], list[str]]:
    """Return strategies and repetitions whose accuracies are numbers, and sentences on those left out.

    A strategy without a whole repetition goes; of the others, the repetitions that all have stay.
    """
    whole = {
        name: np.isfinite(runs).all(axis=1) for name, runs in curves.accuracy.items() if runs.size
    }
    keep = [name for name in whole if whole[name].any()]
    shared = (
        np.logical_and.reduce([whole[name] for name in keep]) if keep else np.zeros(0, dtype=bool)
    )
    if keep and not shared.any():
        most = max(int(whole[name].sum()) for name in keep)
        keep = [name for name in keep if whole[name].sum() == most]
        shared = np.logical_and.reduce([whole[name] for name in keep])
        if not shared.any():
            keep, shared = keep[:1], whole[keep[0]]
    said = [
        f"{name} is left out: accuracies of its runs are not numbers."
        for name, runs in curves.accuracy.items()
        if runs.size and name not in keep
    ]
    if not shared.all():
        told = ", ".join(f"repetition {r}" for r in np.flatnonzero(~shared))
        said.append(f"Left out for accuracies that are not numbers: {told}.")
    return keep, np.flatnonzero(shared).tolist(), said


def _notes_on_run(run: Run) -> Iterator[str]:
    if run.setting.quick:
        yield "This is a quick setting, made to try things out: its numbers are not to be set beside the paper's."
    elif run.setting.paper is None:
        yield "The paper has no numbers for this setting."
    if not run.finished:
        yield "The run is not finished: what is here may change."
    if run.failures:
        told = [f"{name}, repetition {repetition}" for name, repetition in run.failures]
        more = f" and {len(told) - 4} more" if len(told) > 4 else ""
        yield f"Failed before the end: {'; '.join(told[:4])}{more}."


def _last_labels(run: Run) -> int:
    """Return how many labels there are at the end of a setting."""
    return run.setting.initial + run.setting.query * run.setting.rounds


def _notes_on_gaps(run: Run, curves: Curves) -> Iterator[str]:
    absent = [name for name in run.strategies if name not in curves.accuracy]
    if absent:
        yield f"Without a round: {', '.join(absent)}."
    last = max((one.labelled for one in run.rounds), default=0)
    if len(curves.labelled) and last > curves.labelled[-1]:
        yield (
            f"Some runs go on to {last:,} labels; compared are the rounds that all strategies have, "
            f"up to {curves.labelled[-1]:,.0f}."
        )
    end = _last_labels(run)
    if run.setting.paper and len(curves.labelled) and curves.labelled[-1] < end:
        yield (
            f"The paper's runs go on to {end:,} labels, and its gains are means over all rounds: "
            f"ours, up to {curves.labelled[-1]:,.0f}, are not quite the same thing."
        )
    shared = len(next(iter(curves.accuracy.values()), ()))
    if shared < run.repetitions:
        yield f"Of {run.repetitions} repetitions, {shared} can be compared: those of which all strategies have a part."
