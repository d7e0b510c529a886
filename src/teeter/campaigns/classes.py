"""The classes of a campaign: what their names and descriptions may be, their keys, their files.

The keyboard shortcuts of labelling are the same on the page and in the terminal. A class gets a
chosen key, or one of 1 to 9 and the letters that are free. The other keys have a fixed meaning, an
``Action``. With more classes than keys, classes are found by typing their names; letters with a
fixed meaning are then typed as capitals.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from teeter.base.files import parse_errors
from teeter.base.registry import did_you_mean
from teeter.base.wording import pluralize
from teeter.campaigns.items.item import require_printable, require_valid_unicode
from teeter.campaigns.records import (
    DEFAULT_ANNOTATOR,
    ClassDescription,
    ClassInfo,
    join_labels,
)
from teeter.campaigns.store import Part, Writing
from teeter.campaigns.store.queries.classes import require_distinct_names, require_no_sets
from teeter.errors import FileError, InputError, UnknownNameError

CLASS_FILE_SUFFIXES = (".txt", ".csv", ".tsv")
"""The suffixes of files that ``read_class_file`` reads."""

_NAME_COLUMNS = ("name", "class", "label")
"""What the column of the names may be called, in the order of preference."""


class Classes(Part):
    """The classes of a campaign: ``campaign.classes``."""

    def names(self) -> tuple[str, ...]:
        """Return the names, in their order."""
        with self._campaign.reading() as view:
            return tuple(view.classes.names())

    def current_names(self, names: Sequence[str]) -> list[str]:
        """Return the present name of each class; a name that no class ever had stays as it is."""
        with self._campaign.reading() as view:
            return [view.classes.current_name(name) for name in names]

    def all(self) -> list[ClassInfo]:
        """Return the classes with their shortcuts and descriptions, in their order."""
        with self._campaign.reading() as view:
            names = view.classes.names()
            descriptions = view.descriptions.all()
            shortcuts = shortcuts_by_class(names, view.settings.keys)

        classes = []
        for name, shortcut in shortcuts.items():
            description = descriptions.get(name, ClassDescription())
            classes.append(ClassInfo(name, shortcut, description.description, description.examples))
        return classes

    def descriptions(self) -> dict[str, ClassDescription]:
        """Return what the classes mean, by class; only of those that were described."""
        with self._campaign.reading() as view:
            return view.descriptions.all()

    def add(self, name: str, *, who: str = DEFAULT_ANNOTATOR) -> None:
        """Add a class. Labels stay as they are. A class that is there already stays.

        Raises:
            InputError: the name is blank, cannot be shown, or is like that of another class.
        """
        name = as_class_name(name)
        require_printable(name.strip(), "class")

        with self._campaign.writing() as change:
            if name.strip() not in change.classes.names():
                change.classes.add([name], who)

    def rename(
        self,
        name: str,
        new_name: str,
        *,
        description: ClassDescription | str | None = None,
        who: str = DEFAULT_ANNOTATOR,
    ) -> None:
        """Give a class another name. Labels, models and promises stay as they are.

        Answers with the old name still count for the class, for example from a page that was
        opened before, unless another class gets that name.

        Args:
            name: the class.
            new_name: its new name.
            description: what it means now; None to keep its description.
            who: who renames it, for the history.

        Raises:
            UnknownNameError: there is no class of that name.
            InputError: the new name is blank, cannot be shown, or is taken.
        """
        new_name = as_class_name(new_name).strip()
        require_printable(new_name, "class")
        described = {}
        if description is not None:
            described = _validate_descriptions({new_name: description})

        with self._campaign.writing() as change:
            # A request that is sent again after a lost reply finds the new name.
            is_renamed = change.classes.former_names().get(name) == new_name
            if not is_renamed:
                change.classes.rename(name, new_name, who)
                change.picks.rename_class(name, new_name)
            change.descriptions.write(described, who)

    def merge(self, name: str, into: str, *, who: str = DEFAULT_ANNOTATOR) -> None:
        """Make a class part of another one, as if both had had the other's name from the start.

        Answers, decisions, suggestions, descriptions and picks follow, and names of it still count
        for the other. The history keeps both. Models that were trained before learn the same labels
        again. A promise that was started ends: it was about the classes before. The call is
        idempotent.

        Args:
            name: the class that is no more.
            into: the class that it becomes part of.
            who: who merges them, for the history.

        Raises:
            UnknownNameError: there is no class of one of the names.
            InputError: they are the same class, or the only two, or an audit goes on.
        """
        self._campaign.judges.require_ended("The classes of an audit are those of its judges")
        with self._campaign.writing() as change:
            _require_one_label(change, "merged")
            # A request that is sent again after a lost reply finds one class.
            if change.classes.former_names().get(name) == into:
                return
            self._require_three_classes(change, name)
            _, into = change.classes.find(into)
            if name == into:
                raise InputError(f"Cannot merge {name!r} into itself: name another class.")

            described = change.descriptions.all()
            given = described.get(name, ClassDescription())
            kept = described.get(into, ClassDescription())
            description = kept.description or given.description
            # A class may have so many examples and no more.
            examples = tuple(dict.fromkeys([*kept.examples, *given.examples]))
            joined = ClassDescription(description, examples[:MAX_EXAMPLES])
            change.descriptions.write({into: joined}, who)
            self._remove(change, name, into, who)

    def remove(self, name: str, *, who: str = DEFAULT_ANNOTATOR) -> None:
        """Remove a class that nothing names. The call is idempotent.

        Raises:
            UnknownNameError: there was never a class of that name.
            InputError: something names it, or there are only two classes.
        """
        with self._campaign.writing() as change:
            _require_one_label(change, "removed")
            names = change.classes.names()
            removed = {line["name"] for line in change.history.lines("class removed")}
            if name not in names and name in removed:
                return
            self._require_three_classes(change, name)

            row_id = change.classes.row_id(name)
            uses = change.classes.uses(row_id)
            named = [pluralize(count, subject) for subject, count in uses.items() if count]
            if change.finishes.newest() is not None:
                named.append("the promise that was started")
            if named:
                raise InputError(
                    f"Cannot remove {name!r}: it is named by {' and '.join(named)}, now or "
                    "earlier. Merge it into another class instead."
                )
            self._remove(change, name, None, who)

    @staticmethod
    def _require_three_classes(change: Writing, name: str) -> None:
        names = change.classes.names()
        if name not in names:
            raise UnknownNameError(f"No class is called {name!r}. {did_you_mean(name, names)}")
        if len(names) < 3:
            raise InputError(
                f"{name!r} must stay: a campaign needs two classes, and this one has no others "
                f"than {' and '.join(names)}."
            )

    @staticmethod
    def _remove(change: Writing, name: str, into: str | None, who: str) -> None:
        """Remove a class from everything that knows classes by name or by position."""
        from teeter.campaigns.learning.saved_models import replace_class

        names = change.classes.names()
        index = names.index(name)
        other = None
        if into is not None:
            other = names.index(into)
        change.models.rewrite(lambda weights: replace_class(weights, index, other))
        change.picks.rename_class(name, into)
        if into is not None:
            change.finishes.end(who)
            change.picks.remove_outdated()

        keys = list(change.settings.keys)
        if index < len(keys):
            del keys[index]
            settings = json.loads(change.campaign().settings)
            settings["keys"] = keys
            change.write_settings(settings)
        change.classes.remove(name, into, who)

    def describe(
        self,
        descriptions: Mapping[str, ClassDescription | str],
        *,
        who: str = DEFAULT_ANNOTATOR,
    ) -> None:
        """Say what classes mean. Annotators see it, and models learn from it.

        Args:
            descriptions: a description by class, in place of what was there. A text is a
                description without examples, and an empty one removes what was there.
            who: who describes them, for the history.

        Raises:
            UnknownNameError: there is no such class. Then nothing changes.
            InputError: a description is too long.
        """
        validated = _validate_descriptions(descriptions)
        with self._campaign.writing() as change:
            change.descriptions.write(validated, who)


def _require_one_label(change: Writing, done: str) -> None:
    if change.settings.several:
        raise InputError(
            f"Labels cannot be {done} where items may have several of them: rename the label."
        )


def _validate_descriptions(
    descriptions: Mapping[str, ClassDescription | str],
) -> dict[str, ClassDescription]:
    validated = {}
    for name, given in descriptions.items():
        if isinstance(given, str):
            validated[name] = validate_description(name, given, ())
        else:
            validated[name] = validate_description(name, given.description, given.examples)
    return validated


def is_class_file(classes: str) -> bool:
    """Return whether the value of ``--classes`` names a file rather than the classes.

    A list of two or more names has a comma, which a file's name could have too.
    """
    path = Path(classes)
    has_suffix = path.suffix.lower() in CLASS_FILE_SUFFIXES
    return has_suffix and ("," not in classes or path.is_file())


def read_class_file(path: Path) -> list[str]:
    """Return the class names in a file, in their order.

    A .txt file has one name per line. So may a .csv or .tsv file. If its first line names a column
    ``name``, ``class`` or ``label``, the names are in that column. ``read_descriptions`` reads the
    other columns. Blank lines are skipped.

    Raises:
        FileError: If there is no such file, if it cannot be read, or if it has several columns and
            none of them is called ``name``.
    """
    if not path.is_file():
        raise FileError(f"There is no file {path} to read the class names from.")

    with parse_errors(path, "file of class names"):
        # Spreadsheet programs write a byte order mark.
        text = path.read_text(encoding="utf-8-sig")
        names = _parse_names(text, path)

    if not names:
        raise FileError(f"{path} has no class names: write one name per line.")
    return names


def _parse_names(text: str, path: Path) -> list[str]:
    if path.suffix.lower() not in (".csv", ".tsv"):
        return [line.strip() for line in text.splitlines() if line.strip()]

    rows = _parse_rows(text, path)
    if not rows:
        return []

    header = [cell.strip().lower() for cell in rows[0]]
    position = name_column(header)
    if position is not None:
        long_rows = [row for row in rows[1:] if len(row) > position]
        cells = [row[position].strip() for row in long_rows]
        return [cell for cell in cells if cell]

    if max(len(row) for row in rows) > 1:
        raise FileError(
            f"{path} has the columns {', '.join(rows[0])}: rename the column of class names to "
            "'name'."
        )
    return [row[0].strip() for row in rows]


def _parse_rows(text: str, path: Path) -> list[list[str]]:
    """Return the rows of a CSV or TSV file that are not empty."""
    delimiter = ","
    if path.suffix.lower() == ".tsv":
        delimiter = "\t"
    # Not split into lines first: a description in quotes may have several.
    lines = io.StringIO(text, newline="")
    rows = csv.reader(lines, delimiter=delimiter)
    return [row for row in rows if any(row)]


def name_column(header: Sequence[str]) -> int | None:
    """Return the position of the column of class names, or None if it is missing.

    Args:
        header: the names of the columns in lower case.
    """
    for column_name in _NAME_COLUMNS:
        if column_name in header:
            return header.index(column_name)
    return None


MAX_DESCRIPTION = 4_000
"""Characters of a description. It stands beside a button, and in every prompt."""

MAX_EXAMPLES = 20
"""Examples of a class."""

_EXPECTED_FORM = (
    'write TOML with lines such as spam = "Unwanted advertising.", or a CSV file with the columns '
    "name, description and example"
)

_GENERIC_WORDS = frozenset(
    (
        *("category", "cat", "class", "cls", "cluster", "code", "group", "id", "item", "kind"),
        *("label", "lbl", "level", "number", "option", "tag", "target", "topic", "type"),
        *("other", "unknown", "misc", "none", "na", "nan", "null", "true", "false", "yes", "no"),
    )
)
"""Words that say that something is a class, or answer a question that only annotators know."""

_WORD = re.compile(r"[^\W\d_]+", re.UNICODE)

_WORD_BORDER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""Where a new word begins inside ``cardArrival`` or ``PINChange``."""


def readable_name(name: str) -> str:
    """Return a class name as words, the way a text would say it.

    Example:
        >>> readable_name("card_arrival"), readable_name("lostOrStolenCard"), readable_name("Spam")
        ('card arrival', 'lost or stolen card', 'Spam')
    """
    bordered = _WORD_BORDER.sub(" ", name)
    spaced = re.sub(r"[_\-./]+", " ", bordered)
    words = spaced.split()
    # Only a border that was inserted makes a word of a sentence begin with a capital.
    if _WORD_BORDER.search(name):
        for position, word in enumerate(words):
            is_abbreviation = word.isupper() and len(word) > 1
            if not is_abbreviation:
                words[position] = word.lower()
    return " ".join(words)


def is_meaningful(name: str) -> bool:
    """Return whether a class name says what belongs to the class.

    Numbers, single letters and words such as "class" or "yes" do not.

    Example:
        >>> names = ["0", "class_a", "Label 12", "yes", "C1", "spam"]
        >>> [name for name in names if is_meaningful(name)]
        ['spam']
    """
    for word in _WORD.findall(readable_name(name).lower()):
        # Scripts without spaces have whole names in one or two characters.
        is_letter = len(word) == 1 and word.isascii()
        if word not in _GENERIC_WORDS and not is_letter:
            return True
    return False


def class_texts(name: str, description: ClassDescription | None) -> list[str]:
    """Return the texts that stand for a class: its name, description and examples.

    A name that means nothing is left out. The list is empty if there is nothing else.

    Example:
        >>> class_texts("card_arrival", ClassDescription("A card that was ordered.", ("No card!",)))
        ['card arrival', 'A card that was ordered.', 'No card!']
        >>> class_texts("7", None)
        []
    """
    texts = []
    if is_meaningful(name):
        texts.append(readable_name(name))
    if description is not None and description.description:
        texts.append(description.description)
    if description is not None:
        texts += description.examples
    return texts


def read_descriptions(path: Path) -> dict[str, ClassDescription]:
    """Return the descriptions of classes in a file, by class name.

    A .toml file has a line ``NAME = "description"`` per class, or a table ``[NAME]`` with
    ``description`` and ``examples``. A .csv or .tsv file has a column ``name`` (or ``class`` or
    ``label``), a column ``description``, and any number of columns whose names begin with
    ``example``. Line breaks in an example become spaces.

    Raises:
        FileError: there is no such file, or it cannot be read.
        InputError: a description is too long, or is not a string.
    """
    if not path.is_file():
        raise FileError(f"There is no file {path} to read class descriptions from.")

    suffix = path.suffix.lower()
    with parse_errors(path, "file of class descriptions"):
        # Spreadsheet programs write a byte order mark.
        text = path.read_text(encoding="utf-8-sig")

    if suffix == ".toml":
        try:
            tables = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise FileError(
                f"{path} is not valid TOML: {error}. Quote names that have spaces."
            ) from None

        descriptions = {}
        for name, entry in tables.items():
            if isinstance(entry, str):
                entry = {"description": entry}
            if not isinstance(entry, Mapping):
                raise InputError(f"{name} in {path} is not a string: {_EXPECTED_FORM}.")

            unknown = sorted(set(entry) - {"description", "examples"})
            if unknown:
                raise InputError(
                    f"{name} in {path} has the entry {unknown[0]!r}: only description and "
                    f"examples are allowed."
                )
            description = entry.get("description", "")
            examples = entry.get("examples", [])
            descriptions[name] = validate_description(name, description, examples)
    elif suffix in (".csv", ".tsv"):
        descriptions = _parse_description_table(text, path)
    else:
        raise FileError(f"Cannot read descriptions from {path}: {_EXPECTED_FORM}.")

    if not descriptions:
        raise FileError(f"{path} describes no class: {_EXPECTED_FORM}.")
    return descriptions


def read_class_descriptions(path: Path) -> dict[str, ClassDescription]:
    """Return what a file of class names says beside them; nothing if it is a list of names."""
    if path.suffix.lower() == ".txt":
        return {}
    text = path.read_text(encoding="utf-8-sig")
    return _parse_description_table(text, path)


def _parse_description_table(text: str, path: Path) -> dict[str, ClassDescription]:
    """Return the descriptions in a CSV or TSV table; empty if it has no column for them.

    Args:
        text: the content of the file.
        path: the file, whose suffix tells the delimiter.

    Raises:
        InputError: a class stands in the table twice, or a description is too long.
    """
    rows = _parse_rows(text, path)
    if not rows:
        return {}

    header = [cell.strip().lower() for cell in rows[0]]
    position = name_column(header)
    example_columns = [k for k, column in enumerate(header) if column.startswith("example")]
    has_description = "description" in header
    if position is None or not (has_description or example_columns):
        return {}

    descriptions: dict[str, ClassDescription] = {}
    for row in rows[1:]:
        # Spreadsheet programs leave out empty cells at the end of a line.
        cells = [cell.strip() for cell in row]
        cells += [""] * (len(header) - len(row))
        name = cells[position]
        if not name:
            continue
        if name in descriptions:
            raise InputError(f"{path} describes {name!r} twice: describe each class once.")

        description = ""
        if has_description:
            description = cells[header.index("description")]
        examples = [cells[k] for k in example_columns if cells[k]]
        descriptions[name] = validate_description(name, description, examples)

    return descriptions


def validate_description(name: str, description: Any, examples: Any) -> ClassDescription:
    """Return a description as it is stored. Line breaks in an example become spaces.

    Raises:
        InputError: it is not a string, is too long, or has too many examples.
    """
    is_list = isinstance(examples, Sequence) and not isinstance(examples, str)
    if not isinstance(description, str) or not is_list:
        raise InputError(f"The description of {name} must be a string, and its examples a list.")

    # A form has one example per line.
    texts = [
        " ".join(example.splitlines()).strip() for example in examples if isinstance(example, str)
    ]
    if len(texts) != len(examples):
        raise InputError(f"The examples of {name} must be strings.")
    if len(texts) > MAX_EXAMPLES:
        raise InputError(f"{name} has {len(texts)} examples: give at most {MAX_EXAMPLES}.")

    for text in (description, *texts):
        require_valid_unicode(text, "description")
        if len(text) > MAX_DESCRIPTION:
            raise InputError(
                f"A description of {name} has {len(text):,} characters: shorten it to at most "
                f"{MAX_DESCRIPTION:,}."
            )

    filled = tuple(text for text in texts if text)
    return ClassDescription(description.strip(), filled)


def require_known_classes(
    descriptions: Mapping[str, ClassDescription], classes: Sequence[str]
) -> None:
    """Check that every described class exists.

    Raises:
        UnknownNameError: names the first class that does not.
    """
    for name in descriptions:
        if name not in classes:
            raise UnknownNameError(
                f"There is a description of {name!r}, which is not a class. "
                f"{did_you_mean(name, classes)}"
            )


def as_class_name(value: Any) -> str:
    """Return the name of a class as text. Classes may be given as numbers or booleans.

    Raises:
        InputError: If it is something else.

    Example:
        >>> as_class_name(3), as_class_name(True), as_class_name("spam")
        ('3', 'True', 'spam')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float | np.bool_ | np.number):
        return str(value)
    raise InputError(
        f"{value!r} cannot be the name of a class: give a string or a number, not a "
        f"{type(value).__name__}."
    )


def label_text(label: Any, *, several: bool) -> str:
    """Return the text of a label, or of a list of labels, as answers have it.

    Args:
        label: the name of a class, or a list, tuple or set of names.
        several: whether items may have several labels.

    Raises:
        InputError: it is something else, or a list where items have one label.

    Example:
        >>> label_text("spam", several=False), label_text(["angry", "payment"], several=True)
        ('spam', 'angry;payment')
    """
    if not isinstance(label, list | tuple | set | frozenset):
        return as_class_name(label)
    if not several:
        raise InputError(
            f"{label!r:.100} cannot be the name of a class: items of this campaign have one label, "
            "so give its name."
        )
    names = [as_class_name(name) for name in label]
    require_no_sets(names)
    return join_labels(names)


def validate_classes(classes: Sequence[Any]) -> list[str]:
    """Return the names of classes as they are stored: as texts, without blanks around them.

    Raises:
        InputError: If there are fewer than two, if two are the same but for case and spaces, or if
            one is blank or cannot be shown.

    Example:
        >>> validate_classes([0, 1])
        ['0', '1']
    """
    # A text is a sequence too, and each of its letters would become a class.
    if isinstance(classes, str):
        raise InputError(f"The classes are the string {classes!r}: give a list of names.")
    # A data frame would give the names of its columns.
    if hasattr(classes, "columns"):
        raise InputError(f"The classes are a {type(classes).__name__}: give a list of names.")

    names = [as_class_name(name).strip() for name in classes]
    has_blank = "" in names
    has_duplicate = len(set(names)) < len(names)
    if len(names) < 2 or has_blank or has_duplicate:
        raise InputError(f"The classes are {names}: give two or more different names.")
    require_distinct_names(names)

    for name in names:
        require_printable(name, "class")
    return names


class Action(StrEnum):
    """What a key does, apart from choosing a class."""

    SKIP = "skip"
    UNSURE = "unsure"
    FLAG = "flag"
    KEEP = "keep"
    """Confirm a label that may be wrong."""
    COPIES = "copies"
    """Give the next answer to the item's near copies, too. Only the page has it."""
    UNDO = "undo"
    HELP = "help"
    STOP = "stop"
    """Leave the prompt of the terminal. A page is closed instead."""


# By the names that browsers give to keys.
_ACTION_KEYS = {
    Action.SKIP: " ",
    Action.UNSURE: "u",
    Action.FLAG: "f",
    Action.KEEP: "=",
    Action.COPIES: "+",
    Action.UNDO: "Backspace",
    Action.HELP: "?",
    Action.STOP: "Escape",
}

_CAPTIONS = {" ": "Space", "Escape": "Esc"}

_AUTOMATIC_KEYS = "123456789abcdeghijklmnopqrstvwxyz"
"""Keys that are assigned in this order: digits and letters that mean no action."""

MAX_SHORTCUTS = len(_AUTOMATIC_KEYS)
"""With more classes than this, classes are found by typing their names."""

_KEYS_OF_THEIR_NAME = frozenset("0" + _AUTOMATIC_KEYS)
"""Keys that a class of the same name gets before others: class ``7`` gets the key 7."""


def action_keys(*, by_name: bool = False) -> dict[Action, str]:
    """Return the key of each action, by the name that browsers give it.

    Args:
        by_name: whether letters are typed to find a class, so that actions have capital letters.

    Example:
        >>> action_keys()[Action.UNSURE], action_keys(by_name=True)[Action.UNSURE]
        ('u', 'U')
    """
    if not by_name:
        return dict(_ACTION_KEYS)

    keys = {}
    for action, key in _ACTION_KEYS.items():
        keys[action] = key
        if len(key) == 1:
            keys[action] = key.upper()
    return keys


def key_caption(key: str) -> str:
    """Return what is printed on a key.

    Example:
        >>> key_caption(" "), key_caption("U"), key_caption("u")
        ('Space', 'Shift U', 'u')
    """
    if len(key) == 1 and key.isupper():
        return f"Shift {key}"
    return _CAPTIONS.get(key, key)


def shortcuts_by_class(classes: Sequence[str], chosen: Sequence[str] = ()) -> dict[str, str | None]:
    """Return the key of each class.

    Args:
        classes: The classes, in their order.
        chosen: Keys of the first classes. The rest get a key automatically: a class whose name is
            a single character gets that key if it is free, other classes the next free one.

    Returns:
        Keys by class; None for a class if no key is left.

    Raises:
        InputError: If a key is invalid, reserved, or chosen twice.

    Example:
        >>> shortcuts_by_class(["spam", "ham", "other"], ["s"])
        {'spam': 's', 'ham': '1', 'other': '2'}
    """
    if len(chosen) > len(classes):
        raise InputError(
            f"There are {len(chosen)} shortcuts for {len(classes)} classes: give at most one "
            f"shortcut per class."
        )

    keys: dict[str, str] = {}
    for name, key in zip(classes, chosen, strict=False):
        keys[name] = _parse_key(key, name, keys)

    # Digits and single letters first: no one expects the key 3 for the class 7.
    for name in classes:
        key = name.lower()
        is_free = key in _KEYS_OF_THEIR_NAME and key not in keys.values()
        # With the classes B and b, the first one gets the key.
        if name not in keys and is_free:
            keys[name] = key

    taken = set(keys.values())
    free_keys = (key for key in _AUTOMATIC_KEYS if key not in taken)
    shortcuts: dict[str, str | None] = {}
    for name in classes:
        if name in keys:
            shortcuts[name] = keys[name]
        else:
            # With more classes than keys, classes are found by typing their names.
            shortcuts[name] = next(free_keys, None)

    return shortcuts


def _parse_key(text: str, name: str, keys: Mapping[str, str]) -> str:
    """Return the key that was chosen for class ``name``, if no other class in ``keys`` has it."""
    key = text.strip().lower()
    if len(key) != 1 or not key.isprintable():
        raise InputError(f"{text!r} cannot be the shortcut for {name}: give one letter or digit.")

    for action, action_key in _ACTION_KEYS.items():
        if key == action_key:
            raise InputError(f"{key!r} cannot be the shortcut for {name}: it means {action}.")

    for other_name, other_key in keys.items():
        if other_key == key:
            raise InputError(
                f"{key!r} cannot be the shortcut for {name}: it is already the shortcut for "
                f"{other_name}."
            )

    return key
