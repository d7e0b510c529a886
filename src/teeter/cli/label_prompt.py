"""Label in a terminal: one key per class, and every answer is on disk before the next question.

``label_rounds``, ``review_suspects`` and ``resolve_disagreements`` are the three prompts. Each
shows an item, waits for a choice that means something there (``_prompt``), and stores it. Items go
to stdout. Notes that change with every item go to stderr, so that redirected output contains only
the items.

The shortcuts are those of the page (``teeter.campaigns.classes``). With more classes than keys, a
class is chosen by typing the beginning of its name. Keys are read one by one from a terminal. From
a pipe they are read as characters, which is how tests and scripts type.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from teeter.base.wording import list_some
from teeter.campaigns.classes import (
    MAX_SHORTCUTS,
    Action,
    action_keys,
    key_caption,
    shortcuts_by_class,
)
from teeter.campaigns.records import join_labels
from teeter.cli.output import (
    echo_wrapped,
    printable,
    printable_line,
    spinner,
    terminal_width,
)

if TYPE_CHECKING:
    from teeter.campaigns.campaign import Campaign
    from teeter.campaigns.records import Disagreement, Question, SuspectLabel, UndoResult


# What terminals send for keys that browsers know by name.
_KEY_NAMES = {"\x7f": "Backspace", "\x08": "Backspace", "\x1b": "Escape"}

# The end of the input, Ctrl-C and Ctrl-D end the prompt, too.
_END_KEYS = ("", "\x03", "\x04")

_ENTER_KEYS = ("\r", "\n")

# Characters of a text that are shown.
_LONGEST_TEXT = 4000

# Classes that are named if several begin with what was typed.
_NAMED_CLASSES = 8

# The actions of each prompt as the legend names them.
_LABEL_ACTIONS = {
    Action.SKIP: "skip",
    Action.UNSURE: "unsure",
    Action.FLAG: "flag",
    Action.UNDO: "undo",
}
_SUSPECT_ACTIONS = {Action.KEEP: "keep", **_LABEL_ACTIONS, Action.SKIP: "later"}
_DECISION_ACTIONS = {Action.SKIP: "later", Action.FLAG: "flag", Action.UNDO: "undo"}

# What is printed after a key, where it is not what the legend says.
_ECHOES = {"skip": "skipped", "flag": "flagged"}


@dataclass(frozen=True)
class Keyboard:
    """What keys mean in a campaign."""

    classes: tuple[str, ...]
    class_by_key: Mapping[str, str]
    """The class of each shortcut; empty if classes are chosen by name."""
    several: bool = False
    """Whether an item may have several of them: keys choose classes, and Enter confirms."""

    @property
    def by_name(self) -> bool:
        """Whether classes are chosen by typing their names."""
        return not self.class_by_key


def make_keyboard(
    classes: Sequence[str], chosen: Sequence[str] = (), *, several: bool = False
) -> Keyboard:
    """Return what keys mean with these classes.

    Args:
        classes: the classes of the campaign.
        chosen: the shortcuts of its settings.
        several: whether an item may have several of them.

    Example:
        >>> make_keyboard(["ham", "spam"], ["h"]).class_by_key
        {'h': 'ham', '1': 'spam'}
    """
    if len(classes) > MAX_SHORTCUTS:
        return Keyboard(tuple(classes), {}, several)

    shortcuts = shortcuts_by_class(classes, chosen)
    class_by_key = {key: name for name, key in shortcuts.items() if key is not None}
    return Keyboard(tuple(classes), class_by_key, several)


def print_legend(keyboard: Keyboard) -> None:
    """Print which key stands for which class, on as few lines as the terminal allows."""
    if keyboard.by_name:
        echo_wrapped(
            f"There are {len(keyboard.classes)} classes: type the beginning of a name in lower "
            f"case, then press Enter."
        )
        if keyboard.several:
            echo_wrapped("Enter alone confirms the labels that were chosen, or none.")
        return

    if keyboard.several:
        echo_wrapped("Choose all labels of an item, then press Enter; Enter alone for none.")
    width = terminal_width()
    line = ""
    for key, name in keyboard.class_by_key.items():
        entry = f"[{key}] {name}"
        longer_line = f"{line}  {entry}".lstrip()
        if line and len(longer_line) > width:
            typer.echo(line)
            line = entry
        else:
            line = longer_line

    typer.echo(line)


def _print_actions(keyboard: Keyboard, actions: Mapping[Action, str]) -> None:
    """Print the keys of the actions to stderr."""
    keys = action_keys(by_name=keyboard.by_name)
    words = {**actions, Action.HELP: "help", Action.STOP: "stop"}
    entries = []
    for action, word in words.items():
        caption = key_caption(keys[action])
        entries.append(f"[{caption}] {word}")
    typer.echo("  ".join(entries), err=True)


def label_rounds(opened: Campaign, keyboard: Keyboard, n: int, annotator: str) -> None:
    """Ask about n items per round and train after each, until the annotator stops.

    Args:
        opened: the campaign.
        keyboard: what keys mean.
        n: number of items per round.
        annotator: whose answers they are.
    """
    _print_actions(keyboard, _LABEL_ACTIONS)

    while _label_round(opened, keyboard, n, annotator):
        status = opened.status()
        labels = {consensus.label for consensus in opened.labels().values()}
        if status.unencoded or len(labels) < 2:
            continue  # A classifier needs the features of all items and two classes.

        with spinner("Training"):
            model = opened.train()
        accuracy = opened.status().advice[1]
        trained = f"Model {model.version}, trained on {model.labels:,} labels."
        echo_wrapped(f"{trained} {accuracy}")


def _label_round(opened: Campaign, keyboard: Keyboard, n: int, annotator: str) -> bool:
    """Ask about n items and record the answers.

    Args:
        opened: the campaign.
        keyboard: what keys mean.
        n: number of items.
        annotator: whose answers they are.

    Returns:
        Whether to continue with another round.
    """
    with spinner("Picking"):
        questions = opened.ask(n, annotator)
    if not questions:
        typer.echo(_explain_empty_queue(opened))
        return False

    answered: set[str] = set()
    while questions:
        question = questions[0]
        note = f"{len(questions)} left; {_explain_pick(opened, question)}"
        content = _content(opened, question.item)
        choice = _prompt(content, note, keyboard, _LABEL_ACTIONS)

        if choice is Action.STOP:
            return False
        if choice is Action.UNDO:
            undone = opened.undo(annotator)
            typer.echo(_describe_undo(undone))
            remaining = len(questions)
            if undone is not None and undone.answer.item in answered:
                remaining += 1  # It was answered in this round, so it is asked about again.
            # Asked again, because the undone item is open once more and comes first.
            questions = opened.ask(remaining, annotator)
        else:
            _record_answer(opened, question.item, choice, annotator)
            answered.add(question.item)
            questions = questions[1:]

    return True


def review_suspects(
    opened: Campaign, suspects: Sequence[SuspectLabel], keyboard: Keyboard, annotator: str
) -> None:
    """Show labels that may be wrong, to be confirmed or changed.

    Args:
        opened: the campaign.
        suspects: the labels, in the order in which they are shown.
        keyboard: what keys mean.
        annotator: whose answers they are.
    """
    if not suspects:
        typer.echo("No suspect labels.")
        return

    _print_actions(keyboard, _SUSPECT_ACTIONS)
    answered: list[int] = []  # positions that were answered, for undo
    position = 0
    while position < len(suspects):
        suspect = suspects[position]
        note = (
            f"{len(suspects) - position} left; "
            f"labelled {suspect.label}, predicted {suspect.predicted}"
        )
        content = _content(opened, suspect.item)
        echoes = {Action.KEEP: f"{suspect.label} kept"}
        choice = _prompt(content, note, keyboard, _SUSPECT_ACTIONS, echoes)

        if choice is Action.STOP:
            return
        if choice is Action.UNDO:
            # Answers from before this review are not undone here.
            if not answered:
                typer.echo(_describe_undo(None))
                continue
            typer.echo(_describe_undo(opened.undo(annotator)))
            # Back to the item whose answer was undone, which need not be the one before.
            position = answered.pop()
            continue

        is_same_label = not isinstance(choice, Action) and choice == suspect.label
        if choice is Action.KEEP or is_same_label:
            opened.confirm_label(suspect.item, annotator)
            answered.append(position)
        elif choice is not Action.SKIP:
            _record_answer(opened, suspect.item, choice, annotator)
            answered.append(position)
        position += 1


def resolve_disagreements(
    opened: Campaign,
    disagreements: Sequence[Disagreement],
    keyboard: Keyboard,
    reviewer: str,
) -> int:
    """Show items on which annotators disagree, to be decided.

    Args:
        opened: the campaign.
        disagreements: the items, in the order in which they are shown.
        keyboard: what keys mean.
        reviewer: whose decisions they are.

    Returns:
        The number of items that were decided.
    """
    if not disagreements:
        typer.echo("No disagreements to decide.")
        return 0

    _print_actions(keyboard, _DECISION_ACTIONS)
    decided: list[int] = []  # positions that were decided, for undo
    position = 0
    while position < len(disagreements):
        disagreement = disagreements[position]
        answers = [f"{name}: {label}" for name, label in disagreement.answers.items()]
        left = len(disagreements) - position
        note = f"{left} left; {', '.join(answers)}"
        content = _content(opened, disagreement.item)
        choice = _prompt(content, note, keyboard, _DECISION_ACTIONS)

        if choice is Action.STOP:
            break
        if choice is Action.UNDO:
            # Decisions from before this session are not undone here.
            if decided:
                opened.review.undo_decision(reviewer)
                position = decided.pop()
            continue

        if choice is not Action.SKIP:
            # A flagged item has no class: it does not belong in the campaign.
            label = None if isinstance(choice, Action) else choice
            opened.review.decide(disagreement.item, label, reviewer)
            decided.append(position)
        position += 1

    return len(decided)


def _explain_empty_queue(opened: Campaign) -> str:
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


def _record_answer(opened: Campaign, item: str, choice: str, annotator: str) -> None:
    """Store a choice: a class or an action."""
    if not isinstance(choice, Action):
        opened.tell(item, choice, annotator)
    elif choice is Action.SKIP:
        opened.skip(item, annotator)
    elif choice is Action.UNSURE:
        opened.mark_unsure(item, annotator)
    elif choice is Action.FLAG:
        opened.flag(item, annotator)


def _content(opened: Campaign, item: str) -> str:
    """Return what is shown of an item: its text, or its id if it has none, and its columns."""
    content = opened.items.content(item)
    if content is None:
        content = item
    shown = printable(content[:_LONGEST_TEXT])
    if len(content) > _LONGEST_TEXT:
        shown += f"… ({len(content):,} characters)"

    columns = opened.items.shown_columns([item]).get(item, {})
    for name, cell in columns.items():
        shown += f"\n{printable_line(name)}: {printable(cell)}"
    return shown


def _prompt(
    content: str,
    note: str,
    keyboard: Keyboard,
    actions: Mapping[Action, str],
    echoes: Mapping[Action, str] | None = None,
) -> str:
    """Show an item and wait for a choice that means something here.

    Args:
        content: what is shown of the item.
        note: what is shown in brackets before the key.
        keyboard: what keys mean.
        actions: the actions that are accepted, with the words of the legend. Help and stop always
            are.
        echoes: what is printed after an action, if it is something special.

    Returns:
        A class, or an ``Action``: ``Action.STOP`` also at the end of the input.
    """
    typer.echo(f"\n{content}")
    typer.echo(f"({note}) ", nl=False, err=True)

    key_by_action = action_keys(by_name=keyboard.by_name)
    action_by_key = {key: action for action, key in key_by_action.items()}
    typed = ""  # the beginning of a class name
    names: set[str] = set()  # the labels that are chosen, where there may be several

    while True:
        key = _read_key()
        if key in _END_KEYS:
            _erase(typed)
            typer.echo("stopped")
            return Action.STOP

        key = _KEY_NAMES.get(key, key)
        # Once a name has been begun, the keys of actions are letters of it.
        is_confirmation = keyboard.several and key in _ENTER_KEYS and not typed
        if typed or (keyboard.by_name and key not in action_by_key and not is_confirmation):
            typed, label = _type_name(key, typed, keyboard.classes, note)
            if label is not None and keyboard.several:
                _toggle(names, label, keyboard)
            elif label is not None:
                typer.echo(label)
                return label
            continue

        if is_confirmation:
            label = join_labels(name for name in keyboard.classes if name in names)
            typer.echo(label)
            return label

        # Caps Lock must not matter. With names, Shift tells actions from the letters of a name.
        if not keyboard.by_name:
            key = key.lower() if len(key) == 1 else key
        if key in keyboard.class_by_key and keyboard.several:
            _toggle(names, keyboard.class_by_key[key], keyboard)
            continue
        if key in keyboard.class_by_key:
            label = keyboard.class_by_key[key]
            typer.echo(label)
            return label

        action = action_by_key.get(key)
        if action is Action.HELP:
            typer.echo(err=True)
            print_legend(keyboard)
            _print_actions(keyboard, actions)
            typer.echo(f"({note}) ", nl=False, err=True)
        elif action is Action.STOP:
            typer.echo("stopped")
            return action
        elif action is not None and action in actions:
            word = actions[action]
            echo = _ECHOES.get(word, word)
            if echoes is not None:
                echo = echoes.get(action, echo)
            typer.echo(echo)
            return action


def _toggle(names: set[str], name: str, keyboard: Keyboard) -> None:
    """Choose a label, or take it back, and show those that are chosen."""
    names ^= {name}
    chosen = [other for other in keyboard.classes if other in names]
    typer.echo(f"[{', '.join(chosen)}] ", nl=False, err=True)


def _type_name(key: str, typed: str, classes: Sequence[str], note: str) -> tuple[str, str | None]:
    """Handle a key while the name of a class is typed.

    Args:
        key: the key.
        typed: what was typed before.
        classes: the classes.
        note: what is shown again after a list of classes.

    Returns:
        What is typed now, and the class if one was chosen.
    """
    if key == "Backspace":
        _erase(typed[-1:])
        return typed[:-1], None
    if key == "Escape":
        _erase(typed)
        return "", None

    if key not in _ENTER_KEYS:
        is_text = len(key) == 1 and key.isprintable()
        if not is_text:
            return typed, None
        _show_typed(key)
        return typed + key, None

    if not typed:
        return typed, None
    matches = find_classes(typed, classes)
    if len(matches) == 1:
        _erase(typed)
        return "", matches[0]

    reason = f"No class begins with {typed!r}."
    if matches:
        reason = f"Several classes match {typed!r}: {list_some(matches, _NAMED_CLASSES)}."
    typer.echo(f"\n{reason}", err=True)
    typer.echo(f"({note}) ", nl=False, err=True)
    # What was typed stays, so that it can be completed or corrected.
    _show_typed(typed)
    return typed, None


def find_classes(typed: str, classes: Sequence[str]) -> list[str]:
    """Return the classes that match the beginning of a name; case and accents do not matter.

    A class whose whole name was typed is the only match. If no name begins with the text, those
    that contain it match.

    Example:
        >>> find_classes("caf", ["Tea", "Café", "Cafeteria"])
        ['Café', 'Cafeteria']
        >>> find_classes("cafe", ["Tea", "Café", "Cafeteria"])
        ['Café']
    """
    # Two names may differ in case or accents only.
    if typed in classes:
        return [typed]

    wanted = _normalize(typed)
    names = {name: _normalize(name) for name in classes}

    exact = [name for name, normalized in names.items() if normalized == wanted]
    if exact:
        return exact
    beginning = [name for name, normalized in names.items() if normalized.startswith(wanted)]
    if beginning:
        return beginning
    return [name for name, normalized in names.items() if wanted in normalized]


def _normalize(text: str) -> str:
    decomposed = unicodedata.normalize("NFD", text)
    letters = [letter for letter in decomposed if unicodedata.category(letter) != "Mn"]
    return "".join(letters).casefold().strip()


def _show_typed(text: str) -> None:
    """Show what is typed: a terminal that is read key by key does not."""
    if sys.stdin.isatty():
        typer.echo(text, nl=False, err=True)


def _erase(text: str) -> None:
    """Erase what ``_show_typed`` has shown."""
    if sys.stdin.isatty():
        typer.echo("\b \b" * len(text), nl=False, err=True)


def _read_key() -> str:
    """Read one key from a terminal, or one character of other input."""
    if sys.stdin.isatty():
        return typer.getchar()
    return sys.stdin.read(1)


def _explain_pick(opened: Campaign, question: Question) -> str:
    """Return why an item is asked about."""
    if question.arm != "picked":
        return "drawn at random"
    if opened.settings.is_shared(question.item):
        # The prediction is not shown: annotators who saw it would agree because of it.
        return "answered by several annotators"
    if opened.settings.goal:
        return "chosen to teach the model"
    if opened.settings.is_answered_blind(question.item):
        return "drawn at random, like all items"
    if "predicted" not in question.reason:
        return "chosen to cover the pool"
    probability = question.reason["probability"]
    return f"predicted {question.reason['predicted']}, {probability:.0%}"
