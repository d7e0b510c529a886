"""How fast people answer, and how right they are: by what others say, by decisions, and on items drawn at random."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from teeter.campaigns.db import Answer
from teeter.campaigns.stopping import AccuracyEstimate, estimate_accuracy

__all__ = ["BREAK", "AnnotatorAccuracy", "AnnotatorPace", "quality", "speed"]

BREAK = 300.0
"""Seconds without an answer from which on somebody was away."""

_ENOUGH = 5
"""Waits between answers from which on a speed is told."""


@dataclass(frozen=True)
class AnnotatorPace:
    """How fast somebody answers while they are at it."""

    seconds: float
    """From one answer to the next: the median, without breaks."""
    per_hour: float
    """Answers in an hour of work."""


@dataclass(frozen=True)
class AnnotatorAccuracy:
    """How often somebody's labels are what they should be; None where nothing can be compared."""

    with_others: AccuracyEstimate | None
    """The same as most others say of the item."""
    with_decisions: AccuracyEstimate | None
    """The same as a reviewer decided."""
    at_random: AccuracyEstimate | None
    """As decided, or else as most others say, on items drawn at random: not made worse by picking what is hard."""


def speed(times: Sequence[float]) -> AnnotatorPace | None:
    """Return how fast somebody is who answered at these times (in seconds, in order); None where there are too few."""
    waits = [after - before for before, after in pairwise(times) if after - before <= BREAK]
    if len(waits) < _ENOUGH or sum(waits) <= 0:
        return None
    return AnnotatorPace(statistics.median(waits), 3600 * len(waits) / sum(waits))


def quality(
    answers: Iterable[Answer], decided: Mapping[str, str | None], drawn: Collection[str]
) -> dict[str, AnnotatorAccuracy]:
    """Return everybody's quality; ``decided`` holds what reviewers decided, ``drawn`` the items drawn at random.

    Nobody is compared with themselves: what most others say leaves out their own answer, and says nothing of a tie.
    """
    said: dict[str, dict[str, str]] = {}
    for one in answers:
        if one.kind == "label" and one.label is not None:
            said.setdefault(one.item, {})[one.annotator] = one.label
    counts: dict[str, Counter[str]] = {}
    for item, by in said.items():
        for name, label in by.items():
            count = counts.setdefault(name, Counter())
            others = _most([told for other, told in by.items() if other != name])
            truth = decided.get(item) or others
            for kind, right in (("others", others), ("decided", decided.get(item))):
                count.update(_compared(kind, label, right))
            if item in drawn:
                count.update(_compared("drawn", label, truth))
    return {
        name: AnnotatorAccuracy(
            *(
                estimate_accuracy(count[f"{kind} right"], count[kind])
                for kind in ("others", "decided", "drawn")
            )
        )
        for name, count in counts.items()
    }


def _compared(kind: str, label: str, right: str | None) -> dict[str, int]:
    return {} if right is None else {kind: 1, f"{kind} right": int(label == right)}


def _most(said: Sequence[str]) -> str | None:
    """Return what most say; None for a tie, or for nobody."""
    found = Counter(said).most_common(2)
    return None if not found or (len(found) == 2 and found[0][1] == found[1][1]) else found[0][0]
