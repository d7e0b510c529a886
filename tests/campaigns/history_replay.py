"""The live answers of a campaign, computed from its history alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from teeter.campaigns.records import Answer

__all__ = ["replay_answers"]


def replay_answers(history: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Answer]:
    """Return the live answer of each annotator on each item, by item and annotator.

    The answers that the database has as live must be the same: the history tells everything.
    """
    given: dict[tuple[str, str], list[tuple[int, Answer]]] = {}
    for line in history:
        place = (str(line["item"]), str(line["who"]))
        if line["what"] == "answer":
            answer = Answer(*place, line["kind"], line["label"], line["comment"])
            given.setdefault(place, []).append((line["answer"], answer))
        elif line["what"] == "undo":
            given[place] = [entry for entry in given[place] if entry[0] != line["answer"]]

    return {place: answers[-1][1] for place, answers in given.items() if answers}
