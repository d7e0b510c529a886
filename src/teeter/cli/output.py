"""What commands share: options, spinners, progress bars, safe terminal text, files and errors.

An option is an ``Annotated`` alias, so that it has the same name, metavar and help everywhere.

An error of the library becomes one sentence on stderr and an exit code. The library names its
arguments (``head=``, ``engine='local'``). Here they become the options of the command that was
invoked (``--head``, ``--engine local``).
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer
from typer.core import TyperGroup

from teeter.errors import FileError, InputError, TeeterError, UnknownNameError

# The library has the same default, but importing it takes seconds.
DEFAULT_ANNOTATOR = "me"

# Each alias is used by two or more commands. Options of one command are in its file.
CampaignArgument = Annotated[
    str,
    typer.Argument(
        metavar="CAMPAIGN",
        help="Campaign file, FILE#NAME if the file holds several campaigns, or "
        "postgresql://…#NAME.",
    ),
]
DescribeOption = Annotated[
    Path | None,
    typer.Option(
        "--describe",
        metavar="FILE",
        help="TOML or CSV file that says what the classes mean, for annotators and models.",
    ),
]
AnnotatorOption = Annotated[str, typer.Option("--as", metavar="NAME", help="Annotator name.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
SeedOption = Annotated[
    int, typer.Option(metavar="NUMBER", help="Random seed; the same seed gives the same picks.")
]
TextOption = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of texts, several columns separated by commas, or a template such as "
        "'{title}: {body}'. Default: text, or a similar common name.",
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="cpu or cuda. Default: a GPU if there is one."),
]


def split_names(text: str) -> list[str]:
    """Split a comma-separated list. Blank names stay, so that the check of the names reports them.

    Example:
        >>> split_names("ham, spam")
        ['ham', 'spam']
    """
    return [name.strip() for name in text.split(",")]


def split_pair(option: str, text: str, form: str) -> tuple[str, str]:
    """Split a value such as ``epochs=20`` at its first equals sign.

    Args:
        option: the option that it was given with, for the error.
        text: the value.
        form: what it should look like, for the error.

    Raises:
        InputError: if there is no equals sign, or nothing before it.

    Example:
        >>> split_pair("--set", "epochs=20", "KEY=VALUE")
        ('epochs', '20')
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise InputError(f"{option} {text} is not {form}.")
    return key.strip(), value.strip()


def parse_option(text: str) -> Any:
    """Return the value of a strategy's option; a text with commas is a list.

    Example:
        >>> parse_option("64"), parse_option("1,2.5"), parse_option("none")
        (64, [1, 2.5], None)
    """
    values = [_parse_value(part) for part in split_names(text)]
    if len(values) == 1:
        return values[0]
    return values


def _parse_value(text: str) -> bool | float | str | None:
    """Parse a boolean, a number or none; anything else stays a string."""
    if text.lower() == "none":
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"

    # Integers first, so that 10 is a count. The strategy checks what it gets.
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


# The width of output that goes to a file, a pipe or a terminal of unknown width.
_DEFAULT_WIDTH = 80

# Rich estimates the remaining time from the steps of the last 30 seconds by default, so it could
# not estimate any if a step takes longer.
_SPEED_ESTIMATE_SECONDS = 86_400.0

# The same for tables with sentences in their cells, which would wrap too often.
_WIDE_TABLE = 140


def require_writable(path: Path, *sources: Path) -> None:
    """Check, before any work is done, that a file can be written to ``path``.

    Args:
        path: the file to write.
        *sources: files that are read, which must not be replaced.

    Raises:
        FileError: If the path is no plain file, its folder is missing, or it is one of ``sources``.
    """
    if path.exists() and not path.is_file():
        raise FileError(f"Cannot write {path}: it is not a plain file.")
    if not path.parent.is_dir():
        raise FileError(f"Cannot write {path}: there is no folder {path.parent}.")

    if not path.exists():
        return
    for source in sources:
        # Not by name: a link, or another way to write the path, leads to the same file.
        if source.exists() and path.samefile(source):
            raise FileError(f"Cannot write {path}: it is an input file. Choose another file.")


@contextmanager
def atomic_text_file(path: Path) -> Iterator[TextIO]:
    """Open a text file that replaces ``path`` only once all of it is written.

    Args:
        path: the file. If the block fails, it stays as it was.

    Yields:
        A UTF-8 stream that writes line ends as they are.

    Raises:
        FileError: If it cannot be written.
    """
    from teeter.base.files import atomic_open

    try:
        # Resolved, so that a link stays a link and the file it points to is replaced.
        with atomic_open(path.resolve()) as file:
            stream = io.TextIOWrapper(file, encoding="utf-8", newline="")
            try:
                yield stream
            finally:
                stream.detach()  # Flushes the text and leaves the file open.
    except OSError as error:
        raise FileError(f"Cannot write {path}: {error.strerror or error}.") from None


def printable(text: str) -> str:
    r"""Replace control characters, which could change the state of a terminal.

    Example:
        >>> printable("red: \x1b[31m")
        'red: �[31m'
    """
    kept_controls = {"\n", "\t"}
    replacements = {}
    for character in set(text) - kept_controls:
        if unicodedata.category(character) == "Cc":
            replacements[ord(character)] = "\N{REPLACEMENT CHARACTER}"

    return text.translate(replacements)


def printable_line(text: str, limit: int = 100) -> str:
    """Return a text on one line, cut to ``limit`` characters, that is safe to print.

    Tabs are replaced too, because commands separate columns by them.

    Example:
        >>> printable_line("a long text", limit=7)
        'a long…'
    """
    if len(text) > limit:
        text = text[: limit - 1] + "…"

    replacement = "\N{REPLACEMENT CHARACTER}"
    return printable(text).replace("\n", replacement).replace("\t", replacement)


def terminal_width(default: int = _DEFAULT_WIDTH) -> int:
    """Return the number of columns of the terminal, or ``default`` without a terminal."""
    return shutil.get_terminal_size(fallback=(default, 24)).columns


def echo_wrapped(text: str, *, err: bool = False) -> None:
    """Print a text, wrapped to the width of the terminal; with ``err`` to stderr."""
    # File names and addresses must stay in one piece, so that they can be copied.
    lines = textwrap.wrap(text, terminal_width(), break_long_words=False, break_on_hyphens=False)
    typer.echo("\n".join(lines), err=err)


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, has_sentences: bool = False
) -> None:
    """Print a table that fits the width of the terminal.

    Args:
        header: the titles of the columns.
        rows: the cells of each row.
        has_sentences: whether cells are long. Then a line separates the header, and the table is
            wider if there is no terminal.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    if has_sentences:
        table = Table(*header, box=SIMPLE_HEAD)
        width = terminal_width(default=_WIDE_TABLE)
    else:
        table = Table(*header, box=None, padding=(0, 2, 0, 0), pad_edge=False)
        width = terminal_width()

    for row in rows:
        table.add_row(*row)

    # No markup: names and paths may have square brackets.
    console = Console(width=width, markup=False, emoji=False, highlight=False)
    console.print(table)


def echo_json(value: Any) -> None:
    """Print dataclasses, lists and dictionaries as JSON."""
    typer.echo(json.dumps(value, default=asdict, ensure_ascii=False, indent=2))


def spinner(description: str) -> AbstractContextManager[Any]:
    """Show a spinner for the length of the block, if stderr is a terminal.

    Use it around imports that load torch, too: they take longer than most commands.
    """
    if not sys.stderr.isatty():
        return nullcontext()

    from rich.console import Console

    return Console(stderr=True).status(description)


@contextmanager
def progress(description: str, *, as_lines: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar for the length of the block, if stderr is a terminal.

    Args:
        description: what is being done.
        as_lines: print about ten lines to stderr if it is not a terminal. Use it for commands that
            take minutes: without a word, they look stuck.

    Yields:
        A function to call with the number of steps done and the number of steps in all.
    """
    if as_lines and not sys.stderr.isatty():
        typer.echo(f"{description} …", err=True)
        yield _print_tenths(description)
        return

    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
        speed_estimate_period=_SPEED_ESTIMATE_SECONDS,
    )
    with bar:
        task = bar.add_task(description, total=None)

        def update(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield update


def _print_tenths(description: str) -> Callable[[int, int], None]:
    """Return a function that prints a line for each tenth of the steps."""
    printed_tenths = 0

    def update(done: int, total: int) -> None:
        nonlocal printed_tenths
        tenths = 10 * done // max(total, 1)
        if tenths > printed_tenths:
            printed_tenths = tenths
            typer.echo(f"{description}: {done:,} of {total:,}", err=True)

    return update


# Typer's own panels draw boxes with Rich. Plain sections, as in `git --help`, also suit pipes,
# pagers and screen readers.
_OTHER_COMMANDS = "Commands"

# A short help is cut at this length, so that it is never cut: long ones are wrapped instead.
_NO_LIMIT = 10_000


class Panel(StrEnum):
    """What a command is for, in the order of the help. Pass it as ``rich_help_panel``."""

    START = "Start"
    LABEL = "Label"
    TEAM = "Team"
    SUGGESTIONS = "Suggestions"
    RESULTS = "Results"
    FILES = "Files"
    MORE = "More"


EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

# An argument as error messages mention it: `head=` before a space, punctuation or the end, or
# `engine='local'`. Paths such as `runs/seed=3/pool.npz` are not mentions.
_ARGUMENT_MENTION = re.compile(
    r"""
    (?<![\w/.=-])
    (?P<name>[a-z]\w*)=
    (?: '(?P<value>[^']*)' | (?=[\s,.;:)] | $) )
    """,
    re.VERBOSE,
)


class Commands(TyperGroup):
    """A command group that reports a user's mistake in one sentence, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run the requested command.

        Raises:
            typer.Exit: with code 2 for bad input, 130 after Ctrl-C, 1 if the reader of stdout left.
        """
        # Click forgets the arguments while it invokes the command.
        arguments = [*ctx._protected_args, *ctx.args]

        try:
            result = super().invoke(ctx)
            sys.stdout.flush()  # here, where a full disk or a closed pipe is caught
        except TeeterError as error:
            command = self
            for argument in arguments:
                subcommands = getattr(command, "commands", {})
                if argument not in subcommands:
                    break
                command = subcommands[argument]

            options = {}
            for parameter in command.params:
                if parameter.param_type_name == "option":
                    options[parameter.name] = parameter.opts[0]
            _exit_with_message(use_option_names(str(error), options))
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            _discard_output()
            raise typer.Exit(1) from None
        except OSError as error:
            _discard_output()
            path = error.filename or "the output"
            reason = error.strerror or error
            _exit_with_message(f"Cannot read or write {path}: {reason}.")

        return result

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command. Name the group that has it if it was typed without its group.

        Raises:
            UnknownNameError: the command belongs to a group.
        """
        name = args[0]
        if name in self.commands:
            return super().resolve_command(ctx, args)

        program = ctx.command_path
        for group in self.commands.values():
            if name not in getattr(group, "commands", {}):
                continue

            full_name = f"{program} {group.name} {name}"
            further = ""
            if name == "label":
                further = f" to label in the terminal, or {program} serve to label on a page"
            raise UnknownNameError(
                f"There is no command {program} {name}: run {full_name}{further}."
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands into the help, grouped by panel."""
        panels: dict[str, list[tuple[str, str]]] = {panel.value: [] for panel in Panel}
        panels[_OTHER_COMMANDS] = []

        commands = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        # A group holds many commands, so it comes before single commands. Sorting keeps their
        # order.
        commands.sort(key=lambda entry: not isinstance(entry[1], TyperGroup))
        width = max((len(name) for name, _ in commands), default=0)

        for name, command in commands:
            panel = getattr(command, "rich_help_panel", None) or _OTHER_COMMANDS
            # All names have one width, so that the columns of all sections are aligned.
            padded_name = f"{name:{width}}"
            summary = command.get_short_help_str(_NO_LIMIT)
            panels[panel].append((padded_name, summary))

        for title, rows in panels.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def use_option_names(message: str, options: Mapping[str, str]) -> str:
    """Replace arguments of the library in a message by options of the command line.

    Args:
        message: an error message.
        options: maps names of arguments to options; other arguments are left as they are.

    Example:
        >>> use_option_names("Pass id_column= or engine='local'.", {"id_column": "--id"})
        "Pass --id or engine='local'."
    """

    def replace_mention(mention: re.Match[str]) -> str:
        option = options.get(mention["name"])
        if option is None:
            return mention[0]
        if mention["value"] is None:
            return option
        return f"{option} {mention['value']}"

    return _ARGUMENT_MENTION.sub(replace_mention, message)


def _exit_with_message(message: str) -> NoReturn:
    """Print an error and leave with the exit code for bad input."""
    # Paths may contain bytes that are no valid UTF-8; stderr must not fail on them.
    printable = message.encode(errors="backslashreplace").decode()
    typer.echo(f"Error: {printable}", err=True)
    raise typer.Exit(EXIT_BAD_INPUT)


def _discard_output() -> None:
    """Redirect stdout to nowhere: Python flushes it at exit, which would fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
