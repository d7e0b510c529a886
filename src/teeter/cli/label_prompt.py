"""Label in a terminal: one key per class, and every answer is on disk before the next question.

``label_rounds``, ``review_suspects`` and ``resolve_disagreements`` are the three prompts. Each
shows an item, waits for a key that means something there (``_prompt``), and stores what it means.
Items go to stdout. Notes that change with every item go to stderr, so that a redirected output has
the items only.

Keys are read one by one from a terminal. From a pipe they are read as characters, which is how
tests and scripts type.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

import typer

from teeter.cli.output import (
    echo_wrapped,
    printable,
    printable_line,
    spinner,
    terminal_width,
)
from teeter.errors import InputError

if TYPE_CHECKING:
    from teeter.campaigns.adjudication import Disagreement
    from teeter.campaigns.campaign import Campaign, Question, SuspectLabel
    from teeter.campaigns.db import UndoResult

__all__ = [
    "explain_empty_queue",
    "label_rounds",
    "print_legend",
    "resolve_disagreements",
    "review_suspects",
    "shortcuts_for",
]

Shortcuts: TypeAlias = Mapping[str, str]
"""The class that each key stands for."""


class Key(StrEnum):
    """Keys with a fixed meaning."""

    SKIP = " "
    UNDO = "u"
    UNSURE = "?"
    FLAG = "f"
    CONFIRM = "="
    STOP = "s"


# The keys of the classes, in this order: digits and all letters without a fixed meaning.
_CLASS_KEYS = "123456789abcdeghijklmnopqrtvwxyz"

# Keys that end the prompt: the end of the input, Ctrl-C, Ctrl-D and s.
_STOP_KEYS = ("", "\x03", "\x04", Key.STOP)

# Characters of a text that are shown.
_LONGEST_TEXT = 4000

# What is printed after a key, if it does not stand for a class.
_LABEL_ECHOES = {
    Key.SKIP: "skipped",
    Key.UNDO: "undo",
    Key.UNSURE: "unsure",
    Key.FLAG: "flagged",
}
_DECISION_ECHOES = {Key.SKIP: "later", Key.UNDO: "undo", Key.FLAG: "flagged"}

_LABEL_LEGEND = "[space] skip  [u] undo  [?] unsure  [f] flag  [s] stop"
_SUSPECT_LEGEND = "[=] keep  [space] later  [u] undo  [?] unsure  [f] flag  [s] stop"
_DECISION_LEGEND = "[space] later  [u] undo  [f] flag  [s] stop"


def shortcuts_for(classes: Sequence[str]) -> Shortcuts:
    """Assign a key to each class.

    These are not the shortcuts of the page, which a campaign can choose: here letters such as u
    and f have a fixed meaning.

    Example:
        >>> shortcuts_for(["ham", "spam"])
        {'1': 'ham', '2': 'spam'}

    Raises:
        InputError: if there are more classes than keys.
    """
    if len(classes) > len(_CLASS_KEYS):
        raise InputError(
            f"The terminal has keys for {len(_CLASS_KEYS)} classes, but this campaign has "
            f"{len(classes)}: label on the web page, or with teeter campaign tell."
        )
    return dict(zip(_CLASS_KEYS, classes, strict=False))


def print_legend(shortcuts: Shortcuts) -> None:
    """Print which key stands for which class, on as few lines as the terminal allows."""
    width = terminal_width()
    line = ""
    for key, name in shortcuts.items():
        entry = f"[{key}] {name}"
        if line and len(line) + 2 + len(entry) > width:
            typer.echo(line)
            line = entry
        else:
            line = f"{line}  {entry}".lstrip()

    typer.echo(line)


def label_rounds(opened: Campaign, shortcuts: Shortcuts, n: int, annotator: str) -> None:
    """Ask about n items per round and train after each, until the annotator stops.

    Args:
        opened: the campaign.
        shortcuts: the class of each key.
        n: number of items per round.
        annotator: whose answers they are.
    """
    typer.echo(_LABEL_LEGEND, err=True)

    while _label_round(opened, shortcuts, n, annotator):
        status = opened.status()
        labelled_classes = [count for count in status.by_class.values() if count > 0]
        if status.unencoded or len(labelled_classes) < 2:
            continue  # A classifier needs the features of all items and two classes.

        with spinner("Training"):
            model = opened.train()
        advice = opened.status().advice[0]
        echo_wrapped(f"Model {model.version}, trained on {model.labels:,} labels. {advice}")


def _label_round(opened: Campaign, shortcuts: Shortcuts, n: int, annotator: str) -> bool:
    """Ask about n items and record the answers.

    Args:
        opened: the campaign.
        shortcuts: the class of each key.
        n: number of items.
        annotator: whose answers they are.

    Returns:
        Whether to continue with another round.
    """
    with spinner("Picking"):
        questions = opened.ask(n, annotator)
    if not questions:
        typer.echo(explain_empty_queue(opened))
        return False

    answered: set[str] = set()
    while questions:
        question = questions[0]
        note = f"{len(questions)} left; {_explain_pick(opened, question)}"
        key = _prompt(_content(question), note, shortcuts, _LABEL_ECHOES)

        if key == Key.STOP:
            return False
        if key == Key.UNDO:
            undone = opened.undo(annotator)
            typer.echo(_describe_undo(undone))
            remaining = len(questions)
            if undone is not None and undone.answer.item in answered:
                remaining += 1  # It was answered in this round, so it is asked about again.
            # Asked again, because the undone item is open once more and comes first.
            questions = opened.ask(remaining, annotator)
        else:
            _record_answer(opened, question.item, key, shortcuts, annotator)
            answered.add(question.item)
            questions = questions[1:]

    return True


def review_suspects(
    opened: Campaign, shortcuts: Shortcuts, n: int, annotator: str, *, again: bool
) -> None:
    """Show n labels that may be wrong, to be confirmed or changed.

    Args:
        opened: the campaign.
        shortcuts: the class of each key.
        n: number of labels.
        annotator: whose answers they are.
        again: whether to show labels that were confirmed before.
    """
    with spinner("Looking"):
        suspects = opened.suspects(n, again=again)
    if not suspects:
        typer.echo("No suspect labels.")
        return

    typer.echo(_SUSPECT_LEGEND, err=True)
    answered: list[int] = []  # positions that were answered, for undo
    position = 0
    while position < len(suspects):
        suspect = suspects[position]
        note = (
            f"{len(suspects) - position} left; "
            f"labelled {suspect.label}, predicted {suspect.predicted}"
        )
        echoes = {**_LABEL_ECHOES, Key.SKIP: "later", Key.CONFIRM: f"{suspect.label} kept"}
        key = _prompt(_content(suspect), note, shortcuts, echoes)

        if key == Key.STOP:
            return
        if key == Key.UNDO:
            # Answers from before this review are not undone here.
            if not answered:
                typer.echo(_describe_undo(None))
                continue
            typer.echo(_describe_undo(opened.undo(annotator)))
            # Back to the item whose answer was undone, which need not be the one before.
            position = answered.pop()
            continue

        if key == Key.CONFIRM or shortcuts.get(key) == suspect.label:
            opened.confirm_label(suspect.item, annotator)
            answered.append(position)
        elif key != Key.SKIP:
            _record_answer(opened, suspect.item, key, shortcuts, annotator)
            answered.append(position)
        position += 1


def resolve_disagreements(
    opened: Campaign,
    disagreements: Sequence[Disagreement],
    shortcuts: Shortcuts,
    reviewer: str,
) -> int:
    """Show items on which annotators disagree, to be decided.

    Args:
        opened: the campaign.
        disagreements: the items, in the order in which they are shown.
        shortcuts: the class of each key.
        reviewer: whose decisions they are.

    Returns:
        The number of items that were decided.
    """
    if not disagreements:
        typer.echo("No disagreements to decide.")
        return 0

    typer.echo(_DECISION_LEGEND, err=True)
    decided: list[int] = []  # positions that were decided, for undo
    position = 0
    while position < len(disagreements):
        disagreement = disagreements[position]
        answers = [f"{name}: {label}" for name, label in disagreement.answers.items()]
        note = f"{len(disagreements) - position} left; {', '.join(answers)}"
        key = _prompt(_content(disagreement), note, shortcuts, _DECISION_ECHOES)

        if key == Key.STOP:
            break
        if key == Key.UNDO:
            if decided:
                opened.undo_decision(reviewer)
                position = decided.pop()
            continue

        if key != Key.SKIP:
            # A flagged item has no class: it does not belong in the campaign.
            opened.decide(disagreement.item, shortcuts.get(key), reviewer)
            decided.append(position)
        position += 1

    return len(decided)


def explain_empty_queue(opened: Campaign) -> str:
    """Return a sentence on why no item is left to label."""
    status = opened.status()
    other_states = {
        "skipped": status.skipped,
        "unsure": status.unsure,
        "flagged": status.flagged,
        "open": status.open,
    }

    counts = [f"{status.labelled:,} of {status.items:,} items are labelled"]
    counts += [f"{count:,} {state}" for state, count in other_states.items() if count]
    return f"Nothing is left to label: {', '.join(counts)}."


def _describe_undo(undone: UndoResult | None) -> str:
    """Return what to print after an undo."""
    if undone is None:
        return "nothing to undo"
    answer = undone.answer.label or undone.answer.kind
    return f"undone: {printable_line(undone.answer.item)}, {answer}"


def _record_answer(
    opened: Campaign, item: str, key: str, shortcuts: Shortcuts, annotator: str
) -> None:
    """Store what a key means. ``_prompt`` returns no key without a meaning."""
    if key in shortcuts:
        opened.tell(item, shortcuts[key], annotator)
    elif key == Key.SKIP:
        opened.skip(item, annotator)
    elif key == Key.UNSURE:
        opened.mark_unsure(item, annotator)
    elif key == Key.FLAG:
        opened.flag(item, annotator)


def _content(entry: Question | SuspectLabel | Disagreement) -> str:
    """Return what is shown of an item: its text, or its id if it has none."""
    content = entry.item if entry.content is None else entry.content
    shown = printable(content[:_LONGEST_TEXT])
    if len(content) > _LONGEST_TEXT:
        shown += f"… ({len(content):,} characters)"
    return shown


def _prompt(content: str, note: str, shortcuts: Shortcuts, echoes: Mapping[Key, str]) -> str:
    """Show an item and wait for a key that means something here.

    Args:
        content: what is shown of the item.
        note: what is shown in brackets before the key.
        shortcuts: the class of each key.
        echoes: the other keys that are accepted, with what is printed after each.

    Returns:
        The key, or ``Key.STOP`` also at the end of the input.
    """
    typer.echo(f"\n{content}")
    typer.echo(f"({note}) ", nl=False, err=True)

    while True:
        key = _read_key()
        if key in _STOP_KEYS:
            typer.echo("stopped")
            return Key.STOP
        if key in shortcuts:
            typer.echo(shortcuts[key])
            return key
        if key in echoes:
            typer.echo(echoes[Key(key)])
            return key


def _read_key() -> str:
    """Read one key from a terminal, or one character of other input, except for line ends."""
    if sys.stdin.isatty():
        return typer.getchar()

    key = sys.stdin.read(1)
    while key in ("\n", "\r"):
        key = sys.stdin.read(1)
    return key


def _explain_pick(opened: Campaign, question: Question) -> str:
    """Return why an item is asked about."""
    if question.arm != "picked":
        return "drawn at random"
    if opened.is_shared(question.item):
        # The prediction is not shown: annotators who saw it would agree because of it.
        return "answered by several annotators"
    if "predicted" not in question.reason:
        return "chosen to cover the pool"
    return f"predicted {question.reason['predicted']}, {question.reason['probability']:.0%}"
