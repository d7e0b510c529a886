"""The classes of a campaign, what they mean, and the vectors of these texts."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np
from sqlalchemy import bindparam, select

from teeter.base.array_types import Vectors
from teeter.base.registry import did_you_mean, require_known
from teeter.campaigns.items.item import require_valid_unicode
from teeter.campaigns.records import (
    LABEL_SEPARATOR,
    NO_LABELS,
    ClassDescription,
    join_labels,
    split_labels,
)
from teeter.campaigns.store import schema
from teeter.campaigns.store.queries import Queries
from teeter.campaigns.store.schema import (
    ANSWERS,
    CLASS_DESCRIPTIONS,
    CLASSES,
    DECISIONS,
    MODEL_REPLIES,
    SHOWN_SUGGESTIONS,
    SUGGESTIONS,
    TEXT_VECTORS,
)
from teeter.errors import InputError, UnknownNameError

_RENAMED = "class renamed"
"""The line of the history with the names of a class before and after."""

MERGED = "classes merged"
"""The line with the name of a class that became part of another, and that of the other."""

_ROW_ID = select(CLASSES.id).where(
    CLASSES.campaign_id == bindparam("campaign_id"),
    CLASSES.name == bindparam("name"),
)


def require_distinct_names(new_names: Sequence[str], names: Sequence[str] = ()) -> None:
    """Raise InputError if a new name looks like another one, or differs only in case or spaces.

    Args:
        new_names: the names of new classes.
        names: the names of existing classes. These may be alike: older campaigns have such classes.
    """
    name_of: dict[str, str] = {_fold_name(name): name for name in names}
    for name in new_names:
        alike = name_of.setdefault(_fold_name(name), name)
        if alike != name:
            raise InputError(
                f"The classes {alike!r} and {name!r} differ only in case, spaces or characters "
                "that look alike: use one name for both, or choose names that are easier to tell "
                "apart."
            )


def require_no_sets(names: Sequence[str]) -> None:
    """Raise InputError if the name of a label cannot be told from a set of several."""
    for name in names:
        if LABEL_SEPARATOR in name or name.strip() == NO_LABELS:
            raise InputError(
                f"The label {name!r} cannot be told from a set of labels, which are written "
                f"a{LABEL_SEPARATOR}b and {NO_LABELS}: choose another name."
            )


def find_alike(name: str, names: Sequence[str]) -> str | None:
    """Return the first of some names that a reader takes for this one; None if there is none."""
    folded = _fold_name(name)
    for other in names:
        if _fold_name(other) == folded:
            return other
    return None


def _fold_name(name: str) -> str:
    visible = ""
    # A full-width letter is the same letter, and a zero-width space or soft hyphen is not seen.
    for character in unicodedata.normalize("NFKC", name):
        if unicodedata.category(character) != "Cf":
            visible += character
    one_spaced = " ".join(visible.split())
    return unicodedata.normalize("NFKC", one_spaced.casefold())


class ClassQueries(Queries):
    """The classes that items can be labelled with, in the order in which they were added.

    Where items may have several labels, the sets of two or more labels and the empty one are stored
    as rows of their own when an answer first has them, so that everything that has a label has a
    row and a name for it.
    """

    def names(self) -> list[str]:
        """Return the names of the classes, in their order."""
        return list(self.row_ids())

    def row_ids(self) -> dict[str, int]:
        """Return the row ids of the classes by name, in their order."""
        own = self._own(schema.classes).where(CLASSES.members.is_(None))
        in_order = own.order_by(CLASSES.position)
        return {row.name: row.id for row in self._execute(in_order)}

    def row_id(self, name: str | None) -> int:
        """Return the row id of a class, also by a name that it had before; see ``find``."""
        row_id, _ = self.find(name)
        return row_id

    def find(self, name: str | None) -> tuple[int, str]:
        """Return the row id of a class and its name, also by a name that it had before.

        Pages, files and projects in Label Studio may still have the old name. Where items may have
        several labels, the name is that of a set: its labels in any order. The name that is
        returned has them in their own. A set that is new is stored.

        Raises:
            UnknownNameError: there is no class of that name.
            InputError: the name is not a string that a class can have, or has a label twice.
        """
        require_valid_unicode(name or "", "class")
        if self._transaction.settings.several:
            return self._find_set(str(name))
        return self._find_class(name)

    def _find_class(self, name: str | None) -> tuple[int, str]:
        row_id = self._scalar(_ROW_ID, {"campaign_id": self._campaign_id, "name": name})
        if row_id is not None:
            return int(row_id), str(name)

        current_name = self.former_names().get(str(name))
        if current_name is not None:
            return self.row_ids()[current_name], current_name
        advice = did_you_mean(str(name), self.names())
        raise UnknownNameError(f"No class is called {name!r}. {advice}")

    def _find_set(self, text: str) -> tuple[int, str]:
        labels = [self._find_class(label) for label in split_labels(text)]
        given = [name for _, name in labels]
        for name in given:
            if given.count(name) > 1:
                raise InputError(f"The label {name!r} is given twice in {text!r}: give it once.")
        if len(labels) == 1:
            return labels[0]

        names = self.names()
        positions = [position for position, name in enumerate(names) if name in given]
        name = join_labels(names[position] for position in positions)
        row_id = self._scalar(_ROW_ID, {"campaign_id": self._campaign_id, "name": name})
        if row_id is None:
            row_id = self._insert(
                schema.classes,
                position=-1,
                name=name,
                members=json.dumps(positions),
            )
        return int(row_id), name

    def former_names(self) -> dict[str, str]:
        """Return the current name of classes by each name that they, or parts of them, had."""
        names = self.names()
        current: dict[str, str] = {}

        for line in self._transaction.history.lines(_RENAMED, MERGED):
            for former, name in list(current.items()):
                if name == line["from"]:
                    current[former] = line["to"]
            current[line["from"]] = line["to"]

        # A name that was given to another class since means that class. One that was removed since
        # means none.
        return {
            former: name
            for former, name in current.items()
            if former not in names and name in names
        }

    def current_name(self, name: str) -> str:
        """Return the name that a class has now, by that or by one that it had before.

        A name that no class has or had is returned as it is.

        Raises:
            InputError: the name is not a string that a class can have.
        """
        require_valid_unicode(name, "class")
        values = {"campaign_id": self._campaign_id, "name": name}
        if self._scalar(_ROW_ID, values) is not None:
            return name
        return self.former_names().get(name, name)

    def past_names(self) -> dict[str, set[str]]:
        """Return the names that classes had before, by their current name.

        Unlike ``former_names``, these may be the names of other classes now.
        """
        past: dict[str, set[str]] = {}
        for line in self._transaction.history.lines(_RENAMED, MERGED):
            previous_name = line["from"]
            previous_names = past.pop(previous_name, set())
            names = past.setdefault(line["to"], set())
            names.update(previous_names, {previous_name})
        return past

    def rename(self, name: str, new_name: str, who: str) -> None:
        """Give a class another name. Its labels, and everything else about it, stay.

        Raises:
            UnknownNameError: there is no class of that name.
            InputError: the new name is blank, or like that of another class.
        """
        row_ids = self.row_ids()
        require_known("class", name, row_ids)

        stripped = new_name.strip()
        if not stripped or stripped in row_ids:
            raise InputError(
                f"Cannot rename {name!r} to {stripped!r}: the name must not be blank or equal to "
                f"that of an existing class ({', '.join(row_ids)})."
            )

        # A class may change its own case or spaces.
        others = [other for other in row_ids if other != name]
        require_distinct_names([stripped], others)

        self._update(
            schema.classes,
            CLASSES.id == row_ids[name],
            name=stripped,
        )
        if self._transaction.settings.several:
            require_no_sets([stripped])
            self._rename_sets()
        detail = {"from": name, "to": stripped}
        self._note(who, _RENAMED, detail)

    def _rename_sets(self) -> None:
        """Give all sets of labels the names that follow from those of their labels."""
        names = self.names()
        query = self._own(schema.classes).where(CLASSES.members.is_not(None))
        for row in self._execute(query).all():
            positions = json.loads(row.members)
            name = join_labels(names[position] for position in positions)
            self._update(schema.classes, CLASSES.id == row.id, name=name)

    def uses(self, row_id: int) -> dict[str, int]:
        """Return how many answers, decisions and suggestions name a class, now or earlier."""
        columns = {
            "answer": [ANSWERS.class_id],
            "decision": [DECISIONS.class_id],
            "suggestion": [
                SUGGESTIONS.class_id,
                SHOWN_SUGGESTIONS.class_id,
                MODEL_REPLIES.class_id,
            ],
        }
        uses = {}
        for subject, class_ids in columns.items():
            uses[subject] = 0
            for class_id in class_ids:
                uses[subject] += self._count(select(class_id).where(class_id == row_id))
        return uses

    def remove(self, name: str, into: str | None, who: str) -> None:
        """Remove a class. Everything that names it comes to name another one, if there is one.

        Its answers keep their numbers, so that each can be undone as before.

        Args:
            name: the class.
            into: the class that it becomes part of; None if nothing names it but its description.
            who: the name for the history.
        """
        row_ids = self.row_ids()
        row_id = row_ids[name]
        change = "class removed"
        detail = {"name": name}
        if into is not None:
            change = MERGED
            detail = {"from": name, "to": into}
            tables = (
                schema.answers,
                schema.decisions,
                schema.suggestions,
                schema.shown_suggestions,
                schema.model_replies,
            )
            for table in tables:
                self._update(table, table.c.class_id == row_id, class_id=row_ids[into])
            self._transaction.suggestions.count_revisions()

        self._delete(schema.class_descriptions, CLASS_DESCRIPTIONS.class_id == row_id)
        self._delete(schema.classes, CLASSES.id == row_id)
        # Models know classes by their position, so that there must be no gap.
        for position, other in enumerate(self.row_ids().values()):
            self._update(schema.classes, CLASSES.id == other, position=position)
        self._note(who, change, detail)

    def add(self, names: Sequence[str], who: str) -> None:
        """Add classes after the existing ones.

        Raises:
            InputError: a name is blank, or like that of another class.
        """
        if self._transaction.settings.several:
            require_no_sets(names)
        # Read once: a campaign may have thousands of classes.
        positions = {name: position for position, name in enumerate(self.names())}
        new_names = [name.strip() for name in names]
        require_distinct_names(new_names, list(positions))
        rows = []

        for name in new_names:
            if not name or name in positions:
                raise InputError(
                    f"Cannot add the class {name!r}: its name must not be blank or equal to "
                    f"that of an existing class ({', '.join(positions)})."
                )

            position = len(positions)
            positions[name] = position
            rows.append({"position": position, "name": name})
        self._insert_all(schema.classes, rows)
        details = [{"name": row["name"]} for row in rows]
        self._transaction.history.append(who, "class", None, *details)


class DescriptionQueries(Queries):
    """The descriptions of a campaign's classes."""

    def all(self) -> dict[str, ClassDescription]:
        """Return the descriptions by class, in the order of the classes; only of described ones."""
        query = (
            select(CLASSES.name, CLASS_DESCRIPTIONS.description, CLASS_DESCRIPTIONS.examples)
            .join(schema.class_descriptions)
            .where(CLASSES.campaign_id == self._campaign_id)
            .order_by(CLASSES.position)
        )
        descriptions = {}
        for row in self._execute(query):
            examples = tuple(json.loads(row.examples))
            descriptions[row.name] = ClassDescription(row.description, examples)
        return descriptions

    def write(self, descriptions: Mapping[str, ClassDescription], who: str) -> None:
        """Replace the descriptions of some classes. An empty one removes what was there.

        Raises:
            UnknownNameError: there is no such class.
        """
        # All names are looked up first: an unknown one must not leave half of them written.
        found = {name: self._transaction.classes.find(name) for name in descriptions}
        before = self.all()

        for name, description in descriptions.items():
            row_id, current_name = found[name]
            if before.get(current_name, ClassDescription()) == description:
                continue

            of_class = CLASS_DESCRIPTIONS.class_id == row_id
            self._delete(schema.class_descriptions, of_class)

            if description.description or description.examples:
                self._insert(
                    schema.class_descriptions,
                    class_id=row_id,
                    description=description.description,
                    examples=json.dumps(list(description.examples), ensure_ascii=False),
                )

            detail = {
                "name": name,
                "description": description.description,
                "examples": list(description.examples),
            }
            self._note(who, "described", detail)

    # Vectors of texts that are no items

    def text_vectors(self, encoding_id: int, digests: Sequence[str]) -> dict[str, Vectors]:
        """Return the stored vectors (D,) of texts by digest, as an encoding sees them."""
        of_encoding = select(schema.text_vectors).where(TEXT_VECTORS.encoding_id == encoding_id)
        rows = self._in_parts(of_encoding, TEXT_VECTORS.digest, digests)
        return {row.digest: np.frombuffer(row.vector, dtype=np.float32) for row in rows}

    def write_text_vectors(self, encoding_id: int, vectors: Mapping[str, Vectors]) -> None:
        """Replace all stored vectors of an encoding by those of texts that are in use now.

        Args:
            encoding_id: the encoding.
            vectors: (D,) by digest of the text.
        """
        self._delete(schema.text_vectors, TEXT_VECTORS.encoding_id == encoding_id)
        rows = [
            {
                "encoding_id": encoding_id,
                "digest": digest,
                "vector": np.ascontiguousarray(vector, dtype=np.float32).tobytes(),
            }
            for digest, vector in vectors.items()
        ]
        self._insert_all(schema.text_vectors, rows)
