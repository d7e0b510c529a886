"""The text of an item: a column of a table, or a template over several of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter

from teeter.base.registry import did_you_mean
from teeter.errors import InputError, UnknownNameError

__all__ = [
    "LABEL_COLUMNS",
    "TEXT_COLUMNS",
    "TextTemplate",
    "find_label_column",
    "find_text_column",
    "parse_text_template",
]


_ESCAPES = {r"\n": "\n", r"\t": "\t"}
"""What people write in a shell for characters that are hard to type there."""


@dataclass(frozen=True)
class TextTemplate:
    """Literal texts and the columns between them."""

    parts: tuple[tuple[str, str | None], ...]
    """Each is a literal text, and the column that follows it; None after the last."""
    is_list: bool = False
    """Whether it is a list of columns, whose empty cells leave no blank lines."""

    @property
    def columns(self) -> list[str]:
        """The columns that it uses, each once."""
        names = [column for _, column in self.parts if column is not None]
        return list(dict.fromkeys(names))

    @property
    def only_column(self) -> str | None:
        """The column whose cells are the texts, if there is nothing else in them."""
        if len(self.parts) == 1 and self.parts[0][0] == "":
            return self.parts[0][1]
        return None

    def fill(self, cells: Mapping[str, str]) -> str:
        """Return the text of a row.

        Args:
            cells: The cells of the columns as texts.
        """
        if self.is_list:
            filled = [cells[name] for name in self.columns if cells[name].strip()]
            return "\n\n".join(filled)

        text = ""
        for literal, column in self.parts:
            text += literal
            if column is not None:
                text += cells[column]
        return text


def parse_text_template(text: str, columns: Sequence[str], source: Path) -> TextTemplate:
    r"""Return the template that the value of ``text`` stands for.

    Args:
        text: A column, several separated by commas, or a template.
        columns: The columns of the table.
        source: Its file, for error messages.

    Raises:
        InputError: If the template is not valid.
        UnknownNameError: If it names a column that the table does not have.

    Example:
        >>> template = parse_text_template(r"{title}\n\n{body}", ["title", "body"], Path("a.csv"))
        >>> template.fill({"title": "Broken", "body": "It came in parts."})
        'Broken\n\nIt came in parts.'
    """
    if text in columns:
        return TextTemplate((("", text),))

    if "{" in text:
        template = _parse_braces(text)
    else:
        names = [name.strip() for name in text.split(",")]
        template = TextTemplate(tuple(("", name) for name in names), is_list=len(names) > 1)

    for name in template.columns:
        if name not in columns:
            hint = did_you_mean(name, columns)
            raise UnknownNameError(f"No column of {source} is called {name!r}. {hint}")
    return template


def _parse_braces(text: str) -> TextTemplate:
    for escape, character in _ESCAPES.items():
        text = text.replace(escape, character)

    parts: list[tuple[str, str | None]] = []
    try:
        for literal, column, specification, conversion in Formatter().parse(text):
            # Formats and conversions would run code of the values, and names are looked up as they
            # are: {user.name} is the column "user.name", not an attribute.
            if specification or conversion:
                raise InputError(
                    f"The template {text!r} contains formatting: write only {{{column}}}."
                )
            if column == "":
                raise InputError(f"The template {text!r} has braces without a column in them.")
            parts.append((literal, column))
    except ValueError as error:
        raise InputError(
            f"The template {text!r} cannot be read ({error}): write {{COLUMN}} for a column, and "
            "{{ for a brace."
        ) from None

    template = TextTemplate(tuple(parts))
    if not template.columns:
        raise InputError(f"The template {text!r} names no column: write {{COLUMN}} for one.")
    return template


TEXT_COLUMNS = (
    "text",
    "sentence",
    "content",
    "message",
    "review",
    "body",
    "question",
    "query",
    "title",
)
"""Names of columns that hold the texts if no column is named, in the order of preference."""

LABEL_COLUMNS = ("label", "labels", "class", "category", "intent", "target", "tag")
"""Names of columns that usually hold labels, in the order of preference."""

_MAX_LISTED_COLUMNS = 10


def find_text_column(names: Sequence[str], path: Path) -> str:
    """Return the column with a usual name for texts, or the only column.

    Args:
        names: the columns of a table.
        path: its file, for the error message.

    Raises:
        InputError: if the column is not clear.

    Example:
        >>> find_text_column(["id", "Message"], Path("messages.csv"))
        'Message'
    """
    names_by_lower_case = {name.lower(): name for name in names}
    for name in TEXT_COLUMNS:
        if name in names_by_lower_case:
            return names_by_lower_case[name]

    if len(names) == 1:
        return names[0]

    listed = ", ".join(names[:_MAX_LISTED_COLUMNS])
    raise InputError(
        f"Which column of {path} has the texts: {listed}? Name it as the text column (text=), or "
        f"rename it to 'text'."
    )


def find_label_column(names: Sequence[str]) -> str | None:
    """Return the column with a usual name for labels, if there is one.

    Example:
        >>> find_label_column(["id", "text", "Category"])
        'Category'
    """
    names_by_lower_case = {name.lower(): name for name in names}
    for name in LABEL_COLUMNS:
        if name in names_by_lower_case:
            return names_by_lower_case[name]
    return None
