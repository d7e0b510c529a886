"""What a campaign's history alone tells: the live answers, and which items were asked again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from teeter.campaigns.records import Answer, AnswerKind, PickArm
from teeter.campaigns.settings import RANDOM_STRATEGY

__all__ = ["replay_answers", "replay_repeats"]


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


def replay_repeats(history: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the items that were asked about again, and check that each had to be.

    An item is with one annotator at a time. It is asked again only if it was drawn to measure and
    all its answers were given with a prediction in view: to picks of a strategy, once there was a
    model. Shared items, undo and answers in bulk have other rules.
    """
    has_model = False
    holders: dict[str, str] = {}
    asked_blind: dict[tuple[str, str], bool] = {}
    answers_blind: dict[str, list[bool]] = {}
    repeats = []
    for line in history:
        who = str(line["who"])
        if line["what"] == "trained":
            has_model = True
        elif line["what"] == "asked":
            for pick in line["picks"]:
                item, arm = pick["item"], PickArm(pick["arm"])
                assert item not in holders, f"{item} is given to two annotators"
                if item in answers_blind:
                    assert arm.is_random, f"{item} is picked although it is answered"
                    assert not any(answers_blind[item]), f"{item} was answered blind before"
                    repeats.append(item)
                holders[item] = who
                asked_blind[item, who] = arm.is_random or line["strategy"] == RANDOM_STRATEGY
        elif line["what"] == "returned":
            for item in line["items"]:
                del holders[item]
        elif line["what"] == "answer" and line["kind"] != AnswerKind.SKIP:
            item = line["item"]
            is_blind = not has_model or asked_blind.get((item, who), True)
            answers_blind.setdefault(item, []).append(is_blind)
            if holders.get(item) == who:
                del holders[item]

    return repeats
