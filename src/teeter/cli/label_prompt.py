"""Labelling in a terminal: one key a class, and every answer on disk before the next question."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from teeter.cli.output import printable, spinner
from teeter.errors import InputError

if TYPE_CHECKING:
    from teeter.campaigns.adjudication import Disagreement
    from teeter.campaigns.campaign import Campaign, Question, SuspectLabel
    from teeter.campaigns.db import UndoResult

__all__ = ["go_on", "keys_for", "look_again", "nothing_left", "settle"]

_KEYS = "123456789abcdeghijklmnopqrtvwxyz"
"""One a class; s stops, u is undo, f flags an item."""

_LONGEST = 4000
"""Characters of a text that are shown."""

_OTHERS = {" ": "skipped", "u": "undo", "?": "unsure", "f": "flag"}


def keys_for(classes: Sequence[str]) -> dict[str, str]:
    """Return the class that each key stands for."""
    if len(classes) > len(_KEYS):
        raise InputError(
            f"There are {len(classes)} classes and {len(_KEYS)} keys: label on the page, or with tell."
        )
    return dict(zip(_KEYS, classes, strict=False))


def go_on(opened: Campaign, keys: dict[str, str], n: int, who: str) -> None:
    """Ask n questions a round and train after each, until somebody stops or nothing is left."""
    typer.echo("[space] skip  [u] undo  [?] unsure  [f] flag  [s] stop", err=True)
    while _one_round(opened, keys, n, who):
        if len([count for count in opened.status().by_class.values() if count]) > 1:
            with spinner("Training"):
                trained = opened.train()
            typer.echo(
                f"Model {trained.version}, of {trained.labels} labels. {opened.status().advice[0]}"
            )


def _one_round(opened: Campaign, keys: dict[str, str], n: int, who: str) -> bool:
    """Ask and record until the round's questions are answered; return False when it is time to stop."""
    with spinner("Picking"):
        questions = opened.ask(n, who)
    if not questions:
        typer.echo(nothing_left(opened))
        return False
    answered: set[str] = set()
    while questions:
        action = _shown(
            _text(questions[0]),
            f"{len(questions)} left; {_why(opened, questions[0])}",
            keys,
            _OTHERS,
        )
        if action == "s":
            return False
        if action == "u":
            undone = opened.undo(who)
            typer.echo(_taken_back(undone))
            back = undone is not None and undone.answer.item in answered
            questions = opened.ask(len(questions) + back, who)
        else:
            answered.add(questions[0].item)
            _record(opened, questions[0].item, action, keys, who)
            questions = questions[1:]
    return True


def look_again(opened: Campaign, keys: dict[str, str], n: int, who: str, *, again: bool) -> None:
    """Show n labels that may be wrong, one by one, to be kept or changed."""
    with spinner("Looking"):
        found = opened.suspects(n, again=again)
    if not found:
        typer.echo("No label is suspected.")
        return
    typer.echo("[=] keep  [space] later  [u] undo  [?] unsure  [f] flag  [s] stop", err=True)
    answered: list[int] = []
    place = 0
    while place < len(found):
        one = found[place]
        told = f"{len(found) - place} left; labelled {one.label}, looks like {one.predicted}"
        action = _shown(_text(one), told, keys, {**_OTHERS, " ": "later", "=": f"{one.label} kept"})
        if action == "s":
            return
        if action == "u":
            typer.echo(_taken_back(opened.undo(who) if answered else None))
            place = answered.pop() if answered else place
            continue
        if action != " ":
            answered.append(place)
            if action == "=" or keys.get(action) == one.label:
                opened.confirm_label(one.item, who)
            else:
                _record(opened, one.item, action, keys, who)
        place += 1


def settle(
    opened: Campaign, waiting: Sequence[Disagreement], keys: dict[str, str], who: str
) -> int:
    """Show items on which people disagree, one by one, to be decided; return how many were."""
    if not waiting:
        typer.echo("Nothing waits for a decision.")
        return 0
    typer.echo("[space] later  [u] undo  [f] flag  [s] stop", err=True)
    decided: list[int] = []
    place = 0
    while place < len(waiting):
        one = waiting[place]
        said = ", ".join(f"{name}: {label}" for name, label in one.said.items())
        action = _shown(
            _text(one),
            f"{len(waiting) - place} left; {said}",
            keys,
            {" ": "later", "u": "undone", "f": "flag"},
        )
        if action == "s":
            break
        if action == "u":
            if decided:
                opened.undo_decision(who)
                place = decided.pop()
            continue
        if action != " ":
            opened.decide(one.item, keys.get(action), who)
            decided.append(place)
        place += 1
    return len(decided)


def nothing_left(opened: Campaign) -> str:
    """Return a sentence on why there is nothing to ask about."""
    found = opened.status()
    others = {
        "skipped": found.skipped,
        "unsure": found.unsure,
        "flagged": found.flagged,
        "open": found.open,
    }
    said = "".join(f", {count} {name}" for name, count in others.items() if count)
    return f"Nothing is left to label: {found.labelled} of {found.items} items are labelled{said}."


def _taken_back(undone: UndoResult | None) -> str:
    if undone is None:
        return "nothing to take back"
    return f"taken back: {printable(undone.answer.item[:100])}, {undone.answer.label or undone.answer.kind}"


def _record(opened: Campaign, item: str, action: str, keys: dict[str, str], who: str) -> None:
    if action in keys:
        opened.tell(item, keys[action], who)
    else:
        {" ": opened.skip, "?": opened.mark_unsure, "f": opened.flag}[action](item, who)


def _text(one: Question | SuspectLabel | Disagreement) -> str:
    whole = one.item if one.content is None else one.content
    more = f"… ({len(whole):,} characters)" if len(whole) > _LONGEST else ""
    return printable(whole[:_LONGEST]) + more


def _shown(content: str, told: str, keys: dict[str, str], others: dict[str, str]) -> str:
    """Show a question and return the key that was pressed for it; s at the end of the input."""
    typer.echo(f"\n{content}")
    typer.echo(f"({told}) ", nl=False, err=True)
    while True:
        key = _key()
        if key in ("", "\x03", "\x04", "s"):
            typer.echo("stopped")
            return "s"
        if key in keys or key in others:
            typer.echo(keys.get(key) or others[key])
            return key


def _key() -> str:
    """Return one key from a terminal, or one character of the input that is not a line's end."""
    if sys.stdin.isatty():
        return typer.getchar()
    key = sys.stdin.read(1)
    while key in ("\n", "\r"):
        key = sys.stdin.read(1)
    return key


def _why(campaign: Campaign, question: Question) -> str:
    if question.arm != "picked":
        return "drawn at random"
    if campaign.is_shared(question.item):
        return "several people answer it"
    if "predicted" not in question.reason:
        return "to cover the pool"
    return (
        f"the model says {question.reason['predicted']}, {question.reason['probability']:.0%} sure"
    )
